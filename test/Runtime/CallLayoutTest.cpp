// Every variant's arguments have a place in kdac_call, and sizes that are not
// said are those of contiguous tensors.
#include "../../lib/Runtime/CHandles.h"

#include <gtest/gtest.h>
#include <map>

using namespace kdac;
using namespace kdac::capi;

namespace {

PackVariant packed(void (*change)(Variant &)) {
  PackVariant p;
  change(p.variant);
  EXPECT_EQ(resolve(p.variant), std::nullopt);
  p.launches.resize(1);
  p.launches[0].args = launchArgs(p.variant);
  return p;
}

/// The values of sizes that a call of 2 key and 4 value heads is passed.
std::map<std::string, int64_t> sizesOf(const PackVariant &p,
                                       const kdac_call &call) {
  std::map<std::string, int64_t> sizes;
  StatusOr<CallLayout> layout = CallLayout::of(p);
  EXPECT_TRUE(layout.ok()) << layout.status().message();
  CallLayout::Arguments arguments;
  if (!layout.ok() || !layout->fill(call, arguments).ok())
    return sizes;
  const std::vector<LaunchArg> &args = p.launches[0].args;
  for (size_t i = 0; i < args.size(); ++i)
    if (args[i].arg.kind == ArgKind::Size)
      sizes[args[i].arg.name] =
          *static_cast<const int64_t *>(arguments.argv[i]);
  return sizes;
}

kdac_call callOf(int64_t heads, int64_t valueHeads) {
  kdac_call call{};
  call.struct_size = sizeof call;
  call.H = heads;
  call.HV = valueHeads;
  return call;
}

TEST(CallLayout, EveryRecurrenceAndForm) {
  for (const Recurrence &row : recurrences())
    for (Form form : {Form::Chunk, Form::Step}) {
      PackVariant p;
      p.variant.recurrence = row.name;
      p.variant.form = form;
      ASSERT_EQ(resolve(p.variant), std::nullopt);
      p.launches.resize(1);
      p.launches[0].args = launchArgs(p.variant);
      StatusOr<CallLayout> layout = CallLayout::of(p);
      EXPECT_TRUE(layout.ok()) << layout.status().message();
    }
}

TEST(CallLayout, ContiguousTokens) {
  PackVariant p = packed([](Variant &v) { v.valueDim = 64; });
  auto sizes = sizesOf(p, callOf(2, 4));
  EXPECT_EQ(sizes["q_stride"], 2 * 128);
  EXPECT_EQ(sizes["v_stride"], 4 * 64);
  EXPECT_EQ(sizes["g_stride"], 4 * 128);
  EXPECT_EQ(sizes["beta_stride"], 4);
  EXPECT_EQ(sizes["out_stride"], 4 * 64);
  EXPECT_EQ(sizesOf(p, callOf(3, 0))["HV"], 3);
  kdac_call said = callOf(2, 4);
  said.q_stride = 1000;
  EXPECT_EQ(sizesOf(p, said)["q_stride"], 1000);
}

TEST(CallLayout, PoolsAndCaches) {
  PackVariant p = packed([](Variant &v) {
    v.form = Form::Step;
    v.valueDim = 64;
    v.slots = DType::I64;
    v.conv = 4;
    v.norm = OutputNorm::Silu;
  });
  kdac_call call = callOf(2, 4);
  call.pool = 9;
  auto sizes = sizesOf(p, call);
  EXPECT_EQ(sizes["pool"], 9);
  EXPECT_EQ(sizes["head_pitch"], 128 * 64);
  EXPECT_EQ(sizes["slot_pitch"], 4 * 128 * 64);
  EXPECT_EQ(sizes["q_cache_pitch"], 2 * 128 * 4);
  EXPECT_EQ(sizes["v_cache_pitch"], 4 * 64 * 4);
  EXPECT_EQ(sizes["z_stride"], 4 * 64);
  p.variant.cacheLayout = CacheLayout::History;
  EXPECT_EQ(sizesOf(p, call)["k_cache_pitch"], 2 * 128 * 3);
}

TEST(CallLayout, UnknownArguments) {
  PackVariant p = packed([](Variant &) {});
  p.launches[0].args[0].arg.name = "novel";
  EXPECT_NE(CallLayout::of(p).status().message().find(
                "has an argument 'novel' that this runtime does not know"),
            std::string::npos);
  p = packed([](Variant &) {});
  p.launches[0].args.resize(65);
  EXPECT_NE(CallLayout::of(p).status().message().find("65 arguments"),
            std::string::npos);
}

} // namespace
