// The host exit, op by op: small tile kernels against plain loops in f64.
#include "HostHarness.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

using namespace kdac::test;

namespace {

using Floats = std::vector<float>;
using Halves = std::vector<uint16_t>;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kPoison = 12345.0f;

Floats random(size_t size, unsigned seed, float low = -1, float high = 1) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> draw(low, high);
  Floats values(size);
  for (float &value : values)
    value = draw(engine);
  return values;
}

/// Round to nearest even at 16 bits, written independently of the compiler.
float toBf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  uint32_t low = bits & 0xffff;
  bits &= 0xffff0000;
  if (low > 0x8000 || (low == 0x8000 && (bits & 0x10000)))
    bits += 0x10000;
  std::memcpy(&x, &bits, 4);
  return x;
}

uint16_t bf16Bits(float x) {
  uint32_t bits;
  x = toBf16(x);
  std::memcpy(&bits, &x, 4);
  return bits >> 16;
}

float fromBf16(uint16_t bits) {
  uint32_t wide = uint32_t(bits) << 16;
  float x;
  std::memcpy(&x, &wide, 4);
  return x;
}

float toTf32(float x) {
  double scale = std::ldexp(1.0, 10 - std::ilogb(x));
  return x == 0 ? 0 : float(std::nearbyint(double(x) * scale) / scale);
}

Halves toBf16(const Floats &values) {
  Halves bits;
  for (float value : values)
    bits.push_back(bf16Bits(value));
  return bits;
}

double relativeError(const Floats &got, const std::vector<double> &want) {
  double error = 0, norm = 1e-300;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

//===-- tile.dot
//-----------------------------------------------------------===//

struct DotCase {
  int m, n, k;
  bool transA, transB, acc;
  const char *type;
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
  TileKernel kernel(dotText(c));
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
                    DotCase{5, 24, 7, true, true, false, "f32"}));

//===-- tile.decayed_gram
//--------------------------------------------------===//

struct GramCase {
  int rows, cols, leaf;
  float bound; // of a row's base-2 log-decay
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
  %a, %b = tile.decayed_gram lhs(%y, %x : tensor<$R$x$K$xf32>, tensor<$R$x$K$xf32>) rhs(%y) decay(%g) leaf $L$ operand f32
      strict [true, false] : tensor<$R$x$K$xf32> -> tensor<$R$x$R$xf32>, tensor<$R$x$R$xf32>
  tile.store %a, %pa[%z] stride %r valid [%r, %r] align 4 : tensor<$R$x$R$xf32>, !tile.ref<f32>
  tile.store %b, %pb[%z] stride %r valid [%r, %r] align 4 : tensor<$R$x$R$xf32>, !tile.ref<f32>
  return
})",
              {{"R", std::to_string(c.rows)},
               {"K", std::to_string(c.cols)},
               {"L", std::to_string(c.leaf)}});
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
  TileKernel kernel(gramText(c));
  ASSERT_TRUE(kernel.ok());
  size_t size = c.rows * c.cols, square = c.rows * c.rows;
  Floats x = random(size, 1), y = random(size, 2), g = cumulative(c, 3);
  Floats a(square, kPoison), b(square, kPoison);
  kernel.run(1, x, y, g, a, b);
  EXPECT_LT(relativeError(a, gramLoops(c, y, y, g, true)), 4e-6);
  EXPECT_LT(relativeError(b, gramLoops(c, x, y, g, false)), 4e-6);
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
  TileKernel kernel(gramText(c));
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
                    GramCase{4, 16, 1, -40}, GramCase{1, 16, 1, -1}));

//===-- tile.unit_tril_inverse
//---------------------------------------------===//

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

//===-- Sums
//---------------------------------------------------------------===//

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

//===-- Loads and stores
//---------------------------------------------------===//

struct AccessCase {
  const char *type;
  bool transposed;
  int rows, cols; // valid
};

class Access : public testing::TestWithParam<AccessCase> {};

