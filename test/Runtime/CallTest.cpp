#include "Fixture.h"

#include <algorithm>
#include <limits>
#include <map>

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

using Sizes = std::map<std::string, int64_t>;

/// The sentence with which a call of `v` is refused whose sizes are these, all
/// others `otherwise`, and whose tensors exist but for those in `absent`.
std::string refusalOf(Variant v, const Sizes &given, int64_t otherwise,
                      const std::vector<std::string> &absent = {},
                      float scale = 1) {
  EXPECT_EQ(resolve(v), std::nullopt);
  Launch launch;
  launch.entry = entryName(v);
  launch.args = launchArgs(v);
  PackVariant variant;
  variant.variant = v;
  variant.launches = {launch};
  void *data = reinterpret_cast<void *>(0x1000), *none = nullptr;
  Sizes sizes = given;
  std::vector<void *> argv;
  for (const LaunchArg &a : launch.args) {
    bool isAbsent =
        std::find(absent.begin(), absent.end(), a.arg.name) != absent.end();
    int64_t &size = sizes.try_emplace(a.arg.name, otherwise).first->second;
    argv.push_back(a.arg.kind == ArgKind::Size    ? static_cast<void *>(&size)
                   : a.arg.kind == ArgKind::Scale ? static_cast<void *>(&scale)
                   : isAbsent                     ? &none
                                                  : &data);
  }
  return checkCall(variant, launch, argv.data()).message();
}

/// A call of a pool variant with 4 slots, 2 sequences and 2 heads of 32 x 32.
struct PoolCall {
  int64_t pool = 4, slotPitch = 2 * 1024, headPitch = 1024, sequences = 2;
  bool hasSlots = true;

  std::string refusal() {
    Variant v = fixture::linear("host");
    v.slots = DType::I64;
    std::vector<std::string> absent = {"offsets"};
    if (!hasSlots)
      absent.push_back("slots");
    return refusalOf(v,
                     {{"N", sequences},
                      {"pool", pool},
                      {"slot_pitch", slotPitch},
                      {"head_pitch", headPitch},
                      {"H", 2},
                      {"HV", 2},
                      {"T", 1}},
                     64, absent);
  }
};

// pitfalls.md STA-3.
TEST(CheckPool, StatesMustNotOverlap) {
  PoolCall good;
  EXPECT_EQ(good.refusal(), "");
  PoolCall slots;
  slots.slotPitch = 2 * 1024 - 8;
  EXPECT_EQ(slots.refusal(),
            "arguments slot_pitch = 2040 and head_pitch = 1024 make states of "
            "1024 elements overlap");
  PoolCall heads;
  heads.headPitch = 1016;
  heads.slotPitch = 4096;
  EXPECT_EQ(heads.refusal(),
            "arguments slot_pitch = 4096 and head_pitch = 1016 make states of "
            "1024 elements overlap");
  PoolCall headsOutside;
  headsOutside.slotPitch = 1024;
  headsOutside.headPitch = 4 * 1024;
  EXPECT_EQ(headsOutside.refusal(), "");
}

TEST(CheckPool, PitchesKeepLinesAligned) {
  PoolCall call;
  call.slotPitch = 2050;
  EXPECT_EQ(call.refusal(), "argument slot_pitch = 2050 is not a multiple of 4 "
                            "elements");
}

TEST(CheckPool, SizesFit64Bits) {
  PoolCall call;
  call.pool = int64_t(1) << 40;
  call.slotPitch = int64_t(1) << 30;
  EXPECT_EQ(call.refusal(),
            "a pool of 1099511627776 slots with pitches 1073741824 and 1024 is "
            "larger than 2^63 bytes");
}

TEST(CheckPool, WithoutSlotsThePoolHoldsAllSequences) {
  PoolCall call;
  call.hasSlots = false;
  call.sequences = 5;
  EXPECT_EQ(call.refusal(), "N = 5 sequences without slots need as many slots, "
                            "but pool = 4");
}

