// A sequence has the same bits alone and among others, dense and packed, under
// each schedule of a variant, on a GPU or its emulator, be the others NaN.
// Arguments: OnPack.h.
#include "../Numerics/CaseSurgery.h"
#include "OnPack.h"

#include <cmath>

using namespace kdac;
using namespace kdac::reference;

namespace {

constexpr int64_t kTokens = 101;

/// A batch, and where in it the sequence is.
struct Batch {
  const char *name;
  int64_t sequences;            ///< dense if there are no lengths
  std::vector<int64_t> lengths; ///< of packed ones
  int64_t number;               ///< of the sequence
  bool isPoisoned = false;      ///< all tokens but its own are NaN
};

const std::vector<Batch> &batches() {
  static const std::vector<Batch> all = {
      {"dense", 3, {}, 1},
      {"packed alone", 1, {kTokens}, 0},
      {"packed among longer and shorter ones", 1, {33, 0, kTokens, 1, 130}, 2},
      {"packed between NaNs", 1, {33, kTokens, 40}, 1, true},
  };
  return all;
}

CaseSpec specOf(const Variant &variant) {
  CaseSpec spec;
  spec.variant = variant;
  spec.heads = 1;
  spec.valueHeads = 2;
  spec.tokens = kTokens;
  return spec;
}

bool sameRows(const Buffer &x, int64_t firstX, const Buffer &y, int64_t firstY,
              int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (std::memcmp(rowOf(x, firstX + i), rowOf(y, firstY + i), rowBytes(x)))
      return false;
  return true;
}

void poisonTokens(Case &c) {
  for (Buffer &buffer : c.buffers())
    if (buffer.kind() == ArgKind::Input && isPerToken(buffer, c))
      for (int64_t t = 0; t < buffer.layout().tokens; ++t)
        for (int64_t h = 0; h < buffer.layout().heads; ++h)
          for (int64_t j = 0; j < buffer.layout().width; ++j)
            buffer.set(t, h, j, NAN);
}

/// Where sequences are cut into segments the number of sequences decides where.
bool cutsSequences(const PackVariant &variant, const std::string &schedule) {
  for (const Launch &launch : variant.launches)
    if (launch.when == schedule && launch.usesWorkspace &&
        !variant.sizes.empty())
      return true;
  return false;
}

StatusOr<bool> check(selftest::Kernel &kernel, const PackVariant &variant,
                     const std::string &schedule) {
  if (cutsSequences(variant, schedule))
    return true;
  Case alone = makeCase(specOf(variant.variant));
  if (Status s = kernel.run(alone); !s.ok())
    return s;
  bool passed = true;
  for (const Batch &batch : batches()) {
    CaseSpec spec = specOf(variant.variant);
    spec.sequences = batch.sequences;
    spec.lengths = batch.lengths;
    spec.seed = 43; // of the others
    Case among = makeCase(spec);
    int64_t first = batch.lengths.empty() ? batch.number * kTokens
                                          : among.offsets()[batch.number];
    if (batch.isPoisoned)
      poisonTokens(among);
    copyTokens(alone, 0, among, first, kTokens);
    copyRows(*alone.find("h0"), 0, *among.find("h0"), batch.number, 1);
    if (Status s = kernel.run(among); !s.ok())
      return s;
    bool isSame =
        sameRows(*alone.find("out"), 0, *among.find("out"), first, kTokens) &&
        sameRows(*alone.find("ht"), 0, *among.find("ht"), batch.number, 1);
    if (!isSame)
      std::printf("%s [%s]: a sequence has other bits alone than %s\n",
                  variant.name().c_str(), schedule.c_str(), batch.name);
    passed &= isSame;
  }
  return passed;
}

} // namespace

int main(int argc, char **argv) {
  return selftest::testSchedulesOnPack(argc, argv, check);
}