/// Copies the valid part of a 32 x 48 tile; both arrays end exactly where it
/// does, so that touching anything else is seen by the poison or by ASan.
TEST_P(Access, CopiesTheValidPartOnly) {
  AccessCase c = GetParam();
  TileKernel kernel(fill(R"(
func.func @f(%p: !tile.ref<$T$>, %o: !tile.ref<$T$>, %m: index, %n: index, %s: index) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %x = tile.load %p[%z] stride %s valid [%m, %n] $trans$ align 2 : !tile.ref<$T$> -> tensor<32x48x$T$>
  $widen$
  tile.store %y, %o[%z] stride %s valid [%m, %n] $trans$ align 2 : tensor<32x48x$T$>, !tile.ref<$T$>
  return
})",
                         {{"trans", c.transposed ? "transposed" : ""},
                          {"widen", c.type == std::string("f32") ? R"(
  %y = arith.addf %x, %x : tensor<32x48xf32>)"
                                                                 : R"(
  %w = arith.extf %x : tensor<32x48x$T$> to tensor<32x48xf32>
  %d = arith.addf %w, %w : tensor<32x48xf32>
  %y = arith.truncf %d : tensor<32x48xf32> to tensor<32x48x$T$>)"},
                          {"T", c.type}}));
  ASSERT_TRUE(kernel.ok());
  int lines = c.transposed ? c.cols : c.rows;
  int line = c.transposed ? c.rows : c.cols, stride = 57;
  size_t size = lines && line ? (lines - 1) * stride + line : 0;
  Floats x = random(size, 7);
  auto check = [&](auto &in, auto poison, auto read) {
    auto out = in;
    out.assign(size + 64, poison);
    kernel.run(1, in, out, c.rows, c.cols, stride);
    for (size_t i = 0; i < out.size(); ++i) {
      bool valid = i < size && int(i % stride) < line;
      if (valid)
        EXPECT_EQ(read(out[i]), 2 * read(in[i])) << i;
      else
        EXPECT_EQ(out[i], poison) << i;
    }
  };
  if (c.type == std::string("f32"))
    return check(x, kPoison, [](float v) { return v; });
  if (c.type == std::string("bf16")) {
    Halves bits = toBf16(x);
    return check(bits, uint16_t(0x4242), fromBf16);
  }
  std::vector<_Float16> half(x.begin(), x.end());
  check(half, _Float16(42), [](_Float16 v) { return float(v); });
}

INSTANTIATE_TEST_SUITE_P(
    All, Access,
    testing::Values(
        AccessCase{"f32", false, 32, 48}, AccessCase{"f32", false, 31, 47},
        AccessCase{"f32", true, 32, 48}, AccessCase{"f32", true, 17, 33},
        AccessCase{"bf16", false, 32, 48}, AccessCase{"bf16", false, 5, 1},
        AccessCase{"bf16", true, 1, 40}, AccessCase{"bf16", true, 20, 48},
        AccessCase{"f16", false, 9, 17}, AccessCase{"f16", true, 9, 17},
        AccessCase{"f32", false, 0, 48}, AccessCase{"bf16", false, 32, 0},
        AccessCase{"f32", true, 0, 0}));

TEST(Access, StridedVectors) {
  TileKernel kernel(R"(
func.func @f(%p: !tile.ref<bf16>, %o: !tile.ref<f32>, %n: index, %s: index, %t: index) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %x = tile.load %p[%z] stride %s valid [%n] align 2 : !tile.ref<bf16> -> tensor<32xbf16>
  %y = arith.extf %x : tensor<32xbf16> to tensor<32xf32>
  tile.store %y, %o[%z] stride %t valid [%n] align 4 : tensor<32xf32>, !tile.ref<f32>
  return
})");
  ASSERT_TRUE(kernel.ok());
  for (int n : {0, 1, 19, 32})
    for (int s : {1, 3})
      for (int t : {1, 2}) {
        Halves in = toBf16(random(n ? (n - 1) * s + 1 : 0, 11));
        Floats out(80, kPoison);
        kernel.run(1, in, out, n, s, t);
        for (int i = 0; i < 80; ++i) {
          bool valid = i % t == 0 && i / t < n;
          EXPECT_EQ(out[i], valid ? fromBf16(in[i / t * s]) : kPoison);
        }
      }
}

