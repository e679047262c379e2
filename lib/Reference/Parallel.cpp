#include "kdac/Reference/Parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace kdac::reference {

void parallelFor(int64_t count, const std::function<void(int64_t)> &body,
                 int threads) {
  if (threads <= 0)
    threads =
        static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  threads = static_cast<int>(std::min<int64_t>(threads, count));
  std::atomic<int64_t> next{0};
  auto work = [&] {
    for (int64_t i = next++; i < count; i = next++)
      body(i);
  };
  std::vector<std::thread> helpers;
  for (int i = 1; i < threads; ++i)
    helpers.emplace_back(work);
  work();
  for (std::thread &helper : helpers)
    helper.join();
}

} // namespace kdac::reference
