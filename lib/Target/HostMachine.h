// Promises: LLVM's description of the CPUs kdac compiles host code for.
// Does not: generate code.
#ifndef KDAC_TARGET_HOSTMACHINE_H
#define KDAC_TARGET_HOSTMACHINE_H

#include "llvm/Support/Error.h"
#include "llvm/Target/TargetMachine.h"

#include <memory>

namespace kdac {

/// A machine for `cpu`, one of hostCpuNames().
llvm::Expected<std::unique_ptr<llvm::TargetMachine>>
createHostMachine(llvm::StringRef cpu);

/// f32 lanes of its widest useful vector.
int64_t vectorWidth(const llvm::TargetMachine &machine);

} // namespace kdac

#endif // KDAC_TARGET_HOSTMACHINE_H
