// Promises: what a timed call passes, by form: how large its tensors are, the
// values of its sizes and scales, and of tensors of integers. Does not: draw
// other numbers, allocate or launch.
#ifndef KDAC_LIB_SELFTEST_BENCHFORM_H
#define KDAC_LIB_SELFTEST_BENCHFORM_H

#include "kdac/SelfTest/Plan.h"

#include <memory>

namespace kdac::selftest {

class BenchForm {
public:
  /// That of the variant's form. Both are kept by reference.
  static std::unique_ptr<BenchForm> make(const Variant &variant,
                                         const BenchShape &shape);
  BenchForm(const Variant &variant, const BenchShape &shape)
      : v(variant), shape(shape) {}
  virtual ~BenchForm() = default;

  /// Elements of a tensor; 0: it is absent.
  virtual int64_t elements(const Arg &tensor) const = 0;
  virtual int64_t size(const std::string &name) const = 0;
  virtual float scale(const std::string &name) const;
  /// What a tensor of integers holds.
  virtual std::vector<int64_t> integers(const Arg &tensor) const = 0;
  /// Bytes that any kernel must move of a tensor of so many.
  virtual double moved(const Arg &tensor, double bytes) const { return bytes; }

protected:
  /// Of the dimensions of a shape, "[tokens, 2]", which are numbers or sizes.
  int64_t product(const std::string &dimensions) const;

  const Variant &v;
  const BenchShape &shape;
};

/// What a call of forms attention and prompt passes as its scale: queries have
/// length 1 or so.
constexpr float attentionScale = 3;

/// The parts of an argument's shape: "tokens", "HV", "K".
std::vector<std::string> dimensionsOf(const std::string &shape);

/// `count` integers from `first` on.
std::vector<int64_t> countFrom(int64_t first, int64_t count);

} // namespace kdac::selftest

#endif // KDAC_LIB_SELFTEST_BENCHFORM_H
