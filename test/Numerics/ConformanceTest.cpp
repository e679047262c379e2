// FLA's KDA forward grid (kda-operator.md 5.3) on the host: the same shapes,
// options and input distributions, our generator. Every row meets FLA's own
// criterion (5.1) at FLA's tolerance, and our table, which is tighter.
//
// What differs: V = K = D and K-first states as in FLA; A_log = log U(1, 16)
// where test_chunk draws it normal; options that only choose between FLA's
// kernels (safe_gate, disable_recompute, chunk_size) become the gate's bound or
// nothing.
#include "HostKernel.h"

#include "gtest/gtest.h"

using namespace kdac;
using namespace kdac::reference;

namespace {

constexpr bool T = true, F = false;

/// 5.1: |error| <= 1e-6 everywhere, or the ratio of RMS errors is below
/// `bound`.
void expectFla(const CaseSpec &spec, double bound) {
  CheckResult result = expectCorrect(spec);
  for (const Comparison &tensor : result.tensors)
    EXPECT_TRUE(tensor.maxAbs <= 1e-6 || tensor.relative < bound)
        << describe(spec) << ": " << tensor.tensor << " differs by "
        << tensor.relative << ", FLA allows " << bound;
}

/// What FLA's tests call D and dtype; q, k arrive normalised unless `l2`.
CaseSpec base(Form form, DType dtype, int64_t dim, bool l2) {
  CaseSpec spec;
  Variant &v = spec.variant;
  v.form = form;
  v.dtype = dtype;
  v.keyDim = v.valueDim = dim;
  v.stateLayout = StateLayout::KV;
  v.gate = Gate::Identity;
  v.beta = Beta::Identity;
  v.l2norm = l2;
  spec.recipe = "fla";
  return spec;
}

void setSizes(CaseSpec &spec, int64_t batch, int64_t tokens, int64_t heads,
              int64_t valueHeads, double scale) {
  spec.sequences = batch;
  spec.tokens = tokens;
  spec.heads = heads;
  spec.valueHeads = valueHeads;
  spec.scale = scale;
}

void setGateInKernel(CaseSpec &spec, bool bounded) {
  spec.variant.gate = bounded ? Gate::Bounded : Gate::Softplus;
}

std::vector<int64_t> lengthsOf(const std::vector<int64_t> &offsets) {
  std::vector<int64_t> lengths;
  for (size_t n = 1; n < offsets.size(); ++n)
    lengths.push_back(offsets[n] - offsets[n - 1]);
  return lengths;
}

} // namespace

TEST(FlaConformance, FusedRecurrent) {
  struct Row {
    int64_t b, t, h, hv, d;
    double scale, gln;
    bool l2;
  };
  for (Row r :
       {Row{1, 64, 1, 1, 64, 1, 1, F}, Row{2, 512, 3, 3, 60, 1, 1, F},
        Row{3, 1000, 4, 4, 100, 0.1, 1, T}, Row{4, 1024, 4, 4, 128, 0.1, 1, F},
        Row{2, 512, 2, 4, 60, 1, 1, F}, Row{2, 1024, 2, 8, 128, 0.1, 1, T}}) {
    CaseSpec spec = base(Form::Step, DType::F32, r.d, r.l2);
    setSizes(spec, r.b, r.t, r.h, r.hv, r.scale);
    spec.gateNormalizer = r.gln;
    spec.variant = resolved(spec.variant);
    expectFla(spec, 0.005);
  }
}

TEST(FlaConformance, FusedRecurrentUseBetaSigmoidInKernel) {
  struct Row {
    int64_t b, t, h, d;
    bool neg;
  };
  for (Row r :
       {Row{2, 256, 4, 64, F}, Row{2, 256, 4, 64, T}, Row{1, 512, 3, 60, T}}) {
    CaseSpec spec = base(Form::Step, DType::F32, r.d, F);
    setSizes(spec, r.b, r.t, r.h, r.h, 1.0);
    spec.scale.reset();
    spec.variant.beta = r.neg ? Beta::TwoSigmoid : Beta::Sigmoid;
    spec.variant = resolved(spec.variant);
    expectFla(spec, 0.005);
  }
}

TEST(FlaConformance, FusedRecurrentGateInKernel) {
  struct Row {
    int64_t b, t, h, hv, d;
    double scale;
    bool aLog, bias, bounded;
    DType dtype;
  };
  for (Row r : {Row{1, 64, 1, 1, 64, 1, T, F, F, DType::F32},
                Row{2, 256, 2, 2, 64, 1, T, T, F, DType::F32},
                Row{2, 512, 2, 4, 64, 0.1, T, T, T, DType::F16},
                Row{3, 1000, 2, 8, 128, 1, T, F, F, DType::F16},
                Row{4, 1024, 4, 4, 128, 0.1, T, T, T, DType::F16},
                Row{1, 64, 1, 1, 64, 1, F, F, T, DType::F32},
                Row{2, 256, 2, 4, 64, 1, F, T, T, DType::F32}}) {
    CaseSpec spec = base(Form::Step, r.dtype, r.d, T);
    setSizes(spec, r.b, r.t, r.h, r.hv, r.scale);
    setGateInKernel(spec, r.bounded);
    spec.variant.gateDtype = DType::F32;
    spec.hasALog = r.aLog;
    spec.hasDtBias = r.bias;
    spec.variant = resolved(spec.variant);
    expectFla(spec, 0.002);
  }
}