/// A call of form attention or prompt with these sizes, all others 1, and
/// without the tensor `absent`.
std::string attentionRefusal(const Sizes &sizes, Form form = Form::Attention,
                             const std::string &absent = "", float scale = 1) {
  Variant v;
  v.form = form;
  v.keyDim = 128;
  v.valueDim = 64;
  return refusalOf(v, sizes, 1, {absent}, scale);
}

TEST(CheckAttention, RowsFitTheKernel) {
  EXPECT_EQ(attentionRefusal({{"D", 128}, {"R", 64}}), "");
  EXPECT_EQ(attentionRefusal({{"D", 24}, {"R", 16}}), "");
  EXPECT_EQ(attentionRefusal({{"D", 72}, {"R", 72}}),
            "arguments D = 72 and R = 72 do not fit; the kernel takes values "
            "of up to 64 elements and 64 more of a row");
  EXPECT_EQ(attentionRefusal({{"D", 80}, {"R", 8}}),
            "arguments D = 80 and R = 8 do not fit; the kernel takes values "
            "of up to 64 elements and 64 more of a row");
  EXPECT_EQ(attentionRefusal({{"D", 8}, {"R", 16}}).substr(0, 28),
            "arguments D = 8 and R = 16 d");
  EXPECT_EQ(attentionRefusal({{"D", 20}, {"R", 16}}),
            "argument D = 20 is not a multiple of 8 elements");
}

TEST(CheckAttention, SizesFit64Bits) {
  EXPECT_EQ(attentionRefusal({{"D", 128}, {"R", 64}, {"P", int64_t(1) << 50}}),
            "the sizes make a tensor larger than 2^63 bytes");
}

/// A call of form prompt that could be, but for `sizes`.
std::string promptRefusal(Sizes sizes, const std::string &absent = "",
                          float scale = 1) {
  for (auto [name, size] : {std::pair("D", 128),
                            {"R", 64},
                            {"E", 64},
                            {"q_stride", 128},
                            {"kv_stride", 128},
                            {"shared_stride", 64},
                            {"out_stride", 64}})
    sizes.try_emplace(name, size);
  return attentionRefusal(std::move(sizes), Form::Prompt, absent, scale);
}

TEST(CheckPrompt, RowsFitTheKernel) {
  std::string takes = "; the kernel takes keys of up to 64 elements of a head "
                      "and 64 that heads share, and values of 64";
  EXPECT_EQ(promptRefusal({}), "");
  EXPECT_EQ(promptRefusal({{"D", 24}, {"R", 0}, {"E", 8}}), "");
  EXPECT_EQ(promptRefusal({{"D", 128}, {"R", 56}}),
            "arguments D = 128, R = 56 and E = 64 do not fit" + takes);
  EXPECT_EQ(promptRefusal({{"R", 72}}),
            "arguments D = 128, R = 72 and E = 64 do not fit" + takes);
  EXPECT_EQ(promptRefusal({{"E", 72}}),
            "arguments D = 128, R = 64 and E = 72 do not fit" + takes);
  EXPECT_EQ(promptRefusal({{"E", 4}}),
            "argument E = 4 is not a multiple of 8 elements");
  EXPECT_EQ(promptRefusal({{"kv_stride", 132}}),
            "argument kv_stride = 132 is not a multiple of 8 elements");
}

TEST(CheckPrompt, RowsOfTheOutputDoNotOverlap) {
  EXPECT_EQ(promptRefusal({{"T", 2}, {"H", 2}}),
            "argument out_stride = 64 is less than the 128 elements of one "
            "row");
  EXPECT_EQ(promptRefusal({{"T", 1}, {"H", 2}}), "");
}

TEST(CheckPrompt, SizesFit64Bits) {
  EXPECT_EQ(promptRefusal({{"q_stride", int64_t(1) << 32}}),
            "argument q_stride = 4294967296 makes a tensor larger than 2^63 "
            "bytes");
  EXPECT_EQ(promptRefusal({{"H", int64_t(1) << 40}}),
            "the sizes make a tensor larger than 2^63 bytes");
}

