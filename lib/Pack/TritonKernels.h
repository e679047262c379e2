// Promises: the variants of a pack as kernels that one launch of Triton's runs.
// Does not: write anything.
#ifndef KDAC_LIB_PACK_TRITONKERNELS_H
#define KDAC_LIB_PACK_TRITONKERNELS_H

#include "kdac/Pack/PackReader.h"

namespace kdac::triton {

/// A variant of one launch with machine code. Pointers are into the pack.
struct Kernel {
  const PackVariant *variant;
  const Launch *launch;
  const Image *cubin;
  const Image *ptx; ///< null: none
  int64_t warps;    ///< all of a block
};

/// All variants of the pack, or why one of them is no such kernel.
StatusOr<std::vector<Kernel>> kernelsOf(const PackReader &pack);

/// "bf16", "fp16", "fp32", "i32", ...
std::string_view scalarName(DType dtype);

bool isPointer(const Arg &arg);

/// Pipeline stages that the schedule's text names; 1 if it names none.
int64_t stagesOf(const PackVariant &variant);

} // namespace kdac::triton

#endif // KDAC_LIB_PACK_TRITONKERNELS_H
