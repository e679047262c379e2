// Promises: what a tile.load or tile.store accesses in global memory, for
// GpuLoads.cpp and GpuStores.cpp. Does not: access it.
#ifndef KDAC_LIB_CONVERSION_GPUACCESS_H
#define KDAC_LIB_CONVERSION_GPUACCESS_H

#include "GpuLowering.h"

namespace kdac {

struct GpuLowering::Access {
  mlir::Value ref, base, stride; ///< pointer, i64, i64
  bool transposed, isVector;
  bool isDense; ///< elements of a line are consecutive
  mlir::Type element;
  tile::LoadOp picks; ///< whose rows are found through an order, or null
};

template <typename Op>
GpuLowering::Access GpuLowering::accessOf(Op op, mlir::RankedTensorType type) {
  tile::LoadOp picks;
  if constexpr (std::is_same_v<Op, tile::LoadOp>)
    if (op.getOrder())
      picks = op;
  return {scalars.lookup(op.getRef()),
          b.toI64(scalars.lookup(op.getBase())),
          b.toI64(scalars.lookup(op.getStride())),
          op.getTransposed(),
          type.getRank() == 1,
          type.getRank() == 2 || mlir::getConstantIntValue(op.getStride()) == 1,
          type.getElementType(),
          picks};
}

/// True if a valid size is known to cover the dimension.
inline bool isWhole(mlir::Value limit, int64_t size) {
  std::optional<int64_t> constant = getConstantIntValue(limit);
  return constant && *constant >= size;
}

} // namespace kdac

#endif // KDAC_LIB_CONVERSION_GPUACCESS_H
