// The Triton IR of every kind of kernel, parsed from its text and interpreted
// on this CPU, against the oracle with the bounds of a GPU.
#include "TritonInterpreter.h"

#include "kdac/Pipeline/Compile.h"
#include "kdac/Reference/Check.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Parser/Parser.h"

#include "gtest/gtest.h"

#include <map>

using namespace kdac;
using namespace kdac::reference;

namespace {

/// The text of a variant's kernel, parsed in a context of its own.
struct TritonKernel {
  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  tt::FuncOp function;
  int64_t vTile = 0;
};

TritonKernel parseKernel(const CompileJob &job) {
  TritonKernel kernel;
  llvm::Expected<std::string> text = printStage(job, Stage::Ttir);
  if (!text) {
    ADD_FAILURE() << llvm::toString(text.takeError());
    return kernel;
  }
  mlir::DialectRegistry registry;
  registerKdacDialects(registry);
  registry.insert<mlir::gpu::GPUDialect>();
  kernel.context = std::make_unique<mlir::MLIRContext>(
      registry, mlir::MLIRContext::Threading::DISABLED);
  kernel.module =
      mlir::parseSourceString<mlir::ModuleOp>(*text, kernel.context.get());
  if (!kernel.module) {
    ADD_FAILURE() << "the text does not parse";
    return kernel;
  }
  kernel.function = *kernel.module->getOps<tt::FuncOp>().begin();
  kernel.vTile =
      kernel.function->getAttrOfType<mlir::IntegerAttr>("kdac.v_tile").getInt();
  return kernel;
}

const TritonKernel &kernelOf(const CompileJob &job) {
  static std::map<std::string, TritonKernel> kernels;
  std::string key = variantName(job.variant) + " " +
                    std::to_string(job.schedule.vTile) + " " +
                    std::to_string(job.schedule.chunk);
  auto [entry, isNew] = kernels.try_emplace(key);
  if (isNew)
    entry->second = parseKernel(job);
  return entry->second;
}

std::optional<std::string> interpret(const TritonKernel &kernel, Case &c) {
  if (!kernel.function)
    return "no kernel";
  std::vector<Extent> extents;
  for (Buffer &buffer : c.buffers())
    extents.emplace_back(buffer.data(), buffer.bytes());
  return interpretTriton(kernel.function, c.argv(), c.programs(kernel.vTile),
                         extents);
}

/// Compiles, interprets and judges.
void expectCorrect(const CaseSpec &spec, const ScheduleOptions &schedule = {}) {
  std::optional<std::string> error = validate(spec);
  ASSERT_FALSE(error) << *error;
  const TritonKernel &kernel = kernelOf({spec.variant, schedule});
  Case c = makeCase(spec);
  CheckResult result =
      check(c, [&](Case &run) { return interpret(kernel, run); });
  EXPECT_TRUE(result.passed()) << describe(spec) << ": " << toString(result);
}

Variant gpuVariant(Variant v) {
  v.target = "sm_90a";
  std::optional<std::string> error = resolve(v);
  EXPECT_FALSE(error) << *error;
  return v;
}

/// A tail, an empty sequence and whole chunks; two value heads a key head.
CaseSpec packed(Variant v) {
  CaseSpec spec;
  spec.variant = gpuVariant(v);
  spec.lengths = v.form == Form::Chunk ? std::vector<int64_t>{0, 37, 32}
                                       : std::vector<int64_t>{0, 5, 1};
  spec.trailing = 3;
  spec.heads = 1;
  spec.valueHeads = v.conv ? 1 : 2;
  spec.tokenGap = 8;
  return spec;
}

/// Dense, every optional argument absent.
CaseSpec bare(Variant v) {
  CaseSpec spec = packed(v);
  spec.lengths.clear();
  spec.trailing = 0;
  spec.tokens = v.form == Form::Chunk ? 33 : 3;
  spec.hasInitial = spec.hasFinal = spec.hasALog = spec.hasDtBias = false;
  return spec;
}

/// Every recurrence, form and gate; layouts, types and precisions in turn.
std::vector<Variant> family() {
  std::vector<Variant> list;
  const DType dtypes[] = {DType::BF16, DType::F16, DType::F32};
  for (const Recurrence &row : recurrences())
    for (Form form : {Form::Chunk, Form::Step})
      for (Gate gate :
           {Gate::None, Gate::Identity, Gate::Softplus, Gate::Bounded}) {
        size_t n = list.size();
        Variant v;
        v.recurrence = row.name;
        v.form = form;
        v.gate = gate;
        v.keyDim = 64;
        v.valueDim = n % 2 ? 96 : 32; // 96 is padded
        v.dtype = dtypes[n % 3];
        v.stateDtype = n % 5 == 4 ? DType::BF16 : DType::F32;
        v.stateLayout = n % 4 < 2 ? StateLayout::VK : StateLayout::KV;
        v.offsetDtype = n % 3 == 1 ? DType::I64 : DType::I32;
        v.precision = n % 7 == 3 ? Precision::High : Precision::Default;
        if (row.beta != Beta::None && n % 4 == 3)
          v.beta = Beta::TwoSigmoid;
        bool exists = form == Form::Step || row.erase != Erase::Pair;
        Variant complete = v;
        if (exists && !resolve(complete))
          list.push_back(v);
      }
  return list;
}

class TritonFamilyTest : public testing::TestWithParam<Variant> {};

} // namespace

