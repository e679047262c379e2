// Promises: one kernel argument in host memory, guarded on both sides, so that
// reading or writing next to it is seen.
// Does not: know what the argument means.
#ifndef KDAC_REFERENCE_BUFFER_H
#define KDAC_REFERENCE_BUFFER_H

#include "kdac/Reference/Reference.h"
#include "kdac/Variant/Variant.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace kdac::reference {

/// The element pattern of a tensor: [tokens, heads, width], tokens `stride`
/// elements apart, heads and channels contiguous.
struct Layout {
  int64_t tokens = 1;
  int64_t heads = 1;
  int64_t width = 1;
  int64_t stride = 0;

  int64_t rowElements() const { return heads * width; }
  int64_t elements() const { return tokens * heads * width; }
  /// Elements from the first to the last one, gaps between tokens included.
  int64_t span() const {
    return tokens ? (tokens - 1) * stride + rowElements() : 0;
  }
  int64_t at(int64_t token, int64_t head, int64_t channel) const {
    return token * stride + head * width + channel;
  }
};

/// A tensor argument. Its storage is guard, data, guard; guards and the gaps
/// between strided tokens hold NaN and 1e30 in turn (all bits set for
/// integers). The data starts 16 bytes past a multiple of 64: kernels may rely
/// on 16-byte alignment and on no more.
class Buffer {
public:
  /// Guard bytes on either side; a multiple of 16 that is not one of 32.
  static constexpr int64_t guardBytes = 272;

  Buffer(std::string name, ArgKind kind, DType dtype, Layout layout);

  const std::string &name() const { return label; }
  ArgKind kind() const { return direction; }
  DType dtype() const { return type; }
  const Layout &layout() const { return pattern; }

  void *data() { return storage.get() + guardBytes; }
  const void *data() const { return storage.get() + guardBytes; }
  /// Bytes a kernel may touch.
  int64_t bytes() const { return pattern.span() * dtypeSize(type); }
  /// Data and both guards: what a device copy should hold too, at the same
  /// offset `guardBytes`.
  void *whole() { return storage.get(); }
  const void *whole() const { return storage.get(); }
  int64_t wholeBytes() const { return bytes() + 2 * guardBytes; }

  double get(int64_t token, int64_t head, int64_t channel) const;
  void set(int64_t token, int64_t head, int64_t channel, double value);
  /// Reads rows as f64; the buffer must outlive the result.
  Rows rows() const;

  /// Sets every data byte to 0xff: NaN in every float type, and a NaN that no
  /// arithmetic produces, so that an unwritten element is told from a NaN.
  void poison();
  /// True if the element still holds the bytes of poison().
  bool isPoison(int64_t token, int64_t head, int64_t channel) const;
  /// True if guards and gaps hold what the constructor wrote.
  bool guardsIntact() const;
  /// A digest of the data bytes, to see that a kernel left an input alone.
  uint64_t digest() const;

private:
  struct Free {
    void operator()(std::byte *p) const;
  };

  void writeGuard(int64_t firstByte, int64_t endByte);
  bool guardHolds(int64_t firstByte, int64_t endByte) const;

  std::string label;
  ArgKind direction;
  DType type;
  Layout pattern;
  std::unique_ptr<std::byte[], Free> storage;
};

} // namespace kdac::reference

#endif // KDAC_REFERENCE_BUFFER_H
