// Promises: dplr.gated_product on tiles of any shape.
#ifndef KDAC_LIB_TRANSFORMS_GATEDPRODUCT_H
#define KDAC_LIB_TRANSFORMS_GATEDPRODUCT_H

#include "TileBuilder.h"
#include "kdac/Dialect/Dplr.h"

namespace kdac {

/// `beta` and `linear` are SiTU's limits, of others null.
mlir::Value gatedProduct(TileBuilder &b, dplr::Product kind, mlir::Value gate,
                         mlir::Value up, mlir::Value beta, mlir::Value linear);

} // namespace kdac

#endif // KDAC_LIB_TRANSFORMS_GATEDPRODUCT_H
