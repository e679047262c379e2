// The host exit against plain loops: loads, stores, math, carried tiles.
#include "HostHarness.h"
#include "HostValues.h"

#include <gtest/gtest.h>

using namespace kdac::test;

namespace {

//===-- Loads and stores --------------------------------------------------===//

struct AccessCase {
  const char *type;
  bool transposed;
  int rows, cols; // valid
};

class Access : public testing::TestWithParam<AccessCase> {};

/// Doubles the valid part of a 32 x 48 tile. Both arrays end where it does, at
/// a page that faults; between the lines of the output lies poison.
TEST_P(Access, TouchesTheValidPartOnly) {
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
  auto check = [&](auto values, auto poison, auto read) {
    Guarded in(values);
    std::fill(values.begin(), values.end(), poison);
    Guarded out(values);
    kernel.run(1, in.data(), out.data(), c.rows, c.cols, stride);
    for (size_t i = 0; i < size; ++i) {
      bool valid = int(i % stride) < line;
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
        Guarded in(toBf16(random(n ? (n - 1) * s + 1 : 0, 11)));
        Guarded out(Floats(n ? (n - 1) * t + 1 : 0, kPoison));
        kernel.run(1, in.data(), out.data(), n, s, t);
        for (size_t i = 0; i < out.size(); ++i) {
          bool valid = i % t == 0;
          EXPECT_EQ(out[i], valid ? fromBf16(in[i / t * s]) : kPoison);
        }
      }
}

/// Rows at several distances, of a tile whose last rows are not valid.
TEST(Access, Windows) {
  TileKernel kernel(R"(
func.func @f(%p: !tile.ref<f32>, %o: !tile.ref<f32>) attributes {tile.kernel} {
  %z = arith.constant 0 : index
  %n = arith.constant 16 : index
  %m = arith.constant 18 : index
  %x = tile.load %p[%z] stride %n valid [%m, %n] align 16 : !tile.ref<f32> -> tensor<19x16xf32>
  %a = tile.window %x[1] : tensor<19x16xf32> -> tensor<16x16xf32>
  %b = tile.window %x[3] : tensor<19x16xf32> -> tensor<16x16xf32>
  %y = arith.subf %a, %b : tensor<16x16xf32>
  tile.store %y, %o[%z] stride %n valid [%n, %n] align 16 : tensor<16x16xf32>, !tile.ref<f32>
  return
})");
  ASSERT_TRUE(kernel.ok());
  Floats x = random(18 * 16, 3), out(16 * 16);
  kernel.run(1, x, out);
  for (size_t i = 0; i < out.size(); ++i)
    EXPECT_EQ(out[i], x[i + 16] - (i < 15 * 16 ? x[i + 48] : 0.0f)) << i;
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

//===-- Math --------------------------------------------------------------===//

Floats applyMath(const char *op, Floats x) {
  TileKernel kernel(mathText(op));
  EXPECT_TRUE(kernel.ok());
  Floats out(x.size(), kPoison);
  if (kernel.ok())
    kernel.run((x.size() + 15) / 16, x, out, int64_t(x.size()));
  return out;
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

//===-- Loops that carry tiles --------------------------------------------===//

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

} // namespace
