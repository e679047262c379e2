// Verifiers of the dplr dialect. Labels are those of dialect/Dplr/SPEC.md.
#include "kdac/Dialect/Dplr.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace kdac::dplr;

#include "kdac/Dialect/DplrDialect.cpp.inc"
#include "kdac/Dialect/DplrEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "kdac/Dialect/DplrAttrs.cpp.inc"
#define GET_OP_CLASSES
#include "kdac/Dialect/DplrOps.cpp.inc"

void DplrDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "kdac/Dialect/DplrAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "kdac/Dialect/DplrOps.cpp.inc"
      >();
}

/// True if two dimensions can be equal: a dynamic one matches any.
static bool dimsAgree(int64_t a, int64_t b) {
  return a == b || ShapedType::isDynamic(a) || ShapedType::isDynamic(b);
}

static int64_t dim(Value value, int index) {
  return cast<RankedTensorType>(value.getType()).getDimSize(index);
}

static int64_t rank(Value value) {
  return cast<RankedTensorType>(value.getType()).getRank();
}

LogicalResult L2NormOp::verify() {
  // l2norm C1
  double eps = getEps().convertToDouble();
  if (!(eps >= 0.0) || !std::isfinite(eps))
    return emitOpError() << "expected a finite epsilon of at least 0, but got "
                         << eps;
  return success();
}

LogicalResult LogDecayOp::verify() {
  bool identity = getMap() == GateMap::Identity;
  // log_decay C1
  if (identity && (getALog() || getDtBias()))
    return emitOpError()
           << "expected no a_log or dt_bias with the identity map";
  // log_decay C2
  if ((getMap() == GateMap::Bounded) != getBound().has_value())
    return emitOpError()
           << "expected a bound exactly with the bounded map, but got map "
           << stringifyGateMap(getMap())
           << (getBound() ? " with a bound" : " without one");
  // log_decay C3
  if (getBound() && !(getBound()->convertToDouble() < 0.0))
    return emitOpError() << "expected a negative bound, but got "
                         << getBound()->convertToDouble();
  // log_decay C4
  if (cast<ShapedType>(getLogits().getType()).getShape() !=
      cast<ShapedType>(getResult().getType()).getShape())
    return emitOpError() << "expected the result's shape to equal the logits'";
  // log_decay C5
  if (getDtBias() && rank(getDtBias()) != rank(getLogits()) - 1)
    return emitOpError() << "expected dt_bias of rank " << rank(getLogits()) - 1
                         << " for logits of rank " << rank(getLogits())
                         << ", but got rank " << rank(getDtBias());
  if (getDtBias() && rank(getDtBias()) == 2 &&
      !dimsAgree(dim(getDtBias(), 1), dim(getLogits(), 2)))
    return emitOpError() << "expected dt_bias width " << dim(getLogits(), 2)
                         << ", but got " << dim(getDtBias(), 1);
  return success();
}

LogicalResult ShortConvOp::verify() {
  int64_t taps = dim(getWeight(), 2), width = dim(getInput(), 2);
  // short_conv C1
  if (taps < 2 || taps > 4)
    return emitOpError() << "expected a weight of 2 to 4 taps, but got "
                         << getWeight().getType();
  // short_conv C2
  if (dim(getWeight(), 1) != width)
    return emitOpError() << "expected a weight of width " << width
                         << ", but got " << dim(getWeight(), 1);
  // short_conv C3
  bool full = getLayout() == CacheLayout::Full;
  if (full ? dim(getCache(), 2) != width || dim(getCache(), 3) != taps
           : dim(getCache(), 1) != taps - 1 || dim(getCache(), 3) != width)
    return emitOpError() << "expected a cache of " << taps << " taps and width "
                         << width << " in layout "
                         << stringifyCacheLayout(getLayout()) << ", but got "
                         << getCache().getType();
  // short_conv C4
  if (getElementTypeOrSelf(getCache().getType()) !=
      getElementTypeOrSelf(getInput().getType()))
    return emitOpError() << "expected a cache of the input's element type, but "
                            "got "
                         << getCache().getType();
  // short_conv C5
  if ((getSources() || getSnapshots()) && !getSlots())
    return emitOpError()
           << "expected sources and snapshots of a cache only with slots";
  // short_conv C6
  if (getAccepted() && (!getSlots() || getSnapshots()))
    return emitOpError() << "expected accepted of a cache only with slots and "
                            "without snapshots";
  return success();
}

