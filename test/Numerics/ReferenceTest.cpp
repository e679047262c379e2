// The oracle: cases worked by hand, and rows of the family that must agree.
#include "kdac/Reference/Reference.h"
#include "kdac/Reference/Random.h"

#include "gtest/gtest.h"

#include <cmath>
#include <utility>

using namespace kdac;
using namespace kdac::reference;

namespace {

/// A tensor [., heads, width] of given numbers.
Rows table(std::vector<double> values, int64_t heads, int64_t width) {
  return [=](int64_t token, int64_t head, double *row) {
    for (int64_t c = 0; c < width; ++c)
      row[c] = values[static_cast<size_t>((token * heads + head) * width + c)];
  };
}

/// Normal numbers, scaled.
Rows noise(uint64_t stream, int64_t width, double scale) {
  return [=](int64_t token, int64_t head, double *row) {
    for (int64_t c = 0; c < width; ++c)
      row[c] = scale * Random(7, stream).normal(static_cast<uint64_t>(
                           (token * 64 + head) * 256 + c));
  };
}

double one(const Rows &rows, int64_t token = 0, int64_t head = 0) {
  double x = 0.0;
  rows(token, head, &x);
  return x;
}

GateMap softplusMap() {
  GateMap map;
  map.gate = Gate::Softplus;
  return map;
}

/// Random KDA operands: 2 key heads, 4 value heads, K = 5, V = 3, two
/// sequences.
Operands kda() {
  Operands op;
  op.heads = 2;
  op.valueHeads = 4;
  op.keyDim = 5;
  op.valueDim = 3;
  op.offsets = {0, 4, 11};
  op.q = l2norm(noise(1, 5, 1.0), 5);
  op.k = l2norm(noise(2, 5, 1.0), 5);
  op.v = noise(3, 3, 1.0);
  GateMap map;
  map.gate = Gate::Bounded;
  op.decay = logDecay(map, noise(4, 5, 1.0), 5);
  op.perChannel = true;
  op.beta = writeStrength(Beta::Sigmoid, noise(5, 1, 1.0));
  op.delta = true;
  op.initial = noise(6, 15, 0.3);
  op.scale = 0.5;
  return op;
}

void expectNear(const std::vector<double> &a, const std::vector<double> &b,
                double tolerance = 1e-13) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], tolerance) << "at " << i;
}

void expectNear(const Results &a, const Results &b) {
  expectNear(a.out, b.out);
  expectNear(a.finalState, b.finalState);
}

} // namespace

// K = V = 1: S = 0.5 * 2 = 1 after the decay, u = 0.5 * (3 - 1 * 2) = 0.5,
// S = 1 + 2 * 0.5 = 2, o = 0.25 * 2 * 4 = 2.
TEST(Reference, DeltaErasesTheDecayedState) {
  Operands op;
  op.offsets = {0, 1};
  op.q = table({4.0}, 1, 1);
  op.k = table({2.0}, 1, 1);
  op.v = table({3.0}, 1, 1);
  op.decay = table({std::log(0.5)}, 1, 1);
  op.beta = table({0.5}, 1, 1);
  op.delta = true;
  op.initial = table({2.0}, 1, 1);
  op.scale = 0.25;
  Results r = run(op);
  EXPECT_DOUBLE_EQ(r.out[0], 2.0);
  EXPECT_DOUBLE_EQ(r.finalState[0], 2.0);
}

// b reads S = 2 before the decay: S = 0.5 * 2 + 3 * (5 * 2) + 2 * 3 = 37.
TEST(Reference, PairErasesTheUndecayedState) {
  Operands op;
  op.offsets = {0, 1};
  op.q = table({1.0}, 1, 1);
  op.k = table({2.0}, 1, 1);
  op.v = table({3.0}, 1, 1);
  op.decay = table({std::log(0.5)}, 1, 1);
  op.a = table({3.0}, 1, 1);
  op.b = table({5.0}, 1, 1);
  op.initial = table({2.0}, 1, 1);
  Results r = run(op);
  EXPECT_DOUBLE_EQ(r.finalState[0], 37.0);
  EXPECT_DOUBLE_EQ(r.out[0], 37.0);
}

// K = 2, V = 1, two tokens, unit keys: token 0 writes [3, 0], token 1 decays
// channel 0 by e^-1 and writes channel 1.
TEST(Reference, ChannelsDecaySeparatelyAndOutputFollowsTheWrite) {
  Operands op;
  op.keyDim = 2;
  op.offsets = {0, 2};
  op.q = table({1, 1, 1, 1}, 1, 2);
  op.k = table({1, 0, 0, 1}, 1, 2);
  op.v = table({3, 4}, 1, 1);
  op.decay = table({0, 0, -1, -2}, 1, 2);
  op.perChannel = true;
  Results r = run(op);
  EXPECT_DOUBLE_EQ(r.out[0], 3.0);
  EXPECT_DOUBLE_EQ(r.out[1], 3.0 * std::exp(-1.0) + 4.0);
  EXPECT_DOUBLE_EQ(r.finalState[0], 3.0 * std::exp(-1.0));
  EXPECT_DOUBLE_EQ(r.finalState[1], 4.0);
}

