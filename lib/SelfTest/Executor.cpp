#include "Executor.h"
#include "Timing.h"

#include <chrono>
#include <fstream>

namespace kdac::selftest {

namespace {

using reference::Buffer;
using reference::Case;

constexpr size_t placeAlignment = 256;

/// Where each buffer of a case lies in device memory, guards included. The data
/// keeps the alignment it has on the host: 16 bytes and no more.
struct Places {
  std::vector<size_t> offsets;
  size_t bytes = 0;

  explicit Places(const Case &c) {
    for (const Buffer &buffer : c.buffers()) {
      offsets.push_back(bytes);
      bytes += (static_cast<size_t>(buffer.wholeBytes()) + placeAlignment - 1) /
               placeAlignment * placeAlignment;
    }
  }
  std::vector<void *> addresses(cuda::Address base) const {
    std::vector<void *> result;
    for (size_t offset : offsets)
      result.push_back(
          reinterpret_cast<void *>(base + offset + Buffer::guardBytes));
    return result;
  }
};

class GpuTestKernel : public Kernel {
public:
  GpuTestKernel(GpuKernel kernel, Device device, Arena &arena,
                cuda::Stream stream)
      : kernel(std::move(kernel)), device(device), arena(arena),
        workspace(std::move(device)), stream(stream) {}

  std::string origin() const override { return kernel.origin(); }
  const Image *image() const override { return &kernel.image(); }

  void useSchedule(const std::string &when) override { schedule = when; }

  Status run(Case &c) override {
    Places places(c);
    StatusOr<DeviceBuffer *> memory = arena.reserve(places.bytes);
    if (!memory.ok())
      return memory.status();
    for (size_t i = 0; i < places.offsets.size(); ++i) {
      const Buffer &b = c.buffers()[i];
      if (Status s =
              (*memory)->upload(b.whole(), static_cast<size_t>(b.wholeBytes()),
                                places.offsets[i]);
          !s.ok())
        return s;
    }
    addresses = places.addresses((*memory)->address());
    if (Status s = bringWorkspace(c); !s.ok())
      return s;
    StatusOr<GpuKernel::Grids> grids = check(c.argv(&addresses));
    if (!grids.ok())
      return grids.status();
    if (Status s = kernel.launchChecked(stream, c.argv(&addresses), *grids);
        !s.ok())
      return s;
    if (Status s = commit(c); !s.ok())
      return s;
    if (Status s = synchronize(); !s.ok())
      return s;
    for (size_t i = 0; i < places.offsets.size(); ++i) {
      Buffer &b = c.buffers()[i];
      if (Status s = (*memory)->download(b.whole(),
                                         static_cast<size_t>(b.wholeBytes()),
                                         places.offsets[i]);
          !s.ok())
        return s;
    }
    return Status::success();
  }

  StatusOr<double> time(Case &c, int launches) override {
    void **argv = c.argv(&addresses);
    StatusOr<GpuKernel::Grids> grids = check(argv);
    if (!grids.ok())
      return grids.status();
    return medianMicroseconds(device, stream, launches, [&] {
      return kernel.launchChecked(stream, argv, *grids);
    });
  }

private:
  StatusOr<GpuKernel::Grids> check(CallArguments argv) const {
    return kernel.check(argv, schedule ? &*schedule : nullptr);
  }

  /// The second call of a variant with a log, on what the first one kept.
  Status commit(Case &c) {
    if (!c.commits())
      return Status::success();
    c.commit(true);
    StatusOr<GpuKernel::Grids> grids = check(c.argv(&addresses));
    Status s = grids.ok()
                   ? kernel.launchChecked(stream, c.argv(&addresses), *grids)
                   : grids.status();
    c.commit(false);
    return s;
  }

  /// Results must not depend on what a workspace held before: it is poisoned.
  Status bringWorkspace(Case &c) {
    StatusOr<int64_t> bytes = workspaceBytes(
        kernel.variant(), c.argv(&addresses), schedule ? &*schedule : nullptr);
    if (!bytes.ok() || *bytes == 0)
      return bytes.ok() ? Status::success() : bytes.status();
    StatusOr<DeviceBuffer *> memory =
        workspace.reserve(static_cast<size_t>(*bytes));
    if (!memory.ok())
      return memory.status().with("workspace");
    c.useWorkspace(reinterpret_cast<void *>((*memory)->address()));
    return (*memory)->fill(0xff, stream);
  }

  Status synchronize() {
    Device::Scope scope(device);
    return device.driver().check(device.driver().streamSynchronize(stream),
                                 "the kernel");
  }

