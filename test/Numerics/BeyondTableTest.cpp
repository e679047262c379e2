// dplr functions that no row of the recurrence table describes, compiled and
// interpreted: the compiler follows the ops, not the name of the variant.
#include "HostKernel.h"
#include "InterpretCase.h"

#include "kdac/Dialect/Dplr.h"

#include "gtest/gtest.h"

using namespace mlir;
using namespace kdac;
using namespace kdac::reference;

namespace {

using Edit = std::function<void(dplr::RecurrenceOp)>;

/// Edits the function of a variant, then compares the kernel made of it with
/// its interpretation, which must differ from what the variant itself means.
void expectFollowsOps(Variant variant, const Edit &edit) {
  DialectRegistry registry;
  registerKdacDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  OwningOpRef<ModuleOp> module = buildDplrModule(context, variant);
  module->walk([&](dplr::RecurrenceOp op) { edit(op); });
  CaseSpec spec;
  spec.variant = variant;
  spec.recipe = "tiny_qk"; // sees every change of a norm
  spec.lengths = {40, 0, 65};
  spec.heads = 2;
  spec.valueHeads = 4;
  Case c = makeCase(spec);
  FailureOr<Results> expected = interpretCase(*module, c);
  ASSERT_TRUE(succeeded(expected));
  HostVariant kernel = compileModule(*module, variant);
  CheckResult result = check(c, kernel.runner(), &*expected);
  EXPECT_TRUE(result.passed()) << toString(result);
  Results unedited = run(operandsOf(c));
  EXPECT_GT(compare(*c.find("out"), unedited.out, c.tokens()).relative, 0.01);
}

class BeyondTableTest : public testing::TestWithParam<Form> {
protected:
  Variant variant() {
    Variant v;
    v.form = GetParam();
    v.keyDim = 64;
    v.valueDim = 48;
    return resolved(v);
  }
};

} // namespace

// KDA's gate and strength without its erase: gated linear attention with beta.
TEST_P(BeyondTableTest, WriteStrengthWithoutErase) {
  expectFollowsOps(variant(),
                   [](dplr::RecurrenceOp op) { op.setDelta(false); });
}

TEST_P(BeyondTableTest, OnlyKeysAreNormalised) {
  expectFollowsOps(variant(), [](dplr::RecurrenceOp op) {
    auto norm = op.getQ().getDefiningOp<dplr::L2NormOp>();
    op.getQMutable().assign(norm.getInput());
  });
}

TEST_P(BeyondTableTest, AnotherEpsilonForKeys) {
  expectFollowsOps(variant(), [](dplr::RecurrenceOp op) {
    auto norm = op.getK().getDefiningOp<dplr::L2NormOp>();
    norm.setEps(llvm::APFloat(0.5));
  });
}

TEST_P(BeyondTableTest, AnotherWriteMap) {
  expectFollowsOps(variant(), [](dplr::RecurrenceOp op) {
    auto map = op.getBeta().getDefiningOp<dplr::WriteStrengthOp>();
    map.setMap(dplr::BetaMap::TwoSigmoid);
  });
}

INSTANTIATE_TEST_SUITE_P(Forms, BeyondTableTest,
                         testing::Values(Form::Chunk, Form::Step),
                         [](const auto &info) {
                           return std::string(spell(info.param));
                         });
