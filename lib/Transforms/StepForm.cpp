// The step form: token by token, everything in f32, the state carried in place.
#include "KernelBuilder.h"

using namespace mlir;

namespace kdac {

namespace {

class StepForm {
public:
  explicit StepForm(KernelBuilder &kernel) : kernel(kernel), b(kernel.b) {}
  void build();

private:
  Value keyVector(StringRef name, const MappedOperand &source, Value token,
                  Value factor);
  Value decayedState(Value token, Value state);
  Value written(Value token, Value before, Value decayed);
  Value body(Value number, Value state);
  Value outer(Value column, Value row, Value like) {
    return b.mul(b.rowFactor(column, like), b.colFactor(row, like));
  }
  /// S^T x: [V].
  Value read(Value state, Value x) {
    return b.sum(b.mul(state, b.rowFactor(x, state)), 0);
  }

  KernelBuilder &kernel;
  TileBuilder &b;
};

} // namespace

/// One token's [K] vector in f32, times `factor`, normalised if the map says
/// so.
Value StepForm::keyVector(StringRef name, const MappedOperand &source,
                          Value token, Value factor) {
  Value x = kernel.loadConvolved(name, source, token);
  Value scale = factor;
  if (auto norm = dyn_cast_or_null<dplr::L2NormOp>(source.map)) {
    Value squares = b.sum(b.mul(x, x), 0);
    Value inverse =
        b.rsqrt(b.add(squares, b.f32(norm.getEps().convertToDouble())));
    scale = scale ? b.mul(scale, inverse) : inverse;
  }
  return scale ? b.mul(x, b.splat(scale, {kernel.keyTile})) : x;
}

Value StepForm::decayedState(Value token, Value state) {
  Value decay = kernel.logDecay(kernel.loadGate(token, 0, {}), 0, {});
  return decay ? b.mul(state, b.rowFactor(b.exp2(decay), state)) : state;
}

/// The state after the token's write, given it before and after the decay.
Value StepForm::written(Value token, Value before, Value decayed) {
  const Problem &problem = kernel.problem;
  Value k = keyVector("k", problem.k, token, {});
  Value v = kernel.loadConvolved("v", problem.v, token);
  Value beta = kernel.loadBeta(token, 0, {});
  Value update = v;
  if (problem.recurrence.getDelta())
    update = b.sub(v, read(decayed, k));
  if (beta)
    update = b.mul(update, b.splat(beta, {kernel.valueTile}));
  Value next = b.add(decayed, outer(k, update, decayed));
  if (!problem.eraseA)
    return next;
  Value a = keyVector("a", problem.eraseA, token, {});
  Value erase = keyVector("b", problem.eraseB, token, {});
  return b.add(next, outer(a, read(before, erase), next));
}

Value StepForm::body(Value number, Value state) {
  Value token = b.addI(kernel.begin, number);
  // A layer's vectors are all made before the first barrier.
  bool isShared = kernel.problem.needsWholeHeads();
  auto query = [&] {
    return keyVector("q", kernel.problem.q, token, kernel.arg("scale"));
  };
  Value q = isShared ? query() : Value();
  Value next = written(token, state, decayedState(token, state));
  if (!q)
    q = query();
  kernel.storeOut(kernel.gated(read(next, q), token), token, {});
  kernel.storeSnapshot(next, token);
  return next;
}

void StepForm::build() {
  Value initial = kernel.loadState();
  kernel.prefetchState();
  std::vector<KernelBuilder::Channels> channels = kernel.allChannels();
  SmallVector<Value> kept = kernel.loadCaches(channels);
  auto loop = scf::ForOp::create(b, b.index(0), kernel.length, b.index(1),
                                 ValueRange{initial});
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value next = body(loop.getInductionVar(), loop.getRegionIterArg(0));
    scf::YieldOp::create(b, next);
  }
  kernel.storeState(loop.getResult(0));
  kernel.storeCacheSnapshots(channels);
  kernel.storeCaches(channels, kept);
  kernel.finish();
}

void buildStepForm(KernelBuilder &kernel) { StepForm(kernel).build(); }

} // namespace kdac
