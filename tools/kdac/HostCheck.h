// Promises: a kernel run on this CPU on random inputs and judged by the oracle.
// Does not: print.
#ifndef KDAC_TOOLS_KDAC_HOSTCHECK_H
#define KDAC_TOOLS_KDAC_HOSTCHECK_H

#include "kdac/Pipeline/Compile.h"
#include "kdac/Reference/Check.h"

namespace kdac {

/// Compiles `job`, a host variant, and checks it on a case of `spec`, whose
/// variant is that of `job`. Errors: a variant that does not compile, a spec
/// that cannot be a case.
llvm::Expected<reference::CheckResult>
checkOnHost(const CompileJob &job, const reference::CaseSpec &spec);

} // namespace kdac

#endif // KDAC_TOOLS_KDAC_HOSTCHECK_H
