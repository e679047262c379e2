// Promises: a library with the CUDA driver's entry points whose one GPU is the
// PTX emulator: PTX modules run, synchronously, when they are launched; memory
// lives at made-up addresses and starts as 0xff. A fault is the launch's error,
// its report the error's string, and goes to stderr too.
// Does not: take machine code (the runtime then falls back to a pack's PTX), or
// run anything asynchronously.
//
// The environment varies it: KDAC_EMU_SM (90), KDAC_EMU_SMS (132
// multiprocessors), KDAC_EMU_SEED (0: warps in turn), KDAC_EMU_LATE=1,
// KDAC_EMU_THREADS (1), KDAC_EMU_UNINITIALISED=0 and KDAC_EMU_PROXIES=0 (do not
// look), KDAC_EMU_TRACE=BLOCK:WARP,
// KDAC_EMU_VERBOSE=1 (a line for every launch), KDAC_EMU_OMIT=TEXT or N:TEXT
// (leave out all lines of PTX that contain TEXT, or the Nth, from 0: does the
// emulator notice?).
#include "Emulator.h"

#include "kdac/Runtime/CudaDriver.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <mutex>
#include <utility>
#include <vector>

namespace {
using namespace kdac::cuda;
using kdac::ptx::Launch, kdac::ptx::Memory, kdac::ptx::Options,
    kdac::ptx::Parameter, kdac::ptx::Stats;
using Code = kdac::ptx::Module;

constexpr Result invalidValue = 1, outOfMemory = 2, noBinary = 209,
                 invalidPtx = 218, notFound = 500, launchFailed = 719,
                 invalidClusterSize = 912;

struct LoadedFunction {
  const Code *module;
  std::string entry;
};
struct LoadedModule {
  std::unique_ptr<Code> code;
  std::vector<std::unique_ptr<LoadedFunction>> functions;
};

std::mutex mutex;
Memory memory;
std::string lastReport = "no report";
int contextObject;
thread_local std::vector<Context> contexts;

const char *text(const char *name) {
  const char *value = std::getenv(name);
  return value && *value ? value : nullptr;
}
int64_t number(const char *name, int64_t otherwise) {
  const char *value = text(name);
  return value ? std::strtoll(value, nullptr, 0) : otherwise;
}

int multiprocessors() {
  return std::max(1, static_cast<int>(number("KDAC_EMU_SMS", 132)));
}

Options optionsNow() {
  Options o;
  o.multiprocessors = multiprocessors();
  o.seed = static_cast<uint64_t>(number("KDAC_EMU_SEED", 0));
  o.late = number("KDAC_EMU_LATE", 0) != 0;
  o.threads = static_cast<int>(number("KDAC_EMU_THREADS", 1));
  o.initialised = number("KDAC_EMU_UNINITIALISED", 1) != 0;
  o.proxies = number("KDAC_EMU_PROXIES", 1) != 0;
  if (const char *trace = text("KDAC_EMU_TRACE"))
    std::sscanf(trace, "%ld:%d", &o.traceBlock, &o.traceWarp);
  return o;
}

/// The PTX without the lines that KDAC_EMU_OMIT names; other lines keep their
/// numbers.
std::string mutated(std::string ptx) {
  const char *spec = text("KDAC_EMU_OMIT");
  if (!spec)
    return ptx;
  char *rest = nullptr;
  int64_t which = std::strtoll(spec, &rest, 10), count = 0;
  bool all = *rest != ':';
  std::string what = all ? spec : rest + 1;
  for (size_t at = 0; (at = ptx.find(what, at)) != std::string::npos;) {
    size_t end = std::min(ptx.find('\n', at), ptx.size());
    if (all || count++ == which) {
      size_t start = ptx.rfind('\n', at) + 1;
      std::fprintf(stderr, "kdac-ptx-emulator: without %s\n",
                   ptx.substr(start, end - start).c_str());
      std::fill(ptx.begin() + long(start), ptx.begin() + long(end), ' ');
    }
    at = end;
  }
  return ptx;
}

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

uint8_t *host(uint64_t address, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  const Memory::Block *block = memory.find(address, bytes);
  return block ? block->host + (address - block->base) : nullptr;
}

/// Launches of a capture, in order; null: launches run at once.
using Recording = std::vector<std::pair<const LoadedFunction *, Launch>>;
Recording *recording = nullptr;

Result run(const LoadedFunction &f, const Launch &launch) {
  Stats stats;
  int64_t start = now();
  std::string report = f.module->launch(launch, memory, optionsNow(), &stats);
  double seconds = static_cast<double>(now() - start) * 1e-9;
  if (number("KDAC_EMU_VERBOSE", 0))
    std::fprintf(
        stderr,
        "kdac-ptx-emulator: %s: %u blocks of %u threads, %.2f M "
        "thread instructions, %.2f s, %.0f M/s\n",
        f.entry.c_str(), launch.grid[0] * launch.grid[1] * launch.grid[2],
        launch.block[0] * launch.block[1] * launch.block[2],
        static_cast<double>(stats.threadInstructions) * 1e-6, seconds,
        static_cast<double>(stats.threadInstructions) * 1e-6 / seconds);
  if (report.empty())
    return success;
  std::fprintf(stderr, "kdac-ptx-emulator: %s\n", report.c_str());
  lastReport = report;
  return launchFailed;
}
} // namespace

