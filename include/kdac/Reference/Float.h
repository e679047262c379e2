// Promises: exact conversions between the storage types of tensors and f64.
// Does not: compute; rounding is to nearest, ties to even, once, through f32.
#ifndef KDAC_REFERENCE_FLOAT_H
#define KDAC_REFERENCE_FLOAT_H

#include "kdac/Variant/Variant.h"

#include <cstdint>
#include <cstring>

namespace kdac::reference {

inline uint32_t bitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

inline float floatOf(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

/// The bf16 nearest to `x`; a NaN stays a (quiet) NaN.
inline uint16_t bf16Of(float x) {
  uint32_t bits = bitsOf(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float floatOfBF16(uint16_t h) { return floatOf(uint32_t(h) << 16); }

/// The f16 nearest to `x`, subnormals included; from 65520 on infinity.
inline uint16_t halfOf(float x) {
  uint32_t bits = bitsOf(x);
  uint32_t sign = (bits >> 16) & 0x8000u;
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u)
    return static_cast<uint16_t>(sign | 0x7e00u);
  if (bits >= 0x47800000u) // 65536
    return static_cast<uint16_t>(sign | 0x7c00u);
  if (bits < 0x38800000u) { // below 2^-14: adding 0.5 rounds at 2^-24
    float shifted = floatOf(bits) + 0.5f;
    return static_cast<uint16_t>(sign | (bitsOf(shifted) - bitsOf(0.5f)));
  }
  bits += 0xc8000fffu + ((bits >> 13) & 1u); // rebias by 15 - 127, round
  return static_cast<uint16_t>(sign | (bits >> 13));
}

inline float floatOfHalf(uint16_t h) {
  uint32_t sign = uint32_t(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u)
    return floatOf(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  // 2^112 undoes the bias difference and normalises subnormals exactly.
  float value = floatOf(magnitude << 13) * 0x1p112f;
  return floatOf(sign | bitsOf(value));
}

/// Element `i` of an array of `dtype`, integers included.
inline double load(const void *data, DType dtype, int64_t i) {
  switch (dtype) {
  case DType::BF16:
    return floatOfBF16(static_cast<const uint16_t *>(data)[i]);
  case DType::F16:
    return floatOfHalf(static_cast<const uint16_t *>(data)[i]);
  case DType::F32:
    return static_cast<const float *>(data)[i];
  case DType::I32:
    return static_cast<const int32_t *>(data)[i];
  case DType::I64:
    return static_cast<double>(static_cast<const int64_t *>(data)[i]);
  case DType::I8:
    return static_cast<const int8_t *>(data)[i];
  }
  return 0.0;
}

/// Rounds `x` into element `i` of an array of `dtype`.
inline void store(void *data, DType dtype, int64_t i, double x) {
  switch (dtype) {
  case DType::BF16:
    static_cast<uint16_t *>(data)[i] = bf16Of(static_cast<float>(x));
    return;
  case DType::F16:
    static_cast<uint16_t *>(data)[i] = halfOf(static_cast<float>(x));
    return;
  case DType::F32:
    static_cast<float *>(data)[i] = static_cast<float>(x);
    return;
  case DType::I32:
    static_cast<int32_t *>(data)[i] = static_cast<int32_t>(x);
    return;
  case DType::I64:
    static_cast<int64_t *>(data)[i] = static_cast<int64_t>(x);
    return;
  case DType::I8:
    static_cast<int8_t *>(data)[i] = static_cast<int8_t>(x);
    return;
  }
}

} // namespace kdac::reference

#endif // KDAC_REFERENCE_FLOAT_H
