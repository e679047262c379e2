// What a wgmma forbids until it has been waited for, and what must be fenced.
#include "Harness.h"

#include <gtest/gtest.h>

using namespace kdac::ptx;
using namespace kdac::ptx::test;

namespace {

/// What is put between the steps of one 64 x 8 x 16 product of zeros.
struct Between {
  std::string fenceAndProduct, productAndWait;
  bool waits = true;
  unsigned scaleD = 0;
};

std::string report(const Between &b) {
  std::string text = R"(
  mov.u32 %r0, %tid.x;
  mov.b32 %r1, smem;
  mov.b32 %r2, 0;
  shl.b32 %r3, %r0, 4;
  add.u32 %r3, %r3, %r1;
  st.shared.v4.b32 [%r3], {%r2, %r2, %r2, %r2};
  st.shared.v4.b32 [%r3+2048], {%r2, %r2, %r2, %r2};
  fence.proxy.async.shared::cta;
  bar.sync 0;
  shr.u32 %r4, %r1, 4;
  cvt.u64.u32 %rd0, %r4;
  add.s64 %rd1, %rd0, )" +
                     std::to_string(uint64_t(8) << 16 | uint64_t(16) << 32) +
                     R"(;                // no swizzle: K blocks 128, rows 256
  mov.b32 %r10, 0f00000000;
  mov.b32 %r11, 0f00000000;
  mov.b32 %r12, 0f00000000;
  mov.b32 %r13, 0f00000000;
  wgmma.fence.sync.aligned;
)" + b.fenceAndProduct +
                     R"(
  wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r10,%r11,%r12,%r13}, %rd1, %rd1, )" +
                     std::to_string(b.scaleD) + R"(, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned;
)" + b.productAndWait +
                     (b.waits ? "wgmma.wait_group.sync.aligned 0;\n" : "");
  return Kernel(text, 128).run();
}

void expectOf(const Between &b, const std::string &part) {
  expectReport(report(b), part);
}

} // namespace

TEST(InFlight, fencedAndWaitedFor) { EXPECT_EQ(report({}), ""); }

TEST(InFlight, exitBeforeWait) {
  expectOf({"", "", false}, "exits before a wgmma has been waited for");
}

TEST(InFlight, accumulatorWrittenAfterTheFence) {
  for (unsigned scaleD : {0, 1})
    expectOf({"mov.b32 %r11, 0f3f800000;\n", "", true, scaleD},
             "touched after the last wgmma.fence");
}

TEST(InFlight, accumulatorReadAfterTheFence) {
  expectOf({"add.f32 %r20, %r11, %r11;\n", ""},
           "touched after the last wgmma.fence");
}

TEST(InFlight, copyOfAFencedAccumulator) {
  EXPECT_EQ(report({"mov.b32 %r20, %r11;\nmov.b32 %r11, %r20;\n", ""}), "");
}

TEST(InFlight, sharedMemoryWrittenBeforeWait) {
  expectOf({"", "st.shared.b32 [%r3], %r2;\n"},
           "reads, which has not been waited for");
}

TEST(InFlight, otherSharedMemoryWrittenBeforeWait) {
  EXPECT_EQ(report({"", "st.shared.b32 [%r3+2048], %r2;\n"}), "");
}

TEST(InFlight, sharedMemoryWrittenAfterWait) {
  EXPECT_EQ(report({"", "wgmma.wait_group.sync.aligned 0;\nbar.sync 0;\n"
                        "st.shared.b32 [%r3], %r2;\n"}),
            "");
}