LogicalResult GatedRmsNormOp::verify() {
  // gated_rmsnorm C1
  double eps = getEps().convertToDouble();
  if (!(eps >= 0.0) || !std::isfinite(eps))
    return emitOpError() << "expected a finite norm epsilon of at least 0, but "
                            "got "
                         << eps;
  // gated_rmsnorm C2
  int64_t width = dim(getInput(), 2);
  if (dim(getGate(), 2) != width || dim(getWeight(), 0) != width)
    return emitOpError() << "expected gate and weight of width " << width
                         << ", but got " << dim(getGate(), 2) << " and "
                         << dim(getWeight(), 0);
  return success();
}

/// Of ops that hold a row at once.
static LogicalResult checkUpTo(Operation *op, int64_t width) {
  if (width >= 1)
    return success();
  return op->emitOpError()
         << "expected rows of up to 1 element or more, but got " << width;
}

/// Widths of tiles that values, and what else a key has, are parts of.
static LogicalResult checkAttentionWidths(Operation *op, int64_t values,
                                          int64_t rest) {
  auto suits = [](int64_t width, int64_t most) {
    return width >= 64 && width <= most && width % 64 == 0;
  };
  if (!suits(values, 1024) || !suits(rest, 256))
    return op->emitOpError()
           << "expected values of 64 to 1024 elements and 64 to 256 more of a "
              "key, both multiples of 64, but got "
           << values << " and " << rest;
  return success();
}

LogicalResult LatentAttentionOp::verify() {
  // latent_attention C1
  return checkAttentionWidths(*this, getValueWidth(),
                              getKeyWidth() - getValueWidth());
}

LogicalResult PromptAttentionOp::verify() {
  // prompt_attention C1
  auto element = [](Value tensor) {
    return cast<RankedTensorType>(tensor.getType()).getElementType();
  };
  if (element(getShared()) != element(getQuery()))
    return emitOpError() << "expected shared parts of the queries' type "
                         << element(getQuery()) << ", but got "
                         << element(getShared());
  // prompt_attention C2
  return checkAttentionWidths(*this, getValueWidth(),
                              getKeyWidth() - getValueWidth());
}

LogicalResult GroupedMatmulOp::verify() {
  // grouped_matmul C1
  Type element = getInput().getType().getElementType();
  for (Value weights : {getWeights(), getUp()})
    if (weights &&
        cast<RankedTensorType>(weights.getType()).getElementType() != element)
      return emitOpError() << "expected weights of the input's type " << element
                           << ", but got " << weights.getType();
  // grouped_matmul C2
  std::optional<Product> kind = getKind();
  if (kind.has_value() != static_cast<bool>(getUp()))
    return emitOpError() << "expected a kind exactly with up";
  // grouped_matmul C3
  bool isSitu = kind == Product::Situ;
  if (static_cast<bool>(getBeta()) != isSitu ||
      static_cast<bool>(getLinear()) != isSitu)
    return emitOpError() << "expected beta and linear exactly with situ";
  return success();
}

LogicalResult RmsNormOp::verify() {
  // rmsnorm C1
  if (failed(checkUpTo(*this, getWidth())))
    return failure();
  // rmsnorm C2
  if (getBranch() && getBranch().getType() != getInput().getType())
    return emitOpError() << "expected a branch of the input's type, but got "
                         << getBranch().getType();
  // rmsnorm C3
  if (!dimsAgree(dim(getWeight(), 0), dim(getInput(), 1)))
    return emitOpError() << "expected a weight of width " << dim(getInput(), 1)
                         << ", but got " << dim(getWeight(), 0);
  return success();
}

LogicalResult GatedProductOp::verify() {
  // gated_product C1
  bool isSitu = getKind() == Product::Situ;
  if (static_cast<bool>(getBeta()) != isSitu ||
      static_cast<bool>(getLinear()) != isSitu)
    return emitOpError()
           << "expected beta and linear exactly with situ, but got kind "
           << stringifyProduct(getKind());
  return success();
}

LogicalResult CombineOp::verify() {
  // combine C1
  if (!dimsAgree(dim(getIndex(), 0), dim(getScales(), 0)) ||
      !dimsAgree(dim(getIndex(), 1), dim(getScales(), 1)))
    return emitOpError() << "expected as many scales as indices, but got "
                         << getScales().getType() << " and "
                         << getIndex().getType();
  return success();
}