extern "C" {
Result cuInit(unsigned) { return success; }
Result cuDriverGetVersion(int *version) { return *version = 13000, success; }
Result cuGetErrorName(Result r, const char **name) {
  *name = r == launchFailed         ? "CUDA_ERROR_LAUNCH_FAILED"
          : r == noBinary           ? "CUDA_ERROR_NO_BINARY_FOR_GPU"
          : r == invalidPtx         ? "CUDA_ERROR_INVALID_PTX"
          : r == notFound           ? "CUDA_ERROR_NOT_FOUND"
          : r == outOfMemory        ? "CUDA_ERROR_OUT_OF_MEMORY"
          : r == invalidClusterSize ? "CUDA_ERROR_INVALID_CLUSTER_SIZE"
                                    : "CUDA_ERROR_INVALID_VALUE";
  return success;
}
Result cuGetErrorString(Result r, const char **what) {
  *what = r == launchFailed || r == invalidClusterSize ? lastReport.c_str()
          : r == noBinary ? "the emulator takes PTX only"
                          : "refused by the emulator";
  return success;
}
Result cuDeviceGetCount(int *count) { return *count = 1, success; }
Result cuDeviceGet(int *device, int ordinal) {
  return *device = ordinal, success;
}
Result cuDeviceGetName(char *name, int length, int) {
  std::snprintf(name, static_cast<size_t>(length), "kdac PTX emulator");
  return success;
}
Result cuDeviceGetAttribute(int *value, int attribute, int) {
  int sm = static_cast<int>(number("KDAC_EMU_SM", 90));
  *value = attribute == ComputeMajor               ? sm / 10
           : attribute == ComputeMinor             ? sm % 10
           : attribute == MultiprocessorCount      ? multiprocessors()
           : attribute == SharedBytesPerBlockOptin ? 232448
           : attribute == L2CacheBytes             ? 50 << 20
                                                   : 0;
  return success;
}
Result cuDevicePrimaryCtxRetain(Context *context, int) {
  return *context = reinterpret_cast<Context>(&contextObject), success;
}
Result cuDevicePrimaryCtxRelease_v2(int) { return success; }
Result cuCtxPushCurrent_v2(Context context) {
  return contexts.push_back(context), success;
}
Result cuCtxPopCurrent_v2(Context *context) {
  if (contexts.empty())
    return invalidValue;
  *context = contexts.back();
  return contexts.pop_back(), success;
}

Result cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  void *storage = bytes ? std::malloc(bytes) : nullptr;
  if (!storage)
    return bytes ? outOfMemory : invalidValue;
  std::memset(storage, 0xff, bytes);
  std::lock_guard<std::mutex> lock(mutex);
  return *address = memory.add(storage, bytes), success;
}
Result cuMemFree_v2(uint64_t address) {
  uint8_t *storage = host(address, 0);
  std::lock_guard<std::mutex> lock(mutex);
  if (!memory.remove(address))
    return invalidValue;
  return std::free(storage), success;
}
Result cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
  uint8_t *at = host(to, bytes);
  return at ? (std::memcpy(at, from, bytes), success) : invalidValue;
}
Result cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
  uint8_t *at = host(from, bytes);
  return at ? (std::memcpy(to, at, bytes), success) : invalidValue;
}
Result cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, Stream) {
  uint8_t *a = host(to, bytes), *b = host(from, bytes);
  return a && b ? (std::memmove(a, b, bytes), success) : invalidValue;
}
Result cuMemsetD8Async(uint64_t to, unsigned char byte, size_t bytes, Stream) {
  uint8_t *at = host(to, bytes);
  return at ? (std::memset(at, byte, bytes), success) : invalidValue;
}

Result cuStreamCreate(Stream *stream, unsigned) {
  return *stream = static_cast<Stream>(std::malloc(1)), success;
}
Result cuStreamDestroy_v2(Stream stream) { return std::free(stream), success; }
Result cuStreamSynchronize(Stream) { return success; }
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

