// Promises: the state pools of cases: their indices, what the oracle makes of
// them, and a judgement on every slot of a pool after a run.
// Does not: run anything.
#ifndef KDAC_REFERENCE_POOL_H
#define KDAC_REFERENCE_POOL_H

#include "kdac/Reference/Case.h"
#include "kdac/Reference/Compare.h"

#include <string>
#include <vector>

namespace kdac::reference {

/// The pool's options, for describe().
std::string describePool(const CaseSpec &spec);

/// Initial states through sources, skipped sequences, and whether all states
/// are needed.
void addPool(const Case &c, Operands &operands);

/// The word that a checked launch leaves in the status: -1, or `8 * i + kind`
/// of the smallest bad entry (tile.check_slots).
int64_t expectedStatus(const Case &c);

/// States that the run should have written, beside what the oracle has for
/// them.
struct WrittenStates {
  Buffer actual; ///< [count, HV, matrix]
  std::vector<double> expected;
};
WrittenStates writtenStates(const Case &c, const Results &expected);

/// What is wrong with the pool apart from closeness: slots that nobody owns and
/// changed, empty sequences whose state is not passed on bitwise, output of
/// skipped sequences that is not zero, a wrong status word; after a bad index
/// any write at all.
std::vector<std::string> poolFailures(const Case &c);

} // namespace kdac::reference

#endif // KDAC_REFERENCE_POOL_H
