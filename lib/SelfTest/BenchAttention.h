// Promises: the tensors, sizes and oracle of a timed call of form attention.
// Does not: launch anything.
#ifndef KDAC_LIB_SELFTEST_BENCHATTENTION_H
#define KDAC_LIB_SELFTEST_BENCHATTENTION_H

#include "Pattern.h"
#include "kdac/Reference/Attention.h"
#include "kdac/SelfTest/Plan.h"

namespace kdac::selftest {

/// What a call passes as its scale: queries have length 1 or so.
constexpr float attentionScale = 3;

/// Elements of an argument, value of a size: every sequence has pages of its
/// own, in order.
int64_t attentionElements(const Variant &v, const BenchShape &shape,
                          const std::string &name);
int64_t attentionSize(const Variant &v, const BenchShape &shape,
                      const std::string &name);
/// Of table, slots and lengths.
std::vector<int64_t> attentionIntegers(const Variant &v,
                                       const BenchShape &shape,
                                       const std::string &name);

/// Some heads of every sequence.
reference::AttentionOperands
attentionOperands(const Variant &v, const BenchShape &shape, Patterns &patterns,
                  const std::vector<int64_t> &heads);

} // namespace kdac::selftest

#endif // KDAC_LIB_SELFTEST_BENCHATTENTION_H
