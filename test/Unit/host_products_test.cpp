// The host exit against plain loops in f64: products, sums, the inverse.
#include "HostHarness.h"
#include "HostValues.h"

#include <gtest/gtest.h>

using namespace kdac::test;

namespace {

//===-- tile.dot ----------------------------------------------------------===//

struct DotCase {
  int m, n, k;
  bool transA, transB, acc;
  const char *type;
  int width = 0; // lanes; 0: of this CPU
};

float rounded(float x, const std::string &type) {
  if (type == "bf16")
    return toBf16(x);
  if (type == "f16")
    return float(static_cast<_Float16>(x));
  return type == "tf32" ? toTf32(x) : x;
}

std::string dotText(const DotCase &c) {
  auto shape = [](int rows, int cols, const std::string &type) {
    return "tensor<" + std::to_string(rows) + "x" + std::to_string(cols) + "x" +
           type + ">";
  };
  std::string type = c.type;
  int ar = c.transA ? c.k : c.m, ac = c.transA ? c.m : c.k;
  int br = c.transB ? c.n : c.k, bc = c.transB ? c.k : c.n;
  std::string flags;
  if (c.transA)
    flags += "trans_a";
  if (c.transB)
    flags += std::string(c.transA ? ", " : "") + "trans_b";
  auto cast = [&](const char *name, int rows, int cols) {
    if (type == "f32")
      return std::string();
    return fill("%$x$_ = arith.truncf %$x$ : $from$ to $to$\n",
                {{"x", name},
                 {"from", shape(rows, cols, "f32")},
                 {"to", shape(rows, cols, type)}});
  };
  std::string suffix = type == "f32" ? "" : "_";
  return fill(R"(
func.func @f(%pa: !tile.ref<f32>, %pb: !tile.ref<f32>, %pc: !tile.ref<f32>) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %ac = arith.constant $ac$ : index
  %ar = arith.constant $ar$ : index
  %bc = arith.constant $bc$ : index
  %br = arith.constant $br$ : index
  %m = arith.constant $m$ : index
  %n = arith.constant $n$ : index
  %a = tile.load %pa[%z] stride %ac valid [%ar, %ac] align 4 : !tile.ref<f32> -> $A$
  %b = tile.load %pb[%z] stride %bc valid [%br, %bc] align 4 : !tile.ref<f32> -> $B$
  %c = tile.load %pc[%z] stride %n valid [%m, %n] align 4 : !tile.ref<f32> -> $C$
  $castA$
  $castB$
  %d = tile.dot %a$s$, %b$s$ $acc$ {$flags$} : $At$, $Bt$ -> $C$
  tile.store %d, %pc[%z] stride %n valid [%m, %n] align 4 : $C$, !tile.ref<f32>
  return
})",
              {{"castA", cast("a", ar, ac)},
               {"castB", cast("b", br, bc)},
               {"ac", std::to_string(ac)},
               {"ar", std::to_string(ar)},
               {"acc", c.acc ? "acc(%c : " + shape(c.m, c.n, "f32") + ")" : ""},
               {"flags", flags},
               {"s", suffix},
               {"At", shape(ar, ac, type)},
               {"Bt", shape(br, bc, type)},
               {"A", shape(ar, ac, "f32")},
               {"B", shape(br, bc, "f32")},
               {"C", shape(c.m, c.n, "f32")},
               {"bc", std::to_string(bc)},
               {"br", std::to_string(br)},
               {"m", std::to_string(c.m)},
               {"n", std::to_string(c.n)}});
}

class Dot : public testing::TestWithParam<DotCase> {};

TEST_P(Dot, MatchesLoops) {
  DotCase c = GetParam();
  TileKernel kernel(dotText(c), c.width);
  ASSERT_TRUE(kernel.ok());
  Floats a = random(c.m * c.k, 1), b = random(c.k * c.n, 2),
         out = random(c.m * c.n, 3);
  std::vector<double> want;
  for (int i = 0; i < c.m; ++i)
    for (int j = 0; j < c.n; ++j) {
      double sum = c.acc ? out[i * c.n + j] : 0;
      for (int k = 0; k < c.k; ++k)
        sum +=
            double(rounded(a[c.transA ? k * c.m + i : i * c.k + k], c.type)) *
            rounded(b[c.transB ? j * c.k + k : k * c.n + j], c.type);
      want.push_back(sum);
    }
  kernel.run(1, a, b, out);
  EXPECT_LT(relativeError(out, want), 3e-7);
}

