#include "Gpu.h"

#include <climits>
#include <utility>

// The kernels, as bytes of this library: the assembler reads the files.
extern "C" {
extern const char kdac_model_ptx[];
extern const char kdac_model_cubin[];
extern const uint64_t kdac_model_cubin_bytes; ///< 0 without an assembler
}
__asm__(".section .rodata\n"
        ".balign 64\n"
        ".globl kdac_model_ptx\n"
        "kdac_model_ptx:\n"
        ".incbin \"" KDAC_MODEL_PTX "\"\n"
        ".byte 0\n"
        ".balign 64\n"
        ".globl kdac_model_cubin\n"
        "kdac_model_cubin:\n"
        ".incbin \"" KDAC_MODEL_CUBIN "\"\n"
        "kdac_model_cubin_end:\n"
        ".balign 8\n"
        ".globl kdac_model_cubin_bytes\n"
        "kdac_model_cubin_bytes: .quad kdac_model_cubin_end - "
        "kdac_model_cubin\n"
        ".text\n");

namespace kdac::model {

StatusOr<PinnedBuffer> PinnedBuffer::allocate(const Device &device,
                                              int64_t bytes) {
  Device::Scope scope(device);
  void *memory = nullptr;
  const cuda::Driver &d = device.driver();
  if (Status s =
          d.check(d.memHostAlloc(&memory,
                                 static_cast<size_t>(bytes > 0 ? bytes : 1), 0),
                  "cuMemHostAlloc");
      !s.ok())
    return s;
  return PinnedBuffer(device, static_cast<char *>(memory));
}

PinnedBuffer::PinnedBuffer(PinnedBuffer &&other) noexcept
    : device(other.device), memory(std::exchange(other.memory, nullptr)) {}

PinnedBuffer::~PinnedBuffer() {
  if (!memory)
    return;
  Device::Scope scope(device);
  device.driver().memFreeHost(memory);
}

StatusOr<std::shared_ptr<Gpu>> Gpu::open(int ordinal, const char *library) {
  StatusOr<Device> device = Device::open(ordinal, library);
  if (!device.ok())
    return device.status();
  if (!device->driver().hasModels())
    return Status(ErrorCode::Unavailable,
                  "the CUDA driver has no graphs; models need CUDA 11.4");
  StatusOr<StreamHandle> stream = StreamHandle::create(*device);
  if (!stream.ok())
    return stream.status();
  std::shared_ptr<Gpu> gpu(new Gpu(std::move(*device), std::move(*stream),
                                   "cuda:" + std::to_string(ordinal)));
  if (Status s = gpu->loadKernels(); !s.ok())
    return s.with(gpu->name());
  return gpu;
}

Gpu::~Gpu() {
  if (!module)
    return;
  Device::Scope scope(gpu);
  driver().moduleUnload(module);
}

/// Machine code where there is some, or else PTX.
Status Gpu::loadKernels() {
  const DeviceInfo &info = gpu.info();
  constexpr const char *arch = "sm_90a";
  if (!runsOn(info, arch, true))
    return Status(ErrorCode::Unsupported,
                  "models run on " + std::string(arch) + ", but this is " +
                      info.name + " (sm_" + std::to_string(info.computeMajor) +
                      std::to_string(info.computeMinor) + ")");
  Device::Scope scope(gpu);
  Status status(ErrorCode::Unavailable, "no machine code");
  if (kdac_model_cubin_bytes > 0)
    status = check(driver().moduleLoadDataEx(&module, kdac_model_cubin, 0,
                                             nullptr, nullptr),
                   "cuModuleLoadData");
  if (!status.ok())
    status = check(
        driver().moduleLoadDataEx(&module, kdac_model_ptx, 0, nullptr, nullptr),
        "cuModuleLoadData");
  return status;
}

StatusOr<cuda::Function> Gpu::find(const char *kernel, int64_t sharedBytes) {
  Entry &entry = functions[kernel];
  if (!entry.function)
    if (Status s =
            check(driver().moduleGetFunction(&entry.function, module, kernel),
                  "cuModuleGetFunction");
        !s.ok())
      return s.with(kernel);
  if (sharedBytes > gpu.info().sharedBytesPerBlock)
    return Status(ErrorCode::Unsupported,
                  std::string(kernel) + " needs " +
                      std::to_string(sharedBytes) +
                      " bytes of shared memory for a model of these widths, "
                      "but a block has " +
                      std::to_string(gpu.info().sharedBytesPerBlock));
  if (sharedBytes > entry.sharedBytes) {
    if (Status s = check(driver().funcSetAttribute(
                             entry.function, cuda::functionMaxDynamicShared,
                             static_cast<int>(sharedBytes)),
                         "cuFuncSetAttribute");
        !s.ok())
      return s.with(kernel);
    entry.sharedBytes = sharedBytes;
  }
  return entry.function;
}

Status Gpu::launchRaw(const char *kernel, const Shape &shape, void **argv) {
  for (int64_t n : shape.grid) {
    if (n == 0)
      return Status::success();
    if (n < 0 || n > INT_MAX)
      return Status(ErrorCode::InvalidArgument, std::string(kernel) + " of " +
                                                    std::to_string(n) +
                                                    " blocks is too large");
  }
  Device::Scope scope(gpu);
  StatusOr<cuda::Function> function = find(kernel, shape.sharedBytes);
  if (!function.ok())
    return function.status();
  auto at = [](int64_t n) { return static_cast<unsigned>(n); };
  cuda::LaunchAttribute overlap; // beginKernel of Cuda.cuh waits
  cuda::LaunchConfig c;
  for (int i = 0; i < 3; ++i)
    c.grid[i] = at(shape.grid[static_cast<size_t>(i)]);
  c.block[0] = at(shape.threads);
  c.sharedBytes = at(shape.sharedBytes);
  c.stream = stream();
  c.attributes = &overlap;
  c.attributeCount = 1;
  cuda::Result result =
      driver().launchKernelEx
          ? driver().launchKernelEx(&c, *function, argv, nullptr)
          : driver().launchKernel(*function, c.grid[0], c.grid[1], c.grid[2],
                                  c.block[0], 1, 1, c.sharedBytes, c.stream,
                                  argv, nullptr);
  return check(result, "cuLaunchKernel").with(kernel);
}

Status Gpu::upload(const void *to, const void *from, int64_t bytes) const {
  Device::Scope scope(gpu);
  return check(driver().memcpyHtoDAsync(addressOf(to), from,
                                        static_cast<size_t>(bytes), stream()),
               "cuMemcpyHtoDAsync");
}

Status Gpu::download(void *to, const void *from, int64_t bytes) const {
  Device::Scope scope(gpu);
  return check(driver().memcpyDtoHAsync(to, addressOf(from),
                                        static_cast<size_t>(bytes), stream()),
               "cuMemcpyDtoHAsync");
}

namespace {

class GpuMemory : public Memory {
public:
  explicit GpuMemory(std::shared_ptr<Gpu> gpu) : gpu(std::move(gpu)) {}

