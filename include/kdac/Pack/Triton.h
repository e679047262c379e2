// Promises: the GPU kernels of a pack in the forms that Triton's tools read
// (docs/TRITON.md): metadata for its loader, C for its linker. Does not: write
// files, or change a kernel; what a kernel's parameters are was decided when it
// was compiled.
#ifndef KDAC_PACK_TRITON_H
#define KDAC_PACK_TRITON_H

#include "kdac/Pack/PackReader.h"

namespace kdac {

/// A file to be written below some folder.
struct NamedFile {
  std::string path; ///< relative, "FOLDER/name.json"
  std::string bytes;
};

/// Each kernel as a folder of Triton's cache: name.json, name.cubin, name.ptx
/// where the pack has PTX, and __grp__name.json with absolute paths below
/// `root`. The folder's name is a hash of the kernel, not one that Triton would
/// compute. Errors: a variant that is no kernel of one launch with machine
/// code, with what would make it one.
StatusOr<std::vector<NamedFile>> tritonCache(const PackReader &pack,
                                             const std::string &root);

/// Each kernel as the C source and header that `triton.tools.compile` would
/// write, over kdac-c/kdac.h, and the pack that they launch from as one more
/// source: `name`_pack.c. `name` is a C identifier, the prefix of everything.
/// Errors: as tritonCache, and a name that is no identifier.
StatusOr<std::vector<NamedFile>> tritonAot(const PackReader &pack,
                                           const std::string &name);

/// Triton's spelling of an argument's type: "*bf16", "i64", "fp32".
std::string tritonType(const Arg &arg);

} // namespace kdac

#endif // KDAC_PACK_TRITON_H