INSTANTIATE_TEST_SUITE_P(
    All, Dot,
    testing::Values(DotCase{64, 128, 128, false, false, false, "f32"},
                    DotCase{64, 128, 128, true, false, true, "f32"},
                    DotCase{32, 48, 16, false, true, true, "f32"},
                    DotCase{48, 32, 80, true, true, false, "f32"},
                    DotCase{16, 16, 16, false, false, false, "bf16"},
                    DotCase{32, 64, 48, true, false, true, "bf16"},
                    DotCase{32, 64, 48, false, true, false, "f16"},
                    DotCase{32, 64, 48, false, false, true, "tf32"},
                    DotCase{5, 3, 7, false, false, true, "f32"},
                    DotCase{5, 24, 7, true, true, false, "f32"},
                    DotCase{36, 56, 24, false, true, true, "f32", 8},
                    DotCase{36, 56, 24, true, false, false, "bf16", 4},
                    DotCase{6, 10, 4, false, false, true, "f32", 1}));

/// Products with a masked left side stop at its diagonal, not before it.
TEST(DotLower, StopsAtTheDiagonal) {
  const int n = 24;
  TileKernel kernel(R"(
func.func @f(%pa: !tile.ref<f32>, %pb: !tile.ref<f32>, %pc: !tile.ref<f32>) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %n = arith.constant 24 : index
  %a = tile.load %pa[%z] stride %n valid [%n, %n] align 4 : !tile.ref<f32> -> tensor<24x24xf32>
  %b = tile.load %pb[%z] stride %n valid [%n, %n] align 4 : !tile.ref<f32> -> tensor<24x24xf32>
  %row = tile.iota 0 : tensor<24x24xindex>
  %col = tile.iota 1 : tensor<24x24xindex>
  %below = arith.cmpi sle, %col, %row : tensor<24x24xindex>
  %zero = arith.constant dense<0.0> : tensor<24x24xf32>
  %l = arith.select %below, %a, %zero : tensor<24x24xi1>, tensor<24x24xf32>
  %c = tile.dot %l, %b : tensor<24x24xf32>, tensor<24x24xf32> -> tensor<24x24xf32>
  tile.store %c, %pc[%z] stride %n valid [%n, %n] align 4 : tensor<24x24xf32>, !tile.ref<f32>
  return
})");
  ASSERT_TRUE(kernel.ok());
  Floats a = random(n * n, 1), b = random(n * n, 2), out(n * n);
  std::vector<double> want(n * n, 0.0);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      for (int k = 0; k <= i; ++k)
        want[i * n + j] += double(a[i * n + k]) * b[k * n + j];
  for (int i = 0; i < n; ++i)
    for (int k = i + 1; k < n; ++k)
      a[i * n + k] = kInf;
  kernel.run(1, a, b, out);
  EXPECT_LT(relativeError(out, want), 3e-7);
}

//===-- tile.decayed_gram -------------------------------------------------===//

struct GramCase {
  int rows, cols, leaf;
  float bound;   // of a row's base-2 log-decay
  int width = 0; // lanes; 0: of this CPU
  const char *operand = "f32";
};

class Gram : public testing::TestWithParam<GramCase> {};

std::string gramText(const GramCase &c) {
  return fill(R"(
func.func @f(%px: !tile.ref<f32>, %py: !tile.ref<f32>, %pg: !tile.ref<f32>, %pa: !tile.ref<f32>, %pb: !tile.ref<f32>) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %r = arith.constant $R$ : index
  %c = arith.constant $K$ : index
  %x = tile.load %px[%z] stride %c valid [%r, %c] align 4 : !tile.ref<f32> -> tensor<$R$x$K$xf32>
  %y = tile.load %py[%z] stride %c valid [%r, %c] align 4 : !tile.ref<f32> -> tensor<$R$x$K$xf32>
  %g = tile.load %pg[%z] stride %c valid [%r, %c] align 4 : !tile.ref<f32> -> tensor<$R$x$K$xf32>
  %a, %b = tile.decayed_gram lhs(%y, %x : tensor<$R$x$K$xf32>, tensor<$R$x$K$xf32>) rhs(%y) decay(%g) leaf $L$ operand $T$
      strict [true, false] : tensor<$R$x$K$xf32> -> tensor<$R$x$R$xf32>, tensor<$R$x$R$xf32>
  tile.store %a, %pa[%z] stride %r valid [%r, %r] align 4 : tensor<$R$x$R$xf32>, !tile.ref<f32>
  tile.store %b, %pb[%z] stride %r valid [%r, %r] align 4 : tensor<$R$x$R$xf32>, !tile.ref<f32>
  return
})",
              {{"R", std::to_string(c.rows)},
               {"K", std::to_string(c.cols)},
               {"L", std::to_string(c.leaf)},
               {"T", c.operand}});
}

