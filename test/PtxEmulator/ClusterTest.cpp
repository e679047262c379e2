// Blocks of a cluster: their names, shared memory, barriers and copies, and
// what must be noticed of them.
#include "Harness.h"

#include <gtest/gtest.h>

using namespace kdac::ptx;
using namespace kdac::ptx::test;

namespace {

constexpr const char *pair = ".explicitcluster\n.reqnctapercluster 2, 1, 1";

/// `text` with `part` replaced, which must be there.
std::string with(std::string text, const std::string &part,
                 const std::string &instead) {
  size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return at == std::string::npos ? text
                                 : text.replace(at, part.size(), instead);
}
std::string without(const std::string &text, const std::string &part) {
  return with(text, part, "");
}

/// Without the try_wait of these operands, and the branch that repeats it.
std::string withoutWait(const std::string &text, const std::string &operands) {
  size_t begin = text.rfind("mbarrier.try_wait", text.find(operands));
  size_t end = text.find('\n', text.find("bra", begin));
  return without(text, text.substr(begin, end - begin));
}

/// %r0 the thread, %r1 smem, %r2 the rank, %r3 the other rank, %r4 the other's
/// smem.
const std::string ranks = R"(
  mov.u32 %r0, %tid.x;
  mov.b32 %r1, smem;
  mov.u32 %r2, %cluster_ctarank;
  xor.b32 %r3, %r2, 1;
  mapa.shared::cluster.u32 %r4, %r1, %r3;
)";
const std::string barrier = "barrier.cluster.arrive.release.aligned;\n"
                            "barrier.cluster.wait.acquire.aligned;\n";

std::string run(const std::string &body, const Options &options = {}) {
  return Kernel(ranks + body, 32, "", pair).grid(2).run(options);
}

/// The blocks of two take turns for six rounds: the one whose turn it is
/// doubles a number in its own memory into the other's, and adds its rank + 1.
std::string pingPong(const std::string &arrive =
                         "mbarrier.arrive.release.cluster.shared::cluster.b64 "
                         "_, [%r4];\n") {
  return ranks + R"(
  ld.param.u64 %rd0, [p0];
  setp.ne.u32 %p0, %r0, 0;
  @%p0 bra READY;
  mbarrier.init.shared::cta.b64 [%r1], 1;
  mov.b32 %r20, 1;
  st.shared::cta.u32 [%r1+16], %r20;
  fence.mbarrier_init.release.cluster;
READY:
  barrier.cluster.arrive.relaxed.aligned;
  barrier.cluster.wait.acquire.aligned;
  @%p0 bra DONE;
  mov.b32 %r5, 0;               // round
  setp.ne.u32 %p1, %r2, 0;
  @%p1 bra WAIT;
TURN:
  ld.shared::cta.u32 %r6, [%r1+16];
  mad.lo.u32 %r6, %r6, 2, %r2;
  add.u32 %r6, %r6, 1;
  st.shared::cluster.u32 [%r4+16], %r6;
)" + arrive +
         R"(
  add.u32 %r5, %r5, 1;
  setp.eq.u32 %p2, %r5, 3;
  @%p2 bra AFTER;
WAIT:
  shr.u32 %r7, %r5, 0;
  @%p1 bra PARITY;
  sub.u32 %r7, %r7, 1;
PARITY:
  and.b32 %r7, %r7, 1;
TRY:
  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r1], %r7;
  @!%p3 bra TRY;
  bra TURN;
AFTER:
  mul.wide.u32 %rd1, %r2, 4;
  add.s64 %rd0, %rd0, %rd1;
  st.global.u32 [%rd0], %r6;
DONE:
)" + barrier;
}

/// Each block's warp 0 sends six rows of 128 bytes to the other, through one
/// buffer; its warp 1 adds up what it gets and says when both ends of the copy
/// are free again. At smem: full, free; source at 128, destination at 256.
const std::string exchange = ranks + R"(
  ld.param.u64 %rd0, [p0];
  setp.ne.u32 %p0, %r0, 0;
  @%p0 bra READY;
  mbarrier.init.shared::cta.b64 [%r1], 1;
  mbarrier.init.shared::cta.b64 [%r1+8], 1;
  fence.mbarrier_init.release.cluster;