TEST(Access, AbsentArguments) {
  TileKernel kernel(R"(
func.func @f(%p: !tile.ref<f32>, %o: !tile.ref<f32>, %absent: !tile.ref<f32>, %offsets: !tile.ref<i32>) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %one = arith.constant 1 : index
  %n = arith.constant 16 : index
  %seven = arith.constant 7 : index
  %x = tile.load %p[%z] stride %n valid [%n, %n] align 4 : !tile.ref<f32> -> tensor<16x16xf32>
  %xt = tile.load %p[%z] stride %n valid [%n, %n] transposed align 4 : !tile.ref<f32> -> tensor<16x16xf32>
  %v = tile.load %p[%z] stride %one valid [%n] align 4 : !tile.ref<f32> -> tensor<16xf32>
  %vs = tile.broadcast %v along 0 : tensor<16xf32> -> tensor<16x16xf32>
  %a = arith.addf %x, %xt : tensor<16x16xf32>
  %b = arith.addf %a, %vs : tensor<16x16xf32>
  %k = tile.load_scalar %offsets[%one] else %seven : !tile.ref<i32> -> index
  %given = tile.present %offsets : !tile.ref<i32>
  %c1 = arith.constant 1.0 : f32
  %c2 = arith.constant 2.0 : f32
  %w = arith.select %given, %c1, %c2 : f32
  %ki = arith.index_cast %k : index to i32
  %kf = arith.sitofp %ki : i32 to f32
  %kw = arith.addf %kf, %w : f32
  %ks = tile.splat %kw : f32 -> tensor<16x16xf32>
  %c = arith.addf %b, %ks : tensor<16x16xf32>
  tile.store %c, %o[%z] stride %n valid [%n, %n] align 4 : tensor<16x16xf32>, !tile.ref<f32>
  tile.store %c, %absent[%z] stride %n valid [%n, %n] align 4 : tensor<16x16xf32>, !tile.ref<f32>
  tile.store %c, %absent[%z] stride %n valid [%n, %n] transposed align 4 : tensor<16x16xf32>, !tile.ref<f32>
  return
})");
  ASSERT_TRUE(kernel.ok());
  Floats out(256, kPoison);
  kernel.run(1, nullptr, out, nullptr, nullptr);
  for (float value : out)
    EXPECT_EQ(value, 9.0f);
  std::vector<int32_t> offsets = {0, -5};
  kernel.run(1, nullptr, out, nullptr, offsets);
  for (float value : out)
    EXPECT_EQ(value, -4.0f);
}

//===-- Math
//---------------------------------------------------------------===//

std::string mathText(const char *op) {
  return fill(R"(
func.func @f(%p: !tile.ref<f32>, %o: !tile.ref<f32>, %n: index) attributes {tile.kernel} {
  %id = tile.program_id : index
  %c = arith.constant 16 : index
  %one = arith.constant 1 : index
  %at = arith.muli %id, %c : index
  %left = arith.subi %n, %at : index
  %x = tile.load %p[%at] stride %one valid [%left] align 4 : !tile.ref<f32> -> tensor<16xf32>
  %y = $op$ %x : tensor<16xf32>
  tile.store %y, %o[%at] stride %one valid [%left] align 4 : tensor<16xf32>, !tile.ref<f32>
  return
})",
              {{"op", op}});
}

Floats applyMath(const char *op, Floats x) {
  TileKernel kernel(mathText(op));
  EXPECT_TRUE(kernel.ok());
  Floats out(x.size(), kPoison);
  if (kernel.ok())
    kernel.run((x.size() + 15) / 16, x, out, int64_t(x.size()));
  return out;
}

/// Error in units of the last place of the f32 result.
double ulps(float got, double want) {
  double unit = std::ldexp(1.0, std::max(std::ilogb(want), -126) - 23);
  return std::fabs(got - want) / unit;
}

TEST(Math, Exp2SpecialValues) {
  float nan = std::numeric_limits<float>::quiet_NaN();
  Floats out =
      applyMath("math.exp2", {0.0f, -0.0f, 1, -1, 10, -126, 127, -149, 128, 200,
                              kInf, -150.5f, -300, -kInf, nan, -3e38f});
  Floats want = {1,    1,    2,    0.5f, 1024, 0x1p-126f, 0x1p127f, 0x1p-149f,
                 kInf, kInf, kInf, 0,    0,    0,         nan,      0};
  for (size_t i = 0; i < out.size(); ++i) {
    if (std::isnan(want[i]))
      EXPECT_TRUE(std::isnan(out[i]));
    else
      EXPECT_EQ(out[i], want[i]) << i;
  }
}

