#include "kdac/Runtime/Device.h"

#include <cstdio>
#include <dlfcn.h>
#include <utility>

namespace kdac {

namespace {

/// The driver's release, as people know it: from the kernel module, or from
/// NVML, or else the CUDA version that the driver implements.
std::string driverRelease(const cuda::Driver &driver) {
  char text[96] = "";
  if (void *nvml = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    auto init = reinterpret_cast<int (*)()>(::dlsym(nvml, "nvmlInit_v2"));
    auto shutdown = reinterpret_cast<int (*)()>(::dlsym(nvml, "nvmlShutdown"));
    auto version = reinterpret_cast<int (*)(char *, unsigned)>(
        ::dlsym(nvml, "nvmlSystemGetDriverVersion"));
    if (init && version && init() == 0) {
      if (version(text, sizeof text) != 0)
        text[0] = '\0';
      if (shutdown)
        shutdown();
    }
    ::dlclose(nvml);
  }
  if (text[0])
    return text;
  int version = 0;
  driver.driverGetVersion(&version);
  return "CUDA " + std::to_string(version / 1000) + "." +
         std::to_string(version % 1000 / 10);
}

Status query(const cuda::Driver &driver, cuda::DeviceId id, DeviceInfo &info) {
  char name[256] = "";
  if (Status s = driver.check(driver.deviceGetName(name, sizeof name, id),
                              "cuDeviceGetName");
      !s.ok())
    return s;
  info.name = name;
  info.driver = driverRelease(driver);
  int shared = 0, l2 = 0;
  const std::pair<int, int *> attributes[] = {
      {cuda::ComputeMajor, &info.computeMajor},
      {cuda::ComputeMinor, &info.computeMinor},
      {cuda::MultiprocessorCount, &info.multiprocessors},
      {cuda::SharedBytesPerBlockOptin, &shared},
      {cuda::L2CacheBytes, &l2}};
  for (auto [attribute, slot] : attributes)
    if (Status s = driver.check(driver.deviceGetAttribute(slot, attribute, id),
                                "cuDeviceGetAttribute");
        !s.ok())
      return s;
  info.sharedBytesPerBlock = shared;
  info.l2Bytes = l2;
  return Status::success();
}

} // namespace

bool runsOn(const DeviceInfo &device, std::string_view arch, bool isPtx) {
  if (arch.substr(0, 3) != "sm_")
    return false;
  int number = 0;
  size_t i = 3;
  for (; i < arch.size() && arch[i] >= '0' && arch[i] <= '9'; ++i)
    number = number * 10 + (arch[i] - '0');
  std::string_view suffix = arch.substr(i);
  int major = number / 10, minor = number % 10;
  bool sameMajor = device.computeMajor == major && device.computeMinor >= minor;
  if (suffix == "a")
    return device.computeMajor == major && device.computeMinor == minor;
  if (suffix == "f")
    return sameMajor;
  return suffix.empty() &&
         (sameMajor || (isPtx && device.computeMajor > major));
}

StatusOr<Device> Device::open(int ordinal, const char *library,
                              cuda::Context context) {
  auto driver = cuda::Driver::load(library);
  if (!driver.ok())
    return driver.status();
  auto state = std::make_shared<State>();
  state->driver = *driver;
  const cuda::Driver &d = *state->driver;
  int count = 0;
  if (Status s = d.check(d.deviceGetCount(&count), "cuDeviceGetCount"); !s.ok())
    return s;
  if (ordinal < 0 || ordinal >= count)
    return Status(ErrorCode::NotFound,
                  "no GPU number " + std::to_string(ordinal) + "; there are " +
                      std::to_string(count));
  if (Status s = d.check(d.deviceGet(&state->id, ordinal), "cuDeviceGet");
      !s.ok())
    return s;
  if (Status s = query(d, state->id, state->info); !s.ok())
    return s;
  state->context = context;
  if (context)
    return Device(std::move(state));
  if (Status s = d.check(d.primaryCtxRetain(&state->context, state->id),
                         "cuDevicePrimaryCtxRetain");
      !s.ok())
    return s;
  state->retained = true;
  return Device(std::move(state));
}

Device::State::~State() {
  if (retained)
    driver->primaryCtxRelease(id);
}

Device::Scope::Scope(const Device &device) : driver(device.driver()) {
  driver.ctxPushCurrent(device.state->context);
}

Device::Scope::~Scope() {
  cuda::Context previous;
  driver.ctxPopCurrent(&previous);
}

StatusOr<DeviceBuffer> DeviceBuffer::allocate(const Device &device,
                                              size_t bytes) {
  Device::Scope scope(device);
  cuda::Address base = 0;
  // The driver refuses 0 bytes; an empty tensor still needs an address.
  size_t size = bytes ? bytes : 1;
  Status status = device.driver().check(device.driver().memAlloc(&base, size),
                                        "cuMemAlloc");
  if (!status.ok())
    return status.with("allocating " + std::to_string(bytes) + " bytes");
  return DeviceBuffer(device, base, bytes);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer &&other) noexcept
    : device(other.device), base(std::exchange(other.base, 0)),
      size(std::exchange(other.size, 0)) {}

DeviceBuffer &DeviceBuffer::operator=(DeviceBuffer &&other) noexcept {
  std::swap(device, other.device);
  std::swap(base, other.base);
  std::swap(size, other.size);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (!base)
    return;
  Device::Scope scope(device);
  device.driver().memFree(base);
}

Status DeviceBuffer::upload(const void *from, size_t bytes, size_t offset) {
  if (offset > size || bytes > size - offset)
    return Status(ErrorCode::InvalidArgument,
                  "upload of " + std::to_string(bytes) + " bytes at " +
                      std::to_string(offset) + " into a buffer of " +
                      std::to_string(size));
  if (bytes == 0)
    return Status::success();
  Device::Scope scope(device);
  if (Status s = device.driver().check(
          device.driver().memcpyHtoD(base + offset, from, bytes),
          "cuMemcpyHtoD");
      !s.ok())
    return s;
  // From pageable memory the call returns when the data is staged; streams that
  // do not wait for the default stream could still read the old bytes.
  return device.driver().check(device.driver().streamSynchronize(nullptr),
                               "cuStreamSynchronize");
}

Status DeviceBuffer::download(void *to, size_t bytes, size_t offset) const {
  if (offset > size || bytes > size - offset)
    return Status(ErrorCode::InvalidArgument,
                  "download of " + std::to_string(bytes) + " bytes at " +
                      std::to_string(offset) + " from a buffer of " +
                      std::to_string(size));
  if (bytes == 0)
    return Status::success();
  Device::Scope scope(device);
  return device.driver().check(
      device.driver().memcpyDtoH(to, base + offset, bytes), "cuMemcpyDtoH");
}

Status DeviceBuffer::fill(unsigned char byte, cuda::Stream stream) {
  if (size == 0)
    return Status::success();
  Device::Scope scope(device);
  return device.driver().check(
      device.driver().memsetD8Async(base, byte, size, stream), "cuMemsetD8");
}

StatusOr<StreamHandle> StreamHandle::create(const Device &device) {
  Device::Scope scope(device);
  cuda::Stream stream = nullptr;
  Status status = device.driver().check(
      device.driver().streamCreate(&stream, cuda::streamNonBlocking),
      "cuStreamCreate");
  if (!status.ok())
    return status;
  return StreamHandle(device, stream);
}

StreamHandle::StreamHandle(StreamHandle &&other) noexcept
    : device(other.device), stream(std::exchange(other.stream, nullptr)) {}

StreamHandle::~StreamHandle() {
  if (!stream)
    return;
  Device::Scope scope(device);
  device.driver().streamDestroy(stream);
}

Status StreamHandle::synchronize() const {
  Device::Scope scope(device);
  return device.driver().check(device.driver().streamSynchronize(stream),
                               "cuStreamSynchronize");
}

StatusOr<EventHandle> EventHandle::create(const Device &device) {
  Device::Scope scope(device);
  cuda::Event event = nullptr;
  Status status = device.driver().check(device.driver().eventCreate(&event, 0),
                                        "cuEventCreate");
  if (!status.ok())
    return status;
  return EventHandle(device, event);
}

EventHandle::EventHandle(EventHandle &&other) noexcept
    : device(other.device), event(std::exchange(other.event, nullptr)) {}

EventHandle::~EventHandle() {
  if (!event)
    return;
  Device::Scope scope(device);
  device.driver().eventDestroy(event);
}

Status EventHandle::record(cuda::Stream stream) {
  Device::Scope scope(device);
  return device.driver().check(device.driver().eventRecord(event, stream),
                               "cuEventRecord");
}

Status EventHandle::synchronize() const {
  Device::Scope scope(device);
  return device.driver().check(device.driver().eventSynchronize(event),
                               "cuEventSynchronize");
}

StatusOr<double>
EventHandle::microsecondsSince(const EventHandle &start) const {
  Device::Scope scope(device);
  float milliseconds = 0;
  Status status = device.driver().check(
      device.driver().eventElapsedTime(&milliseconds, start.event, event),
      "cuEventElapsedTime");
  if (!status.ok())
    return status;
  return milliseconds * 1e3;
}

} // namespace kdac
