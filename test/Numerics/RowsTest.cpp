// Kernels of form rows on this CPU against the oracle.
#include "HostKernel.h"

#include "kdac/Runtime/HostLaunch.h"

#include "gtest/gtest.h"

using namespace kdac;
using namespace kdac::reference;

namespace {

std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (RowOp op :
       {RowOp::Norm, RowOp::Add, RowOp::Silu, RowOp::Situ, RowOp::Sigmoid,
        RowOp::Gather, RowOp::Combine, RowOp::Latent, RowOp::Mix})
    for (DType dtype : {DType::BF16, DType::F16, DType::F32}) {
      Variant v;
      v.form = Form::Rows;
      v.rows = op;
      v.width = holdsRow(op) ? 300 : 0;
      v.dtype = dtype;
      all.push_back(resolved(v));
    }
  return all;
}

CaseSpec specOf(const Variant &variant, int64_t rows, int64_t columns,
                const char *recipe = "random") {
  CaseSpec spec;
  spec.variant = variant;
  spec.sequences = 1;
  spec.tokens = rows;
  spec.columns = columns;
  spec.recipe = recipe;
  return spec;
}

class RowsTest : public testing::TestWithParam<size_t> {
protected:
  Variant variant = variants()[GetParam()];
};

} // namespace

TEST_P(RowsTest, EveryLengthOfRow) {
  for (int64_t columns : {8, 16, 40, 248, 296})
    expectCorrect(specOf(variant, 5, columns));
  if (!holdsRow(variant.rows)) // several programs a row
    expectCorrect(specOf(variant, 3, 4096 + 24));
}

TEST_P(RowsTest, RowsApartAndNone) {
  CaseSpec apart = specOf(variant, 7, 64);
  apart.tokenGap = 8;
  expectCorrect(apart);
  expectCorrect(specOf(variant, 0, 64));
}

TEST_P(RowsTest, AbsentOperands) {
  CaseSpec spec = specOf(variant, 4, 128);
  spec.hasInitial = spec.hasFinal = spec.hasSlots = false;
  expectCorrect(spec);
}

TEST_P(RowsTest, HardValues) {
  for (const char *recipe : {"gate_extreme", "large_v", "gate_zero"})
    expectCorrect(specOf(variant, 6, 256, recipe));
}

/// Of latent rows that go nowhere, in every way, among many that do.
TEST_P(RowsTest, ManyRows) { expectCorrect(specOf(variant, 203, 48)); }

/// Outputs may be the inputs of the same place: the bits are those of a call
/// with memory of its own.
TEST_P(RowsTest, InPlace) {
  if (picksRows(variant.rows) || variant.rows == RowOp::Latent)
    return; // a row may be read after it was written
  const HostVariant &kernel = hostVariant(variant);
  Case apart = makeCase(specOf(variant, 3, 264)),
       same = makeCase(specOf(variant, 3, 264));
  ASSERT_EQ(kernel.run(apart), std::nullopt);
  const char *inPlace = same.find("gate")     ? "gate"
                        : same.find("branch") ? "branch"
                                              : "x"; // mix's first tensor
  std::vector<void *> addresses;
  for (Buffer &buffer : same.buffers()) {
    const std::string &name = buffer.name();
    Buffer *at = name == "sum"   ? same.find("x")
                 : name == "out" ? same.find(inPlace)
                                 : &buffer;
    addresses.push_back(at->data());
  }
  constexpr int64_t programs = 3; // one a row
  ASSERT_TRUE(runOnHost(kernel.kernel.entry, same.argv(&addresses), programs,
                        kernel.kernel.scratchBytes));
  auto expectSame = [&](const char *to, const char *wanted) {
    const Buffer &a = *same.find(to), &b = *apart.find(wanted);
    for (int64_t t = 0; t < 3; ++t)
      for (int64_t c = 0; c < 264; ++c)
        ASSERT_EQ(a.get(t, 0, c), b.get(t, 0, c)) << to << " " << t << " " << c;
  };
  expectSame(inPlace, "out");
  if (variant.rows == RowOp::Norm)
    expectSame("x", "sum");
}

INSTANTIATE_TEST_SUITE_P(Rows, RowsTest,
                         testing::Range(size_t(0), variants().size()),
                         [](const auto &info) {
                           const Variant v = variants()[info.param];
                           return std::string(spell(v.rows)) + "_" +
                                  std::string(spell(v.dtype));
                         });
