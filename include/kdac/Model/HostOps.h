// Promises: the operations on this machine's processors: recurrences by kernels
// of a kdac pack, products by a BLAS, the rest by plain C++. Does not: need a
// GPU, or keep anything between calls.
#ifndef KDAC_MODEL_HOSTOPS_H
#define KDAC_MODEL_HOSTOPS_H

#include "kdac/Model/Ops.h"
#include "kdac/Pack/PackReader.h"

#include <memory>

namespace kdac::model {

/// The largest call, for which scratch is allocated once.
struct OpsLimits {
  int64_t tokens = 512; ///< rows of a call
  int64_t pieces = 64;  ///< pieces of a call
  int threads = 0;      ///< 0: one per core
};

/// Operations for `config` with the chunk and step kernels of `pack` that fit
/// its widths and gate; the error says which variants are missing. The BLAS is
/// set to one thread in this process: the operations bring their own.
StatusOr<std::unique_ptr<Ops>> makeHostOps(const ModelConfig &config,
                                           const PackReader &pack,
                                           const OpsLimits &limits);

} // namespace kdac::model

#endif // KDAC_MODEL_HOSTOPS_H