READY:
  barrier.cluster.arrive.relaxed.aligned;
  barrier.cluster.wait.aligned;
  and.b32 %r8, %r0, 31;
  setp.eq.u32 %p1, %r8, 0;      // the warp's first lane
  shl.b32 %r9, %r8, 2;
  add.u32 %r9, %r9, %r1;        // the lane's word
  add.u32 %r10, %r1, 128;
  add.u32 %r11, %r4, 256;
  add.u32 %r12, %r4, 8;
  mov.b32 %r5, 0;               // step
  mov.b32 %r20, 0;              // sum
  setp.ge.u32 %p2, %r0, 32;
  @%p2 bra RECEIVE;
SEND:
  and.b32 %r6, %r5, 1;
  xor.b32 %r6, %r6, 1;
FREE:
  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r1+8], %r6;
  @!%p3 bra FREE;
  shl.b32 %r7, %r5, 5;
  mad.lo.u32 %r7, %r2, 1000, %r7;
  add.u32 %r7, %r7, %r8;
  st.shared.u32 [%r9+128], %r7;
  fence.proxy.async.shared::cta;
  bar.warp.sync -1;
  @%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r11], [%r10], 128, [%r4];
  add.u32 %r5, %r5, 1;
  setp.lt.u32 %p4, %r5, 6;
  @%p4 bra SEND;
  bra DONE;
RECEIVE:
  and.b32 %r6, %r5, 1;
  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 128;
FULL:
  mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r1], %r6;
  @!%p3 bra FULL;
  ld.shared.u32 %r7, [%r9+256];
  add.u32 %r20, %r20, %r7;
  bar.warp.sync -1;
  @%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r12];
  add.u32 %r5, %r5, 1;
  setp.lt.u32 %p4, %r5, 6;
  @%p4 bra RECEIVE;
  mad.lo.u32 %r7, %r2, 32, %r8;
  mul.wide.u32 %rd1, %r7, 4;
  add.s64 %rd0, %rd0, %rd1;
  st.global.u32 [%rd0], %r20;
DONE:
  barrier.cluster.arrive;
  barrier.cluster.wait;
)";

std::string runExchange(const std::string &text, uint64_t seed = 0) {
  std::vector<uint32_t> out(64);
  return Kernel(text, 64, "", pair).with(out).grid(2).run(lateSeed(seed));
}

/// Some schedule must show it.
void expectSomeReport(const std::string &text, const std::string &part) {
  std::string reports;
  for (uint64_t seed = 0; seed < 20; ++seed)
    reports += runExchange(text, seed) + "\n";
  expectReport(reports, part);
}

} // namespace

TEST(Clusters, ranksAndNames) {
  std::string text = prologue() + R"(
  mov.u32 %r1, %ctaid.x;
  mul.wide.u32 %rd3, %r1, 32;
  ld.param.u64 %rd0, [p0];
  add.s64 %rd0, %rd0, %rd3;
  mov.u32 %r2, %cluster_ctarank;
  mov.u32 %r3, %cluster_nctarank;
  mov.u32 %r4, %cluster_ctaid.x;
  mov.u32 %r5, %clusterid.x;
  st.global.v4.u32 [%rd0], {%r2, %r3, %r4, %r5};
  mov.u32 %r2, %nclusterid.x;
  mov.pred %p1, %is_explicit_cluster;
  selp.u32 %r3, 1, 0, %p1;
  mov.u32 %r4, %cluster_nctaid.x;
  mov.u32 %r5, %nctaid.x;
  st.global.v4.u32 [%rd0+16], {%r2, %r3, %r4, %r5};
)";
  for (unsigned size : {1, 2, 3}) {
    std::vector<uint32_t> out(6 * 8);
    Kernel kernel(text);
    ASSERT_EQ(kernel.with(out).grid(6, size == 1 ? 0 : size).run(), "");
    for (unsigned b = 0; b < 6; ++b)
      EXPECT_EQ(std::vector<uint32_t>(&out[b * 8], &out[b * 8] + 8),
                (std::vector<uint32_t>{b % size, size, b % size, b / size,
                                       6 / size, size > 1, size, 6}));
  }
}

