// Causality to the last bit on a GPU, or its emulator: whatever the tokens from
// one on hold, the outputs before it are the same. PACK and a driver library.
#include "../../lib/SelfTest/Executor.h"
#include "../Numerics/CaseSurgery.h"

#include <cstdio>
#include <cstring>
#include <set>

using namespace kdac;
using namespace kdac::reference;

namespace {

constexpr int64_t kTokens = 105;

/// Tokens from `from` on hold other, and far larger, numbers.
void change(Case &c, int64_t from) {
  for (Buffer &buffer : c.buffers()) {
    bool isInput = buffer.kind() == ArgKind::Input && isPerToken(buffer, c);
    double factor = buffer.name() == "v"   ? -1e30
                    : buffer.name() == "g" ? 1.0
                                           : -30.0;
    for (int64_t t = from; isInput && t < kTokens; ++t)
      for (int64_t h = 0; h < buffer.layout().heads; ++h)
        for (int64_t j = 0; j < buffer.layout().width; ++j)
          buffer.set(t, h, j, factor * (buffer.get(t, h, j) - 1e-3));
  }
}

/// The first of `count` rows that differs in a bit, or -1.
int64_t firstChanged(const Buffer &x, const Buffer &y, int64_t count) {
  for (int64_t row = 0; row < count; ++row)
    if (std::memcmp(rowOf(x, row), rowOf(y, row), rowBytes(x)) != 0)
      return row;
  return -1;
}

bool check(selftest::Kernel &kernel, const PackVariant &variant,
           const std::string &schedule) {
  kernel.useSchedule(schedule);
  CaseSpec spec;
  spec.variant = variant.variant;
  spec.heads = spec.valueHeads = 1;
  spec.tokens = kTokens;
  Case original = makeCase(spec);
  bool passed = kernel.run(original).ok();
  for (int64_t from : {1, 16, 17, 31, 32, 50, 64, 97, 104}) {
    Case changed = makeCase(spec);
    change(changed, from);
    passed &= kernel.run(changed).ok();
    int64_t row =
        firstChanged(*original.find("out"), *changed.find("out"), from);
    if (row >= 0)
      std::printf("%s [%s]: output %d depends on token %d or later\n",
                  variant.name().c_str(), schedule.c_str(), int(row),
                  int(from));
    passed &= row < 0;
  }
  return passed;
}

} // namespace

int main(int argc, char **argv) {
  selftest::Settings settings;
  settings.emulated = true;
  StatusOr<PackReader> pack = PackReader::open(argc > 1 ? argv[1] : "");
  if (argc > 2)
    settings.driver = argv[2];
  auto executor = selftest::makeExecutor(settings);
  if (!pack.ok() || !executor.ok()) {
    std::printf(
        "%s\n",
        (pack.ok() ? executor.status() : pack.status()).message().c_str());
    return 2;
  }
  bool passed = true;
  for (const PackVariant &variant : pack->manifest().variants) {
    auto kernel = (*executor)->load(*pack, variant);
    if (!kernel.ok()) {
      std::printf("%s\n", kernel.status().message().c_str());
      return 2;
    }
    std::set<std::string> schedules;
    for (const Launch &launch : variant.launches)
      schedules.insert(launch.when);
    for (const std::string &schedule : schedules)
      passed &= check(**kernel, variant, schedule);
  }
  std::printf(passed ? "passed\n" : "failed\n");
  return passed ? 0 : 1;
}
