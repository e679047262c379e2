// What the emulator must find, and synchronisation that must work.
#include "Harness.h"

#include <gtest/gtest.h>

using namespace kdac::ptx;
using namespace kdac::ptx::test;

namespace {

/// A producer warp fills two stages by bulk copies; a consumer warp adds them
/// up. `extra`: arrivals that `empty` expects too many.
std::string pipeline(int extra = 0) {
  return R"(
  mov.u32 %r0, %tid.x;
  ld.param.u64 %rd0, [p0];
  ld.param.u64 %rd1, [p1];
  mov.b32 %r1, smem;            // full[2], empty[2], then the stages at 1024
  setp.ne.u32 %p0, %r0, 0;
  @%p0 bra READY;
  mbarrier.init.shared::cta.b64 [%r1], 1;
  mbarrier.init.shared::cta.b64 [%r1+8], 1;
  mbarrier.init.shared::cta.b64 [%r1+16], )" +
         std::to_string(32 + extra) + R"(;
  mbarrier.init.shared::cta.b64 [%r1+24], )" +
         std::to_string(32 + extra) + R"(;
  fence.mbarrier_init.release.cluster;
READY:
  bar.sync 0;
  mov.b32 %r2, 0;               // stage
  mov.b32 %r3, 0;               // phase
  mov.b32 %r4, 0;               // step
  mov.b32 %r20, 0;              // sum
  setp.ge.u32 %p1, %r0, 32;
  @%p1 bra CONSUME;
  setmaxnreg.dec.sync.aligned.u32 24;
  elect.sync _|%p2, -1;
  @!%p2 bra DONE;
PRODUCE:
  shl.b32 %r5, %r2, 3;
  add.u32 %r5, %r5, %r1;        // &full[stage]
  xor.b32 %r6, %r3, 1;
  { .reg .pred p;
  WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [%r5+16], %r6;
  @p bra.uni GO;
  bra.uni WAIT;
  GO: }
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 128;
  shl.b32 %r7, %r2, 7;
  add.u32 %r7, %r7, %r1;
  add.u32 %r7, %r7, 1024;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r7], [%rd0], 128, [%r5];
  add.s64 %rd0, %rd0, 128;
  xor.b32 %r2, %r2, 1;
  setp.eq.u32 %p3, %r2, 0;
  @%p3 xor.b32 %r3, %r3, 1;
  add.u32 %r4, %r4, 1;
  setp.lt.u32 %p4, %r4, 6;
  @%p4 bra PRODUCE;
  bra DONE;
CONSUME:
  setmaxnreg.inc.sync.aligned.u32 240;
  and.b32 %r8, %r0, 31;
CLOOP:
  shl.b32 %r5, %r2, 3;
  add.u32 %r5, %r5, %r1;
  { .reg .pred p;
  WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [%r5], %r3;
  @p bra.uni GO;
  bra.uni WAIT;
  GO: }
  shl.b32 %r7, %r2, 7;
  shl.b32 %r9, %r8, 2;
  add.u32 %r7, %r7, %r9;
  add.u32 %r7, %r7, %r1;
  ld.shared.u32 %r10, [%r7+1024];
  add.u32 %r20, %r20, %r10;
  mbarrier.arrive.shared::cta.b64 _, [%r5+16];
  xor.b32 %r2, %r2, 1;
  setp.eq.u32 %p3, %r2, 0;
  @%p3 xor.b32 %r3, %r3, 1;
  add.u32 %r4, %r4, 1;
  setp.lt.u32 %p4, %r4, 6;
  @%p4 bra CLOOP;
  mul.wide.u32 %rd3, %r8, 4;
  add.s64 %rd1, %rd1, %rd3;
  st.global.u32 [%rd1], %r20;
DONE:
)";
}

} // namespace

TEST(Synchronisation, mbarrierPipeline) {
  for (uint64_t seed : {0, 1, 2, 3}) {
    std::vector<uint32_t> in(6 * 32), out(32);
    for (uint32_t i = 0; i < in.size(); ++i)
      in[i] = i;
    Kernel kernel(pipeline(), 64);
    ASSERT_EQ(kernel.with(in).with(out).run(lateSeed(seed)), "");
    for (uint32_t lane = 0; lane < 32; ++lane)
      EXPECT_EQ(out[lane], 6 * lane + 32 * 15);
  }
}