TEST(Clusters, launchesThatNoDriverTakes) {
  auto report = [](const std::string &directives, unsigned blocks,
                   unsigned cluster = 0) {
    return Kernel("", 32, "", directives).grid(blocks, cluster).run();
  };
  EXPECT_EQ(report(pair, 4), "");
  EXPECT_EQ(report(pair, 4, 2), "");
  expectReport(report(pair, 3), "a grid of 3 x 1 x 1 blocks is no multiple of "
                                "clusters of 2 x 1 x 1");
  expectReport(report(pair, 4, 4),
               "needs clusters of 2 x 1 x 1 blocks, but got "
               "4 x 1 x 1");
  expectReport(report("", 32, 16), "clusters of 16 x 1 x 1");
  EXPECT_EQ(report(".explicitcluster", 4, 2), "");
  expectReport(report(".explicitcluster", 4), "must be launched in clusters");
  expectReport(report(".blocksareclusters", 4), "is not supported");
}

TEST(Clusters, sharedMemoryOfTheOther) {
  // Shared and generic addresses, one's own rank among them.
  std::string text = ranks + R"(
  ld.param.u64 %rd0, [p0];
  mad.lo.u32 %r5, %r2, 32, %r0;
  mul.wide.u32 %rd1, %r5, 4;
  add.s64 %rd0, %rd0, %rd1;     // the thread's output
  shl.b32 %r6, %r0, 2;
  add.u32 %r7, %r1, %r6;
  mapa.shared::cluster.u32 %r8, %r7, %r2;
  mul.lo.u32 %r9, %r5, 3;
  barrier.cluster.arrive;
  barrier.cluster.wait;
  st.shared::cluster.u32 [%r8], %r9;
  add.u32 %r8, %r4, %r6;
  st.shared::cluster.u32 [%r8+128], %r5;
  barrier.cluster.arrive;
  barrier.cluster.wait;
  cvt.u64.u32 %rd2, %r7;
  cvta.shared.u64 %rd2, %rd2;
  mapa.u64 %rd3, %rd2, %r3;
  ld.u32 %r10, [%rd3];
  ld.shared::cta.u32 %r11, [%r7+128];
  add.u32 %r10, %r10, %r11;
  st.global.u32 [%rd0], %r10;
  barrier.cluster.arrive;
  barrier.cluster.wait;
)";
  for (uint64_t seed : {0, 1, 2}) {
    std::vector<uint32_t> out(128);
    ASSERT_EQ(Kernel(text, 32, "", pair).with(out).grid(2).run(lateSeed(seed)),
              "");
    for (uint32_t i = 0; i < 64; ++i)
      EXPECT_EQ(out[i], 4 * (i ^ 32)) << i;
  }
}

TEST(Clusters, addressesThatAreNoOnes) {
  expectReport(run("mapa.shared::cluster.u32 %r5, %r1, 2;\n"),
               "mapa of rank 2 in a cluster of 2");
  expectReport(run("mapa.shared::cluster.u32 %r5, %r4, 0;\n"),
               "outside of the block's own shared memory");
  expectReport(run(barrier + "ld.shared::cta.u32 %r5, [%r4];\n"),
               "an address of shared::cluster");
  expectReport(run(barrier + "ld.shared::cluster.u32 %r5, [%r4+-4];\n"),
               "shared access of 4 bytes");
}

TEST(Clusters, pingPongOfRemoteArrives) {
  for (uint64_t seed : {0, 1, 2, 3}) {
    std::vector<uint32_t> out(2);
    Kernel kernel(pingPong(), 32, "", pair);
    ASSERT_EQ(kernel.with(out).grid(2).run(lateSeed(seed)), "");
    uint32_t expected[2], x = 1;
    for (unsigned turn = 0; turn < 6; ++turn)
      expected[turn % 2] = x = 2 * x + turn % 2 + 1;
    EXPECT_EQ(out, std::vector<uint32_t>(expected, expected + 2));
  }
}

TEST(Clusters, deadlockNamesClusterAndBlocks) {
  for (uint64_t seed : {0, 1}) {
    std::vector<uint32_t> out(2);
    Kernel kernel(pingPong(""), 32, "", pair);
    std::string report = kernel.with(out).grid(2).run(lateSeed(seed));
    expectReport(report, "deadlock in cluster 0 (blocks 0, 1)");
    expectReport(report, "block 1 warp 0 lanes 00000001");
    expectReport(report, "waits at the mbarrier at shared address");
  }
}

