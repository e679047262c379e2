// Instructions of lanes against their definitions.
#include "Harness.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace kdac::ptx;
using namespace kdac::ptx::test;

namespace {

/// out[t] = what the body leaves in %r3, from in[t] in %r1.
std::vector<uint32_t> mapped(const std::string &body,
                             std::vector<uint32_t> in) {
  in.resize(32);
  std::vector<uint32_t> out(32);
  EXPECT_EQ(Kernel(prologue() + "ld.global.u32 %r1, [%rd0];\n" + body +
                   "\nst.global.u32 [%rd1], %r3;\n")
                .with(in)
                .with(out)
                .run(),
            "");
  return out;
}
uint32_t one(const std::string &body, uint32_t in) {
  return mapped(body, {in})[0];
}
uint32_t bits(float x) {
  uint32_t b;
  std::memcpy(&b, &x, 4);
  return b;
}
float number(uint32_t b) {
  float x;
  std::memcpy(&x, &b, 4);
  return x;
}
std::vector<uint32_t> lanes() {
  std::vector<uint32_t> in;
  for (uint32_t i = 0; i < 32; ++i)
    in.push_back(i);
  return in;
}

} // namespace

TEST(Integer, wideAndHigh) {
  EXPECT_EQ(one("mul.hi.u32 %r3, %r1, %r1;", 0x80000001), 0x40000001u);
  EXPECT_EQ(one("mul.wide.s32 %rd5, %r1, -2;\ncvt.u32.u64 %r3, %rd5;", 5),
            uint32_t(-10));
  EXPECT_EQ(one("mad.lo.s32 %r3, %r1, 3, 4;", 5), 19u);
}
TEST(Integer, shiftsClamp) {
  EXPECT_EQ(one("shl.b32 %r3, %r1, 40;", 5), 0u);
  EXPECT_EQ(one("shr.s32 %r3, %r1, 40;", 0x80000000), 0xffffffffu);
  EXPECT_EQ(one("shr.u32 %r3, %r1, 4;", 0x80000000), 0x08000000u);
  EXPECT_EQ(one("shf.l.wrap.b32 %r3, %r1, %r1, 8;", 0x12345678), 0x34567812u);
}
TEST(Integer, fields) {
  EXPECT_EQ(one("bfe.u32 %r3, %r1, 8, 8;", 0x12345678), 0x56u);
  EXPECT_EQ(one("bfe.s32 %r3, %r1, 4, 4;", 0x000000f0), 0xffffffffu);
  EXPECT_EQ(one("bfi.b32 %r3, %r1, 0, 8, 4;", 0xff), 0xf00u);
  EXPECT_EQ(one("prmt.b32 %r3, %r1, 0, 0x0123;", 0x12345678), 0x78563412u);
  EXPECT_EQ(one("lop3.b32 %r3, %r1, 12, 10, 0x6a;", 0xff),
            uint32_t(12 & 0xff) ^ 10u);
}
TEST(Integer, comparisonsWithBooleans) {
  std::string body = "setp.lt.s32 %p1|%p2, %r1, 0;\n"
                     "setp.gt.and.u32 %p3, %r1, 5, %p1;\n"
                     "selp.b32 %r3, 1, 2, %p3;";
  EXPECT_EQ(one(body, uint32_t(-1)), 1u);
  EXPECT_EQ(one(body, 7), 2u);
}
TEST(Integer, divisionByZeroIsReported) {
  std::vector<uint32_t> in(32);
  std::string report = Kernel(prologue() + "ld.global.u32 %r1, [%rd0];\n"
                                           "div.u32 %r2, 5, %r1;\n")
                           .with(in)
                           .run();
  EXPECT_NE(report.find("division by zero"), std::string::npos) << report;
}

TEST(Float, conversions) {
  EXPECT_EQ(one("cvt.rn.bf16x2.f32 %r3, 0f3f800000, %r1;", bits(1.00390625f)),
            0x3f803f80u); // tie to even
  EXPECT_EQ(one("cvt.rn.f16x2.f32 %r3, %r1, 0f3f800000;", bits(-2.0f)),
            0xc0003c00u);
  EXPECT_EQ(one("cvt.rna.tf32.f32 %r3, %r1;", 0x3f801000), 0x3f802000u);
  EXPECT_EQ(one("cvt.rzi.s32.f32 %r3, %r1;", bits(-2.7f)), uint32_t(-2));
  EXPECT_EQ(one("cvt.rni.s32.f32 %r3, %r1;", bits(2.5f)), 2u);
  EXPECT_EQ(one("cvt.rzi.u32.f32 %r3, %r1;", bits(-2.7f)), 0u);
  EXPECT_EQ(one("cvt.rn.f32.s32 %r3, %r1;", uint32_t(-3)), bits(-3.0f));
  EXPECT_EQ(one("cvt.u16.u32 %h1, %r1;\ncvt.s32.s16 %r3, %h1;", 0x1ffff),
            uint32_t(-1));
}
TEST(Float, specialValues) {
  EXPECT_EQ(one("min.f32 %r3, %r1, 0f40000000;", bits(NAN)), bits(2.0f));
  EXPECT_TRUE(
      std::isnan(number(one("max.NaN.f32 %r3, %r1, 0f40000000;", bits(NAN)))));
  EXPECT_EQ(one("ex2.approx.ftz.f32 %r3, %r1;", bits(-140.0f)), 0u);
  EXPECT_EQ(one("setp.ltu.f32 %p1, %r1, 0f00000000;\nselp.b32 %r3,1,0,%p1;",
                bits(NAN)),
            1u);
  EXPECT_EQ(one("setp.lt.f32 %p1, %r1, 0f00000000;\nselp.b32 %r3,1,0,%p1;",
                bits(NAN)),
            0u);
  EXPECT_EQ(one("copysign.f32 %r3, 0fbf800000, %r1;", bits(3.0f)), bits(-3.0f));
}
TEST(Float, packedHalves) {
  EXPECT_EQ(one("mul.rn.bf16x2 %r3, %r1, %r1;", 0x40004040), 0x40804110u);
  EXPECT_EQ(one("fma.rn.f16x2 %r3, %r1, %r1, %r1;", 0x3c004000), 0x40004600u);
}