TEST(Synchronisation, deadlockNamesLineAndBarrier) {
  std::vector<uint32_t> in(6 * 32), out(32);
  Kernel kernel(pipeline(1), 64);
  std::string report = kernel.with(in).with(out).run();
  expectReport(report, "deadlock");
  expectReport(report, "with 1 of 33 arrivals");
  expectReport(report, "PTX line");
}

TEST(Synchronisation, namedBarriers) {
  // Warp 0 arrives at barrier 1; warp 1 waits for it and reads.
  std::string text = prologue() + R"(
  mov.b32 %r1, smem;
  setp.ge.u32 %p1, %r0, 32;
  @%p1 bra B;
  shl.b32 %r2, %r0, 2;
  add.u32 %r2, %r2, %r1;
  st.shared.u32 [%r2], %r0;
  bar.arrive 1, 64;
  bra DONE;
B:
  bar.sync 1, 64;
  shl.b32 %r2, %r0, 2;
  xor.b32 %r2, %r2, 124;        // lane 31 - lane
  add.u32 %r2, %r2, %r1;
  ld.shared.u32 %r3, [%r2+-128];
  st.global.u32 [%rd0+-128], %r3;
DONE:
)";
  for (uint64_t seed : {0, 1, 2}) {
    std::vector<uint32_t> out(32);
    ASSERT_EQ(Kernel(text, 64).with(out).run(lateSeed(seed)), "");
    for (uint32_t lane = 0; lane < 32; ++lane)
      EXPECT_EQ(out[lane], 31 - lane);
  }
}

TEST(Synchronisation, barrierCountMismatch) {
  std::string text = R"(
  mov.u32 %r0, %tid.x;
  setp.ge.u32 %p1, %r0, 32;
  @%p1 bra B;
  bar.sync 1, 64;
  bra DONE;
B:
  bar.sync 1, 96;
DONE:
)";
  expectReport(Kernel(text, 64).run(), "but others gave 64");
}

TEST(Synchronisation, divergedAlignedBarrierIsADeadlock) {
  std::string text = R"(
  mov.u32 %r0, %tid.x;
  setp.lt.u32 %p1, %r0, 16;
  @%p1 bra A;
  bar.sync 0;
  bra DONE;
A:
  bar.sync 0;
DONE:
)";
  expectReport(Kernel(text).run(), "waits for other lanes of its warp");
}

TEST(Synchronisation, lanesWaitForLanesFurtherOn) {
  // Lane 0 leaves the loop's condition to a store that comes after it.
  std::string text = R"(
  mov.u32 %r0, %tid.x;
  mov.b32 %r1, smem;
  mov.b32 %r2, 0;
  st.shared.u32 [%r1], %r2;
  bar.warp.sync -1;
  setp.eq.u32 %p1, %r0, 0;
  @%p1 bra SIGNAL;
SPIN:
  ld.volatile.shared.u32 %r3, [%r1];
  setp.eq.u32 %p2, %r3, 0;
  @%p2 bra SPIN;
  bra DONE;
SIGNAL:
  mov.b32 %r4, 1;
  st.volatile.shared.u32 [%r1], %r4;
DONE:
)";
  EXPECT_EQ(Kernel(text).run(), "");
}

TEST(Synchronisation, livelockIsReported) {
  std::string text = "L:\nbra L;\n";
  Options o;
  o.limit = 100000;
  expectReport(Kernel(text).run(o), "livelock");
}

TEST(Faults, globalOutOfBounds) {
  std::vector<uint32_t> in(31);
  std::string report =
      Kernel(prologue() + "ld.global.u32 %r1, [%rd0];\n").with(in).run();
  expectReport(report, "outside of all blocks");
  expectReport(report, "thread 31");
}

TEST(Faults, misaligned) {
  std::vector<uint32_t> in(64);
  expectReport(Kernel(prologue() + "ld.global.v2.u32 {%r1,%r2}, [%rd0];\n")
                   .with(in)
                   .run(),
               "misaligned global access of 8 bytes");
}

TEST(Faults, sharedOutOfBounds) {
  expectReport(
      Kernel("mov.b32 %r1, smem;\nst.shared.u32 [%r1+64], %r1;\n").run({}, 64),
      "shared access of 4 bytes");
}

