#include "GatedProduct.h"

using namespace mlir;

namespace kdac {

Value gatedProduct(TileBuilder &b, dplr::Product kind, Value gate, Value up,
                   Value beta, Value linear) {
  auto shape = cast<RankedTensorType>(gate.getType()).getShape();
  // limit * tanh(x / limit)
  auto limited = [&](Value x, Value limit) {
    Value inverse = arith::DivFOp::create(b, b.f32(1), limit);
    return b.mul(b.tanh(b.mul(x, b.splat(inverse, shape))),
                 b.splat(limit, shape));
  };
  Value open = b.sigmoid(gate);
  switch (kind) {
  case dplr::Product::Silu:
    open = b.mul(open, gate);
    break;
  case dplr::Product::Situ:
    open = b.mul(open, limited(gate, beta));
    up = limited(up, linear);
    break;
  case dplr::Product::Sigmoid:
    break;
  }
  return b.mul(open, up);
}

} // namespace kdac