TEST(Clusters, anArrivalElsewhereHasNoResult) {
  expectReport(run("mbarrier.arrive.shared::cluster.b64 %rd1, [%r4];\n"),
               "has no result");
  expectReport(
      run("mbarrier.try_wait.parity.shared::cluster.b64 %p1, [%r4], 0;\n"),
      "only mbarriers of shared::cta");
}

TEST(Clusters, barrierOpensForTheLastOfAllBlocks) {
  EXPECT_EQ(run(barrier + barrier), "");
  // Threads that have exited are not waited for.
  EXPECT_EQ(run("setp.lt.u32 %p1, %r0, 7;\n@%p1 exit;\n" + barrier), "");
  EXPECT_EQ(run("setp.eq.u32 %p1, %r2, 0;\n@%p1 exit;\n" + barrier), "");
  std::string report = run(R"(
  setp.eq.u32 %p1, %r2, 0;
  @%p1 bra WAIT;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
WAIT:
  bar.sync 1, 64;
)");
  expectReport(report, "deadlock in cluster 0 (blocks 0, 1)");
  expectReport(report, "waits at the cluster barrier with 32 of 64 threads");
}

TEST(Clusters, barrierWithoutItsOtherHalf) {
  expectReport(run("barrier.cluster.arrive;\nbarrier.cluster.arrive;\n"),
               "arrives at the cluster barrier twice");
  expectReport(run("barrier.cluster.wait;\n"),
               "barrier.cluster.wait without barrier.cluster.arrive");
}

TEST(Clusters, copiesToTheOther) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    std::vector<uint32_t> out(64);
    Kernel kernel(exchange, 64, "", pair);
    Options options = lateSeed(seed);
    options.late = seed != 7;
    ASSERT_EQ(kernel.with(out).grid(2).run(options), "") << seed;
    for (uint32_t i = 0; i < 64; ++i)
      EXPECT_EQ(out[i], 6 * (1000 * (1 - i / 32) + i % 32) + 32 * 15) << i;
  }
}

TEST(Clusters, bytesExpectedByEitherSide) {
  std::string expect = "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, "
                       "[%r1], 128;\n",
              copy = "@%p1 cp.async.bulk";
  std::string texts[] = {
      with(without(exchange, expect), copy,
           "@%p1 mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 "
           "_, [%r4], 128;\n" +
               copy),
      with(without(exchange, expect), copy,
           "@%p1 mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%r4], "
           "128;\n@%p1 mbarrier.arrive.shared::cluster.b64 _, [%r4], 1;\n" +
               copy)};
  for (const std::string &text : texts)
    for (uint64_t seed : {0, 1, 2})
      EXPECT_EQ(runExchange(text, seed), "");
}

TEST(Clusters, noClusterBarrierBeforeRemoteAccess) {
  std::string text = with(exchange,
                          "barrier.cluster.arrive.relaxed.aligned;\n"
                          "  barrier.cluster.wait.aligned;\n",
                          "bar.sync 0;\n");
  for (uint64_t seed : {0, 1, 2})
    expectReport(runExchange(text, seed),
                 "before any cluster barrier: it may not have begun");
}

TEST(Clusters, noClusterBarrierSinceInitialisation) {
  // The barrier comes first: whether the other block is in time is luck.
  std::string meet = "barrier.cluster.arrive.relaxed.aligned;\n"
                     "  barrier.cluster.wait.aligned;\n";
  std::string text = with(exchange, meet, "bar.sync 0;\n");
  text = with(text, "setp.ne.u32 %p0, %r0, 0;\n",
              meet + "setp.ne.u32 %p0, %r0, 0;\n");
  // Either the mbarrier is not there yet or nothing says that it had to be.
  std::string report = runExchange(text);
  EXPECT_TRUE(report.find("there is no mbarrier at") != std::string::npos ||
              report.find("without a cluster barrier between") !=
                  std::string::npos)
      << report;
  expectSomeReport(text, "without a cluster barrier between");
  expectSomeReport(text, "there is no mbarrier at shared address");
}

