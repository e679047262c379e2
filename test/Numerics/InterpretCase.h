// Promises: the buffers of a case as arguments of the dplr function they belong
// to. Does not: compare results.
#ifndef KDAC_TEST_NUMERICS_INTERPRETCASE_H
#define KDAC_TEST_NUMERICS_INTERPRETCASE_H

#include "kdac/Reference/Case.h"
#include "kdac/Reference/Interpreter.h"

namespace kdac::reference {

/// Interprets the first function of `module`, which takes the arguments of the
/// case's variant. Fails with a diagnostic where the interpreter does.
mlir::FailureOr<Results> interpretCase(mlir::ModuleOp module, const Case &c);

} // namespace kdac::reference

#endif // KDAC_TEST_NUMERICS_INTERPRETCASE_H
