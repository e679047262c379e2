// The checker: right kernels pass, each kind of wrong kernel fails for its
// reason.
#include "ModelKernel.h"

#include "gtest/gtest.h"

#include <cmath>
#include <cstring>

using namespace kdac;
using namespace kdac::reference;

namespace {

/// Packed, GVA, K != V, with empty sequences and trailing tokens.
CaseSpec packed(Form form = Form::Chunk) {
  CaseSpec spec;
  spec.variant.form = form;
  spec.variant.keyDim = 32;
  spec.variant.valueDim = 48;
  EXPECT_EQ(resolve(spec.variant), std::nullopt);
  spec.lengths = {0, 70, 1, 0, 33};
  spec.trailing = 5;
  spec.heads = 2;
  spec.valueHeads = 4;
  spec.tokenGap = 8;
  return spec;
}

/// Runs the model, then damages the case.
CheckResult checkDamaged(const std::function<void(Case &)> &damage) {
  Case c = makeCase(packed());
  return check(c, [&](Case &target) {
    auto error = runModel(target);
    damage(target);
    return error;
  });
}

} // namespace

TEST(Check, AcceptsTheModelInBothForms) {
  for (Form form : {Form::Chunk, Form::Step}) {
    Case c = makeCase(packed(form));
    CheckResult result = check(c, [](Case &t) { return runModel(t); });
    EXPECT_TRUE(result.passed()) << toString(result);
    EXPECT_EQ(result.tensors.size(), 2u);
  }
}

TEST(Check, ReportsTheRunnersError) {
  Case c = makeCase(packed());
  CheckResult result = check(
      c, [](Case &) -> std::optional<std::string> { return "no such device"; });
  EXPECT_FALSE(result.passed());
  EXPECT_EQ(toString(result), "no such device");
}

TEST(Check, FindsUnwrittenElements) {
  CheckResult result = checkDamaged([](Case &c) {
    auto *out = static_cast<uint16_t *>(c.find("out")->data());
    out[c.find("out")->layout().at(3, 1, 7)] = 0xffff;
  });
  EXPECT_FALSE(result.passed());
  EXPECT_EQ(result.tensors[0].flaw, Flaw::Unwritten);
  EXPECT_EQ(result.tensors[0].firstBad, (3 * 4 + 1) * 48 + 7);
}

TEST(Check, TellsNanFromUnwritten) {
  CheckResult result =
      checkDamaged([](Case &c) { c.find("ht")->set(1, 2, 5, std::nan("")); });
  EXPECT_EQ(result.tensors[1].flaw, Flaw::NotFinite);
  EXPECT_EQ(result.tensors[1].firstBad, (1 * 4 + 2) * 32 * 48 + 5);
}

TEST(Check, FindsWritesNextToATensor) {
  for (int64_t offset : {int64_t(-1), int64_t(0)}) {
    CheckResult result = checkDamaged([&](Case &c) {
      Buffer &ht = *c.find("ht");
      static_cast<float *>(ht.data())[offset < 0 ? -1 : ht.layout().span()] = 1;
    });
    ASSERT_EQ(result.failures.size(), 1u);
    EXPECT_EQ(result.failures[0], "memory next to ht was written to");
  }
}

TEST(Check, FindsWritesBetweenTokens) {
  CheckResult result = checkDamaged([](Case &c) {
    Buffer &out = *c.find("out");
    static_cast<uint16_t *>(out.data())[out.layout().rowElements()] = 0;
  });
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_EQ(result.failures[0], "memory next to out was written to");
}

TEST(Check, FindsWritesToInputs) {
  CheckResult result =
      checkDamaged([](Case &c) { c.find("k")->set(0, 0, 0, 9.0); });
  ASSERT_FALSE(result.failures.empty());
  EXPECT_EQ(result.failures[0], "input k was written to");
}

TEST(Check, FindsWritesToTokensOfNoSequence) {
  CheckResult result =
      checkDamaged([](Case &c) { c.find("out")->set(105, 0, 0, 0.0); });
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_EQ(result.failures[0],
            "out was written at token 105, which is in no sequence");
}