/// A call of form matmul that could be, but for `sizes`.
std::string matmulRefusal(Sizes sizes, const std::string &absent = "") {
  for (auto [name, size] : {std::pair("D", 64),
                            {"E", 66},
                            {"x_stride", 64},
                            {"out_stride", 66},
                            {"sums_stride", 66}})
    sizes.try_emplace(name, size);
  return attentionRefusal(std::move(sizes), Form::Matmul, absent);
}

TEST(CheckMatmul, SizesAreThoseOfTheTensors) {
  EXPECT_EQ(matmulRefusal({}), "");
  EXPECT_EQ(matmulRefusal({{"T", 2}, {"out_stride", 64}}),
            "argument out_stride = 64 is less than the 66 elements of a row");
  EXPECT_EQ(matmulRefusal({{"T", 2}, {"sums_stride", 64}}, "sums"), "");
  EXPECT_EQ(matmulRefusal({{"D", 60}}),
            "argument D = 60 is not a multiple of 8 elements");
  EXPECT_EQ(matmulRefusal({{"E", 65}}),
            "argument E = 65 is not a multiple of 2 elements");
  EXPECT_EQ(matmulRefusal({{"each", 0}}),
            "argument each = 0 should be at least 1 and less than 2^31");
  EXPECT_EQ(matmulRefusal({{"R", int64_t(1) << 31}}),
            "arguments T = 1 and R = 2147483648 should be less than 2^31");
  EXPECT_EQ(matmulRefusal({}, "starts"),
            "arguments tiles and starts belong together; give both or neither");
  EXPECT_EQ(matmulRefusal({{"G", int64_t(1) << 50}}),
            "the sizes make a tensor larger than 2^63 bytes");
  EXPECT_EQ(matmulRefusal({{"R", 1 << 30}, {"x_stride", int64_t(1) << 40}}),
            "argument x_stride = 1099511627776 makes a tensor larger than 2^63 "
            "bytes");
}

TEST(CheckPrompt, AveragesHaveLogarithms) {
  EXPECT_EQ(promptRefusal({}, "before_logs"),
            "arguments before and before_logs belong together; give both or "
            "neither");
  EXPECT_EQ(promptRefusal({}, "after"),
            "arguments after and after_logs belong together; give both or "
            "neither");
  EXPECT_EQ(promptRefusal({}, "kv"),
            "argument kv is null, but only optional arguments may be");
}

TEST(CheckPrompt, ScalesKeepTheOrderOfScores) {
  EXPECT_EQ(promptRefusal({}, "", 0.0f),
            "argument scale = 0.000000 should be positive");
  EXPECT_EQ(promptRefusal({}, "", -1.0f),
            "argument scale = -1.000000 should be positive");
}

/// A call of a variant with a convolution of 4 taps, 2 sequences and 2 heads.
std::string convRefusal(int64_t valueHeads, int64_t pitch,
                        Form form = Form::Step) {
  Variant v = fixture::linear("host");
  v.form = form;
  v.conv = 4;
  Sizes sizes = {{"T", 1}, {"N", 2}, {"H", 2}, {"HV", valueHeads}};
  for (const char *name : {"q", "k", "v"})
    sizes[std::string(name) + "_cache_pitch"] = pitch;
  return refusalOf(v, sizes, 128, {"offsets"});
}

TEST(CheckCaches, DoNotOverlap) {
  EXPECT_EQ(convRefusal(2, 2 * 32 * 4), "");
  EXPECT_EQ(convRefusal(4, 4 * 32 * 4), "");
  EXPECT_EQ(convRefusal(4, 4 * 32 * 4, Form::Chunk), "");
  EXPECT_EQ(convRefusal(4, 4 * 32 * 4 - 4, Form::Chunk),
            "argument v_cache_pitch = 508 is less than the 512 elements of a "
            "slot");
  EXPECT_EQ(convRefusal(2, 2 * 32 * 4 - 4),
            "argument q_cache_pitch = 252 is less than the 256 elements of a "
            "slot");
  EXPECT_EQ(convRefusal(2, int64_t(1) << 60),
            "q_cache is larger than 2^63 bytes");
}

