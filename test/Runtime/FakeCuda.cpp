// Promises: a library with the driver's entry points whose "GPUs" (one, or as
// many as KDAC_FAKE_GPUS says; compute 9.0) are this process: images are shared
// objects with the host entry, memory is malloc, and a function runs only while
// the context it was loaded in is current on the thread. Tests of the runtime
// and of the GPU test driver load it by path and read its counters.
// Does not: check like a GPU does, or run anything asynchronously.
#include "kdac/Runtime/CudaDriver.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <elf.h>
#include <map>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace {
using namespace kdac::cuda;
constexpr Result invalidValue = 1, invalidImage = 200, notFound = 500;
/// Shared memory of one fake block; a launch that wants more must have asked.
int dynamicShared = 48 * 1024;
constexpr int maxDevices = 8;
int contexts[maxDevices]; ///< their addresses are the primary contexts
thread_local Context current = nullptr;
thread_local std::vector<Context> pushed; ///< under the current one
std::mutex mutex;
std::map<void *, Context> owners; ///< of modules and functions
void own(void *object) {
  std::lock_guard<std::mutex> lock(mutex);
  owners[object] = current;
}
bool isCurrent(void *object) {
  std::lock_guard<std::mutex> lock(mutex);
  return current && owners[object] == current;
}
int deviceCount() {
  const char *text = std::getenv("KDAC_FAKE_GPUS");
  return text ? std::atoi(text) : 1;
}
int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * int64_t(1000000000) + t.tv_nsec;
}
/// The size of an ELF file, from its section table, which comes last.
size_t elfSize(const void *image) {
  auto *header = static_cast<const Elf64_Ehdr *>(image);
  return header->e_shoff + size_t(header->e_shentsize) * header->e_shnum;
}
} // namespace

