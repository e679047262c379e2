// Promises: timed calls of form attention, and some heads of every sequence for
// the oracle. Every sequence has pages of its own, in order. Does not: launch
// anything.
#ifndef KDAC_LIB_SELFTEST_BENCHATTENTION_H
#define KDAC_LIB_SELFTEST_BENCHATTENTION_H

#include "BenchForm.h"
#include "Pattern.h"
#include "kdac/Reference/Attention.h"

namespace kdac::selftest {

class BenchAttention : public BenchForm {
public:
  using BenchForm::BenchForm;
  int64_t elements(const Arg &tensor) const override;
  int64_t size(const std::string &name) const override;
  float scale(const std::string &) const override { return attentionScale; }
  std::vector<int64_t> integers(const Arg &tensor) const override;

  reference::AttentionOperands
  operands(Patterns &patterns, const std::vector<int64_t> &heads) const;

private:
  std::vector<int64_t> table() const;
};

} // namespace kdac::selftest

#endif // KDAC_LIB_SELFTEST_BENCHATTENTION_H
