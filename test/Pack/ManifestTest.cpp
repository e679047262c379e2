#include "Sample.h"

#include <gtest/gtest.h>

using namespace kdac;

namespace {

/// Every enumerator and a bound that needs all its digits.
std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (const Recurrence &row : recurrences())
    for (Form form : {Form::Chunk, Form::Step})
      for (Precision precision :
           {Precision::Fast, Precision::Default, Precision::High}) {
        Variant v;
        v.recurrence = row.name;
        v.form = form;
        v.precision = precision;
        v.keyDim = 96;
        v.dtype = DType::F16;
        v.stateDtype = DType::BF16;
        v.stateLayout = StateLayout::KV;
        v.offsetDtype = DType::I64;
        v.lowerBound = -0.1 - 1e-15;
        v.target = "sm_80";
        if (!resolve(v)) // not every recurrence has a chunk form
          all.push_back(v);
      }
  for (DType slots : {DType::I32, DType::I64})
    for (OutputNorm norm : {OutputNorm::Sigmoid, OutputNorm::Silu})
      for (int64_t conv : {0, 2, 3, 4}) {
        Variant v;
        v.form = Form::Step;
        v.slots = slots;
        v.snapshots = conv == 0;
        v.conv = conv;
        v.cacheLayout = conv == 3 ? CacheLayout::History : CacheLayout::Full;
        v.norm = norm;
        v.normEps = conv == 2 ? 1e-6 : 1e-5;
        EXPECT_EQ(resolve(v), std::nullopt);
        all.push_back(v);
      }
  return all;
}

TEST(Manifest, NamesOfDecodeVariants) {
  Variant v;
  v.form = Form::Step;
  v.slots = DType::I32;
  v.conv = 4;
  v.cacheLayout = CacheLayout::History;
  v.norm = OutputNorm::Sigmoid;
  v.normEps = 1e-6;
  ASSERT_EQ(resolve(v), std::nullopt);
  EXPECT_EQ(variantStem(v), "kda.step.k128v128.bf16.f32vk.bounded.pool-i32."
                            "conv4h.norm-sigmoideps1em06");
  EXPECT_EQ(checkEntryName(v), entryName(v) + "_check");
}

TEST(Manifest, DecodeVariantsThatCannotExist) {
  auto refusal = [](auto change) {
    Variant v;
    v.form = Form::Step;
    change(v);
    return resolve(v).value_or("");
  };
  EXPECT_EQ(refusal([](Variant &v) { v.slots = DType::F32; }),
            "slots of type 'f32' are not supported; use i32 or i64");
  EXPECT_EQ(refusal([](Variant &v) { v.snapshots = true; }),
            "snapshots need slots to be written to; use slots i32 or i64");
  EXPECT_EQ(refusal([](Variant &v) {
              v.form = Form::Chunk;
              v.slots = DType::I32;
              v.snapshots = true;
            }),
            "snapshots are not supported in form chunk; use form step");
  EXPECT_EQ(refusal([](Variant &v) { v.conv = 5; }),
            "conv = 5 is not supported; use 0 for none, or a width of 2 to 4");
  EXPECT_EQ(refusal([](Variant &v) { v.normEps = 0; }),
            "norm eps 0.000000 is not supported; use a number between 0 and 1");
}

TEST(Manifest, AttentionHasNothingOfARecurrence) {
  Variant v;
  v.form = Form::Attention;
  v.keyDim = 576;
  v.valueDim = 512;
  v.recurrence = "gla";
  v.precision = Precision::High;
  ASSERT_EQ(resolve(v), std::nullopt);
  EXPECT_EQ(variantName(v), "attention.k576v512.bf16.host");
  StatusOr<Variant> back = variantFromJson(toJson(v));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(toJson(*back), toJson(v));
}

TEST(Manifest, AttentionThatCannotExist) {
  auto refusal = [](auto change) {
    Variant v;
    v.form = Form::Attention;
    v.keyDim = 576;
    v.valueDim = 512;
    change(v);
    return resolve(v).value_or("");
  };
  EXPECT_EQ(refusal([](Variant &v) { v.keyDim = 512; }),
            "value-dim = 512 and key-dim = 512 are not supported in form "
            "attention; use a value-dim of 64 to 1024 and a key-dim that is 64 "
            "to 256 more, both multiples of 64");
  EXPECT_EQ(refusal([](Variant &v) { v.dtype = DType::I8; }),
            "dtype 'i8' is not supported; use bf16, f16 or f32");
  EXPECT_EQ(refusal([](Variant &v) { v.width = 64; }),
            "rows and width belong to form rows; leave them out with form "
            "attention");
}