TEST(Lanes, shuffles) {
  auto up = mapped("shfl.sync.up.b32 %r3, %r1, 1, 0, -1;", lanes());
  auto down = mapped("shfl.sync.down.b32 %r3|%p1, %r1, 2, 31, -1;", lanes());
  auto butterfly = mapped("shfl.sync.bfly.b32 %r3, %r1, 5, 31, -1;", lanes());
  auto index = mapped("shfl.sync.idx.b32 %r3, %r1, 2, 0x181f, -1;", lanes());
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(up[i], i ? i - 1 : 0);
    EXPECT_EQ(down[i], i < 30 ? i + 2 : i);
    EXPECT_EQ(butterfly[i], i ^ 5);
    EXPECT_EQ(index[i], i / 8 * 8 + 2); // segments of 8
  }
}
TEST(Lanes, votesAndReductions) {
  std::string odd = "and.b32 %r2, %r1, 1;\nsetp.ne.u32 %p1, %r2, 0;\n";
  EXPECT_EQ(mapped(odd + "vote.sync.ballot.b32 %r3, %p1, -1;", lanes())[3],
            0xaaaaaaaau);
  EXPECT_EQ(mapped(odd + "vote.sync.any.pred %p2, %p1, -1;\n"
                         "selp.b32 %r3, 1, 0, %p2;",
                   lanes())[0],
            1u);
  EXPECT_EQ(mapped("redux.sync.add.u32 %r3, %r1, -1;", lanes())[7], 496u);
  EXPECT_EQ(mapped("and.b32 %r2, %r1, 3;\n"
                   "match.any.sync.b32 %r3, %r2, -1;",
                   lanes())[5],
            0x22222222u);
}
TEST(Lanes, divergenceReconverges) {
  // Lanes loop as often as their number says, then add up.
  auto out = mapped("mov.b32 %r4, 0;\nmov.b32 %r5, 0;\nL:\n"
                    "setp.ge.u32 %p1, %r4, %r1;\n@%p1 bra D;\n"
                    "add.u32 %r5, %r5, %r4;\nadd.u32 %r4, %r4, 1;\nbra L;\nD:\n"
                    "redux.sync.add.u32 %r3, %r5, -1;",
                    lanes());
  uint32_t sum = 0;
  for (uint32_t i = 0; i < 32; ++i)
    sum += i * (i - 1) / 2;
  EXPECT_EQ(out[0], sum);
}
TEST(Lanes, atomics) {
  auto out = mapped("mov.b32 %r4, smem;\nmov.b32 %r5, 0;\n"
                    "st.shared.u32 [%r4], %r5;\nbar.warp.sync -1;\n"
                    "atom.shared.add.u32 %r6, [%r4], %r1;\n"
                    "red.shared.max.u32 [%r4], 3;\n"
                    "ld.shared.u32 %r3, [%r4];",
                    lanes());
  EXPECT_EQ(out[0], 496u);
}
TEST(Matrices, ldmatrixAndStmatrix) {
  // Each lane stores a row of 16 bytes; transposed twice it is what it was.
  auto out = mapped("mov.b32 %r4, smem;\nshl.b32 %r5, %r0, 4;\n"
                    "add.u32 %r4, %r4, %r5;\n"
                    "st.shared.v4.b32 [%r4], {%r1,%r1,%r1,%r1};\n"
                    "bar.warp.sync -1;\n"
                    "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                    "{%r6,%r7,%r8,%r9}, [%r4];\n"
                    "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                    "[%r4], {%r6,%r7,%r8,%r9};\n"
                    "bar.warp.sync -1;\nld.shared.u32 %r3, [%r4+8];",
                    lanes());
  for (uint32_t i = 0; i < 32; ++i)
    EXPECT_EQ(out[i], i);
}
