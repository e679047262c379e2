// Promises: timed calls of form matmul, and some entries for the oracle. A
// shape's sequences are groups, its tokens entries, H is D and HV is E. One
// group is a dense product; of several a gated product finds its rows through
// an order, as experts do that rows have chosen, and any other has them sorted.
// Does not: launch anything.
#ifndef KDAC_LIB_SELFTEST_BENCHMATMUL_H
#define KDAC_LIB_SELFTEST_BENCHMATMUL_H

#include "BenchForm.h"
#include "Pattern.h"
#include "kdac/Reference/Matmul.h"

namespace kdac::selftest {

class BenchMatmul : public BenchForm {
public:
  using BenchForm::BenchForm;
  int64_t elements(const Arg &tensor) const override;
  int64_t size(const std::string &name) const override;
  std::vector<int64_t> integers(const Arg &tensor) const override;

  std::vector<int64_t> sampledEntries() const;
  reference::MatmulOperands operands(Patterns &patterns,
                                     const std::vector<int64_t> &entries) const;

private:
  bool isGrouped() const { return shape.sequences > 1; }
  bool hasOrder() const { return isGrouped() && v.rows != RowOp::None; }
  std::vector<int64_t> tiles() const;
  int64_t choiceOf(int64_t entry) const;
};

} // namespace kdac::selftest

#endif // KDAC_LIB_SELFTEST_BENCHMATMUL_H
