// Promises: launches recorded once and replayed as a CUDA graph, for times
// without the host's part. Does not: belong to the runtime, which knows no
// graphs.
#ifndef KDAC_LIB_SELFTEST_GRAPHS_H
#define KDAC_LIB_SELFTEST_GRAPHS_H

#include "kdac/Runtime/Device.h"

#include <functional>

namespace kdac::selftest {

/// An instantiated graph.
class Replay {
public:
  /// Captures what `enqueue` puts on `stream`.
  static StatusOr<Replay> capture(const Device &device, cuda::Stream stream,
                                  const std::function<Status()> &enqueue);
  Replay(Replay &&other) noexcept;
  Replay &operator=(Replay &&) = delete;
  ~Replay();

  Status launch(cuda::Stream stream) const;

private:
  Replay(Device device, cuda::GraphExec exec)
      : device(std::move(device)), exec(exec) {}

  Device device;
  cuda::GraphExec exec;
};

} // namespace kdac::selftest

#endif // KDAC_LIB_SELFTEST_GRAPHS_H