TEST(Reference, LayoutsAreTransposesOfEachOther) {
  Operands op = kda();
  op.layout = StateLayout::VK;
  Results vFirst = run(op);
  op.layout = StateLayout::KV;
  op.initial = [initial = op.initial](int64_t n, int64_t h, double *matrix) {
    double transposed[15];
    initial(n, h, transposed);
    for (int c = 0; c < 5; ++c)
      for (int j = 0; j < 3; ++j)
        matrix[c * 3 + j] = transposed[j * 5 + c];
  };
  Results kFirst = run(op);
  expectNear(vFirst.out, kFirst.out);
  for (int m = 0; m < 8; ++m)
    for (int c = 0; c < 5; ++c)
      for (int j = 0; j < 3; ++j)
        EXPECT_EQ(vFirst.finalState[m * 15 + j * 5 + c],
                  kFirst.finalState[m * 15 + c * 3 + j]);
}

// Value heads 0, 1 read key head 0; 2, 3 read key head 1.
TEST(Reference, ValueHeadsShareKeyHeadsInConsecutiveGroups) {
  Operands op = kda();
  Results grouped = run(op);
  op.heads = 4;
  for (Rows *rows : {&op.q, &op.k})
    *rows = [inner = *rows](int64_t t, int64_t head, double *row) {
      inner(t, head / 2, row);
    };
  expectNear(grouped, run(op));
}

TEST(Reference, KdaWithoutDecayIsDelta) {
  Operands op = kda();
  op.decay = noise(0, 5, 0.0);
  Results gated = run(op);
  op.decay = nullptr;
  expectNear(gated, run(op));
}

TEST(Reference, KdaWithOneDecayPerHeadIsGatedDelta) {
  Operands op = kda();
  Rows perHead = logDecay(softplusMap(), noise(8, 1, 1.0), 1);
  op.decay = [perHead](int64_t t, int64_t h, double *row) {
    std::fill(row, row + 5, one(perHead, t, h));
  };
  Results channels = run(op);
  op.decay = perHead;
  op.perChannel = false;
  expectNear(channels, run(op));
}

// S = (Diag(alpha) - beta k (alpha k)^T) S + k (beta v)^T, one head a time
// because a and b belong to key heads.
TEST(Reference, PairWithScaledKeysIsKda) {
  Operands op = kda();
  op.heads = op.valueHeads = 2;
  Results delta = run(op);
  Operands pair = op;
  pair.delta = false;
  pair.a = [op](int64_t t, int64_t h, double *row) {
    op.k(t, h, row);
    double beta = one(op.beta, t, h);
    for (int c = 0; c < 5; ++c)
      row[c] *= -beta;
  };
  pair.b = [op](int64_t t, int64_t h, double *row) {
    double decay[5];
    op.decay(t, h, decay);
    op.k(t, h, row);
    for (int c = 0; c < 5; ++c)
      row[c] *= std::exp(decay[c]);
  };
  expectNear(delta, run(pair));
}

// Retention, simple GLA, GLA: the same decay said in three ways.
TEST(Reference, DecaysOfEveryRankAgree) {
  Operands op = kda();
  op.delta = false;
  op.beta = nullptr;
  op.perChannel = false;
  op.decay = [](int64_t, int64_t h, double *x) { *x = -0.1 * double(h + 1); };
  Results perHead = run(op);
  op.perChannel = true;
  op.decay = [](int64_t, int64_t h, double *x) {
    std::fill(x, x + 5, -0.1 * double(h + 1));
  };
  expectNear(perHead, run(op));
}

// Without erase and decay the output is causal attention without softmax.
TEST(Reference, LinearAttentionIsASumOverThePast) {
  Operands op = kda();
  op.delta = false;
  op.decay = op.beta = op.initial = nullptr;
  Results r = run(op);
  int64_t head = 3, token = 9;
  double q[5], k[5], v[3], expected[3] = {0, 0, 0};
  op.q(token, head / 2, q);
  for (int64_t t = 4; t <= token; ++t) {
    op.k(t, head / 2, k);
    op.v(t, head, v);
    double dot = 0.0;
    for (int c = 0; c < 5; ++c)
      dot += q[c] * k[c];
    for (int j = 0; j < 3; ++j)
      expected[j] += op.scale * dot * v[j];
  }
  for (int j = 0; j < 3; ++j)
    EXPECT_NEAR(r.out[static_cast<size_t>((token * 4 + head) * 3 + j)],
                expected[j], 1e-13);
}