TEST(Math, Exp2IsAccurate) {
  Floats x = random(20000, 21, -126, 127.99f);
  Floats out = applyMath("math.exp2", x);
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_LT(ulps(out[i], std::exp2(double(x[i]))), 1.2) << x[i];
}

TEST(Math, RsqrtAndLog2AreAccurate) {
  Floats x;
  for (float e : random(20000, 22, -140, 127))
    x.push_back(std::exp2(e));
  Floats root = applyMath("math.rsqrt", x), log = applyMath("math.log2", x);
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_LT(ulps(root[i], 1 / std::sqrt(double(x[i]))), 1.5) << x[i];
    ASSERT_NEAR(log[i], std::log2(double(x[i])),
                2e-7 * std::fabs(std::log2(double(x[i]))) + 1e-12)
        << x[i];
  }
  Floats special = applyMath("math.log2", {0, 1, 2, kInf, -1});
  EXPECT_EQ(special[0], -kInf);
  EXPECT_EQ(special[1], 0.0f);
  EXPECT_EQ(special[2], 1.0f);
  EXPECT_EQ(special[3], kInf);
  EXPECT_TRUE(std::isnan(special[4]));
}

TEST(Math, TruncationRoundsToNearestEven) {
  TileKernel kernel(R"(
func.func @f(%p: !tile.ref<f32>, %o: !tile.ref<bf16>) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %one = arith.constant 1 : index
  %n = arith.constant 16 : index
  %x = tile.load %p[%z] stride %one valid [%n] align 4 : !tile.ref<f32> -> tensor<16xf32>
  %y = arith.truncf %x : tensor<16xf32> to tensor<16xbf16>
  tile.store %y, %o[%z] stride %one valid [%n] align 2 : tensor<16xbf16>, !tile.ref<bf16>
  return
})");
  ASSERT_TRUE(kernel.ok());
  Floats x = {1.0f,         1.00390625f, 1.01171875f, 1.0039063f,
              -1.00390625f, 3.4e38f,     kInf,        -kInf,
              1e-40f,       0.1f,        65535.0f,    -0.0f,
              1e-38f,       0x1.fffp0f,  123.456f,    -7.7f};
  Halves out(16);
  kernel.run(1, x, out);
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(out[i], bf16Bits(x[i])) << x[i];
}

//===-- Loops that carry tiles
//---------------------------------------------===//

