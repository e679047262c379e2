// Promises: timed calls of form rows, and all their rows for the oracle. Of
// latent there is one slot, whose pages are in order. Does not: launch
// anything.
#ifndef KDAC_LIB_SELFTEST_BENCHROWS_H
#define KDAC_LIB_SELFTEST_BENCHROWS_H

#include "BenchForm.h"
#include "Pattern.h"
#include "kdac/Reference/RowOps.h"

namespace kdac::selftest {

class BenchRows : public BenchForm {
public:
  using BenchForm::BenchForm;
  int64_t elements(const Arg &tensor) const override;
  int64_t size(const std::string &name) const override;
  std::vector<int64_t> integers(const Arg &tensor) const override;

  reference::RowOperands operands(Patterns &patterns) const;
};

} // namespace kdac::selftest

#endif // KDAC_LIB_SELFTEST_BENCHROWS_H