TEST(Manifest, ProductsOfGroupsMayBeGated) {
  Variant v;
  v.form = Form::Matmul;
  ASSERT_EQ(resolve(v), std::nullopt);
  EXPECT_EQ(variantName(v), "matmul.bf16.host");
  v.rows = RowOp::Situ;
  ASSERT_EQ(resolve(v), std::nullopt);
  EXPECT_EQ(variantName(v), "matmul.situ.bf16.host");
  StatusOr<Variant> back = variantFromJson(toJson(v));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(toJson(*back), toJson(v));
  v.rows = RowOp::Sigmoid;
  EXPECT_EQ(resolve(v), "rows sigmoid is not supported in form matmul; use "
                        "none, silu or situ");
  v.rows = RowOp::Silu;
  v.width = 64;
  EXPECT_EQ(resolve(v),
            "width belongs to form rows; leave it out with form matmul");
  v.width = 0;
  v.dtype = DType::F32;
  v.target = "sm_80";
  EXPECT_EQ(resolve(v),
            "dtype f32 is not supported in form matmul on GPUs, whose "
            "products round it; use bf16 or f16, or target host");
}

TEST(Manifest, PromptsAreAttentionOfTheirOwn) {
  Variant v;
  v.form = Form::Prompt;
  v.keyDim = 192;
  v.stateDtype = DType::BF16;
  ASSERT_EQ(resolve(v), std::nullopt);
  EXPECT_EQ(variantName(v), "prompt.k192v128.bf16.host");
  EXPECT_EQ(v.stateDtype, DType::F32);
  StatusOr<Variant> back = variantFromJson(toJson(v));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(toJson(*back), toJson(v));
  v.keyDim = 448;
  EXPECT_EQ(resolve(v),
            "value-dim = 128 and key-dim = 448 are not supported in form "
            "prompt; use a value-dim of 64 to 1024 and a key-dim that is 64 "
            "to 256 more, both multiples of 64");
}

TEST(Manifest, VariantRoundTrip) {
  EXPECT_GE(variants().size(), 3 * recurrences().size());
  for (const Variant &v : variants()) {
    StatusOr<Variant> back = variantFromJson(toJson(v));
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(toJson(*back), toJson(v));
    EXPECT_EQ(variantName(*back), variantName(v));
    EXPECT_EQ(back->lowerBound, v.lowerBound);
    EXPECT_EQ(back->offsetDtype, v.offsetDtype);
  }
}

/// The sample's manifest with `from` replaced by `to` must be refused.
std::string refusal(const std::string &from, const std::string &to) {
  StatusOr<std::string> file = sample::writer().serialize();
  StatusOr<PackReader> pack = PackReader::fromBytes(*file, "sample");
  EXPECT_TRUE(pack.ok()) << pack.status().message();
  std::string text = toJson(pack->manifest());
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << text;
  text.replace(at, from.size(), to);
  StatusOr<Manifest> result = manifestFromJson(text);
  EXPECT_FALSE(result.ok()) << "accepted " << to;
  return result.ok() ? "" : result.status().message();
}

TEST(Manifest, RefusalsNameTheField) {
  auto names = [](const std::string &message, const std::string &part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  names(refusal("\"key_dim\":64", "\"key_dim\":\"64\""),
        "variants[1].variant.key_dim: expected an integer, but got string");
  names(refusal("\"key_dim\":64", "\"key_dim\":1e99"), "expected an integer");
  names(refusal("\"key_dim\":64", "\"key_dim\":18446744073709551615"),
        "18446744073709551615 is not between");
  names(refusal("\"key_dim\":64", "\"key_dim\":32"), "does not match its");
  names(refusal("\"key_dim\":64", "\"key_dim\":512"), "key dim K = 512");
  names(refusal("\"bounded\"", "\"bound\""), "unknown value 'bound'");
  names(refusal("ceildiv(V, 64)", "ceildiv(V, W)"), "unknown name 'W'");
  names(refusal("\"images\":[2]", "\"images\":[7]"), "7 is not one of 3");
  names(refusal("\"images\":[2]", "\"images\":[-1]"), "-1 is not one of 3");
  names(refusal("\"images\":[2]", "\"images\":[]"), "images: is empty");
  names(refusal("\"block_threads\":128", "\"block_threads\":0"),
        "0 is not between 1 and 1024");
  names(refusal("\"l2norm\":true", "\"l2norm\":1"), "expected a boolean");
  names(refusal("\"schedule\":", "\"plan\":"), "schedule: is missing");
}

TEST(Manifest, NotAManifest) {
  for (const char *text : {"", "[]", "{", "null", "{\"variants\":3}", "\xff"})
    EXPECT_FALSE(manifestFromJson(text).ok()) << text;
  EXPECT_FALSE(manifestFromJson(std::string(1000000, '[')).ok());
}

TEST(Manifest, ArgumentAlignments) {
  auto alignment = [](const Variant &v, const std::string &name) -> int64_t {
    for (const LaunchArg &a : launchArgs(v))
      if (a.arg.name == name)
        return a.alignment;
    return -1;
  };
  Variant v = sample::variant("host", 128);
  EXPECT_EQ(alignment(v, "q"), 16);
  EXPECT_EQ(alignment(v, "offsets"), 4);
  EXPECT_EQ(alignment(v, "q_stride"), 8);
  EXPECT_EQ(alignment(v, "beta_stride"), 1);
  EXPECT_EQ(alignment(v, "N"), 1);
  // A line of 33 bf16 elements starts at no better than 2 bytes.
  EXPECT_EQ(alignment(sample::variant("host", 33), "q_stride"), 1);
}

} // namespace
