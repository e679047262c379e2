#include "Problem.h"

using namespace mlir;

namespace kdac {

static Type elementType(Value value) {
  return cast<RankedTensorType>(value.getType()).getElementType();
}

static int64_t lastDim(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape().back();
}

int64_t Problem::keyDim() const { return lastDim(q.source); }
int64_t Problem::valueDim() const { return lastDim(v.source); }

int64_t Problem::decayRank() const {
  return decay ? cast<RankedTensorType>(decay.source.getType()).getRank() : 0;
}

std::optional<double> Problem::decayBound() const {
  auto map = dyn_cast_or_null<dplr::LogDecayOp>(decay.map);
  if (!map || !map.getBound())
    return std::nullopt;
  return map.getBound()->convertToDouble();
}

bool Problem::keysNormalised() const {
  return isa_and_nonnull<dplr::L2NormOp>(k.map);
}

Type Problem::dtype() const { return elementType(q.source); }

Type Problem::stateType() const {
  dplr::RecurrenceOp op = recurrence;
  return elementType(op.getFinalState());
}

/// Steps from an operand of the recurrence through one map to an argument.
template <typename MapOp>
static FailureOr<MappedOperand> trace(dplr::RecurrenceOp op, Value operand,
                                      StringRef what) {
  MappedOperand result;
  if (!operand)
    return result;
  if (auto map = operand.getDefiningOp<MapOp>()) {
    result.map = map;
    operand = map->getOperand(0);
  }
  if (auto conv = operand.getDefiningOp<dplr::ShortConvOp>()) {
    result.conv = conv;
    operand = conv.getInput();
  }
  if (!isa<BlockArgument>(operand)) {
    InFlightDiagnostic diagnostic =
        op.emitOpError() << "expected " << what
                         << " to be a function argument behind at most one "
                         << MapOp::getOperationName();
    diagnostic.attachNote(operand.getLoc()) << "it is computed here";
    return failure();
  }
  result.source = operand;
  return result;
}

FailureOr<Problem> Problem::match(func::FuncOp function) {
  Problem problem;
  auto found = function.getOps<dplr::RecurrenceOp>();
  if (!llvm::hasSingleElement(found))
    return function.emitOpError() << "expected one dplr.recurrence, but got "
                                  << std::distance(found.begin(), found.end());
  dplr::RecurrenceOp op = problem.recurrence = *found.begin();
  auto q = trace<dplr::L2NormOp>(op, op.getQ(), "q");
  auto k = trace<dplr::L2NormOp>(op, op.getK(), "k");
  auto v = trace<dplr::L2NormOp>(op, op.getV(), "v");
  auto decay = trace<dplr::LogDecayOp>(op, op.getDecay(), "decay");
  auto beta = trace<dplr::WriteStrengthOp>(op, op.getBeta(), "beta");
  auto eraseA = trace<dplr::L2NormOp>(op, op.getEraseA(), "erase a");
  auto eraseB = trace<dplr::L2NormOp>(op, op.getEraseB(), "erase b");
  if (failed(q) || failed(k) || failed(v) || failed(decay) || failed(beta) ||
      failed(eraseA) || failed(eraseB))
    return failure();
  problem.q = *q;
  problem.k = *k;
  problem.v = *v;
  problem.decay = *decay;
  problem.beta = *beta;
  problem.eraseA = *eraseA;
  problem.eraseB = *eraseB;
  for (Operation *user : op.getOut().getUsers())
    if (auto norm = dyn_cast<dplr::GatedRmsNormOp>(user))
      problem.norm = norm;
  if (problem.decay.conv || problem.beta.conv || problem.eraseA.conv ||
      problem.eraseB.conv)
    return op.emitOpError()
           << "expected a dplr.short_conv only before q, k and v";
  if (problem.v.map)
    return op.emitOpError() << "expected v without a dplr.l2norm";
  return problem;
}

} // namespace kdac