TEST(Faults, uninitialisedShared) {
  std::string text = "mov.b32 %r1, smem;\nld.shared.u32 %r2, [%r1+64];\n"
                     "add.u32 %r3, %r2, %r2;\n";
  expectReport(Kernel(text).run(), "nobody has written");
  Options o;
  o.initialised = false;
  EXPECT_EQ(Kernel(text).run(o), "");
}

TEST(Faults, unwrittenRowsOfAMatrixReachTheirRows) {
  // Of A, which is 16 x 16, only row 1 is written: row 1 of D is a number.
  std::string text = prologue() + R"(
  mov.b32 %r1, smem;
  shl.b32 %r2, %r0, 4;
  add.u32 %r2, %r2, %r1;
  mov.b32 %r3, 0;
  and.b32 %r9, %r0, 15;
  setp.eq.u32 %p1, %r9, 1;
  @%p1 st.shared.v4.b32 [%r2], {%r3, %r3, %r3, %r3};
  bar.warp.sync -1;
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r7}, [%r2];
)";
  std::string product = R"(
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r10,%r11,%r12,%r13}, {%r4,%r5,%r6,%r7}, {%r3,%r3}, {%r3,%r3,%r3,%r3};
  st.global.u32 [%rd0], %r10;
)";
  std::vector<uint32_t> out(32);
  EXPECT_EQ(Kernel(text + product).with(out).run(), "");
  for (uint32_t lane = 0; lane < 32; ++lane)
    EXPECT_EQ((out[lane] & 0x7f800000) == 0x7f800000, lane / 4 != 1) << lane;
  expectReport(Kernel(text + "st.global.u32 [%rd0], %r4;\n").with(out).run(),
               "nobody has written");
}

TEST(Faults, unknownInstruction) {
  expectReport(
      Kernel("tex.1d.v4.f32.f32 {%r1,%r2,%r3,%r4}, [%rd1, {%r5}];\n").run(),
      "is not supported");
  expectReport(Kernel("add.rz.f32 %r1, %r2, %r3;\n").run(),
               "modifier .rz is not supported");
}

TEST(Faults, tooManyArrivals) {
  std::string text = R"(
  mov.u32 %r0, %tid.x;
  mov.b32 %r1, smem;
  setp.eq.u32 %p1, %r0, 0;
  @%p1 mbarrier.init.shared.b64 [%r1], 20;
  bar.sync 0;
  mbarrier.arrive.shared.b64 %rd1, [%r1];
)";
  // 20 arrivals complete a phase, 12 more stay in the next: no fault.
  EXPECT_EQ(Kernel(text).run(), "");
  text += "mbarrier.arrive.shared.b64 _, [%r1], 21;\n";
  expectReport(Kernel(text).run(), "more arrivals");
}

TEST(Faults, setmaxnregBeyondTheFile) {
  expectReport(Kernel("setmaxnreg.inc.sync.aligned.u32 20;\n").run(),
               "expected a multiple of 8");
  expectReport(Kernel("setmaxnreg.inc.sync.aligned.u32 240;\n", 512).run(),
               "an SM has 65536");
}

TEST(Faults, copyReadBeforeItsWait) {
  auto text = [](bool waits) {
    return prologue() + R"(
  mov.b32 %r1, smem;
  shl.b32 %r2, %r0, 2;
  add.u32 %r1, %r1, %r2;
  mov.b32 %r4, 2;
  setp.eq.u32 %p1, %r0, 5;
  selp.b32 %r5, 0, 4, %p1;
  cp.async.ca.shared.global [%r1], [%rd0], 4, %r5;
  cp.async.commit_group;
)" + (waits ? "cp.async.wait_group 0;\n" : "") +
           "ld.shared.u32 %r3, [%r1];\nst.global.u32 [%rd1], %r3;\n";
  };
  std::vector<uint32_t> in(32, 7), out(32);
  EXPECT_EQ(Kernel(text(true)).with(in).with(out).run(lateSeed(0)), "");
  EXPECT_EQ(out[4], 7u);
  EXPECT_EQ(out[5], 0u); // filled with zeros
  expectReport(Kernel(text(false)).with(in).with(out).run(lateSeed(0)),
               "nobody has written");
}
