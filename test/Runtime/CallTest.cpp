#include "Fixture.h"

#include <limits>

using namespace kdac;

namespace {

/// The sentence with which the changed call is refused, "" if it is not.
std::string refusal(const std::function<void(fixture::Call &)> &change) {
  PackWriter writer;
  PackVariant v =
      fixture::addLinear(writer, "host", {{ImageKind::HostSo, "x86-64"}}, "");
  fixture::Call call;
  change(call);
  return checkCall(v, v.launches[0], call.arguments()).message();
}

void expectRefusal(const std::function<void(fixture::Call &)> &change,
                   const std::string &sentence) {
  EXPECT_EQ(refusal(change), sentence);
}

// Positions in Call::pointers and Call::sizes.
enum { Q, K, V, H0, Offsets, Out, Ht };
enum { N, T, H, HV, QStride, KStride, VStride, OutStride };

TEST(CheckCall, AcceptsAGoodCall) {
  EXPECT_EQ(refusal([](auto &) {}), "");
}

TEST(CheckCall, Null) {
  expectRefusal([](auto &c) { c.pointers[Out] = nullptr; },
                "argument out is null, but only optional arguments may be");
  EXPECT_EQ(refusal([](auto &c) { c.pointers[H0] = nullptr; }), "");
  EXPECT_EQ(refusal([](auto &c) { c.pointers[Ht] = nullptr; }), "");
}

TEST(CheckCall, EmptyTensorsNeedNoAddress) {
  EXPECT_EQ(refusal([](auto &c) {
              c.sizes[T] = 0;
              c.pointers[Q] = c.pointers[K] = c.pointers[V] = nullptr;
              c.pointers[Out] = nullptr;
            }),
            "");
  EXPECT_EQ(refusal([](auto &c) {
              c.sizes[N] = 0;
              c.pointers = {};
            }),
            "");
}

TEST(CheckCall, MisalignedPointer) {
  expectRefusal(
      [](auto &c) { c.pointers[Q] = reinterpret_cast<void *>(0x1008); },
      "argument q = 0x1008 is not a multiple of 16 bytes");
  expectRefusal(
      [](auto &c) { c.pointers[Offsets] = reinterpret_cast<void *>(0x1002); },
      "argument offsets = 0x1002 is not a multiple of 4 bytes");
}

TEST(CheckCall, Sizes) {
  expectRefusal([](auto &c) { c.sizes[N] = -1; },
                "argument N = -1 is negative");
  expectRefusal([](auto &c) { c.sizes[HV] = 3; },
                "HV = 3 value heads are not a multiple of H = 2 key heads");
  expectRefusal([](auto &c) { c.sizes[H] = 0; },
                "HV = 4 value heads are not a multiple of H = 0 key heads");
  expectRefusal([](auto &c) { c.sizes[N] = int64_t(1) << 60; },
                "argument q_stride = 64 makes a tensor larger than 2^63 bytes");
  expectRefusal(
      [](auto &c) {
        c.sizes[N] = int64_t(1) << 50;
        c.sizes[T] = 0;
      },
      "N * HV states of K x V are larger than 2^63 bytes");
}

TEST(CheckCall, Strides) {
  expectRefusal([](auto &c) { c.sizes[KStride] = 66; },
                "argument k_stride = 66 is not a multiple of 4 elements");
  expectRefusal([](auto &c) { c.sizes[QStride] = -64; },
                "argument q_stride = -64 is negative");
  expectRefusal([](auto &c) { c.sizes[OutStride] = 64; },
                "argument out_stride = 64 is less than the 128 elements of one "
                "token");
  EXPECT_EQ(refusal([](auto &c) { c.sizes[VStride] = 256; }), "");
}

TEST(CheckCall, Scale) {
  expectRefusal(
      [](auto &c) { c.scale = std::numeric_limits<float>::quiet_NaN(); },
      "argument scale is not finite");
}

} // namespace