TEST(Clusters, uninitialisedMbarrier) {
  expectReport(run(barrier + "mbarrier.arrive.shared::cluster.b64 _, [%r4];\n"),
               "there is no mbarrier at shared address 1024 of block 0");
}

TEST(Clusters, initialisationWithoutItsFence) {
  std::string text = without(exchange, "fence.mbarrier_init.release.cluster;");
  for (uint64_t seed : {0, 1, 2})
    expectReport(runExchange(text, seed),
                 "initialised without fence.mbarrier_init.release.cluster");
  EXPECT_EQ(runExchange(with(text, "arrive.relaxed", "arrive.release")), "");
}

TEST(Clusters, sourceWithoutProxyFence) {
  expectReport(runExchange(without(exchange, "fence.proxy.async.shared::cta;")),
               "without fence.proxy.async since");
}

TEST(Clusters, sourceOverwrittenTooEarly) {
  std::string text = withoutWait(exchange, "[%r1+8], %r6");
  for (uint64_t seed : {0, 1, 2})
    expectReport(runExchange(text, seed),
                 ", which a copy within the cluster that has not completed "
                 "reads");
}

TEST(Clusters, destinationReadTooEarly) {
  std::string text = withoutWait(exchange, "[%r1], %r6");
  expectSomeReport(text, "which a copy within the cluster that has not "
                         "completed writes");
}

TEST(Clusters, copyToAnotherBlockThanItsMbarrier) {
  expectReport(
      runExchange(with(exchange, "[%r10], 128, [%r4]", "[%r10], 128, [%r1]")),
      "a bulk copy to another block than its mbarrier's");
  expectReport(
      runExchange(with(exchange, "[%r10], 128, [%r4]", "[%r10], 120, [%r4]")),
      "not of whole, aligned 16 bytes");
}

TEST(Clusters, exitBeforeTheOthersAccess) {
  // Block 0 has nothing more to do once block 1 has been given its last turn.
  Kernel kernel(without(pingPong(), barrier), 32, "", pair);
  std::vector<uint32_t> out(2);
  expectReport(kernel.with(out).grid(2).run(),
               "reaches into the shared memory of block 0, which has exited");
}

TEST(Clusters, exitBeforeItsCopyHasCompleted) {
  // Block 0 sends and exits, block 1 receives.
  std::string text = ranks + R"(
  mbarrier.init.shared::cta.b64 [%r1], 1;
  fence.mbarrier_init.release.cluster;
  st.shared.v4.u32 [%r1+128], {%r0, %r0, %r0, %r0};
  fence.proxy.async;
)" + barrier + R"(
  setp.ne.u32 %p0, %r2, 0;
  @%p0 bra RECEIVE;
  add.u32 %r5, %r1, 128;
  add.u32 %r6, %r4, 256;
  cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r6], [%r5], 16, [%r4];
  bra DONE;
RECEIVE:
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16;
TRY:
  mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;
  @!%p1 bra TRY;
DONE:
)";
  std::string report = Kernel(text, 1, "", pair).grid(2).run(lateSeed(0));
  expectReport(report,
               "exits before its copy within the cluster has completed");
  text += barrier;
  EXPECT_EQ(Kernel(text, 1, "", pair).grid(2).run(lateSeed(0)), "");
}

TEST(Clusters, remoteStoresNeedAFenceOfTheirSpace) {
  // Block 0 writes what block 1 then hands to a bulk store.
  auto text = [](const std::string &fence) {
    return ranks + barrier + R"(
  setp.ne.u32 %p0, %r2, 0;
  @!%p0 st.shared::cluster.v4.u32 [%r4], {%r0, %r0, %r0, %r0};
)" + fence +
           barrier + R"(
  ld.param.u64 %rd0, [p0];
  @%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 16;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
)";
  };
  auto report = [&](const std::string &fence) {
    std::vector<uint32_t> out(4);
    return Kernel(text(fence), 1, "", pair).with(out).grid(2).run();
  };
  EXPECT_EQ(report("fence.proxy.async;\n"), "");
  EXPECT_EQ(report("fence.proxy.async.shared::cluster;\n"), "");
  for (const char *fence :
       {"", "fence.proxy.async.shared::cta;\n", "fence.proxy.async.global;\n"})
    expectReport(report(fence), "which thread 0 of block 0 wrote without "
                                "fence.proxy.async since");
}
