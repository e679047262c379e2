// Promises: one GPU through its primary context: memory, streams and events as
// move-only handles. Does not: launch kernels (Kernel.h), synchronise behind
// the caller, or keep globals.
#ifndef KDAC_RUNTIME_DEVICE_H
#define KDAC_RUNTIME_DEVICE_H

#include "kdac/Runtime/CudaDriver.h"

#include <string>

namespace kdac {

/// What the runtime asks a GPU about itself.
struct DeviceInfo {
  std::string name;     ///< "NVIDIA H200"
  std::string driver;   ///< "580.159.04", or "CUDA 13.0" where unknown
  int computeMajor = 0; ///< 9 of sm_90a
  int computeMinor = 0; ///< 0 of sm_90a
  int multiprocessors = 0;
  int64_t sharedBytesPerBlock = 0; ///< opt-in dynamic shared memory
  int64_t l2Bytes = 0;
};

/// True if code for `arch` (sm_80, sm_90a, ...) runs on the device: as machine
/// code within its major version, as PTX on anything newer; a trailing 'a' ties
/// both to exactly one version, a trailing 'f' to one major version.
bool runsOn(const DeviceInfo &device, std::string_view arch, bool isPtx);

/// A GPU. Copies share one context, by default the retained primary one that
/// other libraries of the process use too; all methods may be called from any
/// thread.
class Device {
public:
  /// The GPU number `ordinal`. `library` names another driver library, for
  /// tests. `context` is the caller's own context of that GPU, which must
  /// outlive the device; null takes the primary context.
  static StatusOr<Device> open(int ordinal,
                               const char *library = "libcuda.so.1",
                               cuda::Context context = nullptr);

  const DeviceInfo &info() const { return state->info; }
  const cuda::Driver &driver() const { return *state->driver; }

  /// Makes the device's context current on this thread while alive.
  class Scope {
  public:
    explicit Scope(const Device &device);
    ~Scope();
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;

  private:
    const cuda::Driver &driver;
  };

private:
  struct State {
    std::shared_ptr<const cuda::Driver> driver;
    cuda::DeviceId id = 0;
    cuda::Context context = nullptr;
    bool retained = false; ///< the context is the primary one, to be released
    DeviceInfo info;
    ~State();
  };
  explicit Device(std::shared_ptr<State> state) : state(std::move(state)) {}

  std::shared_ptr<State> state;
};

/// Device memory, aligned to 256 bytes by the driver.
class DeviceBuffer {
public:
  static StatusOr<DeviceBuffer> allocate(const Device &device, size_t bytes);
  DeviceBuffer(DeviceBuffer &&other) noexcept;
  DeviceBuffer &operator=(DeviceBuffer &&other) noexcept;
  ~DeviceBuffer();

  cuda::Address address() const { return base; }
  size_t bytes() const { return size; }
  /// Copies that have finished when they return.
  Status upload(const void *from, size_t bytes, size_t offset = 0);
  Status download(void *to, size_t bytes, size_t offset = 0) const;
  /// Sets every byte, in `stream`'s order.
  Status fill(unsigned char byte, cuda::Stream stream);

private:
  DeviceBuffer(Device device, cuda::Address base, size_t size)
      : device(std::move(device)), base(base), size(size) {}

  Device device;
  cuda::Address base;
  size_t size;
};

/// A stream that does not wait for the default stream.
class StreamHandle {
public:
  static StatusOr<StreamHandle> create(const Device &device);
  StreamHandle(StreamHandle &&other) noexcept;
  StreamHandle &operator=(StreamHandle &&) = delete;
  ~StreamHandle();

  cuda::Stream get() const { return stream; }
  Status synchronize() const;

private:
  StreamHandle(Device device, cuda::Stream stream)
      : device(std::move(device)), stream(stream) {}

  Device device;
  cuda::Stream stream;
};

/// A timing event.
class EventHandle {
public:
  static StatusOr<EventHandle> create(const Device &device);
  EventHandle(EventHandle &&other) noexcept;
  EventHandle &operator=(EventHandle &&) = delete;
  ~EventHandle();

  Status record(cuda::Stream stream);
  Status synchronize() const;
  /// Microseconds from `start` to this event; both must have completed.
  StatusOr<double> microsecondsSince(const EventHandle &start) const;

private:
  EventHandle(Device device, cuda::Event event)
      : device(std::move(device)), event(event) {}

  Device device;
  cuda::Event event;
};

} // namespace kdac

#endif // KDAC_RUNTIME_DEVICE_H
