// Promises: the same number for the same (seed, stream, index) on every
// machine. Does not: keep state, so that any element can be drawn by any
// thread.
#ifndef KDAC_REFERENCE_RANDOM_H
#define KDAC_REFERENCE_RANDOM_H

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace kdac::reference {

/// SplitMix64's finaliser: a bijection in which every input bit reaches every
/// output bit (Steele, Lea, Flood 2014).
inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/// A counter-based generator: draw(i) is a pure function of seed, stream and i.
class Random {
public:
  Random(uint64_t seed, uint64_t stream) : key(mix(mix(seed) ^ stream)) {}

  /// 64 random bits.
  uint64_t bits(uint64_t index) const { return mix(key ^ mix(index)); }

  /// Uniform in [0, 1), a multiple of 2^-53.
  double uniform(uint64_t index) const {
    return static_cast<double>(bits(index) >> 11) * 0x1p-53;
  }

  /// Zero mean, unit variance: the sum of twelve uniform 16-bit numbers
  /// (Irwin-Hall), which is exact in integers, unlike anything from libm.
  double normal(uint64_t index) const {
    uint64_t word = bits(index);
    int64_t sum = 0;
    for (int i = 0; i < 3; ++i, word = mix(word))
      sum += int64_t(word & 0xffff) + int64_t((word >> 16) & 0xffff) +
             int64_t((word >> 32) & 0xffff) + int64_t(word >> 48);
    return static_cast<double>(sum - 6 * 0xffff) * 0x1p-16;
  }

private:
  uint64_t key;
};

/// 0 .. count - 1 in an order of their own.
inline std::vector<int64_t> shuffled(int64_t count, uint64_t seed,
                                     uint64_t stream) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  Random random(seed, stream);
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1],
              order[static_cast<size_t>(random.uniform(i) * double(i))]);
  return order;
}

} // namespace kdac::reference

#endif // KDAC_REFERENCE_RANDOM_H