// Negative zero equals zero in every norm, but not bitwise.
TEST(Check, WantsEmptySequencesBitwise) {
  CheckResult result = checkDamaged([](Case &c) {
    float h0 = static_cast<float>(c.find("h0")->get(3, 1, 2));
    c.find("ht")->set(3, 1, 2, std::nextafter(h0, 1.0f));
  });
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_EQ(result.failures[0],
            "empty sequence 3 does not pass its state through bitwise");
}

// A single bad row changes the whole tensor's error by little.
TEST(Check, SeesOneBadRowAmongMany) {
  CaseSpec spec = packed(Form::Step);
  spec.lengths.assign(4000, 1);
  Case c = makeCase(spec);
  CheckResult result = check(c, [](Case &t) {
    auto error = runModel(t);
    for (int64_t j = 0; j < 48; ++j) // 5 % of a row
      t.find("out")->set(1234, 2, j, 1.05 * t.find("out")->get(1234, 2, j));
    return error;
  });
  EXPECT_LT(result.tensors[0].relative, result.tensors[0].bound);
  EXPECT_GT(result.tensors[0].worstRow, result.tensors[0].rowBound);
  EXPECT_FALSE(result.passed());
}

// A norm lengthens rows that had cancelled: the worst may be most of a short
// tensor's error, and has a bound of its own.
TEST(Check, HoldsTheWorstNormedRowApart) {
  Comparison comparison;
  comparison.elements = 75 * 2 * 32;
  comparison.relative = 0.0105;
  comparison.worstRow = 0.0885;
  comparison.ofOthers = 0.0077;
  setBounds(comparison, 0.007, 32, normedRowFactor);
  EXPECT_LT(comparison.bound, comparison.relative);
  EXPECT_TRUE(comparison.passed());
  EXPECT_NE(toString(comparison).find("0.0077 but for the worst row"),
            std::string::npos);
  comparison.ofOthers = 0.0105;
  EXPECT_FALSE(comparison.passed());
  comparison.ofOthers = 0.0077;
  comparison.worstRow = 2 * comparison.rowBound;
  EXPECT_FALSE(comparison.passed());
  setBounds(comparison, 0.007, 32);
  EXPECT_FALSE(comparison.passed());
}

TEST(Check, FindsTheErrorWithoutTheWorstRow) {
  CheckResult result = checkDamaged([](Case &c) {
    for (int64_t j = 0; j < 48; ++j)
      c.find("out")->set(3, 1, j, 2 * c.find("out")->get(3, 1, j));
  });
  const Comparison &out = result.tensors[0];
  EXPECT_GT(out.relative, out.bound);
  EXPECT_LT(out.ofOthers, out.bound);
  EXPECT_FALSE(result.passed());
}

// Mistakes in meaning, run on other inputs than the oracle's.
TEST(Check, RejectsOtherInputs) {
  for (const char *name :
       {"q", "k", "v", "g", "beta", "A_log", "dt_bias", "h0"}) {
    Case c = makeCase(packed());
    Results expected = run(operandsOf(c));
    Buffer &input = *c.find(name);
    for (int64_t t = 0; t < input.layout().tokens; ++t)
      for (int64_t h = 0; h < input.layout().heads; ++h)
        for (int64_t j = 0; j < input.layout().width; ++j)
          input.set(t, h, j, 1.05 * input.get(t, h, j) + 0.05);
    CheckResult result =
        check(c, [](Case &t) { return runModel(t); }, &expected);
    EXPECT_GT(result.tensors[0].relative, result.tensors[0].bound) << name;
  }
}

//===-- Cases
//--------------------------------------------------------------===//

