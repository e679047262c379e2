// Finite inputs give finite and right outputs wherever the exact ones fit:
// every recipe on every recurrence, form and gate, and the public failures of
// pitfalls.md 2 by their labels.
#include "HostKernel.h"

#include "gtest/gtest.h"

#include <cmath>

using namespace kdac;
using namespace kdac::reference;

namespace {

/// Every recurrence and form with every gate map it has, K != V; dtypes in
/// turn.
std::vector<Variant> kernels() {
  std::vector<Variant> list;
  DType dtypes[] = {DType::F32, DType::BF16, DType::F16};
  for (const Recurrence &row : recurrences())
    for (Form form : {Form::Chunk, Form::Step})
      for (Gate gate :
           {Gate::None, Gate::Identity, Gate::Softplus, Gate::Bounded}) {
        Variant v;
        v.recurrence = row.name;
        v.form = form;
        v.gate = gate;
        v.keyDim = 64;
        v.valueDim = 32;
        v.dtype = dtypes[list.size() % 3];
        if (row.beta != Beta::None && list.size() % 4 == 3)
          v.beta = Beta::TwoSigmoid;
        bool exists = form == Form::Step || row.erase != Erase::Pair;
        if (exists && !resolve(v))
          list.push_back(v);
      }
  return list;
}

class HardValuesTest : public testing::TestWithParam<Variant> {};

/// A KDA case of two heads whose gates and inputs a test then overwrites.
Case kdaCase(Gate gate, int64_t tokens, Form form,
             const char *recipe = "random", DType dtype = DType::F32) {
  CaseSpec spec;
  spec.recipe = recipe;
  spec.variant.form = form;
  spec.variant.gate = gate;
  spec.variant.dtype = dtype;
  spec.variant.keyDim = 64;
  spec.variant.valueDim = 32;
  spec.variant = resolved(spec.variant);
  spec.tokens = tokens;
  spec.heads = 2;
  return makeCase(spec);
}

/// Sets every element of a tensor to value(token, head, channel).
template <typename Value> void setAll(Case &c, const char *name, Value value) {
  Buffer &buffer = *c.find(name);
  for (int64_t t = 0; t < buffer.layout().tokens; ++t)
    for (int64_t h = 0; h < buffer.layout().heads; ++h)
      for (int64_t j = 0; j < buffer.layout().width; ++j)
        buffer.set(t, h, j, value(t, h, j));
}

void setAll(Case &c, const char *name, double value) {
  setAll(c, name, [=](int64_t, int64_t, int64_t) { return value; });
}

} // namespace

