// Promises: the tensors and sizes of a case of form matmul. Does not: run
// anything.
#ifndef KDAC_LIB_REFERENCE_MATMULCASE_H
#define KDAC_LIB_REFERENCE_MATMULCASE_H

#include "kdac/Reference/Case.h"
#include "kdac/Reference/Matmul.h"

namespace kdac::reference {

/// The sentence that says why `spec` of form matmul cannot be a case.
std::optional<std::string> validateMatmul(const CaseSpec &spec);

/// Shape of an argument and value of a size.
Layout matmulLayout(const Case &c, const std::string &name);
int64_t matmulSize(const Case &c, const std::string &name);

/// Writes tiles, starts and order, where the case has them.
void fillGroups(Case &c);

MatmulOperands matmulOperandsOf(const Case &c);

} // namespace kdac::reference

#endif // KDAC_LIB_REFERENCE_MATMULCASE_H
