#include "Lanes.h"

#include "Elements.h"

#include <cmath>

// One function per processor generation, chosen when the program is loaded.
// Sanitizers run before such choices can be made.
#if defined(__x86_64__) && defined(__has_feature)
#if !__has_feature(address_sanitizer)
#define KDAC_CLONES                                                            \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
#endif
#ifndef KDAC_CLONES
#define KDAC_CLONES
#endif

namespace kdac::model {

namespace {

// Four vectors of 16 partial sums: one alone would wait for each addition.
constexpr int64_t lanes = 64, vector = 16;
/// Elements of a weight asked for ahead, mostly of the rows that follow: the
/// processor's own prefetching stops at every page.
constexpr int64_t ahead = 2048;

/// By halves, which vectors can do: one after the other, 64 additions take as
/// long as a row of 1500 elements.
[[gnu::always_inline]] inline float sumOf(float *partial) {
  for (int64_t half = lanes / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i)
      partial[i] += partial[i + half];
  return partial[0];
}

} // namespace

KDAC_CLONES float dot(const float *x, const float *y, int64_t n) {
  float partial[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int64_t j = 0; j < lanes; ++j)
      partial[j] += x[i + j] * y[i + j];
  for (; i + vector <= n; i += vector)
    for (int64_t j = 0; j < vector; ++j)
      partial[j] += x[i + j] * y[i + j];
  for (; i < n; ++i)
    partial[i % vector] += x[i] * y[i];
  return sumOf(partial);
}

KDAC_CLONES void axpy(float a, const float *x, float *y, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    y[i] += a * x[i];
}

namespace {

KDAC_CLONES float dotF16(const uint16_t *w, const float *x, int64_t n) {
  float partial[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int64_t j = 0; j < lanes; ++j)
      partial[j] += floatOfF16(w[i + j]) * x[i + j];
  for (; i + vector <= n; i += vector)
    for (int64_t j = 0; j < vector; ++j)
      partial[j] += floatOfF16(w[i + j]) * x[i + j];
  for (; i < n; ++i)
    partial[i % vector] += floatOfF16(w[i]) * x[i];
  return sumOf(partial);
}

KDAC_CLONES float dotBF16(const uint16_t *w, const float *x, int64_t n) {
  float partial[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    for (int64_t line = 0; line < lanes; line += 32)
      __builtin_prefetch(w + i + ahead + line);
    for (int64_t j = 0; j < lanes; ++j)
      partial[j] += floatOfBF16(w[i + j]) * x[i + j];
  }
  for (; i + vector <= n; i += vector)
    for (int64_t j = 0; j < vector; ++j)
      partial[j] += floatOfBF16(w[i + j]) * x[i + j];
  for (; i < n; ++i)
    partial[i % vector] += floatOfBF16(w[i]) * x[i];
  return sumOf(partial);
}

/// A row of MXFP4 as f32.
KDAC_CLONES void widenMxfp4(const uint8_t *packed, const uint8_t *scales,
                            int64_t n, float *to) {
  for (int64_t group = 0; group < n / 32; ++group) {
    float scale = floatOfE8M0(scales[group]);
    for (int64_t i = 0; i < 16; ++i) {
      uint8_t pair = packed[group * 16 + i];
      to[group * 32 + 2 * i] = e2m1Values[pair & 15] * scale;
      to[group * 32 + 2 * i + 1] = e2m1Values[pair >> 4] * scale;
    }
  }
}

float dotMxfp4(const uint8_t *packed, const uint8_t *scales, const float *x,
               int64_t n) {
  float sum = 0, group[32];
  for (int64_t i = 0; i < n; i += 32) {
    widenMxfp4(packed + i / 2, scales + i / 32, 32, group);
    sum += dot(group, x + i, 32);
  }
  return sum;
}

KDAC_CLONES void widenBF16(const uint16_t *from, int64_t n, float *to) {
  for (int64_t i = 0; i < n; ++i)
    to[i] = floatOfBF16(from[i]);
}

void widenF16(const uint16_t *from, int64_t n, float *to) {
  for (int64_t i = 0; i < n; ++i)
    to[i] = floatOfF16(from[i]);
}

} // namespace

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

float rowDot(const Matrix &w, int64_t row, const float *x) {
  const auto *halves = static_cast<const uint16_t *>(w.data) + row * w.in;
  switch (w.type) {
  case MatrixType::F32:
    return dot(static_cast<const float *>(w.data) + row * w.in, x, w.in);
  case MatrixType::F16:
    return dotF16(halves, x, w.in);
  case MatrixType::BF16:
    return dotBF16(halves, x, w.in);
  case MatrixType::Mxfp4:
    return dotMxfp4(static_cast<const uint8_t *>(w.data) + row * (w.in / 2),
                    w.scales + row * (w.in / 32), x, w.in);
  }
  return 0;
}

void widenRows(const Matrix &w, int64_t begin, int64_t count, float *to) {
  int64_t n = count * w.in, first = begin * w.in;
  switch (w.type) {
  case MatrixType::F32:
    std::memcpy(to, static_cast<const float *>(w.data) + first,
                static_cast<size_t>(n) * 4);
    return;
  case MatrixType::F16:
    return widenF16(static_cast<const uint16_t *>(w.data) + first, n, to);
  case MatrixType::BF16:
    return widenBF16(static_cast<const uint16_t *>(w.data) + first, n, to);
  case MatrixType::Mxfp4:
    return widenMxfp4(static_cast<const uint8_t *>(w.data) + first / 2,
                      w.scales + first / 32, n, to);
  }
}

} // namespace kdac::model
