// Promises: timed calls of form prompt, and for the oracle, which takes keys
// times rows, some heads of every sequence's first and last rows. Sequences
// have no past, and the call has all their keys: tensors between calls are
// absent. Does not: launch anything.
#ifndef KDAC_LIB_SELFTEST_BENCHPROMPT_H
#define KDAC_LIB_SELFTEST_BENCHPROMPT_H

#include "BenchForm.h"
#include "Pattern.h"
#include "kdac/Reference/Attention.h"

namespace kdac::selftest {

class BenchPrompt : public BenchForm {
public:
  /// Rows of a sequence that the oracle looks at.
  static constexpr int64_t rowsChecked = 64;

  using BenchForm::BenchForm;
  int64_t elements(const Arg &tensor) const override;
  int64_t size(const std::string &name) const override;
  float scale(const std::string &) const override { return attentionScale; }
  std::vector<int64_t> integers(const Arg &tensor) const override;

  std::vector<int64_t> sampledRows() const;
  reference::PromptOperands operands(Patterns &patterns,
                                     const std::vector<int64_t> &heads) const;
};

} // namespace kdac::selftest

#endif // KDAC_LIB_SELFTEST_BENCHPROMPT_H
