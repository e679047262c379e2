#include "kdac/Reference/Buffer.h"
#include "kdac/Reference/Float.h"
#include "kdac/Reference/Random.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>

namespace kdac::reference {

namespace {

constexpr std::align_val_t alignment{64};

/// What guards hold: NaN survives any arithmetic, a large number also survives
/// minimum and maximum instructions that drop NaN.
double guardValue(DType dtype, int64_t element) {
  if (dtype == DType::I32 || dtype == DType::I64)
    return -1.0;
  if (element % 2 == 0)
    return std::numeric_limits<double>::quiet_NaN();
  return dtype == DType::F16 ? 6e4 : 1e30;
}

} // namespace

void Buffer::Free::operator()(std::byte *p) const {
  ::operator delete[](p, alignment);
}

Buffer::Buffer(std::string name, ArgKind kind, DType dtype, Layout layout)
    : label(std::move(name)), direction(kind), type(dtype), pattern(layout),
      storage(static_cast<std::byte *>(::operator new[](
          static_cast<size_t>(layout.span() * dtypeSize(dtype) +
                              2 * guardBytes),
          alignment))) {
  if (direction == ArgKind::Output)
    poison();
  writeGuard(0, guardBytes);
  writeGuard(guardBytes + bytes(), wholeBytes());
  int64_t size = dtypeSize(type);
  for (int64_t t = 0; t + 1 < pattern.tokens; ++t)
    writeGuard(guardBytes + (t * pattern.stride + pattern.rowElements()) * size,
               guardBytes + (t + 1) * pattern.stride * size);
}

double Buffer::get(int64_t token, int64_t head, int64_t channel) const {
  return load(data(), type, pattern.at(token, head, channel));
}

void Buffer::set(int64_t token, int64_t head, int64_t channel, double value) {
  store(data(), type, pattern.at(token, head, channel), value);
}

Rows Buffer::rows() const {
  return [data = data(), type = type,
          pattern = pattern](int64_t token, int64_t head, double *row) {
    int64_t first = pattern.at(token, head, 0);
    for (int64_t c = 0; c < pattern.width; ++c)
      row[c] = load(data, type, first + c);
  };
}

void Buffer::poison() {
  int64_t size = dtypeSize(type);
  for (int64_t t = 0; t < pattern.tokens; ++t)
    std::memset(static_cast<std::byte *>(data()) + t * pattern.stride * size,
                0xff, static_cast<size_t>(pattern.rowElements() * size));
}

bool Buffer::isPoison(int64_t token, int64_t head, int64_t channel) const {
  int64_t size = dtypeSize(type);
  auto *p = static_cast<const std::byte *>(data()) +
            pattern.at(token, head, channel) * size;
  for (int64_t i = 0; i < size; ++i)
    if (p[i] != std::byte{0xff})
      return false;
  return true;
}

bool Buffer::guardsIntact() const {
  if (!guardHolds(0, guardBytes) ||
      !guardHolds(guardBytes + bytes(), wholeBytes()))
    return false;
  int64_t size = dtypeSize(type);
  if (pattern.stride == pattern.rowElements())
    return true;
  for (int64_t t = 0; t + 1 < pattern.tokens; ++t)
    if (!guardHolds(guardBytes +
                        (t * pattern.stride + pattern.rowElements()) * size,
                    guardBytes + (t + 1) * pattern.stride * size))
      return false;
  return true;
}

uint64_t Buffer::digest() const {
  uint64_t hash = 0;
  auto *bytesOf = static_cast<const std::byte *>(data());
  for (int64_t i = 0; i < bytes(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytesOf + i,
                static_cast<size_t>(std::min<int64_t>(8, bytes() - i)));
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 29;
  }
  return hash;
}

void Buffer::writeGuard(int64_t firstByte, int64_t endByte) {
  int64_t size = dtypeSize(type), count = (endByte - firstByte) / size;
  for (int64_t i = 0; i < count; ++i)
    store(storage.get() + firstByte, type, i, guardValue(type, i));
}

bool Buffer::guardHolds(int64_t firstByte, int64_t endByte) const {
  int64_t size = dtypeSize(type), count = (endByte - firstByte) / size;
  for (int64_t i = 0; i < count; ++i) {
    alignas(8) std::byte expected[8];
    store(expected, type, 0, guardValue(type, i));
    if (std::memcmp(expected, storage.get() + firstByte + i * size,
                    static_cast<size_t>(size)) != 0)
      return false;
  }
  return true;
}

} // namespace kdac::reference
