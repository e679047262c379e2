// Promises: a list of tasks run to its end, whatever the tasks do: one that
// crashes or hangs fails alone. Does not: know what a task is.
#ifndef KDAC_TEST_GPU_SUPERVISOR_H
#define KDAC_TEST_GPU_SUPERVISOR_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace kdac::gputest {

enum class Outcome : uint8_t {
  Pending,
  Passed,
  Failed,
  Lost,    ///< failed, and the process must be replaced (a GPU error sticks)
  Crashed, ///< the process died
  Stalled, ///< no heartbeat for too long
  NotRun,  ///< the time was up
};

/// Called by a task to show that it makes progress.
using Heartbeat = std::function<void()>;
/// Runs task i in the worker process.
using Task = std::function<Outcome(size_t)>;
/// Opens devices in the worker process; an empty Task means that it cannot.
using MakeTask = std::function<Task(Heartbeat)>;

struct Limits {
  double total; ///< seconds for all tasks
  double stall; ///< seconds between two heartbeats
};

/// Runs tasks 0..count in order in a forked worker, and in a new worker after
/// the task that took one down. Returns one outcome a task, or nothing if the
/// worker could not start at all.
std::vector<Outcome> supervise(size_t count, const MakeTask &makeTask,
                               const Limits &limits);

/// The same in this process, without supervision: for debuggers.
std::vector<Outcome> runInProcess(size_t count, const MakeTask &makeTask,
                                  const Limits &limits);

} // namespace kdac::gputest

#endif // KDAC_TEST_GPU_SUPERVISOR_H