/// S' = d S + k v^T, o = S'^T q for a few tokens: the state is updated in
/// place, and a use of the old state after the update must still see the old
/// one.
TEST(Loops, CarriedTile) {
  TileKernel kernel(R"(
func.func @f(%ps: !tile.ref<f32>, %pk: !tile.ref<f32>, %po: !tile.ref<f32>, %old: !tile.ref<f32>, %T: index) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %one = arith.constant 1 : index
  %n = arith.constant 32 : index
  %half = arith.constant dense<0.5> : tensor<32x32xf32>
  %s0 = tile.load %ps[%z] stride %n valid [%n, %n] transposed align 4 : !tile.ref<f32> -> tensor<32x32xf32>
  %last, %count = scf.for %t = %z to %T step %one iter_args(%s = %s0, %c = %z) -> (tensor<32x32xf32>, index) {
    %at = arith.muli %t, %n : index
    %k = tile.load %pk[%at] stride %one valid [%n] align 4 : !tile.ref<f32> -> tensor<32xf32>
    %kr = tile.broadcast %k along 0 : tensor<32xf32> -> tensor<32x32xf32>
    %kc = tile.broadcast %k along 1 : tensor<32xf32> -> tensor<32x32xf32>
    %d = arith.mulf %s, %half : tensor<32x32xf32>
    %w = arith.mulf %kr, %kc : tensor<32x32xf32>
    %next = arith.addf %d, %w : tensor<32x32xf32>
    %r = arith.mulf %next, %kr : tensor<32x32xf32>
    %o = tile.reduce %r along 0 : tensor<32x32xf32> -> tensor<32xf32>
    tile.store %o, %po[%at] stride %one valid [%n] align 4 : tensor<32xf32>, !tile.ref<f32>
    %before = tile.reduce %s along 0 : tensor<32x32xf32> -> tensor<32xf32>
    tile.store %before, %old[%at] stride %one valid [%n] align 4 : tensor<32xf32>, !tile.ref<f32>
    %c1 = arith.addi %c, %one : index
    scf.yield %next, %c1 : tensor<32x32xf32>, index
  }
  tile.store %last, %ps[%z] stride %n valid [%n, %n] transposed align 4 : tensor<32x32xf32>, !tile.ref<f32>
  return
})");
  ASSERT_TRUE(kernel.ok());
  const int n = 32;
  for (int tokens : {0, 1, 5}) {
    Floats s = random(n * n, 31), k = random(n * tokens, 32);
    Floats o(n * tokens, kPoison), old(n * tokens, kPoison);
    std::vector<double> state(n * n), wantO, wantOld;
    for (int r = 0; r < n; ++r)
      for (int c = 0; c < n; ++c)
        state[r * n + c] = s[c * n + r];
    for (int t = 0; t < tokens; ++t) {
      for (int c = 0; c < n; ++c) {
        double before = 0, out = 0;
        for (int r = 0; r < n; ++r) {
          before += state[r * n + c];
          double next =
              0.5 * state[r * n + c] + double(k[t * n + r]) * k[t * n + c];
          out += next * k[t * n + r];
          state[r * n + c] = next;
        }
        wantO.push_back(out), wantOld.push_back(before);
      }
    }
    kernel.run(1, s, k, o, old, tokens);
    EXPECT_LT(relativeError(o, wantO), 1e-6);
    EXPECT_LT(relativeError(old, wantOld), 1e-6);
    std::vector<double> wantS;
    for (int c = 0; c < n; ++c)
      for (int r = 0; r < n; ++r)
        wantS.push_back(state[r * n + c]);
    EXPECT_LT(relativeError(s, wantS), 1e-6);
  }
}

TEST(Launch, RunsEveryInstanceOnce) {
  TileKernel kernel(mathText("math.absf"));
  ASSERT_TRUE(kernel.ok());
  auto jit = compileTile(mathText("math.absf"));
  ASSERT_TRUE(jit);
  kdac::JitKernel f = llvm::cantFail(jit->lookup("f"));
  const int64_t n = 16 * 1000 - 3;
  Floats x = random(n, 41), out(n + 3, kPoison);
  void *px = x.data(), *po = out.data();
  int64_t size = n;
  void *args[] = {&px, &po, &size};
  kdac::HostPool pool(3);
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::fill(out.begin(), out.end(), kPoison);
    ASSERT_TRUE(pool.run(f.entry, args, 1000, f.scratchBytes));
    for (int64_t i = 0; i < n; ++i)
      ASSERT_EQ(out[i], std::fabs(x[i]));
    for (int64_t i = n; i < n + 3; ++i)
      ASSERT_EQ(out[i], kPoison);
  }
}

//===-- Objects
//------------------------------------------------------------===//

TEST(Host, UnknownNamesAreErrors) {
  auto width = kdac::hostVectorWidth("pentium");
  ASSERT_FALSE(bool(width));
  EXPECT_EQ(llvm::toString(width.takeError()),
            "unknown host CPU 'pentium', expected one of native, x86-64-v3, "
            "x86-64-v4, aarch64");
  EXPECT_EQ(llvm::cantFail(kdac::hostVectorWidth("x86-64-v3")), 8);
  EXPECT_EQ(llvm::cantFail(kdac::hostVectorWidth("x86-64-v4")), 16);
  EXPECT_EQ(llvm::cantFail(kdac::hostVectorWidth("aarch64")), 4);
  auto jit = compileTile(mathText("math.absf"));
  ASSERT_TRUE(jit);
  auto missing = jit->lookup("g");
  ASSERT_FALSE(bool(missing));
  EXPECT_EQ(llvm::toString(missing.takeError()),
            "the module has no host kernel called 'g'");
}

} // namespace
