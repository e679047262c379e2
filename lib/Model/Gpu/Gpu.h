// Promises: a GPU with one stream, the library's own kernels by name, pinned
// memory. Does not: know models.
#ifndef KDAC_LIB_MODEL_GPU_GPU_H
#define KDAC_LIB_MODEL_GPU_GPU_H

#include "kdac/Model/GpuOps.h"

#include <array>
#include <unordered_map>

namespace kdac::model {

/// Memory of the host that the GPU copies from without a detour.
class PinnedBuffer {
public:
  static StatusOr<PinnedBuffer> allocate(const Device &device, int64_t bytes);
  PinnedBuffer(PinnedBuffer &&other) noexcept;
  PinnedBuffer &operator=(PinnedBuffer &&) = delete;
  ~PinnedBuffer();
  char *data() const { return memory; }

private:
  PinnedBuffer(Device device, char *memory)
      : device(std::move(device)), memory(memory) {}
  Device device;
  char *memory;
};

/// Blocks and threads of a launch, and its dynamic shared memory.
struct Shape {
  std::array<int64_t, 3> grid = {1, 1, 1};
  int threads = 256;
  int64_t sharedBytes = 0;
};

class Gpu {
public:
  static StatusOr<std::shared_ptr<Gpu>> open(int ordinal, const char *library);
  ~Gpu();
  Gpu(const Gpu &) = delete;
  Gpu &operator=(const Gpu &) = delete;

  const Device &device() const { return gpu; }
  const cuda::Driver &driver() const { return gpu.driver(); }
  cuda::Stream stream() const { return work.get(); }
  const std::string &name() const { return label; }
  Status synchronize() const { return work.synchronize(); }
  Status check(cuda::Result result, const char *what) const {
    return driver().check(result, what);
  }

  /// Enqueues the kernel; parameters by value, of the kernel's own types. A
  /// launch without blocks is nothing.
  template <typename... Parameter>
  Status launch(const char *kernel, const Shape &shape,
                Parameter... parameters) {
    void *argv[] = {&parameters...};
    return launchRaw(kernel, shape, argv);
  }
  /// Enqueues a copy between the host and the GPU.
  Status upload(const void *to, const void *from, int64_t bytes) const;
  Status download(void *to, const void *from, int64_t bytes) const;

private:
  Gpu(Device device, StreamHandle stream, std::string label)
      : gpu(std::move(device)), work(std::move(stream)),
        label(std::move(label)) {}
  Status loadKernels();
  StatusOr<cuda::Function> find(const char *kernel, int64_t sharedBytes);
  Status launchRaw(const char *kernel, const Shape &shape, void **argv);

  Device gpu;
  StreamHandle work;
  std::string label;
  cuda::Module module = nullptr;
  struct Entry {
    cuda::Function function = nullptr;
    int64_t sharedBytes = 48 * 1024; ///< allowed so far
  };
  std::unordered_map<std::string, Entry> functions;
};

inline cuda::Address addressOf(const void *p) {
  return reinterpret_cast<cuda::Address>(p);
}
inline void *pointerOf(cuda::Address a) { return reinterpret_cast<void *>(a); }

} // namespace kdac::model

#endif // KDAC_LIB_MODEL_GPU_GPU_H
