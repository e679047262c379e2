// Promises: zeroed host memory at multiples of 64 bytes; memory that nobody
// touches costs nothing. Does not: throw or grow.
#ifndef KDAC_LIB_MODEL_ALIGNEDBUFFER_H
#define KDAC_LIB_MODEL_ALIGNEDBUFFER_H

#include "kdac/Model/Ops.h"

#include <memory>

namespace kdac::model {

/// Gives mapped memory back.
struct Unmap {
  int64_t size = 0;
  void operator()(void *memory) const;
};

class AlignedBuffer {
public:
  /// Zeroed memory; `what` is how the error calls it.
  static StatusOr<AlignedBuffer> allocate(int64_t bytes,
                                          const std::string &what);

  AlignedBuffer() = default;
  char *bytes() const { return static_cast<char *>(memory.get()); }
  float *floats() const { return static_cast<float *>(memory.get()); }
  int64_t size() const { return count; }

private:
  std::unique_ptr<void, Unmap> memory;
  int64_t count = 0;
};

/// The stride of rows of `width` elements.
constexpr int64_t paddedWidth(int64_t width) { return (width + 15) / 16 * 16; }

} // namespace kdac::model

#endif // KDAC_LIB_MODEL_ALIGNEDBUFFER_H
