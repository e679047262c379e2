// The interpreter of dplr functions against the oracle called directly.
#include "InterpretCase.h"

#include "kdac/Dialect/Dplr.h"
#include "kdac/Pipeline/Pipeline.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"

#include "gtest/gtest.h"

using namespace mlir;
using namespace kdac;
using namespace kdac::reference;

namespace {

void expectOracle(MLIRContext &context, CaseSpec spec) {
  Case c = makeCase(std::move(spec));
  OwningOpRef<ModuleOp> module = buildDplrModule(context, c.spec().variant);
  FailureOr<Results> got = interpretCase(*module, c);
  ASSERT_TRUE(succeeded(got)) << describe(c.spec());
  Results expected = reference::run(operandsOf(c));
  EXPECT_EQ(got->out, expected.out) << describe(c.spec());
  EXPECT_EQ(got->finalState, expected.finalState) << describe(c.spec());
}

/// A spec with K != V, GVA and empty sequences.
CaseSpec specOf(Variant variant) {
  variant.keyDim = 12;
  variant.valueDim = 7;
  EXPECT_EQ(resolve(variant), std::nullopt);
  CaseSpec spec;
  spec.variant = variant;
  spec.lengths = {0, 5, 1, 0, 9};
  spec.heads = 2;
  spec.valueHeads = 6;
  return spec;
}

} // namespace

TEST(Interpreter, EqualsTheOracleOnEveryRecurrenceAndLayout) {
  MLIRContext context;
  for (const Recurrence &row : recurrences())
    for (StateLayout layout : {StateLayout::VK, StateLayout::KV}) {
      Variant variant;
      variant.recurrence = row.name;
      variant.stateLayout = layout;
      expectOracle(context, specOf(variant));
    }
}

TEST(Interpreter, EqualsTheOracleOnEveryMap) {
  MLIRContext context;
  for (Gate gate : {Gate::Identity, Gate::Softplus, Gate::Bounded})
    for (Beta beta : {Beta::Identity, Beta::Sigmoid, Beta::TwoSigmoid})
      for (bool norm : {false, true}) {
        Variant variant;
        variant.gate = gate;
        variant.beta = beta;
        variant.l2norm = norm;
        variant.lowerBound = -3.0;
        variant.offsetDtype = DType::I64;
        expectOracle(context, specOf(variant));
      }
}

TEST(Interpreter, EqualsTheOracleWithoutOptionalArguments) {
  MLIRContext context;
  CaseSpec spec = specOf({});
  spec.lengths.clear();
  spec.sequences = 3;
  spec.tokens = 4;
  spec.hasInitial = spec.hasALog = spec.hasDtBias = false;
  expectOracle(context, spec);
}

// Two layers: the output of one recurrence is the value of the next.
TEST(Interpreter, ChainsOps) {
  MLIRContext context;
  context.loadDialect<dplr::DplrDialect, func::FuncDialect>();
  auto module = parseSourceString<ModuleOp>(R"(
    func.func @two(%x: tensor<?x1x1xf32>, %s: f32) -> tensor<?x1x1xf32> {
      %a, %s0 = dplr.recurrence q(%x : tensor<?x1x1xf32>)
        k(%x : tensor<?x1x1xf32>) v(%x : tensor<?x1x1xf32>) scale(%s)
        {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
        -> tensor<?x1x1xf32>, tensor<?x1x1x1xf32>
      %b, %s1 = dplr.recurrence q(%x : tensor<?x1x1xf32>)
        k(%x : tensor<?x1x1xf32>) v(%a : tensor<?x1x1xf32>) scale(%s)
        {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
        -> tensor<?x1x1xf32>, tensor<?x1x1x1xf32>
      return %b : tensor<?x1x1xf32>
    })",
                                            &context);
  ASSERT_TRUE(module);
  float x[] = {1.0f, 2.0f}, scale = 1.0f;
  auto got = interpretDplr(*module->getOps<func::FuncOp>().begin(),
                           {{x, {2, 1, 1}}, {&scale, {}}});
  ASSERT_TRUE(succeeded(got));
  // a = [1, 2 * (1 + 4)] = [1, 10]; b = [1, 2 * (1 + 2 * 10)] = [1, 42].
  EXPECT_EQ((*got)[0].data, (std::vector<double>{1.0, 42.0}));
}

TEST(Interpreter, RefusesWhatItCannotRun) {
  MLIRContext context;
  context.loadDialect<dplr::DplrDialect, func::FuncDialect>();
  std::string message;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    message = diagnostic.str();
    return success();
  });
  auto module = parseSourceString<ModuleOp>(R"(
    func.func @norm(%x: tensor<?x1x2xf32>) -> tensor<?x1x2xf32> {
      %y = dplr.l2norm %x eps 1.0e-06 : tensor<?x1x2xf32>
      return %y : tensor<?x1x2xf32>
    }
    func.func @calls(%x: tensor<?x1x2xf32>) -> tensor<?x1x2xf32> {
      %y = call @norm(%x) : (tensor<?x1x2xf32>) -> tensor<?x1x2xf32>
      return %y : tensor<?x1x2xf32>
    })",
                                            &context);
  ASSERT_TRUE(module);
  auto norm = module->lookupSymbol<func::FuncOp>("norm");
  float x[] = {3.0f, 4.0f};
  EXPECT_TRUE(failed(interpretDplr(norm, {})));
  EXPECT_EQ(message, "interpreter: expected 1 arguments, but got 0");
  EXPECT_TRUE(failed(interpretDplr(norm, {{x, {1, 1, 3}}})));
  EXPECT_EQ(message, "interpreter: argument 0 expected shape of "
                     "'tensor<?x1x2xf32>', but got a dimension of 3");
  EXPECT_TRUE(failed(interpretDplr(norm, {{x, {1, 2}}})));
  EXPECT_EQ(message, "interpreter: argument 0 expected rank 3, but got 2");
  EXPECT_TRUE(failed(interpretDplr(module->lookupSymbol<func::FuncOp>("calls"),
                                   {{x, {1, 1, 2}}})));
  EXPECT_EQ(message, "interpreter: expected a dplr op, but got 'func.call'");
  auto got = interpretDplr(norm, {{x, {1, 1, 2}}});
  ASSERT_TRUE(succeeded(got));
  EXPECT_NEAR((*got)[0].data[1], 0.8, 1e-7);
}

