// Promises: host kernels run over all program instances on a pool of threads.
// Does not: compile, load or check kernels; it needs no LLVM.
#ifndef KDAC_RUNTIME_HOSTLAUNCH_H
#define KDAC_RUNTIME_HOSTLAUNCH_H

#include <cstdint>
#include <memory>

namespace kdac {

/// Runs program instances [begin, end). `args` points to one pointer per
/// argument, to the argument's value (a pointer, an int64_t or a float), as for
/// cuLaunchKernel; `scratch` is one thread's, aligned to 64.
using HostEntry = void (*)(void **args, int64_t begin, int64_t end,
                           void *scratch);

/// Threads that wait between launches, with their scratch. One launch at a
/// time: a pool is not to be shared by threads that call run concurrently.
class HostPool {
public:
  /// `threads` in all, the caller's included; 0 takes one per core.
  explicit HostPool(int threads = 0);
  ~HostPool();
  HostPool(const HostPool &) = delete;
  HostPool &operator=(const HostPool &) = delete;

  int threads() const;

  /// Runs instances [0, grid) and returns when all are done. Threads take
  /// instances as they become free. False when there is no memory for scratch;
  /// nothing has run then.
  [[nodiscard]] bool run(HostEntry entry, void **args, int64_t grid,
                         int64_t scratchBytes);

private:
  struct State;
  std::unique_ptr<State> state;
};

/// One launch on a pool of its own.
[[nodiscard]] bool runOnHost(HostEntry entry, void **args, int64_t grid,
                             int64_t scratchBytes, int threads = 0);

} // namespace kdac

#endif // KDAC_RUNTIME_HOSTLAUNCH_H
