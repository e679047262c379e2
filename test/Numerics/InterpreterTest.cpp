// The interpreter of dplr functions against the oracle called directly.
#include "InterpretCase.h"

#include "kdac/Dialect/Dplr.h"
#include "kdac/Pipeline/Pipeline.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"

#include "gtest/gtest.h"

#include <cmath>

using namespace mlir;
using namespace kdac;
using namespace kdac::reference;

namespace {

void expectOracle(MLIRContext &context, CaseSpec spec) {
  Case c = makeCase(std::move(spec));
  OwningOpRef<ModuleOp> module = buildDplrModule(context, c.spec().variant);
  FailureOr<Results> got = interpretCase(*module, c);
  ASSERT_TRUE(succeeded(got)) << describe(c.spec());
  Results expected = oracleOf(c);
  EXPECT_EQ(got->out, expected.out) << describe(c.spec());
  EXPECT_EQ(got->finalState, expected.finalState) << describe(c.spec());
  EXPECT_EQ(got->logs, expected.logs) << describe(c.spec());
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

TEST(Interpreter, EqualsTheOracleOnRows) {
  MLIRContext context;
  for (RowOp op :
       {RowOp::Norm, RowOp::Add, RowOp::Silu, RowOp::Situ, RowOp::Sigmoid,
        RowOp::Gather, RowOp::Combine, RowOp::Latent, RowOp::Mix}) {
    CaseSpec spec;
    spec.variant.form = Form::Rows;
    spec.variant.rows = op;
    spec.variant.width = holdsRow(op) ? 40 : 0;
    ASSERT_EQ(resolve(spec.variant), std::nullopt);
    spec.tokens = 7;
    spec.columns = 32;
    expectOracle(context, spec);
  }
}

TEST(Interpreter, EqualsTheOracleOnAttention) {
  MLIRContext context;
  for (bool hasSlots : {false, true}) {
    CaseSpec spec;
    spec.variant.form = Form::Attention;
    spec.variant.keyDim = 128;
    spec.variant.valueDim = 64;
    ASSERT_EQ(resolve(spec.variant), std::nullopt);
    spec.lengths = {70, 0, 5};
    spec.heads = 3;
    spec.hasSlots = hasSlots;
    expectOracle(context, spec);
  }
}

TEST(Interpreter, EqualsTheOracleOnProductsOfGroups) {
  MLIRContext context;
  for (RowOp kind : {RowOp::None, RowOp::Silu, RowOp::Situ})
    for (bool isGrouped : {false, true}) {
      CaseSpec spec;
      spec.variant.form = Form::Matmul;
      spec.variant.rows = kind;
      ASSERT_EQ(resolve(spec.variant), std::nullopt);
      if (isGrouped)
        spec.lengths = {5, 0, 130, 9};
      spec.tokens = 11;
      spec.heads = isGrouped ? 3 : 1;
      spec.hasSlots = spec.hasBadIndices = isGrouped;
      spec.columns = 24;
      spec.outputs = 10;
      expectOracle(context, spec);
    }
}

TEST(Interpreter, EqualsTheOracleOnPrompts) {
  MLIRContext context;
  for (bool hasBefore : {false, true}) {
    CaseSpec spec;
    spec.variant.form = Form::Prompt;
    spec.variant.keyDim = 128;
    spec.variant.valueDim = 64;
    ASSERT_EQ(resolve(spec.variant), std::nullopt);
    spec.lengths = {7, 0, 5};
    spec.pasts = {-3, 0, 20};
    spec.later = 4;
    spec.heads = 3;
    spec.hasInitial = hasBefore;
    expectOracle(context, spec);
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

// Two sequences of two tokens in a pool of three slots; q = k = 1, so that
// states add up values and outputs are states.
TEST(Interpreter, Pools) {
  MLIRContext context;
  context.loadDialect<dplr::DplrDialect, func::FuncDialect>();
  auto module = parseSourceString<ModuleOp>(R"(
    func.func @pool(%q: tensor<?x1x1xf32>, %v: tensor<?x1x1xf32>,
        %pool: tensor<?x1x1x1xf32>, %slots: tensor<?xi32>,
        %sources: tensor<?xi32>, %snapshots: tensor<?xi32>, %s: f32)
        -> (tensor<?x1x1xf32>, tensor<?x1x1x1xf32>) {
      %o, %after = dplr.recurrence q(%q : tensor<?x1x1xf32>)
        k(%q : tensor<?x1x1xf32>) v(%v : tensor<?x1x1xf32>)
        initial(%pool : tensor<?x1x1x1xf32>) slots(%slots : tensor<?xi32>)
        sources(%sources : tensor<?xi32>) snapshots(%snapshots : tensor<?xi32>)
        scale(%s)
        {layout = #dplr.layout<vk>, precision = #dplr.precision<default>}
        -> tensor<?x1x1xf32>, tensor<?x1x1x1xf32>
      return %o, %after : tensor<?x1x1xf32>, tensor<?x1x1x1xf32>
    })",
                                            &context);
  ASSERT_TRUE(module);
  auto function = *module->getOps<func::FuncOp>().begin();
  using Doubles = std::vector<double>;
  float q[] = {1, 1, 1, 1}, v[] = {1, 2, 4, 8}, pool[] = {100, 200, 300};
  float scale = 1;
  auto run = [&](std::vector<int32_t> slots, std::vector<int32_t> sources,
                 std::vector<int32_t> snapshots) {
    auto list = [](const std::vector<int32_t> &x) {
      return InterpreterArgument{x.empty() ? nullptr : x.data(),
                                 {static_cast<int64_t>(x.size())}};
    };
    InterpreterArgument owned = list(slots);
    owned.shape = {2};
    auto got = interpretDplr(function, {{q, {4, 1, 1}},
                                        {v, {4, 1, 1}},
                                        {pool, {3, 1, 1, 1}},
                                        owned,
                                        list(sources),
                                        list(snapshots),
                                        {&scale, {}}});
    EXPECT_TRUE(succeeded(got));
    return std::make_pair((*got)[0].data, (*got)[1].data);
  };
  EXPECT_EQ(run({2, 0}, {}, {}), std::make_pair(Doubles{301, 303, 104, 112},
                                                Doubles{112, 200, 303}));
  EXPECT_EQ(run({}, {}, {}), std::make_pair(Doubles{101, 103, 204, 212},
                                            Doubles{103, 212, 300}));
  EXPECT_EQ(run({-1, 1}, {}, {}),
            std::make_pair(Doubles{0, 0, 204, 212}, Doubles{100, 212, 300}));
  EXPECT_EQ(run({1, 7}, {}, {}),
            std::make_pair(Doubles{201, 203, 0, 0}, Doubles{100, 203, 300}));
  EXPECT_EQ(run({2, 0}, {-1, 1}, {}),
            std::make_pair(Doubles{1, 3, 204, 212}, Doubles{212, 200, 3}));
  EXPECT_EQ(run({2, -1}, {}, {0, 1, 2, 2}),
            std::make_pair(Doubles{301, 303, 0, 0}, Doubles{301, 303, 300}));
}

TEST(Interpreter, ConvolvesAndKeepsInputs) {
  MLIRContext context;
  context.loadDialect<dplr::DplrDialect, func::FuncDialect>();
  auto module = parseSourceString<ModuleOp>(R"(
    func.func @full(%x: tensor<?x1x1xf32>, %w: tensor<?x1x3xf32>,
        %c: tensor<?x?x1x3xf32>, %slots: tensor<?xi32>)
        -> (tensor<?x1x1xf32>, tensor<?x?x1x3xf32>) {
      %y, %after = dplr.short_conv <full> %x weight(%w : tensor<?x1x3xf32>)
        cache(%c : tensor<?x?x1x3xf32>) slots(%slots : tensor<?xi32>)
        : tensor<?x1x1xf32>
      return %y, %after : tensor<?x1x1xf32>, tensor<?x?x1x3xf32>
    }
    func.func @history(%x: tensor<?x1x1xf32>, %w: tensor<?x1x3xf32>,
        %c: tensor<?x2x?x1xf32>, %slots: tensor<?xi32>)
        -> (tensor<?x1x1xf32>, tensor<?x2x?x1xf32>) {
      %y, %after = dplr.short_conv <history> %x weight(%w : tensor<?x1x3xf32>)
        cache(%c : tensor<?x2x?x1xf32>) slots(%slots : tensor<?xi32>)
        : tensor<?x1x1xf32>
      return %y, %after : tensor<?x1x1xf32>, tensor<?x2x?x1xf32>
    }
    func.func @snapshots(%x: tensor<?x1x1xf32>, %w: tensor<?x1x3xf32>,
        %c: tensor<?x2x?x1xf32>, %slots: tensor<?xi32>, %to: tensor<?xi32>)
        -> tensor<?x2x?x1xf32> {
      %y, %after = dplr.short_conv <history> %x weight(%w : tensor<?x1x3xf32>)
        cache(%c : tensor<?x2x?x1xf32>) slots(%slots : tensor<?xi32>)
        snapshots(%to : tensor<?xi32>) : tensor<?x1x1xf32>
      return %after : tensor<?x2x?x1xf32>
    }
    func.func @accepted(%x: tensor<?x1x1xf32>, %w: tensor<?x1x3xf32>,
        %c: tensor<?x2x?x1xf32>, %slots: tensor<?xi32>, %count: tensor<?xi32>)
        -> tensor<?x2x?x1xf32> {
      %y, %after = dplr.short_conv <history> %x weight(%w : tensor<?x1x3xf32>)
        cache(%c : tensor<?x2x?x1xf32>) slots(%slots : tensor<?xi32>)
        accepted(%count : tensor<?xi32>) : tensor<?x1x1xf32>
      return %after : tensor<?x2x?x1xf32>
    })",
                                            &context);
  ASSERT_TRUE(module);
  auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  float x[] = {1, 2}, w[] = {0.25, 0.5, 1}, full[] = {9, 4, 8, 7, 7, 7};
  float history[] = {4, 8, 7, 7};
  int32_t slots[] = {0, -1};
  auto got = interpretDplr(
      module->lookupSymbol<func::FuncOp>("full"),
      {{x, {2, 1, 1}}, {w, {1, 1, 3}}, {full, {2, 1, 1, 3}}, {slots, {2}}});
  ASSERT_TRUE(succeeded(got));
  EXPECT_DOUBLE_EQ((*got)[0].data[0], silu(0.25 * 4 + 0.5 * 8 + 1));
  EXPECT_EQ((*got)[1].data, (std::vector<double>{4, 8, 1, 7, 7, 7}));
  // Slot 1 after token 0, slot 0, where the sequence started, after token 1.
  int32_t own[] = {0}, to[] = {1, 0};
  got = interpretDplr(module->lookupSymbol<func::FuncOp>("snapshots"),
                      {{x, {2, 1, 1}},
                       {w, {1, 1, 3}},
                       {history, {2, 2, 1, 1}},
                       {own, {1}},
                       {to, {2}}});
  ASSERT_TRUE(succeeded(got));
  EXPECT_EQ((*got)[0].data, (std::vector<double>{1, 2, 8, 1}));
  // Of two tokens one is accepted; a count beyond either end is clamped.
  for (auto [count, wanted] : {std::pair(1, std::vector<double>{8, 1, 7, 7}),
                               std::pair(-1, std::vector<double>{4, 8, 7, 7}),
                               std::pair(5, std::vector<double>{1, 2, 7, 7})}) {
    int32_t accepted[] = {count};
    got = interpretDplr(module->lookupSymbol<func::FuncOp>("accepted"),
                        {{x, {2, 1, 1}},
                         {w, {1, 1, 3}},
                         {history, {2, 2, 1, 1}},
                         {own, {1}},
                         {accepted, {1}}});
    ASSERT_TRUE(succeeded(got));
    EXPECT_EQ((*got)[0].data, wanted);
  }
  int32_t one[] = {1};
  got = interpretDplr(
      module->lookupSymbol<func::FuncOp>("history"),
      {{x, {2, 1, 1}}, {w, {1, 1, 3}}, {history, {2, 2, 1, 1}}, {one, {1}}});
  ASSERT_TRUE(succeeded(got));
  EXPECT_DOUBLE_EQ((*got)[0].data[0], silu(0.25 * 7 + 0.5 * 7 + 1));
  EXPECT_DOUBLE_EQ((*got)[0].data[1], silu(0.25 * 7 + 0.5 * 1 + 2));
  EXPECT_EQ((*got)[1].data, (std::vector<double>{4, 8, 1, 2}));
}

TEST(Interpreter, NormalisesAndGates) {
  MLIRContext context;
  context.loadDialect<dplr::DplrDialect, func::FuncDialect>();
  auto module = parseSourceString<ModuleOp>(R"(
    func.func @gated(%x: tensor<?x1x2xf32>, %z: tensor<?x1x2xf32>,
        %w: tensor<2xf32>) -> (tensor<?x1x2xf32>, tensor<?x1x2xf32>) {
      %a = dplr.gated_rmsnorm <sigmoid> %x gate(%z) weight(%w : tensor<2xf32>)
        eps 0.5 : tensor<?x1x2xf32>, tensor<?x1x2xf32>
      %b = dplr.gated_rmsnorm <silu> %x gate(%z) weight(%w : tensor<2xf32>)
        eps 0.5 : tensor<?x1x2xf32>, tensor<?x1x2xf32>
      return %a, %b : tensor<?x1x2xf32>, tensor<?x1x2xf32>
    })",
                                            &context);
  ASSERT_TRUE(module);
  float x[] = {3, 4}, z[] = {0, 2}, w[] = {1, 0.5};
  auto got = interpretDplr(*module->getOps<func::FuncOp>().begin(),
                           {{x, {1, 1, 2}}, {z, {1, 1, 2}}, {w, {2}}});
  ASSERT_TRUE(succeeded(got));
  double norm = 1 / std::sqrt(12.5 + 0.5), open = 1 / (1 + std::exp(-2.0));
  EXPECT_DOUBLE_EQ((*got)[0].data[0], 3 * norm * 0.5);
  EXPECT_DOUBLE_EQ((*got)[0].data[1], 4 * norm * 0.5 * open);
  EXPECT_DOUBLE_EQ((*got)[1].data[0], 0);
  EXPECT_DOUBLE_EQ((*got)[1].data[1], 4 * norm * 0.5 * open * 2);
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
    func.func @attention(%q: tensor<?x?x?xf32>, %t: tensor<?x?xi32>,
        %n: tensor<?xi32>, %s: f32) -> tensor<?x?x?xf32> {
      %o = dplr.latent_attention %q pages(%q) table(%t : tensor<?x?xi32>)
          slots(%n : tensor<?xi32>) lengths(%n : tensor<?xi32>) scale(%s)
          up_to 128 values 64 : tensor<?x?x?xf32>
      return %o : tensor<?x?x?xf32>
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
  int32_t number = 0;
  EXPECT_TRUE(failed(
      interpretDplr(function("attention"),
                    {{x, {1, 1, 6}}, {&number, {1, 1}}, {&number, {1}}, s})));
  EXPECT_EQ(message, "interpreter: expected rows of 128 elements, but got 6");
  EXPECT_TRUE(failed(interpretDplr(function("returns"), {absent})));
  EXPECT_EQ(message, "interpreter: an absent argument is returned");
  EXPECT_TRUE(failed(interpretDplr(function("declared"), {})));
  EXPECT_EQ(message, "interpreter: expected one block");
}
