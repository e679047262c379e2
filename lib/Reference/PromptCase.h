// Promises: the tensors and sizes of a case of form prompt. Does not: run
// anything.
#ifndef KDAC_LIB_REFERENCE_PROMPTCASE_H
#define KDAC_LIB_REFERENCE_PROMPTCASE_H

#include "kdac/Reference/Attention.h"
#include "kdac/Reference/Case.h"

namespace kdac::reference {

/// The sentence that says why `spec` of form prompt cannot be a case.
std::optional<std::string> validatePrompt(const CaseSpec &spec);

/// Shape of an argument and value of a size.
Layout promptLayout(const Case &c, const std::string &name);
int64_t promptSize(const Case &c, const std::string &name);

/// Writes offsets and key_offsets.
void fillOffsets(Case &c);

PromptOperands promptOperandsOf(const Case &c);

} // namespace kdac::reference

#endif // KDAC_LIB_REFERENCE_PROMPTCASE_H
