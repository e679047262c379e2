// Promises: 16-bit floats and tf32 as the hardware rounds them.
// Does not: support hosts without F16C.
#ifndef KDAC_PTXEMULATOR_NUMBERS_H
#define KDAC_PTXEMULATOR_NUMBERS_H

#include "Machine.h"

#include <cmath>
#include <immintrin.h>

namespace kdac::ptx {

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

inline float toFloat(float x) { return x; }
inline float toFloat(F16 x) { return _cvtsh_ss(x.bits); }
inline float toFloat(BF16 x) { return bitsAs<float>(uint32_t(x.bits) << 16); }

template <typename T> T fromFloat(float x);
template <> inline float fromFloat<float>(float x) { return x; }
template <> inline F16 fromFloat<F16>(float x) {
  if (x != x)
    return {0x7fff};
  return {static_cast<uint16_t>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT))};
}
template <> inline BF16 fromFloat<BF16>(float x) {
  uint32_t bits = bitsAs<uint32_t>(x);
  if (x != x)
    return {0x7fff};
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

inline float flush(float x) {
  return std::fabs(x) < 1.17549435e-38f ? std::copysign(0.0f, x) : x;
}
/// cvt.rna.tf32: to nearest, ties away from zero.
inline uint32_t roundTF32(float x) {
  uint32_t bits = bitsAs<uint32_t>(x);
  if ((bits & 0x7f800000) == 0x7f800000)
    return bits;
  return (bits + 0x1000) & ~0x1fffu;
}
/// What a matrix instruction reads of a tf32 operand.
inline float readTF32(uint32_t bits) { return bitsAs<float>(bits & ~0x1fffu); }

template <typename T> T halfOf(uint32_t pair, bool high) {
  return {static_cast<uint16_t>(high ? pair >> 16 : pair)};
}

} // namespace kdac::ptx

#endif // KDAC_PTXEMULATOR_NUMBERS_H
