// Promises: the tensors, sizes and oracle of a timed call of form prompt.
// Does not: launch anything.
#ifndef KDAC_LIB_SELFTEST_BENCHPROMPT_H
#define KDAC_LIB_SELFTEST_BENCHPROMPT_H

#include "Pattern.h"
#include "kdac/Reference/Attention.h"
#include "kdac/SelfTest/Plan.h"

namespace kdac::selftest {

/// Elements of an argument, value of a size: sequences without a past, all of
/// whose keys the call has, so that absent tensors have no elements.
int64_t promptElements(const Variant &v, const BenchShape &shape,
                       const std::string &name);
int64_t promptSize(const Variant &v, const BenchShape &shape,
                   const std::string &name);

/// Some heads of every sequence's first and last rows: the oracle takes keys
/// times rows.
constexpr int64_t promptRowsChecked = 64;
std::vector<int64_t> promptRows(const BenchShape &shape);
reference::PromptOperands promptOperands(const Variant &v,
                                         const BenchShape &shape,
                                         Patterns &patterns,
                                         const std::vector<int64_t> &heads);

} // namespace kdac::selftest

#endif // KDAC_LIB_SELFTEST_BENCHPROMPT_H