// One token for each request, packed; FLA's slots are not part of this kernel.
TEST(FlaConformance, FusedRecurrentVllmDecode) {
  struct Row {
    int64_t b, h, d;
    double scale, gln;
    bool l2, gate, bounded;
    DType dtype;
  };
  for (Row r : {Row{16, 16, 128, 0.1, 1, T, F, F, DType::BF16},
                Row{32, 8, 64, 1, 1, F, F, F, DType::F16},
                Row{7, 32, 128, 0.5, 0.5, T, F, F, DType::BF16},
                Row{16, 16, 128, 0.1, 1, T, T, F, DType::BF16},
                Row{32, 8, 64, 1, 1, F, T, F, DType::F16},
                Row{7, 32, 128, 0.5, 0.5, T, T, T, DType::BF16}}) {
    CaseSpec spec = base(Form::Step, r.dtype, r.d, r.l2);
    setSizes(spec, 0, 0, r.h, r.h, r.scale);
    spec.lengths.assign(static_cast<size_t>(r.b), 1);
    spec.sequences = r.b;
    spec.gateNormalizer = r.gln;
    if (r.gate)
      setGateInKernel(spec, r.bounded);
    spec.variant = resolved(spec.variant);
    expectFla(spec, 0.005);
  }
}

TEST(FlaConformance, Chunk) {
  struct Row {
    int64_t b, t, h, hv, d;
    double scale, gln, mask;
    bool l2, gate;
    DType dtype;
    bool safe;
  };
  constexpr DType f16 = DType::F16, bf16 = DType::BF16;
  for (Row r : {Row{1, 63, 1, 1, 64, 1, 1, 0, F, F, f16, T},
                Row{2, 500, 3, 3, 60, 1, 1, 0, F, F, f16, T},
                Row{2, 1000, 3, 3, 64, 0.1, 1, 0.5, F, F, f16, F},
                Row{3, 1024, 4, 4, 100, 1, 0.1, 0, F, F, f16, F},
                Row{4, 1024, 4, 4, 128, 0.1, 1, 0, F, F, f16, T},
                Row{4, 1024, 4, 4, 128, 0.1, 1, 0, T, F, f16, T},
                Row{2, 1500, 4, 4, 128, 0.1, 10, 0, F, T, f16, F},
                Row{4, 2048, 8, 8, 64, 0.1, 1, 0, F, T, f16, T},
                Row{2, 1024, 2, 4, 64, 0.1, 1, 0, F, F, f16, F},
                Row{2, 1024, 2, 8, 64, 0.1, 1, 0, F, T, f16, F},
                Row{2, 1024, 4, 8, 128, 0.1, 1, 0, T, T, f16, F},
                Row{2, 160, 2, 4, 64, 0.1, 1, 0, F, T, f16, T},
                Row{2, 1024, 2, 4, 64, 0.1, 1, 0, T, T, bf16, T},
                Row{2, 1024, 2, 4, 64, 0.1, 1, 0, F, T, bf16, F},
                Row{2, 160, 2, 4, 64, 0.1, 1, 0, F, T, bf16, T},
                Row{2, 1024, 2, 8, 128, 0.1, 1, 0, T, T, bf16, F}}) {
    CaseSpec spec = base(Form::Chunk, r.dtype, r.d, r.l2);
    setSizes(spec, r.b, r.t, r.h, r.hv, r.scale);
    spec.gateNormalizer = r.gln;
    spec.gateMask = r.mask;
    if (r.gate)
      setGateInKernel(spec, r.safe);
    else if (r.safe)
      spec.gateFloor = -5.0;
    spec.variant = resolved(spec.variant);
    expectFla(spec, 0.005);
  }
}

// Heads are independent: the 96 of FLA's first two rows are 2 here.
TEST(FlaConformance, ChunkUseBetaSigmoidInKernel) {
  struct Row {
    int64_t b, t, h, d;
    bool neg;
    DType dtype;
  };
  for (Row r : {Row{1, 8192, 2, 128, F, DType::BF16},
                Row{1, 8192, 2, 128, T, DType::BF16},
                Row{2, 96, 2, 64, T, DType::F16}}) {
    CaseSpec spec = base(Form::Chunk, r.dtype, r.d, F);
    setSizes(spec, r.b, r.t, r.h, r.h, 1.0);
    spec.scale.reset();
    spec.variant.beta = r.neg ? Beta::TwoSigmoid : Beta::Sigmoid;
    spec.variant = resolved(spec.variant);
    expectFla(spec, 0.005);
  }
}

