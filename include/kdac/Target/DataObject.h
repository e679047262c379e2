// Promises: bytes as an object file that any linker of the machine takes. Does
// not: generate code, or write files.
#ifndef KDAC_TARGET_DATAOBJECT_H
#define KDAC_TARGET_DATAOBJECT_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <string>

namespace kdac {

/// A relocatable ELF object with read-only `bytes` at `symbol`, aligned to 64
/// and hidden outside of the program or library it is linked into. `arch` is
/// one of dataObjectArchs().
llvm::Expected<std::string> emitDataObject(llvm::StringRef symbol,
                                           llvm::StringRef bytes,
                                           llvm::StringRef arch);

/// "native, x86-64, aarch64", for messages.
std::string dataObjectArchs();

} // namespace kdac

#endif // KDAC_TARGET_DATAOBJECT_H