TEST(Interpreter, RefusesCasesThatCannotBe) {
  MLIRContext context;
  context.loadDialect<dplr::DplrDialect, func::FuncDialect>();
  std::string message;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    message = diagnostic.str();
    return success();
  });
  auto module = parseSourceString<ModuleOp>(R"(
    func.func @linear(%q: tensor<?x?x1xf32>, %v: tensor<?x?x1xf32>,
        %h0: tensor<?x?x1x1xf32>, %offsets: tensor<?xi64>, %s: f32)
        -> tensor<?x?x1xf32> {
      %o, %ht = dplr.recurrence q(%q : tensor<?x?x1xf32>)
          k(%q : tensor<?x?x1xf32>) v(%v : tensor<?x?x1xf32>)
          initial(%h0 : tensor<?x?x1x1xf32>) offsets(%offsets : tensor<?xi64>)
          scale(%s)
          {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
          -> tensor<?x?x1xf32>, tensor<?x?x1x1xf32>
      return %o : tensor<?x?x1xf32>
    }
    func.func @returns(%x: tensor<?xf32>) -> tensor<?xf32> {
      return %x : tensor<?xf32>
    }
    func.func private @declared()
    )",
                                            &context);
  ASSERT_TRUE(module);
  auto function = [&](StringRef name) {
    return module->lookupSymbol<func::FuncOp>(name);
  };
  float x[6] = {}, scale = 1.0f;
  int64_t offsets[] = {0, 5};
  InterpreterArgument absent{nullptr, {0}}, s{&scale, {}};
  EXPECT_TRUE(failed(interpretDplr(
      function("linear"),
      {{x, {3, 1, 1}}, {x, {3, 1, 1}}, {x, {2, 1, 1, 1}}, absent, s})));
  EXPECT_EQ(message, "interpreter: expected the number of tokens to be a "
                     "multiple of the sequences, but got 3 and 2");
  EXPECT_TRUE(failed(interpretDplr(
      function("linear"),
      {{x, {3, 1, 1}}, {x, {3, 1, 1}}, {x, {1, 1, 1, 1}}, {offsets, {2}}, s})));
  EXPECT_EQ(message, "interpreter: expected ascending offsets within 0 and 3");
  EXPECT_TRUE(failed(interpretDplr(
      function("linear"),
      {{x, {1, 2, 1}}, {x, {1, 3, 1}}, {x, {1, 3, 1, 1}}, absent, s})));
  EXPECT_EQ(message, "interpreter: expected value heads to be a multiple of "
                     "key heads, but got 3 and 2");
  EXPECT_TRUE(failed(interpretDplr(function("returns"), {absent})));
  EXPECT_EQ(message, "interpreter: an absent argument is returned");
  EXPECT_TRUE(failed(interpretDplr(function("declared"), {})));
  EXPECT_EQ(message, "interpreter: expected one block");
}
