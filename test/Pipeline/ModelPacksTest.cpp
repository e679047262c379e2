// The pack specs that ship for models name exactly the kernels those need.
#include "kdac/Pipeline/PackSpec.h"

#include "llvm/Support/MemoryBuffer.h"
#include "gtest/gtest.h"

#include <set>

using namespace kdac;

namespace {

/// Names of a spec's variants for one target.
std::set<std::string> namesOf(const std::string &spec,
                              const std::string &target) {
  std::string path = std::string(KDAC_SOURCE_DIR) + "/packs/" + spec;
  auto buffer = llvm::MemoryBuffer::getFile(path);
  EXPECT_TRUE(buffer) << path;
  auto jobs = parsePackSpec((*buffer)->getBuffer(), path);
  EXPECT_TRUE(bool(jobs)) << llvm::toString(jobs.takeError());
  std::set<std::string> names;
  for (const CompileJob &job : *jobs)
    if (job.variant.target == target)
      names.insert(variantStem(job.variant));
  return names;
}

using Names = std::set<std::string>;

TEST(ModelPacks, KimiLinear48B) {
  for (const char *target : {"host", "sm_80", "sm_90a"})
    EXPECT_EQ(namesOf("kimi-linear-48b.yaml", target),
              (Names{"kda.chunk.k128v128.bf16.f32kv.softplus",
                     "kda.chunk.k128v128.bf16.f32kv.softplus.oi64",
                     "kda.chunk.k128v128.bf16.f32vk.softplus",
                     "kda.chunk.k128v128.bf16.f32vk.softplus.oi64",
                     "kda.step.k128v128.bf16.f32kv.softplus",
                     "kda.step.k128v128.bf16.f32kv.softplus.oi64",
                     "kda.step.k128v128.bf16.f32vk.softplus",
                     "kda.step.k128v128.bf16.f32vk.softplus.oi64"}))
        << target;
}

TEST(ModelPacks, KimiK3) {
  for (const char *target : {"host", "sm_80", "sm_90a", "sm_100a"})
    EXPECT_EQ(namesOf("kimi-k3.yaml", target),
              (Names{"kda.chunk.k128v128.bf16.f32vk.bounded",
                     "kda.chunk.k128v128.bf16.f32vk.bounded.oi64",
                     "kda.step.k128v128.bf16.f32vk.bounded",
                     "kda.step.k128v128.bf16.f32vk.bounded.oi64"}))
        << target;
}

/// Every width with both gates, in both forms, in f32 with slots; operations on
/// rows; attention.
TEST(ModelPacks, KdacRun) {
  Names names;
  for (const char *dims : {"k32v32", "k64v64", "k128v128"})
    for (const char *gate : {"softplus", "bounded"}) {
      std::string tail = std::string(dims) + ".f32.f32vk." + gate +
                         ".pool-i32.conv4.norm-sigmoid";
      names.insert("kda.chunk." + tail);
      names.insert("kda.step." + tail);
    }
  for (const char *rows :
       {"norm.w1024", "norm.w4096", "norm.w16384", "mix.w1024", "mix.w4096",
        "mix.w16384", "latent.w512", "latent.w4096", "add", "silu", "situ",
        "sigmoid", "gather"})
    names.insert(std::string("rows.") + rows + ".f32");
  for (const char *widths :
       {"attention.k1280v1024", "attention.k576v512", "attention.k128v64",
        "prompt.k1280v1024", "prompt.k320v256", "prompt.k192v128",
        "prompt.k128v64"})
    names.insert(std::string(widths) + ".f32");
  EXPECT_EQ(namesOf("kdac-run.yaml", "host"), names);
}

TEST(ModelPacks, General) {
  Names names = namesOf("general.yaml", "sm_90a");
  EXPECT_EQ(names.size(), 12u + 8u + 8u + 3u + 12u + 9u);
  EXPECT_EQ(namesOf("general.yaml", "host"), names);
  for (const char *name :
       {"kda.step.k32v32.f32.f32vk.softplus",
        "kda.chunk.k64v64.bf16.f32vk.bounded",
        "kda.chunk.k128v128.bf16.f32vk.identity.beta-identity.raw",
        "gated_delta.step.k128v128.bf16.f32vk.softplus",
        "linear.chunk.k128v128.bf16.f32vk.none"})
    EXPECT_TRUE(names.count(name)) << name;
}

} // namespace