TEST(Case, ArgumentsFollowTheAbi) {
  Case c = makeCase(packed());
  std::vector<Arg> args = kernelArgs(c.spec().variant);
  void **argv = c.argv();
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].kind == ArgKind::Size)
      sizes.push_back(*static_cast<int64_t *>(argv[i]));
    else if (args[i].kind == ArgKind::Scale)
      EXPECT_EQ(*static_cast<float *>(argv[i]), c.scale());
    else if (args[i].kind == ArgKind::Workspace)
      EXPECT_EQ(*static_cast<void **>(argv[i]), nullptr);
    else
      EXPECT_EQ(*static_cast<void **>(argv[i]), c.find(args[i].name)->data());
  }
  // N, T, H, HV; strides of q k v g beta out, 8 elements of gap each.
  EXPECT_EQ(sizes,
            (std::vector<int64_t>{5, 109, 2, 4, 72, 72, 200, 136, 12, 200}));
}

TEST(Case, AbsentArgumentsAreNull) {
  CaseSpec spec = packed();
  spec.lengths.clear();
  spec.trailing = 0;
  spec.hasInitial = spec.hasFinal = spec.hasALog = spec.hasDtBias = false;
  Case c = makeCase(spec);
  std::vector<Arg> args = kernelArgs(c.spec().variant);
  void **argv = c.argv();
  for (size_t i = 0; i < args.size(); ++i)
    if (args[i].optional)
      EXPECT_EQ(*static_cast<void **>(argv[i]), nullptr) << args[i].name;
}

TEST(Case, DataIsAlignedToSixteenBytesAndNoMore) {
  Case c = makeCase(packed());
  for (const Buffer &buffer : c.buffers())
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 32, 16u);
}

TEST(Case, SeedsDetermineInputs) {
  CaseSpec spec = packed();
  Case a = makeCase(spec), b = makeCase(spec);
  spec.seed = 43;
  Case other = makeCase(spec);
  for (const char *name :
       {"q", "k", "v", "g", "beta", "A_log", "dt_bias", "h0"}) {
    EXPECT_EQ(a.find(name)->digest(), b.find(name)->digest()) << name;
    EXPECT_NE(a.find(name)->digest(), other.find(name)->digest()) << name;
  }
}

// Pinned, so that every platform draws what this one draws.
TEST(Case, InputsAreTheSameOnEveryMachine) {
  Case c = makeCase(packed());
  EXPECT_EQ(c.find("q")->digest(), 9870495069921225178u);
  EXPECT_EQ(c.find("h0")->digest(), 12713776043346674622u);
}

TEST(Case, RefusesImpossibleSpecs) {
  auto message = [](auto change) {
    CaseSpec spec = packed();
    change(spec);
    return validate(spec).value_or("valid");
  };
  EXPECT_EQ(message([](CaseSpec &) {}), "valid");
  EXPECT_EQ(
      message([](CaseSpec &s) { s.valueHeads = 3; }),
      "value heads HV = 3 must be a positive multiple of key heads H = 2");
  EXPECT_EQ(message([](CaseSpec &s) { s.sequences = 0; }),
            "a batch needs at least one sequence and no negative length, but "
            "got N = 0 and T = 64");
  EXPECT_EQ(message([](CaseSpec &s) { s.lengths[1] = -4; }),
            "sequence length -4 is negative");
  EXPECT_EQ(message([](CaseSpec &s) { s.lengths.clear(); }),
            "trailing tokens need packed lengths and cannot be negative, but "
            "got 5");
  EXPECT_EQ(message([](CaseSpec &s) { s.tokenGap = 4; }),
            "token gap 4 must be a non-negative multiple of 8 elements");
  EXPECT_EQ(message([](CaseSpec &s) { s.recipe = "x"; }),
            "unknown recipe 'x'; use one of " + recipeNames());
}

TEST(Random, IsNormalEnough) {
  Random random(1, 2);
  double sum = 0, squares = 0, fourth = 0;
  constexpr int count = 200000;
  for (int i = 0; i < count; ++i) {
    double x = random.normal(static_cast<uint64_t>(i));
    sum += x, squares += x * x, fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / count, 0.0, 0.01);
  EXPECT_NEAR(squares / count, 1.0, 0.02);
  EXPECT_NEAR(fourth / count, 2.9, 0.1); // 3 - 1.2 / 12
}
