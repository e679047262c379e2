// Promises: timed calls of forms chunk and step, and some heads of them for the
// oracle. Each sequence owns its number as a slot, each token one behind those
// as a snapshot's; states go to a pool of their own. Does not: launch anything.
#ifndef KDAC_LIB_SELFTEST_BENCHRECURRENCE_H
#define KDAC_LIB_SELFTEST_BENCHRECURRENCE_H

#include "BenchForm.h"
#include "Pattern.h"
#include "kdac/Reference/Reference.h"

namespace kdac::selftest {

class BenchRecurrence : public BenchForm {
public:
  using BenchForm::BenchForm;
  int64_t elements(const Arg &tensor) const override;
  int64_t size(const std::string &name) const override;
  float scale(const std::string &name) const override;
  std::vector<int64_t> integers(const Arg &tensor) const override;
  double moved(const Arg &tensor, double bytes) const override;

  /// Of these value heads. Each has a key head of its own here, whatever the
  /// original grouping.
  reference::Operands operands(Patterns &patterns,
                               const std::vector<int64_t> &valueHeads) const;

private:
  int64_t slots() const;
  int64_t rowElements(const Arg &tensor) const;
};

} // namespace kdac::selftest

#endif // KDAC_LIB_SELFTEST_BENCHRECURRENCE_H
