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
  /// A token's operands, loaded before the first sum waits for any of them and
  /// made once for all threads.
  struct Token {
    Value number;
    Value q, k, v, a, b;     ///< vectors in f32, keys as loaded
    Value decay, beta, open; ///< of the state; of the write, [1]; of the output
  };
  Token load(Value number);
  Value normalised(Value x, const MappedOperand &source, Value factor);
  void complete(KernelBuilder::Update &update, const Token &token, Value before,
                Value decayed);
  Value body(Value number, Value state);
  /// The last state goes before its output is made, so that writing begins
  /// early; a narrow one after, as rounding it first costs more (5 % on an
  /// H200).
  bool writesEarly() { return kernel.problem.stateType().isF32(); }
  /// S^T x: [V].
  Value read(Value state, Value x) {
    return b.sum(b.mul(state, b.rowFactor(x, state)), 0);
  }

  KernelBuilder &kernel;
  TileBuilder &b;
  std::vector<KernelBuilder::Channels> channels; ///< of the convolutions
};

} // namespace

StepForm::Token StepForm::load(Value number) {
  const Problem &problem = kernel.problem;
  Token token;
  Value at = token.number = b.addI(kernel.begin, number);
  SmallVector<Value> q, k, v, others; // what taps saw
  token.k = b.once(kernel.loadConvolved("k", problem.k, at, k));
  token.q = b.once(kernel.loadConvolved("q", problem.q, at, q));
  // One decay a head is a vector of one element: a scalar's load, as that of
  // beta, would wait behind the vectors' barrier.
  bool isPerHead = problem.decayRank() == 2;
  Value gate = isPerHead ? kernel.loadGate(at, 1, b.index(1))
                         : kernel.loadGate(at, 0, {});
  if (Value decay = kernel.logDecay(gate, 0, {})) {
    token.decay = b.exp2(decay);
    if (problem.decayRank() > 1)
      token.decay = b.once(token.decay);
  }
  token.v = b.once(kernel.loadConvolved("v", problem.v, at, v));
  if (problem.eraseA) {
    token.a = b.once(kernel.loadConvolved("a", problem.eraseA, at, others));
    token.b = b.once(kernel.loadConvolved("b", problem.eraseB, at, others));
  }
  token.open = kernel.loadOutputGate(at);
  token.beta = kernel.loadBeta(at, 1, b.index(1));
  if (token.beta)
    token.beta = b.once(token.beta);
  if (!channels.empty()) {
    q.append(k);
    q.append(v);
    if (kernel.keepsLog())
      kernel.logInputs(channels, q, at);
    else
      kernel.storeInputs(channels, q, b.addI(number, b.index(1)));
  }
  return token;
}

/// A key in f32, times `factor`, normalised if the map says so.
Value StepForm::normalised(Value x, const MappedOperand &source, Value factor) {
  Value scale = factor;
  if (auto norm = dyn_cast_or_null<dplr::L2NormOp>(source.map)) {
    Value squares = b.sum(b.mul(x, x), 0);
    Value inverse =
        b.rsqrt(b.add(squares, b.f32(norm.getEps().convertToDouble())));
    scale = scale ? b.mul(scale, inverse) : inverse;
  }
  return scale ? b.mul(x, b.splat(scale, {kernel.keyTile})) : x;
}

/// What the token writes into its decayed state.
void StepForm::complete(KernelBuilder::Update &update, const Token &token,
                        Value before, Value decayed) {
  const Problem &problem = kernel.problem;
  update.k = normalised(token.k, problem.k, {});
  update.w = token.v;
  if (problem.recurrence.getDelta())
    update.w = b.sub(update.w, read(decayed, update.k));
  if (token.beta)
    update.w =
        b.mul(update.w, b.splat(b.row(token.beta, 0), {kernel.valueTile}));
  if (!problem.eraseA)
    return;
  update.a = normalised(token.a, problem.eraseA, {});
  update.c = read(before, normalised(token.b, problem.eraseB, {}));
}

Value StepForm::body(Value number, Value state) {
  Token token = load(number);
  KernelBuilder::Update update;
  update.decay = token.decay;
  if (kernel.problem.decayRank() == 2)
    update.decay = b.row(token.decay, 0);
  Value decayed = kernel.decayed(update, state);
  complete(update, token, state, decayed);
  Value next = kernel.written(update, decayed);
  if (kernel.keepsLog())
    kernel.storeLog(update, token.number);
  else if (writesEarly())
    kernel.storeStateAfter(next, b.addI(number, b.index(1)));
  if (writesEarly())
    kernel.storeSnapshot(next, token.number);
  Value q = normalised(token.q, kernel.problem.q, kernel.arg("scale"));
  kernel.storeOut(kernel.gated(read(next, q), token.open), token.number, {});
  if (!writesEarly())
    kernel.storeSnapshot(next, token.number);
  return next;
}

void StepForm::build() {
  Value initial = kernel.loadState();
  kernel.prefetchState();
  kernel.awaitOtherCalls();
  if (kernel.problem.q.conv)
    channels = kernel.allChannels();
  if (!kernel.keepsLog())
    kernel.moveCaches(channels);
  Value last =
      b.carry(kernel.length, initial, [&](Value number, ValueRange state) {
        return SmallVector<Value>{body(number, state[0])};
      })[0];
  if (kernel.keepsLog())
    ; // the pool stays as it is
  else if (writesEarly())
    kernel.storeStateAfter(last, b.index(0));
  else
    kernel.storeState(last);
  kernel.storeCacheSnapshots(channels, /*onlySource=*/true);
  kernel.finish();
}

void buildStepForm(KernelBuilder &kernel) { StepForm(kernel).build(); }

} // namespace kdac