TEST(Reference, EmptySequencesKeepTheirState) {
  Operands op = kda();
  op.offsets = {0, 0, 4, 4, 4};
  Results r = run(op);
  for (int64_t n : {0, 2, 3})
    for (int64_t h = 0; h < 4; ++h) {
      double matrix[15];
      op.initial(n, h, matrix);
      for (int i = 0; i < 15; ++i)
        EXPECT_EQ(r.finalState[static_cast<size_t>((n * 4 + h) * 15 + i)],
                  matrix[i]);
    }
  op.initial = nullptr;
  EXPECT_EQ(run(op).finalState[0], 0.0);
}

TEST(Reference, ThreadsDoNotChangeResults) {
  Operands op = kda();
  Results a = run(op, 1), b = run(op, 3);
  EXPECT_EQ(a.out, b.out);
  EXPECT_EQ(a.finalState, b.finalState);
}

//===-- Maps
//---------------------------------------------------------------===//

TEST(ReferenceMaps, L2NormHasEpsilonInsideTheRootOnTheSum) {
  double row[2];
  l2norm(table({3e-3, 4e-3, 0, 0}, 1, 2), 2)(0, 0, row);
  EXPECT_DOUBLE_EQ(row[0], 3e-3 / std::sqrt(25e-6 + 1e-6));
  l2norm(table({3e-3, 4e-3, 0, 0}, 1, 2), 2)(1, 0, row);
  EXPECT_EQ(row[0], 0.0);
  l2norm(table({3, 4}, 1, 2), 2, 0.0)(0, 0, row);
  EXPECT_DOUBLE_EQ(row[1], 0.8);
}

// pitfalls NUM-2: the two gates at x = -1.
TEST(ReferenceMaps, GatesHaveTheirKnownValues) {
  Rows logit = table({-1.0}, 1, 1);
  GateMap map;
  map.gate = Gate::Softplus;
  EXPECT_NEAR(one(logDecay(map, logit, 1)), -0.31326168751822286, 1e-15);
  map.gate = Gate::Bounded;
  EXPECT_NEAR(one(logDecay(map, logit, 1)), -1.3447071068499756, 1e-15);
  map.gate = Gate::Identity;
  EXPECT_EQ(one(logDecay(map, logit, 1)), -1.0);
}

TEST(ReferenceMaps, SoftplusHasExactTails) {
  GateMap map;
  map.gate = Gate::Softplus;
  EXPECT_DOUBLE_EQ(one(logDecay(map, table({-40.0}, 1, 1), 1)),
                   -std::exp(-40.0));
  EXPECT_DOUBLE_EQ(one(logDecay(map, table({800.0}, 1, 1), 1)), -800.0);
  EXPECT_EQ(one(logDecay(map, table({-1000.0}, 1, 1), 1)), 0.0);
}

TEST(ReferenceMaps, GateAddsTheBiasBeforeTheRate) {
  GateMap map;
  map.gate = Gate::Bounded;
  map.bound = -3.0;
  map.aLog = table({std::log(2.0)}, 1, 1);
  map.dtBias = table({0.5, -0.25}, 1, 2);
  double row[2];
  logDecay(map, table({1.0, 1.0}, 1, 2), 2)(0, 0, row);
  EXPECT_DOUBLE_EQ(row[0], -3.0 / (1.0 + std::exp(-3.0)));
  EXPECT_DOUBLE_EQ(row[1], -3.0 / (1.0 + std::exp(-1.5)));
}

// pitfalls NUM-12: exp(90) overflows f32, exp(1000) also f64.
TEST(ReferenceMaps, SaturatedRatesStayFinite) {
  for (double aLog : {90.0, 1000.0}) {
    GateMap map;
    map.gate = Gate::Bounded;
    map.aLog = table({aLog}, 1, 1);
    EXPECT_EQ(one(logDecay(map, table({0.0}, 1, 1), 1)), -2.5);
    EXPECT_EQ(one(logDecay(map, table({1.0}, 1, 1), 1)), -5.0);
    EXPECT_EQ(one(logDecay(map, table({-1.0}, 1, 1), 1)), 0.0);
    map.gate = Gate::Softplus;
    EXPECT_EQ(one(logDecay(map, table({-1000.0}, 1, 1), 1)), 0.0);
  }
}

TEST(ReferenceMaps, WriteStrengthsHaveTheirKnownValues) {
  Rows half = table({0.5}, 1, 1), low = table({-800.0}, 1, 1);
  EXPECT_NEAR(one(writeStrength(Beta::Sigmoid, half)), 0.62245933120185459,
              1e-15);
  EXPECT_NEAR(one(writeStrength(Beta::TwoSigmoid, half)), 1.2449186624037092,
              1e-15);
  EXPECT_EQ(one(writeStrength(Beta::Identity, half)), 0.5);
  EXPECT_EQ(one(writeStrength(Beta::Sigmoid, low)), 0.0);
}
