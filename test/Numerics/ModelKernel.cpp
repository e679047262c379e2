#include "ModelKernel.h"

#include "kdac/Reference/Float.h"
#include "kdac/Reference/Parallel.h"

#include <algorithm>
#include <cmath>

namespace kdac::reference {

namespace {

/// A row-major f32 matrix.
struct Matrix {
  int64_t rows, cols;
  std::vector<float> x;

  Matrix(int64_t rows, int64_t cols)
      : rows(rows), cols(cols), x(static_cast<size_t>(rows * cols), 0.0f) {}
  float &operator()(int64_t r, int64_t c) { return x[r * cols + c]; }
  float operator()(int64_t r, int64_t c) const { return x[r * cols + c]; }
};

float rounded(float x, OperandType type) {
  switch (type) {
  case OperandType::F32:
    return x;
  case OperandType::TF32: // 10 bits of significand are kept, ties away
    return floatOf((bitsOf(x) + 0x1000u) & ~0x1fffu);
  case OperandType::F16:
    return floatOfHalf(halfOf(x));
  case OperandType::BF16:
    return floatOfBF16(bf16Of(x));
  }
  return x;
}

Matrix roundedTo(Matrix m, OperandType type) {
  for (float &x : m.x)
    x = rounded(x, type);
  return m;
}

Matrix product(const Matrix &a, const Matrix &b) {
  Matrix p(a.rows, b.cols);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t c = 0; c < a.cols; ++c)
      for (int64_t j = 0; j < b.cols; ++j)
        p(i, j) += a(i, c) * b(c, j);
  return p;
}

Matrix transposed(const Matrix &a) {
  Matrix t(a.cols, a.rows);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.cols; ++j)
      t(j, i) = a(i, j);
  return t;
}

/// A base-2 log-decay below this forgets everything an f32 can hold; without
/// the clamp the chunk form subtracts infinities, or loses small decays next to
/// large ones.
constexpr float weakestDecay = -128.0f;

/// One (sequence, value head) in f32.
class ModelHead {
public:
  ModelHead(const Operands &op, const ModelOptions &options, int64_t valueHead)
      : op(op), options(options), hv(valueHead),
        h(valueHead / (op.valueHeads / op.heads)), s(op.keyDim, op.valueDim) {}

  void loadState(int64_t sequence) {
    std::vector<double> matrix(s.x.size(), 0.0);
    if (op.initial)
      op.initial(sequence, hv, matrix.data());
    for (int64_t c = 0; c < s.rows; ++c)
      for (int64_t j = 0; j < s.cols; ++j)
        s(c, j) = static_cast<float>(matrix[stateIndex(c, j)]);
  }

  void storeState(Buffer &ht, int64_t sequence) const {
    for (int64_t c = 0; c < s.rows; ++c)
      for (int64_t j = 0; j < s.cols; ++j)
        ht.set(sequence, hv, stateIndex(c, j), s(c, j));
  }

  void step(int64_t token, Buffer &out) {
    load(token, 1);
    Matrix erased = op.a ? product(b, s) : Matrix(1, op.valueDim);
    for (int64_t c = 0; c < s.rows; ++c)
      for (int64_t j = 0; j < s.cols; ++j)
        s(c, j) *= std::exp2(g(0, c));
    Matrix seen = op.delta ? product(k, s) : Matrix(1, op.valueDim);
    for (int64_t c = 0; c < s.rows; ++c)
      for (int64_t j = 0; j < s.cols; ++j)
        s(c, j) += k(0, c) * (beta(0, 0) * (v(0, j) - seen(0, j))) +
                   (op.a ? a(0, c) * erased(0, j) : 0.0f);
    Matrix o = product(q, s);
    for (int64_t j = 0; j < s.cols; ++j)
      out.set(token, hv, j, static_cast<float>(op.scale) * o(0, j));
  }

  /// The equations of design.md 4.
  void chunk(int64_t first, int64_t tokens, bool isLast, Buffer &out) {
    load(first, tokens);
    for (int64_t i = 1; i < tokens; ++i)
      for (int64_t c = 0; c < g.cols; ++c)
        g(i, c) += g(i - 1, c);
    Matrix w = writes(tokens);
    Matrix attention = gram(q, options.refined);
    Matrix fromState = decayedFromStart(q);
    float scale = static_cast<float>(op.scale);
    for (float &x : attention.x)
      x *= scale;
    for (float &x : fromState.x)
      x *= scale;
    Matrix past = product(operand(fromState), operand(s));
    Matrix local = product(operand(attention), operand(w));
    for (int64_t i = 0; i < tokens; ++i)
      for (int64_t j = 0; j < op.valueDim; ++j)
        out.set(first + i, hv, j,
                past(i, j) + local(i, j) + scale * own(i) * w(i, j));
    advance(w, tokens, isLast);
  }

private:
  int64_t stateIndex(int64_t c, int64_t j) const {
    return op.layout == StateLayout::VK ? j * op.keyDim + c
                                        : c * op.valueDim + j;
  }

  Matrix operand(Matrix m) const {
    return roundedTo(std::move(m), options.operand);
  }

  /// The attention's diagonal where it is no part of the product, else 0.
  float own(int64_t i) const {
    float sum = 0.0f;
    for (int64_t c = 0; options.refined && c < q.cols; ++c)
      sum += q(i, c) * k(i, c);
    return sum;
  }

  Matrix loadRows(const Rows &rows, int64_t first, int64_t tokens, int64_t head,
                  int64_t width, double otherwise) const {
    Matrix m(tokens, width);
    std::vector<double> row(static_cast<size_t>(width), otherwise);
    for (int64_t i = 0; i < tokens; ++i) {
      if (rows)
        rows(first + i, head, row.data());
      std::copy(row.begin(), row.end(), m.x.begin() + i * width);
    }
    return m;
  }