Result cuModuleLoadDataEx(Module *module, const void *image, unsigned count,
                          int *options, void **values) {
  if (std::memcmp(image, ELFMAG, SELFMAG) == 0)
    return noBinary;
  auto loaded = std::make_unique<LoadedModule>();
  std::string error;
  loaded->code = Code::parse(mutated(static_cast<const char *>(image)), error);
  if (!loaded->code) {
    std::fprintf(stderr, "kdac-ptx-emulator: %s\n", error.c_str());
    for (unsigned i = 0; i < count; ++i)
      if (options[i] == 5) // CU_JIT_ERROR_LOG_BUFFER
        std::snprintf(static_cast<char *>(values[i]), 1024, "%s",
                      error.c_str());
    return invalidPtx;
  }
  return *module = reinterpret_cast<Module>(loaded.release()), success;
}
Result cuModuleUnload(Module module) {
  return delete reinterpret_cast<LoadedModule *>(module), success;
}
Result cuModuleGetFunction(Function *function, Module module,
                           const char *name) {
  auto *loaded = reinterpret_cast<LoadedModule *>(module);
  if (!loaded->code->parameters(name))
    return notFound;
  loaded->functions.emplace_back(new LoadedFunction{loaded->code.get(), name});
  *function = reinterpret_cast<Function>(loaded->functions.back().get());
  return success;
}
Result cuFuncSetAttribute(Function, int, int) { return success; }
Result cuFuncGetAttribute(int *value, int which, Function function) {
  auto *f = reinterpret_cast<LoadedFunction *>(function);
  *value = which == functionClusterWidth
               ? static_cast<int>(f->module->clusterWidth(f->entry))
               : 0;
  return success;
}
/// As if every block had a multiprocessor to itself, and all were alike.
Result cuOccupancyMaxActiveClusters(int *count, Function,
                                    const LaunchConfig *config) {
  return *count = multiprocessors() / config->attributes[0].value[0], success;
}

Result cuLaunchKernelEx(const LaunchConfig *config, Function function,
                        void **arguments, void **) {
  auto *f = reinterpret_cast<LoadedFunction *>(function);
  Launch launch;
  launch.entry = f->entry;
  std::copy(config->grid, config->grid + 3, launch.grid);
  std::copy(config->block, config->block + 3, launch.block);
  launch.dynamicShared = config->sharedBytes;
  for (unsigned i = 0; i < config->attributeCount; ++i)
    if (const LaunchAttribute &a = config->attributes[i]; a.id == 4)
      std::memcpy(launch.cluster, a.value, sizeof launch.cluster);
  if (std::string why = f->module->clusterRefusal(launch); !why.empty()) {
    std::fprintf(stderr, "kdac-ptx-emulator: %s\n", why.c_str());
    return lastReport = why, invalidClusterSize;
  }
  const std::vector<Parameter> &params = *f->module->parameters(f->entry);
  for (size_t i = 0; i < params.size(); ++i) {
    launch.params.resize(params[i].offset + params[i].bytes);
    std::memcpy(&launch.params[params[i].offset], arguments[i],
                params[i].bytes);
  }
  if (recording)
    return recording->push_back({f, std::move(launch)}), success;
  return run(*f, launch);
}
Result cuLaunchKernel(Function function, unsigned gridX, unsigned gridY,
                      unsigned gridZ, unsigned blockX, unsigned blockY,
                      unsigned blockZ, unsigned shared, Stream stream,
                      void **arguments, void **extra) {
  LaunchConfig config;
  config.grid[0] = gridX, config.grid[1] = gridY, config.grid[2] = gridZ;
  config.block[0] = blockX, config.block[1] = blockY, config.block[2] = blockZ;
  config.sharedBytes = shared;
  config.stream = stream;
  return cuLaunchKernelEx(&config, function, arguments, extra);
}

Result cuStreamBeginCapture_v2(Stream, int) {
  return recording = new Recording, success;
}
Result cuStreamEndCapture(Stream, void **graph) {
  return *graph = std::exchange(recording, nullptr), success;
}
/// The executable graph is a copy of the recorded launches.
Result cuGraphInstantiateWithFlags(void **exec, void *graph,
                                   unsigned long long) {
  return *exec = new Recording(*static_cast<Recording *>(graph)), success;
}
Result cuGraphLaunch(void *exec, Stream) {
  for (const auto &[function, launch] : *static_cast<Recording *>(exec))
    if (Result r = run(*function, launch); r != success)
      return r;
  return success;
}
Result cuGraphExecDestroy(void *exec) {
  return delete static_cast<Recording *>(exec), success;
}
Result cuGraphDestroy(void *graph) {
  return delete static_cast<Recording *>(graph), success;
}

Result cuMemGetInfo_v2(size_t *available, size_t *total) {
  return *available = *total = size_t(4) << 30, success;
}
Result cuMemHostAlloc(void **memory, size_t bytes, unsigned) {
  return (*memory = std::malloc(bytes)) ? success : outOfMemory;
}
Result cuMemFreeHost(void *memory) { return std::free(memory), success; }
Result cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes,
                            Stream) {
  return cuMemcpyHtoD_v2(to, from, bytes);
}
Result cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, Stream) {
  return cuMemcpyDtoH_v2(to, from, bytes);
}
}
