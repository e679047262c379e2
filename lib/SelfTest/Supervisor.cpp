#include "Supervisor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <new>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace kdac::selftest {

namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Exit codes of a worker.
enum { workerDone = 0, workerReplace = 10, workerCannotStart = 11 };

/// What worker and supervisor share; outcomes follow in memory.
struct Progress {
  std::atomic<uint64_t> beats{0};
  std::atomic<size_t> current{0};
  std::atomic<bool> started{false};
  /// Why the worker could not start; read after its end.
  ErrorCode refusal = ErrorCode::Ok;
  char reason[1024] = "";
};

/// Memory that stays shared across fork.
struct Shared {
  size_t bytes;
  Progress *progress = nullptr;
  std::atomic<Outcome> *outcomes = nullptr;

  explicit Shared(size_t count)
      : bytes(sizeof(Progress) + count * sizeof(std::atomic<Outcome>)) {
    void *memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      return;
    progress = new (memory) Progress;
    outcomes = reinterpret_cast<std::atomic<Outcome> *>(progress + 1);
    for (size_t i = 0; i < count; ++i)
      new (&outcomes[i]) std::atomic<Outcome>(Outcome::Pending);
  }
  ~Shared() {
    if (progress)
      ::munmap(progress, bytes);
  }
};

class Supervisor {
public:
  Supervisor(size_t count, const MakeTask &makeTask, const Limits &limits)
      : count(count), makeTask(makeTask), limits(limits), shared(count) {}

  StatusOr<std::vector<Outcome>> run() {
    if (!shared.progress)
      return Status(ErrorCode::Io, "no shared memory for a worker");
    for (size_t first = 0; first < count;) {
      int code = runWorker(first);
      if (code == workerCannotStart)
        return Status(shared.progress->refusal == ErrorCode::Ok
                          ? ErrorCode::Device
                          : shared.progress->refusal,
                      shared.progress->reason[0]
                          ? shared.progress->reason
                          : "the worker died while it opened the device");
      if (code == workerDone)
        break;
      first = shared.progress->current + 1;
    }
    std::vector<Outcome> result;
    for (size_t i = 0; i < count; ++i) {
      Outcome outcome = shared.outcomes[i];
      result.push_back(outcome == Outcome::Pending ? Outcome::NotRun : outcome);
    }
    return result;
  }

private:
  int runWorker(size_t first) {
    shared.progress->current = first;
    shared.progress->started = false;
    std::fflush(nullptr);
    pid_t child = ::fork();
    if (child == 0)
      work(first); // does not return
    if (child < 0) {
      refuse(Status(ErrorCode::Io, std::string("cannot start a worker: ") +
                                       std::strerror(errno)));
      return workerCannotStart;
    }
    int status = watch(child);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 1)
      return WEXITSTATUS(status);
    bool started = shared.progress->started;
    std::atomic<Outcome> &outcome = shared.outcomes[shared.progress->current];
    if (outcome == Outcome::Pending)
      outcome = Outcome::Crashed;
    // A worker that dies while it opens the device would die again.
    return started ? workerReplace : workerCannotStart;
  }

  void refuse(const Status &status) {
    Progress &p = *shared.progress;
    p.refusal = status.code();
    const std::string &message = status.message();
    size_t length = std::min(message.size(), sizeof p.reason - 1);
    std::memcpy(p.reason, message.data(), length);
    p.reason[length] = '\0';
  }

  [[noreturn]] void work(size_t first) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    StatusOr<Task> task = makeTask([this] { ++shared.progress->beats; });
    int code = task.ok() ? workerDone : workerCannotStart;
    if (!task.ok())
      refuse(task.status());
    shared.progress->started = true;
    for (size_t i = first; task.ok() && i < count; ++i) {
      shared.progress->current = i;
      ++shared.progress->beats;
      Outcome outcome =
          secondsSince(start) > limits.total ? Outcome::NotRun : (*task)(i);
      shared.outcomes[i] = outcome;
      if (outcome == Outcome::Lost && i + 1 < count) {
        code = workerReplace;
        break;
      }
    }
    std::fflush(nullptr);
    // Without destructors: a broken device must not hang the exit.
    ::_exit(code);
  }

  /// Waits for the worker, and ends it when it stalls or outstays the limit.
  int watch(pid_t child) {
    uint64_t seen = shared.progress->beats;
    Clock::time_point last = Clock::now();
    for (int status = 0;;) {
      pid_t done = ::waitpid(child, &status, WNOHANG);
      if (done == child)
        return status;
      if (uint64_t beats = shared.progress->beats; beats != seen) {
        seen = beats;
        last = Clock::now();
      }
      bool late = secondsSince(start) > limits.total + limits.stall;
      if (late || secondsSince(last) > limits.stall)
        return end(child);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  int end(pid_t child) {
    shared.outcomes[shared.progress->current] = Outcome::Stalled;
    ::kill(child, SIGKILL);
    int status = 0;
    // A process inside the driver can take a while to die, but not for ever.
    for (int i = 0; i < 200; ++i) {
      if (::waitpid(child, &status, WNOHANG) == child)
        return status;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    // It does not end: no further workers, the device is not usable.
    return workerDone << 8;
  }

  size_t count;
  const MakeTask &makeTask;
  Limits limits;
  Shared shared;
  Clock::time_point start = Clock::now();
};

} // namespace

StatusOr<std::vector<Outcome>> supervise(size_t count, const MakeTask &makeTask,
                                         const Limits &limits) {
  return Supervisor(count, makeTask, limits).run();
}

StatusOr<std::vector<Outcome>>
runInProcess(size_t count, const MakeTask &makeTask, const Limits &limits) {
  Clock::time_point start = Clock::now();
  StatusOr<Task> task = makeTask([] {});
  if (!task.ok())
    return task.status();
  std::vector<Outcome> outcomes;
  for (size_t i = 0; i < count; ++i)
    outcomes.push_back(secondsSince(start) > limits.total ? Outcome::NotRun
                                                          : (*task)(i));
  return outcomes;
}

} // namespace kdac::selftest