  void load(int64_t first, int64_t tokens) {
    q = loadRows(op.q, first, tokens, h, op.keyDim, 0);
    k = loadRows(op.k, first, tokens, h, op.keyDim, 0);
    v = loadRows(op.v, first, tokens, hv, op.valueDim, 0);
    a = loadRows(op.a, first, tokens, h, op.keyDim, 0);
    b = loadRows(op.b, first, tokens, h, op.keyDim, 0);
    beta = loadRows(op.beta, first, tokens, hv, 1, 1);
    int64_t width = op.perChannel ? op.keyDim : 1;
    Matrix decay = loadRows(op.decay, first, tokens, hv, width, 0);
    g = Matrix(tokens, op.keyDim);
    for (int64_t i = 0; i < tokens; ++i)
      for (int64_t c = 0; c < op.keyDim; ++c)
        g(i, c) = std::max(decay(i, c % width) * 1.44269504f, weakestDecay);
  }

  /// x_i exp2(G_i)
  Matrix decayedFromStart(Matrix x) const {
    for (int64_t i = 0; i < x.rows; ++i)
      for (int64_t c = 0; c < x.cols; ++c)
        x(i, c) *= std::exp2(g(i, c));
    return x;
  }

  /// sum_c x_i k_j exp2(G_i - G_j), the factors rounded, anchored at the first
  /// row of i's block of 16.
  Matrix gram(const Matrix &x, bool strict) const {
    Matrix m(x.rows, x.rows);
    for (int64_t i = 0; i < x.rows; ++i)
      for (int64_t j = 0; j < i + !strict; ++j) {
        int64_t anchor = std::max(j, i / 16 * 16);
        for (int64_t c = 0; c < x.cols; ++c)
          m(i, j) += rounded(x(i, c) * std::exp2(g(i, c) - g(anchor, c)),
                             options.operand) *
                     rounded(k(j, c) * std::exp2(g(anchor, c) - g(j, c)),
                             options.operand);
      }
    return m;
  }

  /// W: T (V - (K exp2 G) S) with T = (I + Diag(beta) A)^-1 Diag(beta) for the
  /// delta rule, else Diag(beta) V.
  Matrix writes(int64_t tokens) const {
    Matrix u = v;
    if (op.delta) {
      Matrix seen = product(operand(decayedFromStart(k)), operand(s));
      for (size_t i = 0; i < u.x.size(); ++i)
        u.x[i] -= seen.x[i];
    }
    Matrix t(tokens, tokens);
    Matrix akk = op.delta ? gram(k, true) : Matrix(tokens, tokens);
    for (int64_t i = 0; i < tokens; ++i) {
      t(i, i) = 1.0f;
      for (int64_t j = 0; j < i; ++j)
        for (int64_t m = j; m < i; ++m)
          t(i, j) -= beta(i, 0) * akk(i, m) * t(m, j);
    }
    for (int64_t i = 0; i < tokens; ++i)
      for (int64_t j = 0; j < tokens; ++j)
        t(i, j) *= beta(j, 0);
    Matrix own(tokens, op.valueDim);
    for (int64_t i = 0; options.refined && i < tokens; ++i) {
      for (int64_t j = 0; j < op.valueDim; ++j)
        own(i, j) = t(i, i) * u(i, j);
      t(i, i) = 0.0f;
    }
    Matrix w = product(operand(t), operand(u));
    for (size_t i = 0; i < w.x.size(); ++i)
      w.x[i] += own.x[i];
    return w;
  }

  void advance(const Matrix &w, int64_t tokens, bool isLast) {
    Matrix keys = k;
    for (int64_t i = 0; i < tokens; ++i)
      for (int64_t c = 0; c < op.keyDim; ++c)
        keys(i, c) *= std::exp2(g(tokens - 1, c) - g(i, c));
    Matrix added = product(transposed(operand(keys)), operand(w));
    if (options.refined && isLast) {
      Matrix rest = w, rounded = operand(w);
      for (size_t i = 0; i < rest.x.size(); ++i)
        rest.x[i] -= rounded.x[i];
      Matrix more = product(transposed(operand(keys)), operand(rest));
      for (size_t i = 0; i < added.x.size(); ++i)
        added.x[i] += more.x[i];
    }
    for (int64_t c = 0; c < s.rows; ++c)
      for (int64_t j = 0; j < s.cols; ++j)
        s(c, j) = s(c, j) * std::exp2(g(tokens - 1, c)) + added(c, j);
  }

  const Operands &op;
  const ModelOptions &options;
  int64_t hv, h;
  Matrix s;
  Matrix q{0, 0}, k{0, 0}, v{0, 0}, a{0, 0}, b{0, 0}, g{0, 0}, beta{0, 0};
};

} // namespace

std::optional<std::string> runModel(Case &c, const ModelOptions &options) {
  Operands op = operandsOf(c);
  bool isChunk = c.spec().variant.form == Form::Chunk;
  if (isChunk && op.a)
    return "the model has no chunk form of an erase pair";
  Buffer &out = *c.find("out");
  Buffer *ht = c.find("ht");
  parallelFor(c.sequences() * op.valueHeads, [&](int64_t item) {
    int64_t n = item / op.valueHeads, hv = item % op.valueHeads;
    ModelHead head(op, options, hv);
    head.loadState(n);
    int64_t length = isChunk ? options.chunk : 1, end = op.offsets[n + 1];
    for (int64_t t = op.offsets[n]; t < end; t += length)
      if (isChunk)
        head.chunk(t, std::min(length, end - t), t + length >= end, out);
      else
        head.step(t, out);
    if (ht)
      head.storeState(*ht, n);
  });
  return std::nullopt;
}

} // namespace kdac::reference
