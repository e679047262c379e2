// Promises: a list of tasks run to its end, whatever the tasks do: one that
// crashes or hangs fails alone. Does not: know what a task is.
#ifndef KDAC_LIB_SELFTEST_SUPERVISOR_H
#define KDAC_LIB_SELFTEST_SUPERVISOR_H

#include "kdac/SelfTest/SelfTest.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace kdac::selftest {

/// Called by a task to show that it makes progress.
using Heartbeat = std::function<void()>;
/// Runs task i in the worker process.
using Task = std::function<Outcome(size_t)>;
/// Opens devices in the worker process, or says why it cannot.
using MakeTask = std::function<StatusOr<Task>(Heartbeat)>;

struct Limits {
  double total; ///< seconds for all tasks
  double stall; ///< seconds between two heartbeats
};

/// Runs tasks 0..count in order in a forked worker, and in a new worker after
/// the task that took one down. Returns one outcome a task, or why the worker
/// could not start at all.
StatusOr<std::vector<Outcome>> supervise(size_t count, const MakeTask &makeTask,
                                         const Limits &limits);

/// The same in this process, without supervision: for debuggers.
StatusOr<std::vector<Outcome>>
runInProcess(size_t count, const MakeTask &makeTask, const Limits &limits);

} // namespace kdac::selftest

#endif // KDAC_LIB_SELFTEST_SUPERVISOR_H