TEST_P(HardValuesTest, EveryRecipe) {
  for (const Recipe &recipe : recipes()) {
    CaseSpec spec;
    spec.variant = GetParam();
    spec.recipe = recipe.name;
    spec.lengths = {1, 100, 0, 200, 33};
    spec.gateMask = 0.3;
    spec.heads = 2;
    spec.valueHeads = 4;
    expectCorrect(spec);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, HardValuesTest, testing::ValuesIn(kernels()),
                         [](const auto &info) {
                           return entryName(info.param);
                         });

// NUM-1: unbounded gates of tens of nats at ordinary initialisation, in some
// channels.
TEST(Pitfalls, Num1UnboundedGates) {
  for (Form form : {Form::Chunk, Form::Step}) {
    Case c = kdaCase(Gate::Softplus, 130, form);
    setAll(c, "A_log", std::log(16.0));
    setAll(c, "dt_bias", 0.0);
    setAll(c, "g",
           [](int64_t, int64_t, int64_t j) { return j % 4 == 0 ? 2.0 : -4.0; });
    expectCorrect(c);
  }
}

// NUM-3: alpha = 1e-12 throughout.
TEST(Pitfalls, Num3TinyPositiveDecay) {
  Case c = kdaCase(Gate::Identity, 64, Form::Chunk);
  setAll(c, "g", std::log(1e-12));
  expectCorrect(c);
}

// NUM-4: one token of strong decay, first, in the middle or last in a chunk. In
// a plain cumulative sum -1e5 would swallow the slow decays that follow it.
TEST(Pitfalls, Num4OneStrongDecay) {
  for (int64_t strong : {0, 7, 31, 32, 63})
    for (double decay : {-90.0, -1e5}) {
      Case c = kdaCase(Gate::Identity, 64, Form::Chunk, "gate_extreme");
      setAll(c, "g", [=](int64_t t, int64_t, int64_t) {
        return t == strong ? decay : -0.05;
      });
      expectCorrect(c);
    }
}

// NUM-5: zeros next to hundreds of nats, element by element.
TEST(Pitfalls, Num5ZeroNextToExtremeDecay) {
  Case c = kdaCase(Gate::Identity, 150, Form::Chunk);
  setAll(c, "g", [](int64_t t, int64_t h, int64_t j) {
    return (t * 7 + h * 3 + j * 5) % 11 < 5 ? 0.0 : -300.0;
  });
  expectCorrect(c);
}

// NUM-6: one token past a chunk, g = -3: rows of padding must not overflow.
TEST(Pitfalls, Num6TailsUnderDecay) {
  for (int64_t tokens : {1, 17, 33, 65, 129}) {
    Case c = kdaCase(Gate::Identity, tokens, Form::Chunk);
    setAll(c, "g", -3.0);
    expectCorrect(c);
  }
}

// NUM-7: beta = sigmoid(0.5), kept in f32.
TEST(Pitfalls, Num7BetaIsNotRounded) {
  Case c = kdaCase(Gate::Identity, 200, Form::Step);
  setAll(c, "beta", 0.5);
  expectCorrect(c);
}

// NUM-9: f16 inputs and a state of 65536, which f16 cannot hold.
TEST(Pitfalls, Num9LargeStatesUnderF16) {
  for (Form form : {Form::Chunk, Form::Step})
    for (int64_t tokens : {1, 64}) {
      Case c = kdaCase(Gate::Identity, tokens, form, "random", DType::F16);
      setAll(c, "g", -0.1);
      setAll(c, "h0", [](int64_t, int64_t, int64_t i) {
        return i / 64 == i % 64 ? 65536.0 : 0.0;
      });
      expectCorrect(c);
    }
}

// NUM-10: one full chunk of strongly correlated keys with slow decay: the
// inverse.
TEST(Pitfalls, Num10CorrelatedKeysNeedTheExactInverse) {
  CaseSpec spec;
  spec.variant.dtype = DType::F32;
  spec.variant = resolved(spec.variant);
  spec.recipe = "correlated";
  spec.heads = 2;
  for (int64_t tokens : {32, 64, 512}) {
    spec.tokens = tokens;
    expectCorrect(spec);
  }
}

// NUM-11: log-decays above 0 are outside the domain (SPEC.md, dplr.log_decay):
// whatever comes of them, the call ends, and other heads keep their bits.
TEST(Pitfalls, Num11PositiveDecaysStayInTheirHead) {
  for (Form form : {Form::Chunk, Form::Step}) {
    Case usual = kdaCase(Gate::Identity, 2048, form);
    Case wild = kdaCase(Gate::Identity, 2048, form);
    setAll(wild, "g", [&](int64_t t, int64_t h, int64_t j) {
      return h == 0 ? 5.0 : usual.find("g")->get(t, h, j);
    });
    for (Case *c : {&usual, &wild})
      ASSERT_FALSE(hostVariant(c->spec().variant).run(*c));
    for (const char *name : {"out", "ht"}) {
      const Buffer &x = *usual.find(name), &y = *wild.find(name);
      for (int64_t t = 0; t < x.layout().tokens; ++t)
        for (int64_t j = 0; j < x.layout().width; ++j)
          ASSERT_EQ(x.get(t, 1, j), y.get(t, 1, j)) << name << " row " << t;
    }
  }
}

// NUM-12: exp(90) is infinite; gates are exactly 0, half the bound or the
// bound.
TEST(Pitfalls, Num12SaturatedGate) {
  for (Form form : {Form::Chunk, Form::Step}) {
    Case c = kdaCase(Gate::Bounded, 65, form);
    setAll(c, "A_log", 90.0);
    setAll(c, "dt_bias", 0.0);
    setAll(c, "g", [](int64_t t, int64_t, int64_t j) {
      return static_cast<double>((t + j) % 3 - 1);
    });
    expectCorrect(c);
  }
}

// NUM-8, design.md 5: a state carried over many chunks does not drift.
TEST(Pitfalls, LongSequencesDoNotDrift) {
  for (const char *recurrence : {"kda", "delta"}) {
    CaseSpec spec;
    spec.variant.recurrence = recurrence;
    spec.variant.keyDim = spec.variant.valueDim = 64;
    spec.variant = resolved(spec.variant);
    spec.tokens = 20000;
    expectCorrect(spec);
  }
}

// Logits far outside sigmoid's range, both signs.
TEST(HardValues, SaturatedWriteStrengths) {
  for (Beta beta : {Beta::Sigmoid, Beta::TwoSigmoid})
    for (Form form : {Form::Chunk, Form::Step}) {
      CaseSpec spec;
      spec.variant.form = form;
      spec.variant.beta = beta;
      spec.variant = resolved(spec.variant);
      spec.tokens = 70;
      Case c = makeCase(spec);
      setAll(c, "beta", [](int64_t t, int64_t, int64_t) {
        return t % 3 == 0 ? 1000.0 : t % 3 == 1 ? -1000.0 : 0.25;
      });
      expectCorrect(c);
    }
}

// The leaf of the Gram product follows from the bound: from no decay to speak
// of to one at which no two rows may share an anchor.
TEST(HardValues, EveryLowerBound) {
  for (double bound : {-0.01, -1.0, -8.0, -30.0, -300.0, -10000.0})
    for (const char *recipe : {"random", "gate_bound", "gate_extreme"}) {
      CaseSpec spec;
      spec.variant.lowerBound = bound;
      spec.variant.dtype = DType::F32;
      spec.variant = resolved(spec.variant);
      spec.recipe = recipe;
      spec.tokens = 100;
      spec.heads = 2;
      expectCorrect(spec);
    }
}

// Long unnormalised q and k under a bounded gate: anchored factors of k grow by
// the whole decay of a leaf, on top of the key itself.
TEST(HardValues, LargeUnnormalisedKeys) {
  for (Gate gate : {Gate::Bounded, Gate::Softplus, Gate::Identity})
    for (Form form : {Form::Chunk, Form::Step}) {
      CaseSpec spec;
      spec.variant.recurrence = "gla";
      spec.variant.form = form;
      spec.variant.gate = gate;
      spec.variant.dtype = DType::F32;
      spec.variant = resolved(spec.variant);
      spec.tokens = 100;
      Case c = makeCase(spec);
      for (const char *name : {"q", "k"}) {
        Buffer &buffer = *c.find(name);
        setAll(c, name, [&](int64_t t, int64_t h, int64_t j) {
          return 1e15 * buffer.get(t, h, j);
        });
      }
      expectCorrect(c);
    }
}

// Squares of 1e17 still fit f32; a normalised vector does not depend on length.
TEST(HardValues, LargeKeysUnderL2Norm) {
  for (Form form : {Form::Chunk, Form::Step}) {
    Case c = kdaCase(Gate::Bounded, 70, form);
    for (const char *name : {"q", "k"}) {
      Buffer &buffer = *c.find(name);
      setAll(c, name, [&](int64_t t, int64_t h, int64_t j) {
        return 1e17 * buffer.get(t, h, j);
      });
    }
    expectCorrect(c);
  }
}

TEST(HardValues, ZeroInputsGiveZeroOutputs) {
  for (Form form : {Form::Chunk, Form::Step}) {
    Case c = kdaCase(Gate::Bounded, 40, form);
    for (const char *name : {"q", "k", "v", "g", "beta", "h0"})
      setAll(c, name, 0.0);
    CheckResult result = expectCorrect(c);
    for (const Comparison &tensor : result.tensors)
      EXPECT_EQ(tensor.maxAbs, 0.0) << tensor.tensor;
  }
}
