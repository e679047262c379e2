// Promises: the tensors and sizes of a case of form rows. Does not: run
// anything.
#ifndef KDAC_LIB_REFERENCE_ROWCASE_H
#define KDAC_LIB_REFERENCE_ROWCASE_H

#include "kdac/Reference/Case.h"

#include <optional>
#include <string>

namespace kdac::reference {

/// The sentence that says why `spec` of form rows cannot be a case.
std::optional<std::string> validateRows(const CaseSpec &spec);

/// Shape of an argument and value of a size.
Layout rowLayout(const Case &c, const std::string &name);
int64_t rowSize(const Case &c, const std::string &name);

} // namespace kdac::reference

#endif // KDAC_LIB_REFERENCE_ROWCASE_H
