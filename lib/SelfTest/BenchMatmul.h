// Promises: the tensors, sizes and oracle of a timed call of form matmul.
// Does not: launch anything.
#ifndef KDAC_LIB_SELFTEST_BENCHMATMUL_H
#define KDAC_LIB_SELFTEST_BENCHMATMUL_H

#include "Pattern.h"
#include "kdac/Reference/Matmul.h"
#include "kdac/SelfTest/Plan.h"

namespace kdac::selftest {

// A shape's sequences are groups, its tokens entries, H is D and HV is E. One
// group is a dense product; of several a gated product finds its rows through
// an order, as experts do that rows have chosen, and any other has them sorted.

/// Elements of an argument (0: it is absent), value of a size, integers.
int64_t matmulElements(const Variant &v, const BenchShape &shape,
                       const std::string &name);
int64_t matmulSize(const Variant &v, const BenchShape &shape,
                   const std::string &name);
std::vector<int64_t> matmulIntegers(const Variant &v, const BenchShape &shape,
                                    const std::string &name);

/// The entries that the oracle looks at.
std::vector<int64_t> matmulEntries(const BenchShape &shape);
reference::MatmulOperands matmulOperands(const Variant &v,
                                         const BenchShape &shape,
                                         Patterns &patterns,
                                         const std::vector<int64_t> &entries);

} // namespace kdac::selftest

#endif // KDAC_LIB_SELFTEST_BENCHMATMUL_H
