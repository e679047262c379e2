#include "Graphs.h"

#include <dlfcn.h>
#include <memory>
#include <utility>

namespace kdac::selftest {

/// The driver's graph functions.
struct Replay::Entries {
  int (*beginCapture)(cuda::Stream, int) = nullptr;
  int (*endCapture)(cuda::Stream, void **) = nullptr;
  int (*instantiate)(void **, void *, unsigned long long) = nullptr;
  int (*launch)(void *, cuda::Stream) = nullptr;
  int (*destroyExec)(void *) = nullptr;
  int (*destroy)(void *) = nullptr;

  bool find(const char *library) {
    void *handle = ::dlopen(library, RTLD_NOW);
    auto get = [&](const char *name, auto &slot) {
      slot = handle ? reinterpret_cast<std::decay_t<decltype(slot)>>(
                          ::dlsym(handle, name))
                    : nullptr;
      return slot != nullptr;
    };
    return get("cuStreamBeginCapture_v2", beginCapture) &&
           get("cuStreamEndCapture", endCapture) &&
           get("cuGraphInstantiateWithFlags", instantiate) &&
           get("cuGraphLaunch", launch) &&
           get("cuGraphExecDestroy", destroyExec) &&
           get("cuGraphDestroy", destroy);
  }
};

StatusOr<Replay> Replay::capture(const Device &device, cuda::Stream stream,
                                 const std::string &library,
                                 const std::function<Status()> &enqueue) {
  static Entries entries; // of the one driver of a process
  if (!entries.launch && !entries.find(library.c_str()))
    return Status(ErrorCode::Unavailable, "the CUDA driver has no graphs");
  const cuda::Driver &d = device.driver();
  Device::Scope scope(device);
  constexpr int threadLocal = 1;
  if (Status s = d.check(entries.beginCapture(stream, threadLocal),
                         "cuStreamBeginCapture");
      !s.ok())
    return s;
  Status launched = enqueue();
  void *graph = nullptr, *exec = nullptr;
  Status ended =
      d.check(entries.endCapture(stream, &graph), "cuStreamEndCapture");
  for (const Status &s : {launched, ended})
    if (!s.ok())
      return s;
  Status made = d.check(entries.instantiate(&exec, graph, 0),
                        "cuGraphInstantiateWithFlags");
  entries.destroy(graph);
  if (!made.ok())
    return made;
  return Replay(device, entries, exec);
}

Replay::Replay(Replay &&other) noexcept
    : device(other.device), entries(other.entries),
      exec(std::exchange(other.exec, nullptr)) {}

Replay::~Replay() {
  if (!exec)
    return;
  Device::Scope scope(device);
  entries->destroyExec(exec);
}

Status Replay::launch(cuda::Stream stream) const {
  Device::Scope scope(device);
  return device.driver().check(entries->launch(exec, stream), "cuGraphLaunch");
}

} // namespace kdac::selftest
