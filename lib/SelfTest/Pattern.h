// Promises: tensors of any size from one period of random numbers, so that
// gigabytes of inputs cost milliseconds. Does not: suit correctness cases,
// which draw every element (kdac/Reference/Case.h).
#ifndef KDAC_LIB_SELFTEST_PATTERN_H
#define KDAC_LIB_SELFTEST_PATTERN_H

#include "kdac/Reference/Recipe.h"
#include "kdac/Reference/Reference.h"
#include "kdac/Runtime/Device.h"
#include "kdac/Variant/Variant.h"

#include <map>
#include <memory>
#include <vector>

namespace kdac::selftest {

/// One period of an argument's values, as stored: element i of the tensor is
/// element i mod `period`. The period is a prime, so that no two heads or
/// tokens are alike.
struct Pattern {
  static constexpr int64_t period = 4194301;
  DType dtype = DType::F32;
  std::vector<std::byte> bytes;

  double at(int64_t element) const;
  /// Fills a device tensor of `elements` on the stream.
  Status fill(DeviceBuffer &buffer, int64_t elements, cuda::Stream stream,
              const Device &device) const;
};

/// Patterns by what they are drawn for.
class Patterns {
public:
  Patterns(uint64_t seed, const reference::Recipe &recipe)
      : seed(seed), recipe(recipe) {}
  /// Values of the argument `arg` of `variant`, as the recipe draws them.
  const Pattern &of(const Variant &variant, const Arg &arg);
  const Pattern &of(const Variant &variant, std::string_view name);

private:
  uint64_t seed;
  const reference::Recipe &recipe;
  std::map<std::string, std::unique_ptr<Pattern>> known;
};

/// Rows of a tensor [.., stride] that a pattern, which must outlive them,
/// fills: of row r and head h `width` elements of head heads[h], none: all
/// heads begin with the row, of row numbers[r], none: row r itself.
reference::Rows rowsOf(const Pattern &pattern, int64_t width, int64_t stride,
                       std::vector<int64_t> heads = {},
                       std::vector<int64_t> numbers = {});

} // namespace kdac::selftest

#endif // KDAC_LIB_SELFTEST_PATTERN_H
