// Scratch that is planned before the first call.
#include "../../lib/Model/NamedCall.h"

#include "kdac/Pack/PackReader.h"

#include <gtest/gtest.h>

using namespace kdac;
using namespace kdac::model;

namespace {

/// One sequence of many tokens is cut into segments, which takes workspace;
/// many sequences of as many tokens in all are not.
TEST(Scratch, OfTheLargestCallIsEnoughForFewerPieces) {
  auto pack = PackReader::open(KDAC_RUN_GPU_PACK);
  ASSERT_TRUE(pack.ok()) << pack.status().message();
  auto config = presetConfig("kimi-linear-48b");
  ASSERT_TRUE(config.ok()) << config.status().message();
  constexpr int64_t pieces = 16, tokens = 8192;
  int64_t tried = 0;
  for (const PackVariant &variant : pack->manifest().variants) {
    if (variant.variant.form != Form::Chunk || variant.variant.keyDim != 128)
      continue;
    NamedCall all(variant), one(variant);
    StatusOr<int64_t> planned = kdaWorkspaceBytes(all, *config, pieces, tokens);
    ASSERT_TRUE(planned.ok()) << planned.status().message();
    one.size("T", tokens);
    one.size("H", config->kdaHeads);
    one.size("HV", config->kdaHeads);
    one.pointer("offsets", &one);
    int64_t bytes[pieces + 1];
    for (int64_t count = 1; count <= pieces; ++count) {
      one.size("N", count);
      StatusOr<int64_t> needed = one.workspaceBytes();
      ASSERT_TRUE(needed.ok()) << needed.status().message();
      bytes[count] = *needed;
      EXPECT_LE(*needed, *planned) << variant.name() << " of " << count;
    }
    EXPECT_GT(bytes[1], bytes[pieces]) << "what this test is about";
    ++tried;
  }
  EXPECT_GT(tried, 0);
}

} // namespace
