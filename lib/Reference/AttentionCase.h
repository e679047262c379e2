// Promises: the tensors and sizes of a case of form attention. Does not: run
// anything.
#ifndef KDAC_LIB_REFERENCE_ATTENTIONCASE_H
#define KDAC_LIB_REFERENCE_ATTENTIONCASE_H

#include "kdac/Reference/Attention.h"
#include "kdac/Reference/Case.h"

namespace kdac::reference {

/// Keys of every sequence, as the call says them.
std::vector<int64_t> keyLengths(const CaseSpec &spec);

/// The sentence that says why `spec` of form attention cannot be a case.
std::optional<std::string> validateAttention(const CaseSpec &spec);

/// R for rows of D elements: as large a part as the variant's.
int64_t valueColumns(const CaseSpec &spec, int64_t columns);

/// Shape of an argument and value of a size.
Layout attentionLayout(const Case &c, const std::string &name);
int64_t attentionSize(const Case &c, const std::string &name);

/// Writes table, slots and lengths.
void fillTable(Case &c);

AttentionOperands attentionOperandsOf(const Case &c);

} // namespace kdac::reference

#endif // KDAC_LIB_REFERENCE_ATTENTIONCASE_H