LogicalResult LatentOp::verify() {
  // latent C1
  if (failed(checkUpTo(*this, getWidth())))
    return failure();
  // latent C2
  if (!dimsAgree(dim(getSlots(), 0), dim(getInput(), 0)))
    return emitOpError() << "expected slots and positions for "
                         << dim(getInput(), 0) << " rows, but got "
                         << dim(getSlots(), 0);
  return success();
}

LogicalResult MixOp::verify() {
  // mix C1
  if (failed(checkUpTo(*this, getWidth())))
    return failure();
  // mix C2
  if (getInput().getType().getElementType() !=
          getResult().getType().getElementType() ||
      !dimsAgree(dim(getInput(), 1), dim(getResult(), 0)) ||
      !dimsAgree(dim(getInput(), 2), dim(getResult(), 1)))
    return emitOpError() << "expected a result like one tensor of "
                         << getInput().getType() << ", but got "
                         << getResult().getType();
  // mix C3
  if (!dimsAgree(dim(getQuery(), 0), dim(getInput(), 2)))
    return emitOpError() << "expected a query of width " << dim(getInput(), 2)
                         << ", but got " << dim(getQuery(), 0);
  return success();
}

LogicalResult RecurrenceOp::verify() {
  int64_t keyDim = dim(getQ(), 2), valueDim = dim(getV(), 2);
  // recurrence C1
  if (ShapedType::isDynamic(keyDim) || ShapedType::isDynamic(valueDim))
    return emitOpError() << "expected static key and value widths, but got "
                         << getQ().getType() << " and " << getV().getType();
  // recurrence C2
  if (dim(getK(), 2) != keyDim)
    return emitOpError() << "expected key width to equal query width, but got "
                         << dim(getK(), 2) << " and " << keyDim;
  // recurrence C3
  if (getDecay() && rank(getDecay()) == 3 && dim(getDecay(), 2) != keyDim)
    return emitOpError() << "expected a per-channel decay of width " << keyDim
                         << ", but got " << dim(getDecay(), 2);
  // recurrence C4
  if (getEraseA() && getDelta())
    return emitOpError()
           << "expected either delta or an erase pair, but got both";
  // recurrence C5
  if (getEraseA() &&
      (dim(getEraseA(), 2) != keyDim || dim(getEraseB(), 2) != keyDim))
    return emitOpError() << "expected an erase pair of width " << keyDim
                         << ", but got " << dim(getEraseA(), 2) << " and "
                         << dim(getEraseB(), 2);
  // recurrence C6
  bool vFirst = getLayout() == Layout::VK;
  int64_t rows = vFirst ? valueDim : keyDim, cols = vFirst ? keyDim : valueDim;
  SmallVector<std::pair<Value, StringRef>> states = {
      {getFinalState(), "final state"}};
  if (getInitial())
    states.push_back({getInitial(), "initial state"});
  for (auto [state, what] : states)
    if (dim(state, 2) != rows || dim(state, 3) != cols)
      return emitOpError() << "expected " << what << " [N, HV, " << rows << ", "
                           << cols << "] in layout "
                           << stringifyLayout(getLayout()) << ", but got "
                           << state.getType();
  // recurrence C7
  if (dim(getOut(), 2) != valueDim)
    return emitOpError() << "expected output width to equal value width "
                         << valueDim << ", but got " << dim(getOut(), 2);
  // recurrence C9
  if (!getSlots() && (getSources() || getSnapshots()))
    return emitOpError() << "expected sources and snapshots only with slots";
  // recurrence C10
  if (getSlots() && !getInitial())
    return emitOpError() << "expected an initial state with slots: the pool";
  // recurrence C11
  for (Value other : {getSources(), getSnapshots(), getAccepted()})
    if (other &&
        cast<RankedTensorType>(other.getType()).getElementType() !=
            cast<RankedTensorType>(getSlots().getType()).getElementType())
      return emitOpError() << "expected slots, sources, snapshots and accepted "
                              "of one element type, but got "
                           << getSlots().getType() << " and "
                           << other.getType();
  // recurrence C12
  if (getAccepted() && (!getSlots() || getSnapshots()))
    return emitOpError()
           << "expected accepted only with slots and without snapshots";
  // recurrence C8
  int64_t heads = dim(getK(), 1), valueHeads = dim(getV(), 1);
  if (!ShapedType::isDynamic(heads) && !ShapedType::isDynamic(valueHeads) &&
      (heads == 0 || valueHeads % heads != 0))
    return emitOpError()
           << "expected value heads to be a multiple of key heads, but got "
           << valueHeads << " and " << heads;
  return success();
}
