// The recurrence itself. Reads like the formula of dplr.recurrence.
#include "kdac/Reference/Reference.h"
#include "kdac/Reference/Parallel.h"

#include <algorithm>
#include <cmath>

namespace kdac::reference {

namespace {

using Vector = std::vector<double>;

/// The state of one (sequence, head): S, [K, V], and what may be done to it.
/// Inner loops run over V, which is contiguous.
class State {
public:
  State(int64_t keyDim, int64_t valueDim)
      : keyDim(keyDim), valueDim(valueDim),
        s(static_cast<size_t>(keyDim * valueDim), 0.0) {}

  double *row(int64_t c) { return s.data() + c * valueDim; }
  const double *row(int64_t c) const { return s.data() + c * valueDim; }

  /// S = Diag(alpha) S
  void decay(const Vector &alpha) {
    for (int64_t c = 0; c < keyDim; ++c)
      for (int64_t j = 0; j < valueDim; ++j)
        row(c)[j] *= alpha[c];
  }

  /// S^T x, [V]
  Vector read(const Vector &x) const {
    Vector y(static_cast<size_t>(valueDim), 0.0);
    for (int64_t c = 0; c < keyDim; ++c)
      for (int64_t j = 0; j < valueDim; ++j)
        y[j] += x[c] * row(c)[j];
    return y;
  }

  /// S = S + x y^T
  void write(const Vector &x, const Vector &y) {
    for (int64_t c = 0; c < keyDim; ++c)
      for (int64_t j = 0; j < valueDim; ++j)
        row(c)[j] += x[c] * y[j];
  }

private:
  int64_t keyDim, valueDim;
  Vector s;
};

/// One (sequence, value head) of the recurrence.
class Head {
public:
  Head(const Operands &op, int64_t valueHead)
      : op(op), valueHead(valueHead),
        keyHead(valueHead / (op.valueHeads / op.heads)),
        state(op.keyDim, op.valueDim), q(op.keyDim), k(op.keyDim), a(op.keyDim),
        b(op.keyDim), alpha(op.keyDim, 1.0), v(op.valueDim) {}

  void loadState(int64_t sequence) {
    if (!op.initial)
      return;
    Vector matrix(static_cast<size_t>(op.keyDim * op.valueDim));
    op.initial(sequence, valueHead, matrix.data());
    for (int64_t c = 0; c < op.keyDim; ++c)
      for (int64_t j = 0; j < op.valueDim; ++j)
        state.row(c)[j] = matrix[stateIndex(c, j)];
  }

  void storeState(double *matrix) const {
    for (int64_t c = 0; c < op.keyDim; ++c)
      for (int64_t j = 0; j < op.valueDim; ++j)
        matrix[stateIndex(c, j)] = state.row(c)[j];
  }

  /// One token: decay, erase, write, then read after the write.
  void step(int64_t token, double *out) {
    load(token);
    Vector erased(v.size(), 0.0); // b^T S, of the undecayed state
    if (op.a)
      erased = state.read(b);
    if (op.decay)
      state.decay(alpha);
    Vector u = v;
    if (op.delta) { // the decayed state
      Vector seen = state.read(k);
      for (size_t j = 0; j < u.size(); ++j)
        u[j] -= seen[j];
    }
    for (double &x : u)
      x *= beta;
    if (op.a)
      state.write(a, erased);
    state.write(k, u);
    Vector o = state.read(q);
    for (size_t j = 0; j < o.size(); ++j)
      out[j] = op.scale * o[j];
  }

private:
  size_t stateIndex(int64_t c, int64_t j) const {
    return static_cast<size_t>(
        op.layout == StateLayout::VK ? j * op.keyDim + c : c * op.valueDim + j);
  }

  void load(int64_t token) {
    op.q(token, keyHead, q.data());
    op.k(token, keyHead, k.data());
    op.v(token, valueHead, v.data());
    if (op.beta)
      op.beta(token, valueHead, &beta);
    if (op.a) {
      op.a(token, keyHead, a.data());
      op.b(token, keyHead, b.data());
    }
    if (op.decay)
      loadDecay(token);
  }

  void loadDecay(int64_t token) {
    op.decay(token, valueHead, alpha.data());
    if (!op.perChannel)
      alpha.assign(alpha.size(), alpha[0]);
    for (double &x : alpha)
      x = std::exp(x);
  }

  const Operands &op;
  int64_t valueHead, keyHead;
  State state;
  Vector q, k, a, b, alpha, v;
  double beta = 1.0;
};

} // namespace

Results run(const Operands &op, int threads) {
  int64_t sequences = static_cast<int64_t>(op.offsets.size()) - 1;
  int64_t matrix = op.keyDim * op.valueDim;
  Results results;
  results.out.assign(
      static_cast<size_t>(op.offsets.back() * op.valueHeads * op.valueDim),
      0.0);
  results.finalState.resize(
      static_cast<size_t>(sequences * op.valueHeads * matrix));
  if (op.keepAll)
    results.states.assign(
        static_cast<size_t>(op.offsets.back() * op.valueHeads * matrix), 0.0);
  parallelFor(
      sequences * op.valueHeads,
      [&](int64_t item) {
        int64_t sequence = item / op.valueHeads, hv = item % op.valueHeads;
        if (!op.skipped.empty() && op.skipped[sequence])
          return;
        Head head(op, hv);
        head.loadState(sequence);
        double *final = results.finalState.data() + item * matrix;
        int64_t begin = op.offsets[sequence], last = op.offsets[sequence + 1];
        if (!op.accepted.empty())
          last = std::clamp(begin + op.accepted[sequence], begin, last);
        if (last == begin)
          head.storeState(final);
        for (int64_t t = op.offsets[sequence]; t < op.offsets[sequence + 1];
             ++t) {
          int64_t row = t * op.valueHeads + hv;
          double *out = results.out.data() + row * op.valueDim;
          head.step(t, out);
          gateRow(op.norm, t, hv, out, op.valueDim);
          if (op.keepAll)
            head.storeState(results.states.data() + row * matrix);
          if (t + 1 == last)
            head.storeState(final);
        }
      },
      threads);
  return results;
}

} // namespace kdac::reference