TEST(CheckCaches, ChannelsAreAligned) {
  EXPECT_EQ(convRefusal(2, 2 * 32 * 4 + 4), "");
  EXPECT_EQ(convRefusal(2, 2 * 32 * 4 + 2),
            "argument q_cache_pitch = 258 is not a multiple of 4 elements");
}

/// A call of an operation on rows that is good: 4 rows of 576, of which 512 are
/// normalised; the sizes that `changes` names have its values instead.
static std::string refusalOfRows(RowOp op, const Sizes &changes) {
  Variant v;
  v.form = Form::Rows;
  v.rows = op;
  v.width = op == RowOp::Latent ? 512 : 576;
  v.target = "host";
  Sizes sizes = {{"T", 4},     {"D", 576}, {"rank", 512},
                 {"R", 256},   {"S", 2},   {"P", 2},
                 {"page", 64}, {"E", 3},   {"x_pitch", 2304}};
  for (const auto &[name, value] : changes)
    sizes[name] = value;
  return refusalOf(v, sizes, 576);
}

TEST(CheckRows, PagesOfLatents) {
  auto refusal = [](const Sizes &changes) {
    return refusalOfRows(RowOp::Latent, changes);
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({{"rank", 584}}),
            "argument rank = 584 is more than the D = 576 elements of a row");
  EXPECT_EQ(refusal({{"rank", 520}}),
            "arguments rank = 520 and D = 576 make a part of a row longer than "
            "the 512 elements that the kernel takes");
  EXPECT_EQ(refusal({{"rank", 8}}),
            "arguments rank = 8 and D = 576 make a part of a row longer than "
            "the 512 elements that the kernel takes");
  EXPECT_EQ(refusal({{"rank", 511}}),
            "argument rank = 511 is not a multiple of 8 elements");
  EXPECT_EQ(refusal({{"page", 0}}), "argument page = 0 should be at least 1");
  EXPECT_EQ(refusal({{"T", 0}, {"page", 0}}), "");
  EXPECT_EQ(refusal({{"P", int64_t(1) << 60}}),
            "argument P = 1152921504606846976 makes a table larger than 2^63 "
            "bytes");
}

TEST(CheckRows, TensorsThatAreMixed) {
  auto refusal = [](const Sizes &changes) {
    return refusalOfRows(RowOp::Mix, changes);
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({{"E", 0}}), "argument E = 0 tensors have no average");
  EXPECT_EQ(refusal({{"D", 584}}),
            "argument D = 584 is more than the 576 elements that the kernel "
            "takes of a row");
  EXPECT_EQ(refusal({{"x_pitch", 2300}}),
            "argument x_pitch = 2300 is not a multiple of 8 elements");
  EXPECT_EQ(refusal({{"x_pitch", int64_t(1) << 60}}),
            "argument x_pitch = 1152921504606846976 makes a tensor larger than "
            "2^63 bytes");
}

TEST(CheckPool, StatusNamesTheIndex) {
  EXPECT_TRUE(poolStatus(-1).ok());
  EXPECT_EQ(poolStatus(8 * 37).message(),
            "slots[37] is neither -1 nor below the number of slots");
  EXPECT_EQ(poolStatus(8 * 5 + 1).message(),
            "slots[5] is a slot that an earlier sequence has");
  EXPECT_EQ(poolStatus(8 * 2 + 3).message(),
            "sources[2] is a slot that another sequence writes");
  EXPECT_EQ(poolStatus(8 * 6 + 5).message(),
            "snapshots[6] is a slot that another snapshot or sequence has");
  EXPECT_EQ(poolStatus(7).message(),
            "the status word 7 was not written by a kernel");
}

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