  GpuKernel kernel;
  std::optional<std::string> schedule; ///< null: as sizes pick
  Device device;
  Arena &arena;
  Arena workspace;
  cuda::Stream stream;
  std::vector<void *> addresses;
};

class GpuExecutor : public Executor {
public:
  GpuExecutor(Device device, StreamHandle stream)
      : gpu(std::move(device)), stream(std::move(stream)), arena(gpu) {}

  Machine machine() const override {
    return {gpu.info().name, gpu.info().driver, "", ""};
  }
  bool supports(const PackReader &pack, const PackVariant &v) const override {
    for (size_t index : v.launches[0].images) {
      const Image &image = pack.manifest().images[index];
      if (image.kind != ImageKind::HostSo &&
          runsOn(gpu.info(), image.arch, image.kind == ImageKind::Ptx))
        return true;
    }
    return false;
  }
  StatusOr<std::unique_ptr<Kernel>> load(const PackReader &pack,
                                         const PackVariant &v) override {
    StatusOr<GpuKernel> kernel = GpuKernel::load(gpu, pack, v);
    if (!kernel.ok())
      return kernel.status();
    return std::unique_ptr<Kernel>(
        new GpuTestKernel(std::move(*kernel), gpu, arena, stream.get()));
  }
  const Device *device() const override { return &gpu; }

private:
  Device gpu;
  StreamHandle stream;
  Arena arena;
};

class HostTestKernel : public Kernel {
public:
  HostTestKernel(HostKernel kernel, HostPool &pool)
      : kernel(std::move(kernel)), pool(pool) {}

  std::string origin() const override { return kernel.origin(); }
  Status run(Case &c) override {
    StatusOr<int64_t> bytes = workspaceBytes(kernel.variant(), c.argv());
    if (!bytes.ok())
      return bytes.status();
    c.provideWorkspace(*bytes);
    Status s = kernel.launch(pool, c.argv());
    if (!s.ok() || !c.commits())
      return s;
    c.commit(true);
    s = kernel.launch(pool, c.argv());
    c.commit(false);
    return s;
  }
  StatusOr<double> time(Case &c, int launches) override {
    std::vector<double> times;
    for (int i = 0; i < launches; ++i) {
      auto start = std::chrono::steady_clock::now();
      if (Status s = kernel.launch(pool, c.argv()); !s.ok())
        return s;
      times.push_back(std::chrono::duration<double, std::micro>(
                          std::chrono::steady_clock::now() - start)
                          .count());
    }
    return median(std::move(times));
  }

private:
  HostKernel kernel;
  HostPool &pool;
};

class HostExecutor : public Executor {
public:
  explicit HostExecutor(int threads) : pool(threads) {}

  Machine machine() const override { return {processor(), "host", "", ""}; }
  bool supports(const PackReader &pack, const PackVariant &v) const override {
    for (size_t index : v.launches[0].images) {
      const Image &image = pack.manifest().images[index];
      if (image.kind == ImageKind::HostSo && runsOnHost(image.arch))
        return true;
    }
    return false;
  }
  StatusOr<std::unique_ptr<Kernel>> load(const PackReader &pack,
                                         const PackVariant &v) override {
    StatusOr<HostKernel> kernel = HostKernel::load(pack, v);
    if (!kernel.ok())
      return kernel.status();
    return std::unique_ptr<Kernel>(
        new HostTestKernel(std::move(*kernel), pool));
  }

private:
  static std::string processor() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);)
      if (line.rfind("model name", 0) == 0)
        return line.substr(line.find(':') + 2);
    return "unknown processor";
  }

  HostPool pool;
};

} // namespace

StatusOr<DeviceBuffer *> Arena::reserve(size_t bytes) {
  if (!buffer || buffer->bytes() < bytes) {
    buffer.reset();
    StatusOr<DeviceBuffer> bigger = DeviceBuffer::allocate(device, bytes);
    if (!bigger.ok())
      return bigger.status();
    buffer.emplace(std::move(*bigger));
  }
  return &*buffer;
}

StatusOr<std::unique_ptr<Executor>> makeExecutor(const Settings &settings) {
  if (settings.host)
    return std::unique_ptr<Executor>(new HostExecutor(settings.threads));
  StatusOr<Device> device =
      Device::open(settings.device, settings.driver.c_str());
  if (!device.ok())
    return device.status();
  StatusOr<StreamHandle> stream = StreamHandle::create(*device);
  if (!stream.ok())
    return stream.status();
  return std::unique_ptr<Executor>(
      new GpuExecutor(std::move(*device), std::move(*stream)));
}

} // namespace kdac::selftest
