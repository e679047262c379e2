#include "Graphs.h"

#include <utility>

namespace kdac::selftest {

StatusOr<Replay> Replay::capture(const Device &device, cuda::Stream stream,
                                 const std::function<Status()> &enqueue) {
  const cuda::Driver &d = device.driver();
  if (!d.hasGraphs())
    return Status(ErrorCode::Unavailable, "the CUDA driver has no graphs");
  Device::Scope scope(device);
  if (Status s = d.check(d.streamBeginCapture(stream, cuda::captureThreadLocal),
                         "cuStreamBeginCapture");
      !s.ok())
    return s;
  Status launched = enqueue();
  cuda::Graph graph = nullptr;
  cuda::GraphExec exec = nullptr;
  Status ended =
      d.check(d.streamEndCapture(stream, &graph), "cuStreamEndCapture");
  for (const Status &s : {launched, ended})
    if (!s.ok())
      return s;
  Status made = d.check(d.graphInstantiate(&exec, graph, 0),
                        "cuGraphInstantiateWithFlags");
  d.graphDestroy(graph);
  if (!made.ok())
    return made;
  return Replay(device, exec);
}

Replay::Replay(Replay &&other) noexcept
    : device(other.device), exec(std::exchange(other.exec, nullptr)) {}

Replay::~Replay() {
  if (!exec)
    return;
  Device::Scope scope(device);
  device.driver().graphExecDestroy(exec);
}

Status Replay::launch(cuda::Stream stream) const {
  Device::Scope scope(device);
  return device.driver().check(device.driver().graphLaunch(exec, stream),
                               "cuGraphLaunch");
}

} // namespace kdac::selftest