// FLA compares the layouts with each other; here each meets the oracle.
TEST(FlaConformance, StateVFirst) {
  struct Row {
    Form form;
    int64_t b, t, h, d;
    double scale;
    DType dtype;
  };
  constexpr Form step = Form::Step, chunk = Form::Chunk;
  for (Row r : {Row{step, 1, 64, 1, 64, 1, DType::F32},
                Row{step, 2, 512, 3, 60, 1, DType::F32},
                Row{step, 3, 1000, 4, 100, 0.1, DType::F32},
                Row{step, 4, 1024, 4, 128, 0.1, DType::F32},
                Row{chunk, 1, 63, 1, 64, 1, DType::F16},
                Row{chunk, 2, 500, 3, 60, 1, DType::F16},
                Row{chunk, 3, 1024, 4, 128, 0.1, DType::F16},
                Row{chunk, 4, 2048, 8, 64, 0.1, DType::F16}}) {
    CaseSpec spec = base(r.form, r.dtype, r.d, F);
    setSizes(spec, r.b, r.t, r.h, r.h, r.scale);
    spec.variant.stateLayout = StateLayout::VK;
    spec.variant = resolved(spec.variant);
    expectFla(spec, 0.005);
  }
}

// test_chunk_varlen and test_chunk_varlen_prefill.
TEST(FlaConformance, ChunkVarlen) {
  struct Row {
    int64_t h, d;
    double mask;
    std::vector<int64_t> offsets;
    bool gate, safe;
  };
  for (const Row &r : {Row{4, 60, 0.1, {0, 15}, T, F},
                       Row{4, 64, 0.9, {0, 256, 500, 1000}, T, F},
                       Row{4, 128, 0.5, {0, 256, 500, 1000}, F, F},
                       Row{4, 100, 0, {0, 15, 100, 300, 1200, 2000}, T, F},
                       Row{4, 256, 0, {0, 100, 300, 1200, 3000, 4096}, F, T},
                       Row{4, 60, 0.1, {0, 31, 96, 160}, T, F},
                       Row{4, 60, 0.1, {0, 8192}, T, F}}) {
    CaseSpec spec = base(Form::Chunk, DType::F16, r.d, F);
    spec.heads = r.h;
    spec.lengths = lengthsOf(r.offsets);
    spec.recipe = "fla_packed";
    spec.gateMask = r.mask;
    if (r.gate)
      setGateInKernel(spec, F);
    else if (r.safe)
      spec.gateFloor = -5.0;
    spec.variant = resolved(spec.variant);
    expectFla(spec, 0.005);
  }
}

TEST(FlaConformance, FlashKdaChunk) {
  struct Row {
    int64_t b, t, h;
    std::vector<int64_t> offsets;
  };
  for (const Row &r : {Row{1, 1024, 4, {}}, Row{2, 2048, 8, {}},
                       Row{1, 4096, 16, {}}, Row{1, 0, 4, {0, 256, 500, 1000}},
                       Row{1, 0, 8, {0, 100, 300, 1200, 2000}},
                       Row{1, 0, 16, {0, 101, 303, 1205, 3007, 4096}}}) {
    CaseSpec spec;
    setSizes(spec, r.b, r.t, r.h, r.h, 1.0);
    spec.scale.reset();
    spec.lengths = lengthsOf(r.offsets);
    spec.recipe = r.offsets.empty() ? "fla" : "random";
    spec.variant = resolved(spec.variant);
    expectFla(spec, 0.006);
  }
}

// The gate alone is tested at D = 12 and with every combination of A_log, bias.
TEST(FlaConformance, Gate) {
  struct Row {
    int64_t b, t, h, d;
    bool aLog, bias, bounded;
  };
  for (Row r : {Row{1, 2, 2, 12, T, F, T}, Row{1, 32, 2, 16, T, F, T},
                Row{2, 64, 4, 32, T, F, T}, Row{4, 128, 8, 64, T, F, T},
                Row{4, 128, 8, 128, T, F, F}, Row{1, 2, 2, 12, T, T, F},
                Row{1, 32, 2, 16, T, T, F}, Row{2, 64, 4, 32, T, T, F},
                Row{4, 128, 8, 64, T, T, F}, Row{4, 128, 8, 128, T, T, F},
                Row{1, 2, 2, 12, F, F, T}, Row{2, 64, 4, 32, F, F, T},
                Row{4, 128, 8, 64, F, T, T}, Row{4, 128, 8, 128, F, T, T}}) {
    CaseSpec spec = base(Form::Chunk, DType::F32, r.d, T);
    setSizes(spec, r.b, r.t, r.h, r.h, 1.0);
    setGateInKernel(spec, r.bounded);
    spec.hasALog = r.aLog;
    spec.hasDtBias = r.bias;
    spec.variant = resolved(spec.variant);
    expectFla(spec, 1e-4);
  }
}
