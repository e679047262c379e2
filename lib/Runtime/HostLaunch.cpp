#include "kdac/Runtime/HostLaunch.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

namespace kdac {

namespace {

constexpr int64_t kLine = 64;

/// Tells the processor that this thread only waits.
void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Scratch of one thread; grows, never shrinks.
class Scratch {
public:
  ~Scratch() { std::free(data); }

  bool reserve(int64_t bytes) {
    bytes = (bytes + kLine - 1) / kLine * kLine;
    if (bytes <= size)
      return true;
    std::free(data);
    data = std::aligned_alloc(kLine, static_cast<size_t>(bytes));
    size = data ? bytes : 0;
    return data != nullptr;
  }

  void *get() const { return data; }

private:
  void *data = nullptr;
  int64_t size = 0;
};

/// Watches for `isDone` about as long as putting a thread to sleep and waking
/// it takes: launches often follow each other sooner.
template <typename Condition> void watch(Condition isDone) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + std::chrono::microseconds(50);
  while (!isDone() && Clock::now() < end)
    for (int i = 0; i < 16 && !isDone(); ++i)
      relax();
}

struct Launch {
  HostEntry entry = nullptr;
  void **args = nullptr;
  int64_t grid = 0;
  int64_t step = 1; // instances taken at a time
};

} // namespace

struct HostPool::State {
  std::mutex mutex;
  std::condition_variable wake, done;
  Launch launch;
  std::atomic<int64_t> next{0};
  // Written under `mutex`.
  std::atomic<uint64_t> generation{0}; // of `launch`
  std::atomic<int> working{0};         // workers that have not finished it
  std::atomic<bool> stop{false};
  std::vector<Scratch> scratch; // [threads], the caller's first
  std::vector<std::thread> workers;

  void drain(const Launch &job, void *memory) {
    for (;;) {
      int64_t begin = next.fetch_add(job.step);
      if (begin >= job.grid)
        return;
      job.entry(job.args, begin, std::min(begin + job.step, job.grid), memory);
    }
  }

  void work(size_t index) {
    uint64_t seen = 0;
    for (;;) {
      Launch job;
      watch([&] { return stop || generation != seen; });
      {
        std::unique_lock<std::mutex> lock(mutex);
        wake.wait(lock, [&] { return stop || generation != seen; });
        if (stop)
          return;
        seen = generation;
        job = launch;
      }
      drain(job, scratch[index].get());
      std::lock_guard<std::mutex> lock(mutex);
      if (--working == 0)
        done.notify_one();
    }
  }
};

HostPool::HostPool(int threads) : state(std::make_unique<State>()) {
  if (threads <= 0)
    threads =
        static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  state->scratch = std::vector<Scratch>(static_cast<size_t>(threads));
  for (int i = 1; i < threads; ++i)
    state->workers.emplace_back(
        [this, i] { state->work(static_cast<size_t>(i)); });
}

HostPool::~HostPool() {
  {
    std::lock_guard<std::mutex> lock(state->mutex);
    state->stop = true;
  }
  state->wake.notify_all();
  for (std::thread &worker : state->workers)
    worker.join();
}

int HostPool::threads() const {
  return static_cast<int>(state->scratch.size());
}

bool HostPool::run(HostEntry entry, void **args, int64_t grid,
                   int64_t scratchBytes) {
  if (grid <= 0)
    return true;
  for (Scratch &scratch : state->scratch)
    if (!scratch.reserve(std::max<int64_t>(scratchBytes, 1)))
      return false;
  if (grid == 1) { // waking threads takes longer than most single programs
    entry(args, 0, 1, state->scratch.front().get());
    return true;
  }
  // A few pieces per thread even out unequal sequences; more would only make
  // small launches slower.
  constexpr int64_t kPieces = 8;
  Launch job{entry, args, grid,
             std::max<int64_t>(1, grid / (threads() * kPieces))};
  {
    std::lock_guard<std::mutex> lock(state->mutex);
    state->launch = job;
    state->next = 0;
    state->working = static_cast<int>(state->workers.size());
    ++state->generation;
  }
  state->wake.notify_all();
  state->drain(job, state->scratch.front().get());
  watch([&] { return state->working == 0; });
  std::unique_lock<std::mutex> lock(state->mutex);
  state->done.wait(lock, [&] { return state->working == 0; });
  return true;
}

bool runOnHost(HostEntry entry, void **args, int64_t grid, int64_t scratchBytes,
               int threads) {
  HostPool pool(threads);
  return pool.run(entry, args, grid, scratchBytes);
}

} // namespace kdac
