// Pack specs: what they expand to, and one sentence with a line for each error.
#include "kdac/Pipeline/PackSpec.h"

#include "gtest/gtest.h"

using namespace kdac;

namespace {

std::string errorOf(llvm::StringRef text,
                    llvm::ArrayRef<std::string> targets = {}) {
  auto jobs = parsePackSpec(text, "spec.yaml", targets);
  return jobs ? "" : llvm::toString(jobs.takeError());
}

std::vector<std::string> namesOf(llvm::StringRef text,
                                 llvm::ArrayRef<std::string> targets = {}) {
  auto jobs = parsePackSpec(text, "spec.yaml", targets);
  EXPECT_TRUE(static_cast<bool>(jobs)) << llvm::toString(jobs.takeError());
  std::vector<std::string> names;
  for (const CompileJob &job : *jobs)
    names.push_back(variantName(job.variant));
  return names;
}

TEST(PackSpec, ListsMultiplyTheLastFastest) {
  std::vector<std::string> expected = {
      "kda.chunk.k64v128.bf16.f32vk.bounded.host",
      "kda.chunk.k64v128.bf16.f32vk.bounded.sm_80",
      "kda.chunk.k96v128.bf16.f32vk.bounded.host",
      "kda.chunk.k96v128.bf16.f32vk.bounded.sm_80",
      "kda.step.k64v128.bf16.f32vk.bounded.host",
      "kda.step.k64v128.bf16.f32vk.bounded.sm_80",
      "kda.step.k96v128.bf16.f32vk.bounded.host",
      "kda.step.k96v128.bf16.f32vk.bounded.sm_80",
  };
  EXPECT_EQ(namesOf("targets: [host, sm_80]\n"
                    "variants:\n"
                    "  - form: [chunk, step]\n"
                    "    key-dim: [64, 96]\n"),
            expected);
}

TEST(PackSpec, EntriesOverrideDefaults) {
  std::vector<std::string> expected = {
      "kda.chunk.k64v64.f16.f32vk.bounded.host",
      "kda.chunk.k64v32.f16.f32vk.bounded.host",
  };
  EXPECT_EQ(namesOf("targets: [host]\n"
                    "defaults: {key-dim: 64, value-dim: 64, dtype: f16}\n"
                    "variants:\n"
                    "  - {form: chunk}\n"
                    "  - {value-dim: 32}\n"),
            expected);
}

TEST(PackSpec, CallerTargetsReplaceTheFiles) {
  std::vector<std::string> expected = {
      "linear.step.k128v128.bf16.f32vk.none.sm_90a"};
  EXPECT_EQ(namesOf("targets: [host]\n"
                    "variants: [{recurrence: linear, form: step}]\n",
                    {"sm_90a"}),
            expected);
}

TEST(PackSpec, ScheduleOverridesAreCarried) {
  auto jobs = parsePackSpec("targets: [sm_90a]\n"
                            "variants: [{chunk: 64, v-tile: 48, warps: 8}]\n",
                            "spec.yaml");
  ASSERT_TRUE(static_cast<bool>(jobs));
  EXPECT_EQ(jobs->front().schedule.chunk, 64);
  EXPECT_EQ(jobs->front().schedule.vTile, 48);
  EXPECT_EQ(jobs->front().schedule.warps, 8);
}

TEST(PackSpec, ErrorsNameTheLine) {
  std::string head = "targets: [host]\nvariants:\n";
  EXPECT_EQ(errorOf(head + "  - {form: scan}\n"),
            "spec.yaml:3: form 'scan' is not supported; use chunk, step, rows, "
            "attention, prompt or matmul");
  EXPECT_EQ(errorOf(head + "  - {form: chunk}\n  - {frm: step}\n"),
            "spec.yaml:4: unknown option 'frm'; `kdac compile --help` lists "
            "the options");
  EXPECT_EQ(errorOf(head + "  - {key-dim: 300}\n"),
            "spec.yaml:3: key dim K = 300 is not supported; 1 to 256 works on "
            "the host, multiples of 32 up to 256 on GPUs");
  EXPECT_EQ(errorOf(head + "  - {key-dim: 6x}\n"),
            "spec.yaml:3: key-dim '6x' is not supported; use a whole number "
            "from 1 to 256");
  EXPECT_EQ(errorOf(head + "  - {v-tile: 50}\n"),
            "spec.yaml:3: v-tile '50' is not supported; use a multiple of 16 "
            "up to 256");
  EXPECT_EQ(errorOf(head + "  - {warps: 3}\n"),
            "spec.yaml:3: warps '3' is not supported; use a power of two from "
            "1 to 32");
  EXPECT_EQ(errorOf(head + "  - {form: chunk}\n  - {form: chunk}\n"),
            "spec.yaml:4: variant 'kda.chunk.k128v128.bf16.f32vk.bounded.host' "
            "occurs twice");
  EXPECT_EQ(errorOf(head + "  - {gate: none}\n"),
            "spec.yaml:3: recurrence 'kda' needs a gate; use bounded, softplus "
            "or identity");
  EXPECT_EQ(errorOf("targets: [sm_999]\nvariants: [{form: chunk}]\n"),
            "spec.yaml:1: unknown target 'sm_999'; use one of host, sm_80, "
            "sm_89, sm_90a, sm_100a, sm_120");
  EXPECT_EQ(errorOf("target: [host]\n"),
            "spec.yaml:1: unknown key 'target'; use targets, defaults or "
            "variants");
  EXPECT_EQ(errorOf("targets: [host]\ndefaults: {form: [chunk, step]}\n"),
            "spec.yaml:2: expected one value for form; lists belong into "
            "variants");
  EXPECT_EQ(errorOf("variants: [{form: chunk}]\n"),
            "spec.yaml:1: expected targets out of host, sm_80, sm_89, sm_90a, "
            "sm_100a, sm_120 before variants");
}

TEST(PackSpec, MalformedFilesAreErrors) {
  for (llvm::StringRef text :
       {"", "[", "{", "- x", "targets: [host]\nvariants: []\n",
        "targets: [host]\nvariants: {form: chunk}\n",
        "targets: [host]\nvariants: [{form: []}]\n",
        "targets: [host]\nvariants: [chunk]\n",
        "targets: [[host]]\nvariants: [{form: chunk}]\n", "\t\x01\x02",
        "targets: [host]\nvariants:\n  - {form: chunk\n",
        "targets: [host]\nvariants: [{form: {a: b}}]\n"})
    EXPECT_NE(errorOf(text), "") << text.str();
}

} // namespace
