#include "ScheduleBits.h"

#include <algorithm>

namespace kdac::selftest {

namespace {

using reference::Buffer;
using reference::Case;
using reference::CaseSpec;

/// Sequences that end within a chunk, one of a single token, one that is empty;
/// heads that clusters of two and three programs do not divide evenly.
CaseSpec specOf(const Variant &variant, uint64_t seed) {
  CaseSpec spec;
  spec.variant = variant;
  spec.lengths = {229, 1, 0, 70};
  spec.heads = 1;
  spec.valueHeads = 2;
  spec.seed = seed;
  return spec;
}

bool cutsSequences(const PackVariant &variant, const std::string &schedule) {
  return std::any_of(variant.launches.begin(), variant.launches.end(),
                     [&](const Launch &launch) {
                       return launch.when == schedule && launch.usesWorkspace;
                     });
}

} // namespace

StatusOr<std::string>
differenceOfSchedules(Kernel &kernel, const PackVariant &variant,
                      const std::vector<std::string> &schedules,
                      uint64_t seed) {
  std::vector<std::pair<std::string, uint64_t>> expected;
  for (const std::string &schedule : schedules) {
    if (cutsSequences(variant, schedule))
      continue;
    kernel.useSchedule(schedule);
    Case c = reference::makeCase(specOf(variant.variant, seed));
    for (Buffer &buffer : c.buffers())
      if (buffer.kind() == ArgKind::Output)
        buffer.poison();
    if (Status s = kernel.run(c); !s.ok())
      return s;
    std::vector<std::pair<std::string, uint64_t>> digests;
    for (const Buffer &buffer : c.buffers())
      if (buffer.kind() == ArgKind::Output)
        digests.emplace_back(buffer.name(), buffer.digest());
    if (expected.empty())
      expected = digests;
    for (size_t i = 0; i < digests.size(); ++i)
      if (digests[i] != expected[i])
        return "output " + digests[i].first + " of schedule " + schedule +
               " has other bits than that of schedule " + schedules.front();
  }
  return std::string();
}

} // namespace kdac::selftest
