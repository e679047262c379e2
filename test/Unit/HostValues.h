// Promises: test data, roundings written independently of the compiler, and
// distances. Does not: compile anything.
#ifndef KDAC_TEST_UNIT_HOSTVALUES_H
#define KDAC_TEST_UNIT_HOSTVALUES_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace kdac::test {

using Floats = std::vector<float>;
using Halves = std::vector<uint16_t>;
inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kPoison = 12345.0f;

inline Floats random(size_t size, unsigned seed, float low = -1,
                     float high = 1) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> draw(low, high);
  Floats values(size);
  for (float &value : values)
    value = draw(engine);
  return values;
}

/// Round to nearest even at 16 bits, written independently of the compiler.
inline float toBf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  uint32_t low = bits & 0xffff;
  bits &= 0xffff0000;
  if (low > 0x8000 || (low == 0x8000 && (bits & 0x10000)))
    bits += 0x10000;
  std::memcpy(&x, &bits, 4);
  return x;
}

inline uint16_t bf16Bits(float x) {
  uint32_t bits;
  x = toBf16(x);
  std::memcpy(&bits, &x, 4);
  return bits >> 16;
}

inline float fromBf16(uint16_t bits) {
  uint32_t wide = uint32_t(bits) << 16;
  float x;
  std::memcpy(&x, &wide, 4);
  return x;
}

inline float toTf32(float x) {
  double scale = std::ldexp(1.0, 10 - std::ilogb(x));
  return x == 0 ? 0 : float(std::nearbyint(double(x) * scale) / scale);
}

inline Halves toBf16(const Floats &values) {
  Halves bits;
  for (float value : values)
    bits.push_back(bf16Bits(value));
  return bits;
}

inline double relativeError(const Floats &got,
                            const std::vector<double> &want) {
  double error = 0, norm = 1e-300;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

/// Error in units of the last place of the f32 result.
inline double ulps(float got, double want) {
  double unit = std::ldexp(1.0, std::max(std::ilogb(want), -126) - 23);
  return std::fabs(got - want) / unit;
}

} // namespace kdac::test

#endif // KDAC_TEST_UNIT_HOSTVALUES_H
