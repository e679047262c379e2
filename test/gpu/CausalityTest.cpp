// Causality to the last bit on a GPU, or its emulator: whatever the tokens from
// one on hold, the outputs before it are the same. Arguments: OnPack.h.
#include "../Numerics/CaseSurgery.h"
#include "OnPack.h"

using namespace kdac;
using namespace kdac::reference;

namespace {

constexpr int64_t kTokens = 105;

/// Recipes of the tokens that stay and of those that come after them: decays
/// that any range holds, none, and in between; some of a block are in range and
/// some not.
constexpr std::pair<const char *, const char *> kRecipes[] = {
    {"random", "random"},           {"random", "gate_extreme"},
    {"correlated", "gate_extreme"}, {"random", "correlated"},
    {"gate_extreme", "correlated"}, {"gate_extreme", "gate_extreme"},
};

Case caseOf(const Variant &variant, const char *recipe, uint64_t seed) {
  CaseSpec spec;
  spec.variant = variant;
  spec.heads = spec.valueHeads = 1;
  spec.tokens = kTokens;
  spec.recipe = recipe;
  spec.seed = seed;
  Case made = makeCase(spec);
  // Random decays of eight tokens then are about as large as the range.
  if (Buffer *rate = made.find("A_log"))
    rate->set(0, 0, 0, 2.8);
  return made;
}

/// Tokens from `from` on are those of `other`, with far larger values: as large
/// as sums of their products with keys may be.
void change(Case &c, const Case &other, int64_t from) {
  for (Buffer &buffer : c.buffers()) {
    if (buffer.kind() != ArgKind::Input || !isPerToken(buffer, c))
      continue;
    copyRows(*other.find(buffer.name()), from, buffer, from, kTokens - from);
    double large = buffer.dtype() == DType::F16 ? -1e3 : -1e30;
    double factor = buffer.name() == "v" ? large : 1.0;
    for (int64_t t = from; t < kTokens; ++t)
      for (int64_t j = 0; j < buffer.layout().width; ++j)
        buffer.set(t, 0, j, factor * buffer.get(t, 0, j));
  }
}

/// The first of `count` rows that differs in a bit, or -1.
int64_t firstChanged(const Buffer &x, const Buffer &y, int64_t count) {
  for (int64_t row = 0; row < count; ++row)
    if (std::memcmp(rowOf(x, row), rowOf(y, row), rowBytes(x)) != 0)
      return row;
  return -1;
}

StatusOr<bool> check(selftest::Kernel &kernel, const PackVariant &variant,
                     const std::string &schedule) {
  bool passed = true;
  for (auto [before, after] : kRecipes) {
    Case original = caseOf(variant.variant, before, 42);
    Case other = caseOf(variant.variant, after, 43);
    passed &= kernel.run(original).ok();
    for (int64_t from : {1, 7, 16, 30, 50, 97, 104}) {
      Case changed = caseOf(variant.variant, before, 42);
      change(changed, other, from);
      passed &= kernel.run(changed).ok();
      int64_t row =
          firstChanged(*original.find("out"), *changed.find("out"), from);
      if (row >= 0)
        std::printf("%s [%s]: output %d of %s depends on token %d or later, "
                    "now of %s\n",
                    variant.name().c_str(), schedule.c_str(), int(row), before,
                    int(from), after);
      passed &= row < 0;
    }
  }
  return passed;
}

} // namespace

int main(int argc, char **argv) {
  return selftest::testSchedulesOnPack(argc, argv, check);
}