/// Cumulative log-decays whose rows fall by at most -bound.
Floats cumulative(const GramCase &c, unsigned seed) {
  Floats g = random(c.rows * c.cols, seed, c.bound, 0);
  for (size_t i = c.cols; i < g.size(); ++i)
    g[i] += g[i - c.cols];
  return g;
}

/// sum_c x[i, c] y[j, c] 2^(G[i, c] - G[j, c]) on and below the diagonal.
std::vector<double> gramLoops(const GramCase &c, const Floats &x,
                              const Floats &y, const Floats &g, bool strict) {
  std::vector<double> out(c.rows * c.rows, 0.0);
  for (int i = 0; i < c.rows; ++i)
    for (int j = 0; j < i + !strict; ++j)
      for (int k = 0; k < c.cols; ++k)
        out[i * c.rows + j] +=
            double(x[i * c.cols + k]) * y[j * c.cols + k] *
            std::exp2(double(g[i * c.cols + k]) - g[j * c.cols + k]);
  return out;
}

TEST_P(Gram, MatchesLoops) {
  GramCase c = GetParam();
  TileKernel kernel(gramText(c), c.width);
  ASSERT_TRUE(kernel.ok());
  size_t size = c.rows * c.cols, square = c.rows * c.rows;
  Floats x = random(size, 1), y = random(size, 2), g = cumulative(c, 3);
  Floats a(square, kPoison), b(square, kPoison);
  kernel.run(1, x, y, g, a, b);
  double errorA = relativeError(a, gramLoops(c, y, y, g, true));
  double errorB = relativeError(b, gramLoops(c, x, y, g, false));
  if (c.operand == std::string("f32")) {
    EXPECT_LT(std::max(errorA, errorB), 4e-6);
  } else { // factors are rounded: 2^-9 each, averaged; no less either
    EXPECT_LT(std::max(errorA, errorB), 4e-3);
    EXPECT_GT(std::min(errorA, errorB), 1e-4);
  }
  for (int i = 0; i < c.rows; ++i)
    for (int j = i; j < c.rows; ++j) {
      EXPECT_EQ(a[i * c.rows + j], 0.0f);
      if (j > i)
        EXPECT_EQ(b[i * c.rows + j], 0.0f);
    }
}

