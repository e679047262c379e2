// Promises: calls of a pack's kernels of form matmul: products of many rows
// with one matrix or with their experts'. Does not: sort rows by expert, or
// know how a kernel is launched.
#ifndef KDAC_LIB_MODEL_MATMULCALL_H
#define KDAC_LIB_MODEL_MATMULCALL_H

#include "NamedCall.h"

namespace kdac::model {

/// The variant of `pack` for rows of `type`; with `isGated` the one that joins
/// the config's first two products of an MLP.
StatusOr<const PackVariant *> selectMatmul(const PackReader &pack,
                                           const Place &place,
                                           const ModelConfig &config,
                                           Element type, bool isGated);

/// True if such a kernel takes the product: pairs of columns are stored
/// together.
bool suitsMatmul(const Product &p);

/// y = x wᵀ.
void setMatmul(NamedCall &call, const Product &p);

/// Entries sorted by expert, in device memory.
struct SortedEntries {
  int64_t experts = 0, tiles = 0;
  const int *tileList = nullptr; ///< [tiles, 2]: expert and first entry
  const int *starts = nullptr;   ///< [experts + 1]
  const int *order = nullptr;    ///< [entries]; null: x is sorted
  int64_t each = 1;              ///< entries of a row of x
};

/// y = x wᵀ, or act(x wᵀ) (x upᵀ) by a gated kernel; `w` and `up` are the first
/// expert's matrices, which the others' follow.
void setExperts(NamedCall &call, const ModelConfig &config, Rows x,
                const Matrix &w, const Matrix &up, Rows y,
                const SortedEntries &entries);

} // namespace kdac::model

#endif // KDAC_LIB_MODEL_MATMULCALL_H
