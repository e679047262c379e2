// Promises: exact conversions of weight elements to f32. Does not: round.
#ifndef KDAC_LIB_MODEL_ELEMENTS_H
#define KDAC_LIB_MODEL_ELEMENTS_H

#include <cstdint>
#include <cstring>

namespace kdac::model {

inline float floatOfBits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

inline float floatOfBF16(uint16_t h) { return floatOfBits(uint32_t(h) << 16); }

inline float floatOfF16(uint16_t h) {
  uint32_t sign = uint32_t(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u) // infinities and NaN
    return floatOfBits(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  // 2^112 undoes the bias difference and normalises subnormals exactly.
  float value = floatOfBits(magnitude << 13) * 0x1p112f;
  return sign ? -value : value;
}

/// The value of an E2M1 nibble.
constexpr float e2m1Values[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                  -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

/// The scale 2^(s - 127) of an E8M0 byte; 255 is NaN.
inline float floatOfE8M0(uint8_t s) {
  if (s == 255)
    return floatOfBits(0x7fc00000u);
  return s == 0 ? 0x1p-127f : floatOfBits(uint32_t(s) << 23);
}

} // namespace kdac::model

#endif // KDAC_LIB_MODEL_ELEMENTS_H