  std::string place() const override { return gpu->name(); }
  StatusOr<int64_t> available() const override {
    Device::Scope scope(gpu->device());
    size_t free = 0, total = 0;
    if (Status s =
            gpu->check(gpu->driver().memGetInfo(&free, &total), "cuMemGetInfo");
        !s.ok())
      return s;
    return static_cast<int64_t>(free);
  }
  StatusOr<void *> allocate(int64_t bytes, const std::string &what) override {
    StatusOr<DeviceBuffer> buffer =
        DeviceBuffer::allocate(gpu->device(), static_cast<size_t>(bytes));
    if (!buffer.ok())
      return buffer.status().with(what);
    buffers.push_back(std::move(*buffer));
    return pointerOf(buffers.back().address());
  }
  Status read(void *to, const void *there, int64_t bytes) override {
    return finish(bytes > 0 ? gpu->download(to, there, bytes)
                            : Status::success());
  }
  Status write(void *there, const void *from, int64_t bytes) override {
    return finish(bytes > 0 ? gpu->upload(there, from, bytes)
                            : Status::success());
  }
  Status copy(void *there, const void *from, int64_t bytes) override {
    Device::Scope scope(gpu->device());
    return finish(gpu->check(gpu->driver().memcpyDtoDAsync(
                                 addressOf(there), addressOf(from),
                                 static_cast<size_t>(bytes), gpu->stream()),
                             "cuMemcpyDtoDAsync"));
  }

private:
  Status finish(Status status) const {
    return status.ok() ? gpu->synchronize() : status;
  }
  std::shared_ptr<Gpu> gpu;
  std::vector<DeviceBuffer> buffers;
};

} // namespace

StatusOr<std::shared_ptr<Gpu>> openGpu(int ordinal, const char *library) {
  return Gpu::open(ordinal, library);
}

std::shared_ptr<Memory> gpuMemory(std::shared_ptr<Gpu> gpu) {
  return std::make_shared<GpuMemory>(std::move(gpu));
}

} // namespace kdac::model