TEST_P(TritonFamilyTest, PackedAndBare) {
  expectCorrect(packed(GetParam()));
  expectCorrect(bare(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Family, TritonFamilyTest, testing::ValuesIn(family()),
                         [](const testing::TestParamInfo<Variant> &info) {
                           Variant v = info.param;
                           v.target = "";
                           std::ignore = resolve(v);
                           std::string name = variantStem(v);
                           for (char &c : name)
                             c = isalnum(c) ? c : '_';
                           return name;
                         });

// Keys padded from 96 to 128: masked in every product and sum over them.
TEST(TritonTest, PaddedKeys) {
  Variant v;
  v.keyDim = v.valueDim = 96;
  expectCorrect(packed(v));
  v.gate = Gate::Softplus; // leaves of one row
  expectCorrect(packed(v));
  v.form = Form::Step;
  expectCorrect(packed(v));
}

// Several programs a head, the last slice narrower than the others.
TEST(TritonTest, SlicesOfV) {
  Variant v;
  v.keyDim = 64;
  v.valueDim = 96;
  ScheduleOptions schedule;
  schedule.vTile = 64;
  expectCorrect(packed(v), schedule);
}

// One diagonal block of the inverse, and three levels of pairs of blocks.
TEST(TritonTest, ChunkLengths) {
  Variant v;
  v.keyDim = v.valueDim = 64;
  for (Gate gate : {Gate::Bounded, Gate::Softplus})
    for (int64_t chunk : {16, 64, 128}) {
      v.gate = gate;
      CaseSpec spec = packed(v);
      spec.lengths = {130, 0, 16};
      ScheduleOptions schedule;
      schedule.chunk = chunk;
      expectCorrect(spec, schedule);
    }
}

TEST(TritonTest, HardInputs) {
  for (const Recipe &recipe : recipes())
    for (Gate gate : {Gate::Bounded, Gate::Softplus}) {
      Variant v;
      v.keyDim = v.valueDim = 64;
      v.gate = gate;
      CaseSpec spec = packed(v);
      spec.recipe = recipe.name;
      expectCorrect(spec);
    }
}

// Unchecked launches: there is no kernel that checks indices.
TEST(TritonTest, Pools) {
  Variant v;
  v.keyDim = 64;
  v.valueDim = 32;
  v.slots = DType::I32;
  for (Form form : {Form::Chunk, Form::Step}) {
    v.form = form;
    CaseSpec spec = packed(v);
    spec.lengths = {3, 0, 37};
    spec.checked = false;
    spec.hasSources = true;
    expectCorrect(spec);
  }
  v.snapshots = true;
  v.slots = DType::I64;
  CaseSpec spec = packed(v);
  spec.lengths = {3, 1, 2};
  spec.checked = false;
  expectCorrect(spec);
}

TEST(TritonTest, Layers) {
  Variant v;
  v.form = Form::Step;
  v.keyDim = 64;
  v.valueDim = 32;
  v.slots = DType::I32;
  v.norm = OutputNorm::Sigmoid;
  for (CacheLayout layout : {CacheLayout::Full, CacheLayout::History}) {
    v.conv = layout == CacheLayout::Full ? 4 : 2;
    v.cacheLayout = layout;
    CaseSpec spec = packed(v);
    spec.trailing = 0;
    spec.lengths = {3, 1, 5};
    spec.checked = false;
    expectCorrect(spec);
  }
}

// The text of a kernel that its inputs cannot be read from is refused by the
// interpreter itself: the tests above can fail.
TEST(TritonTest, AccessesOutsideAreSeen) {
  Variant v;
  v.form = Form::Step;
  v.keyDim = v.valueDim = 32;
  CaseSpec spec = packed(v);
  const TritonKernel &kernel = kernelOf({spec.variant, {}});
  Case c = makeCase(spec);
  auto failure =
      interpretTriton(kernel.function, c.argv(), c.programs(kernel.vTile), {});
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->find("outside every buffer"), std::string::npos);
}