/// A row depends on no later row, not even through rounding.
TEST_P(Gram, IsCausalBitwise) {
  GramCase c = GetParam();
  TileKernel kernel(gramText(c), c.width);
  ASSERT_TRUE(kernel.ok());
  size_t size = c.rows * c.cols, square = c.rows * c.rows;
  Floats x = random(size, 1), y = random(size, 2), g = cumulative(c, 3);
  Floats a(square), b(square), a2(square), b2(square);
  kernel.run(1, x, y, g, a, b);
  int cut = c.rows / 2 + 1;
  Floats other = random(size, 9);
  for (size_t i = cut * c.cols; i < size; ++i)
    x[i] = 3 * other[i], y[i] = other[i], g[i] = g[i - c.cols] + c.bound;
  kernel.run(1, x, y, g, a2, b2);
  for (int i = 0; i < cut * c.rows; ++i) {
    EXPECT_EQ(a[i], a2[i]);
    EXPECT_EQ(b[i], b2[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Leaves, Gram,
    testing::Values(GramCase{64, 128, 1, -300}, GramCase{64, 128, 1, -0.1f},
                    GramCase{64, 64, 2, -7}, GramCase{32, 96, 4, -7},
                    GramCase{64, 128, 8, -7}, GramCase{64, 128, 16, -7.2f},
                    GramCase{32, 32, 32, -1}, GramCase{16, 16, 1, -40},
                    GramCase{4, 16, 1, -40}, GramCase{1, 16, 1, -1},
                    GramCase{32, 48, 8, -7, 8}, GramCase{32, 48, 1, -40, 4},
                    GramCase{32, 64, 16, -5, 0, "bf16"},
                    GramCase{32, 64, 2, -5, 0, "bf16"}));

//===-- tile.unit_tril_inverse --------------------------------------------===//

TEST(Inverse, MatchesForwardSubstitution) {
  for (int n : {1, 4, 8, 16, 32, 64, 128}) {
    TileKernel kernel(fill(R"(
func.func @f(%p: !tile.ref<f32>, %o: !tile.ref<f32>) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %n = arith.constant $N$ : index
  %l = tile.load %p[%z] stride %n valid [%n, %n] align 4 : !tile.ref<f32> -> tensor<$N$x$N$xf32>
  %x = tile.unit_tril_inverse %l : tensor<$N$x$N$xf32>
  tile.store %x, %o[%z] stride %n valid [%n, %n] align 4 : tensor<$N$x$N$xf32>, !tile.ref<f32>
  return
})",
                           {{"N", std::to_string(n)}}));
    ASSERT_TRUE(kernel.ok());
    // The diagonal and the upper triangle hold what must be ignored.
    Floats l = random(n * n, n, -0.3f, 0.3f);
    for (int i = 0; i < n; ++i)
      for (int j = i; j < n; ++j)
        l[i * n + j] = kInf;
    std::vector<double> want(n * n, 0.0);
    for (int i = 0; i < n; ++i)
      for (int j = 0; j <= i; ++j) {
        double sum = i == j;
        for (int k = j; k < i; ++k)
          sum -= double(l[i * n + k]) * want[k * n + j];
        want[i * n + j] = sum;
      }
    Floats out(n * n, kPoison);
    kernel.run(1, l, out);
    EXPECT_LT(relativeError(out, want), 2e-6) << n;
    for (int i = 0; i < n; ++i)
      for (int j = i; j < n; ++j)
        EXPECT_EQ(out[i * n + j], i == j ? 1.0f : 0.0f);
  }
}

//===-- Sums --------------------------------------------------------------===//

TEST(Sums, CumsumAndReduceMatchLoops) {
  const int rows = 24, cols = 80;
  TileKernel kernel(R"(
func.func @f(%p: !tile.ref<f32>, %c: !tile.ref<f32>, %r: !tile.ref<f32>, %d: !tile.ref<f32>, %s: !tile.ref<f32>) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %one = arith.constant 1 : index
  %m = arith.constant 24 : index
  %n = arith.constant 80 : index
  %x = tile.load %p[%z] stride %n valid [%m, %n] align 4 : !tile.ref<f32> -> tensor<24x80xf32>
  %sum = tile.cumsum %x : tensor<24x80xf32>
  %sq = arith.mulf %x, %x : tensor<24x80xf32>
  %rows = tile.reduce %sq along 1 : tensor<24x80xf32> -> tensor<24xf32>
  %cols = tile.reduce %sq along 0 : tensor<24x80xf32> -> tensor<80xf32>
  %all = tile.reduce %rows along 0 : tensor<24xf32> -> f32
  %v = tile.splat %all : f32 -> tensor<16xf32>
  tile.store %sum, %c[%z] stride %n valid [%m, %n] align 4 : tensor<24x80xf32>, !tile.ref<f32>
  tile.store %rows, %r[%z] stride %one valid [%m] align 4 : tensor<24xf32>, !tile.ref<f32>
  tile.store %cols, %d[%z] stride %one valid [%n] align 4 : tensor<80xf32>, !tile.ref<f32>
  tile.store %v, %s[%z] stride %one valid [%one] align 4 : tensor<16xf32>, !tile.ref<f32>
  return
})");
  ASSERT_TRUE(kernel.ok());
  Floats x = random(rows * cols, 5), sum(rows * cols), r(rows), d(cols), s(1);
  kernel.run(1, x, sum, r, d, s);
  std::vector<double> wantSum(rows * cols), wantR(rows), wantD(cols), wantS(1);
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; ++j) {
      double value = x[i * cols + j], square = value * value;
      wantSum[i * cols + j] = value + (i ? wantSum[(i - 1) * cols + j] : 0);
      wantR[i] += square, wantD[j] += square, wantS[0] += square;
    }
  EXPECT_LT(relativeError(sum, wantSum), 3e-7);
  EXPECT_LT(relativeError(r, wantR), 3e-7);
  EXPECT_LT(relativeError(d, wantD), 3e-7);
  EXPECT_LT(relativeError(s, wantS), 3e-7);
}

} // namespace