extern "C" {
/// What a launch must not do; how often it was done.
int fakeCudaAllocations = 0, fakeCudaWaits = 0, fakeCudaLoads = 0;
Result cuInit(unsigned) { return success; }
Result cuDriverGetVersion(int *version) { return *version = 13000, success; }
Result cuGetErrorName(Result r, const char **name) {
  *name = r == notFound ? "CUDA_ERROR_NOT_FOUND" : "CUDA_ERROR_INVALID_VALUE";
  return success;
}
Result cuGetErrorString(Result, const char **text) {
  return *text = "a fake error", success;
}
Result cuDeviceGetCount(int *count) { return *count = deviceCount(), success; }
Result cuDeviceGet(int *device, int ordinal) {
  return *device = ordinal, success;
}
Result cuDeviceGetName(char *name, int length, int) {
  std::snprintf(name, static_cast<size_t>(length), "Fake GPU");
  return success;
}
Result cuDeviceGetAttribute(int *value, int attribute, int) {
  *value = attribute == 75   ? 9
           : attribute == 76 ? 0
           : attribute == 16 ? 132
           : attribute == 38 ? 1 << 20
                             : 232448;
  return success;
}
Result cuDevicePrimaryCtxRetain(Context *context, int device) {
  return *context = reinterpret_cast<Context>(&contexts[device]), success;
}
Result cuDevicePrimaryCtxRelease_v2(int) { return success; }
Result cuCtxPushCurrent_v2(Context context) {
  pushed.push_back(current);
  return current = context, success;
}
Result cuCtxPopCurrent_v2(Context *context) {
  if (pushed.empty())
    return invalidValue;
  *context = current;
  current = pushed.back();
  return pushed.pop_back(), success;
}
Result cuCtxGetCurrent(Context *context) { return *context = current, success; }
Result cuCtxGetDevice(int *device) {
  if (!current)
    return invalidValue;
  auto *place = reinterpret_cast<int *>(current);
  return *device = static_cast<int>(place - contexts), success;
}
Result cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  if (!current || !bytes)
    return invalidValue;
  ++fakeCudaAllocations;
  void *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  *address = reinterpret_cast<uint64_t>(memory);
  return memory ? success : 2;
}
Result cuMemFree_v2(uint64_t address) {
  std::free(reinterpret_cast<void *>(address));
  return success;
}
Result cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
  std::memcpy(reinterpret_cast<void *>(to), from, bytes);
  return success;
}
Result cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
  std::memcpy(to, reinterpret_cast<void *>(from), bytes);
  return success;
}
Result cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, Stream) {
  std::memcpy(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from),
              bytes);
  return success;
}
Result cuMemsetD8Async(uint64_t to, unsigned char byte, size_t bytes, Stream) {
  std::memset(reinterpret_cast<void *>(to), byte, bytes);
  return success;
}
Result cuStreamCreate(Stream *stream, unsigned) {
  return *stream = static_cast<Stream>(std::malloc(1)), success;
}
Result cuStreamDestroy_v2(Stream stream) { return std::free(stream), success; }
Result cuStreamSynchronize(Stream) { return ++fakeCudaWaits, success; }
Result cuEventCreate(Event *event, unsigned) {
  return *event = static_cast<Event>(std::calloc(1, sizeof(int64_t))), success;
}
Result cuEventDestroy_v2(Event event) { return std::free(event), success; }
Result cuEventRecord(Event event, Stream) {
  return *reinterpret_cast<int64_t *>(event) = now(), success;
}
Result cuEventQuery(Event) { return success; }
Result cuEventSynchronize(Event) { return success; }
Result cuEventElapsedTime(float *milliseconds, Event start, Event end) {
  *milliseconds = static_cast<float>(*reinterpret_cast<int64_t *>(end) -
                                     *reinterpret_cast<int64_t *>(start)) *
                  1e-6f;
  return success;
}
Result cuModuleLoadDataEx(Module *module, const void *image, unsigned, int *,
                          void **values) {
  if (!current)
    return invalidValue;
  ++fakeCudaLoads;
  if (std::memcmp(image, ELFMAG, SELFMAG) != 0) {
    std::snprintf(static_cast<char *>(values[0]), 64, "not an image");
    return invalidImage;
  }
  int fd = ::memfd_create("fake-cubin", MFD_CLOEXEC);
  if (::write(fd, image, elfSize(image)) < 0)
    return invalidImage;
  *module = static_cast<Module>(::dlopen(
      ("/proc/self/fd/" + std::to_string(fd)).c_str(), RTLD_NOW | RTLD_LOCAL));
  // The file stays open: dlopen would take the next one of its number for it.
  own(*module);
  return *module ? success : invalidImage;
}
Result cuModuleUnload(Module module) { return ::dlclose(module), success; }
Result cuModuleGetFunction(Function *function, Module module,
                           const char *name) {
  *function = static_cast<Function>(::dlsym(module, name));
  own(*function);
  return *function ? success : notFound;
}
Result cuFuncSetAttribute(Function, int, int value) {
  return dynamicShared = value, success;
}
/// Every kernel is one of clusters of four, of which 30 run at once.
Result cuFuncGetAttribute(int *value, int which, Function) {
  return *value = which == functionClusterWidth ? 4 : 0, success;
}
Result cuOccupancyMaxActiveClusters(int *count, Function,
                                    const LaunchConfig *config) {
  bool isOfFour = config->attributeCount == 1 &&
                  config->attributes[0].id == attributeClusterDimension &&
                  config->attributes[0].value[0] == 4;
  return *count = isOfFour ? 30 : 0, success;
}
Result cuLaunchKernel(Function function, unsigned gridX, unsigned gridY,
                      unsigned gridZ, unsigned, unsigned, unsigned,
                      unsigned shared, Stream, void **arguments, void **) {
  if (!isCurrent(function) || gridX == 0 || gridY != 1 || gridZ != 1 ||
      static_cast<int>(shared) > dynamicShared)
    return invalidValue;
  alignas(64) static thread_local char scratch[1 << 20];
  reinterpret_cast<void (*)(void **, int64_t, int64_t, void *)>(function)(
      arguments, 0, gridX, scratch);
  return success;
}
/// A capture of what has already run: replays do nothing.
Result cuStreamBeginCapture_v2(Stream, int) { return success; }
Result cuStreamEndCapture(Stream, void **graph) {
  return *graph = &contexts, success;
}
Result cuGraphInstantiateWithFlags(void **exec, void *graph,
                                   unsigned long long) {
  return *exec = graph, success;
}
Result cuGraphLaunch(void *, Stream) { return success; }
Result cuGraphExecDestroy(void *) { return success; }
Result cuGraphDestroy(void *) { return success; }
}
