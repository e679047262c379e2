// Promises: what follows from the description of a case alone. Does not: say
// whether it is one (validate in kdac/Reference/Case.h).
#ifndef KDAC_LIB_REFERENCE_CASESPEC_H
#define KDAC_LIB_REFERENCE_CASESPEC_H

#include "kdac/Reference/Case.h"

namespace kdac::reference {

/// True if the call passes null for the argument.
bool isAbsent(const CaseSpec &spec, const std::string &name);

/// True of attention of either kind.
inline bool attends(const Variant &v) {
  return v.form == Form::Attention || v.form == Form::Prompt;
}

/// D: as given, or what is usual.
int64_t columnsOf(const CaseSpec &spec);

} // namespace kdac::reference

#endif // KDAC_LIB_REFERENCE_CASESPEC_H
