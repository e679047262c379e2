// Operations alone, as an engine with a forward pass of its own calls them.
#include "TinyModel.h"

#include <functional>
#include <random>

using namespace kdac;
using namespace kdac::model;

namespace {

/// Rows with memory of their own, random or zero.
struct Tensor {
  Tensor(int64_t rows, int64_t width, uint32_t seed = 0)
      : stride((width + 15) / 16 * 16),
        memory(static_cast<size_t>(rows * stride) + 16) {
    void *base = memory.data();
    size_t space = memory.size() * 4;
    auto *data = static_cast<float *>(std::align(64, 4, base, space));
    view = {data, rows, width, stride, Element::F32};
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; seed && i < rows * stride; ++i)
      data[i] = normal(random);
  }
  Rows rows() const { return view; }

  int64_t stride;
  std::vector<float> memory;
  Rows view;
};

double difference(Rows a, Rows b) {
  double error = 0, norm = 0;
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t c = 0; c < a.width; ++c) {
      double x = a.row(i)[c], y = b.row(i)[c];
      error += (x - y) * (x - y);
      norm += y * y;
    }
  return std::sqrt(error / norm);
}

/// Arrays of a batch with the given pieces.
struct Packed {
  explicit Packed(std::vector<Piece> given) : pieces(std::move(given)) {
    for (Piece &piece : pieces) {
      piece.begin = offsets.back();
      slots.push_back(piece.slot);
      sources.push_back(piece.past > 0 ? piece.slot : -1);
      offsets.push_back(static_cast<int32_t>(piece.begin + piece.count));
    }
  }
  BatchView view() const {
    bool isDecode = offsets.size() == slots.size() + 1 &&
                    offsets.back() == static_cast<int32_t>(slots.size());
    return {pieces.data(),  static_cast<int64_t>(pieces.size()),
            offsets.back(), slots.data(),
            sources.data(), offsets.data(),
            isDecode};
  }
  std::vector<Piece> pieces;
  std::vector<int32_t> slots, sources, offsets = {0};
};

class OpsTest : public testing::TestWithParam<const char *> {};

} // namespace

/// A KDA layer by its parts on a prompt, and by the fused step on each token.
TEST_P(OpsTest, ChunkAndItsNeighboursAreTheFusedStep) {
  TinyModel m(GetParam());
  const KdaWeights &w = m.weights.layers[1].kda;
  int64_t width = m.config.kdaWidth(), tokens = 37;
  Tensor q(tokens, width, 1), k(tokens, width, 2), v(tokens, width, 3);
  Tensor decay(tokens, width, 4), beta(tokens, m.config.kdaHeads, 5);
  Tensor z(tokens, width, 6), parts(tokens, width), fused(tokens, width);

  KdaCache cache = m.session->kda(1);
  Packed whole({{2, 0, 0, tokens}});
  m.ops->kdaLayer(whole.view(), w, q.rows(), k.rows(), v.rows(), decay.rows(),
                  beta.rows(), z.rows(), cache, parts.rows());
  for (int64_t t = 0; t < tokens; ++t) {
    auto at = [&](const Tensor &x) {
      return Rows{x.rows().row(t), 1, x.view.width, x.stride};
    };
    Packed one({{4, t, 0, 1}});
    ASSERT_TRUE(one.view().isDecode);
    m.ops->kdaLayer(one.view(), w, at(q), at(k), at(v), at(decay), at(beta),
                    at(z), cache, at(fused));
  }
  ASSERT_TRUE(m.ops->status().ok()) << m.ops->status().message();
  EXPECT_LT(difference(parts.rows(), fused.rows()), 2e-5);
  // Both leave the same memory behind.
  int64_t state = width * m.config.kdaDim, conv = width * m.config.convWidth;
  EXPECT_LT(difference({cache.state + 2 * state, 1, state, state},
                       {cache.state + 4 * state, 1, state, state}),
            2e-5);
  for (void *caches : {cache.q, cache.k, cache.v}) {
    auto *kept = static_cast<float *>(caches);
    EXPECT_EQ(std::vector<float>(kept + 2 * conv, kept + 3 * conv),
              std::vector<float>(kept + 4 * conv, kept + 5 * conv));
  }
}

/// Attention of single tokens in the latent space, of longer pieces on expanded
/// keys: one answer, whatever the cache's length and the pieces.
static void expectAbsorbedIsMaterialised(Ops &ops, Session &session,
                                         const ModelConfig &config,
                                         const Matrix &kvB, const Vector &norm,
                                         int64_t tokens) {
  Tensor query(tokens, config.heads * config.queryDim(), 1);
  Tensor latent(tokens, config.cacheDim(), 2);
  Tensor whole(tokens, config.heads * config.valueDim);
  Tensor single(tokens, config.heads * config.valueDim);
  auto slot = session.open();
  ASSERT_TRUE(slot.ok() && session.reserve(*slot, tokens).ok());
  MlaCache cache = session.mla(3);
  Packed all({{*slot, 0, 0, tokens}});
  ops.storeLatent(all.view(), latent.rows(), norm, 1e-6, cache);
  ops.attend(all.view(), query.rows(), kvB, cache, whole.rows());
  for (int64_t t = 0; t < tokens; ++t) {
    Packed one({{*slot, t, 0, 1}});
    Rows q = {query.rows().row(t), 1, query.view.width, query.stride};
    Rows to = {single.rows().row(t), 1, single.view.width, single.stride};
    ops.attend(one.view(), q, kvB, cache, to);
  }
  ASSERT_TRUE(ops.status().ok()) << ops.status().message();
  EXPECT_LT(difference(single.rows(), whole.rows()), 2e-5);
}

TEST_P(OpsTest, AbsorbedAttentionIsMaterialisedAttention) {
  int64_t tokens = 200;
  TinyModel m(GetParam(), 1, tokens);
  const MlaWeights &w = m.weights.layers[3].mla;
  expectAbsorbedIsMaterialised(*m.ops, *m.session, m.config, w.kvB, w.kvNorm,
                               tokens);
}

/// Of no published model: what the pack has for any.
TEST(Ops, HeadsAndLatentsOfOtherWidths) {
  struct Widths {
    int64_t rank, nope, rope, value;
  };
  auto pack = PackReader::open(KDAC_RUN_PACK);
  ASSERT_TRUE(pack.ok()) << pack.status().message();
  ModelConfig config = TinyModel("48b").config;
  for (Widths w :
       {Widths{64, 136, 72, 200}, {640, 24, 8, 260}, {20, 300, 0, 1024}}) {
    config.latentRank = w.rank;
    config.nopeDim = w.nope;
    config.ropeDim = w.rope;
    config.valueDim = w.value;
    constexpr int64_t tokens = 70;
    auto ops = makeHostOps(config, *pack, {tokens, 1, 2});
    ASSERT_TRUE(ops.ok()) << ops.status().message();
    auto session = Session::create(config, {1, tokens, 0, tokens});
    ASSERT_TRUE(session.ok()) << session.status().message();
    Tensor up(config.heads * (w.nope + w.value), w.rank, 3);
    ASSERT_EQ(w.rank % 4, 0);
    std::vector<float> rows;
    for (int64_t i = 0; i < up.view.rows; ++i)
      rows.insert(rows.end(), up.view.row(i), up.view.row(i) + w.rank);
    Matrix kvB = {rows.data(), nullptr, MatrixType::F32, up.view.rows, w.rank};
    expectAbsorbedIsMaterialised(**ops, *session, config, kvB,
                                 Vector(static_cast<size_t>(w.rank), 0.1f),
                                 tokens);
  }
}

TEST_P(OpsTest, ManyRowsAndFewGiveTheSameProducts) {
  TinyModel m(GetParam());
  const Matrix *matrices[] = {&m.weights.head,
                              &m.weights.layers[1].moe.experts[0].gate,
                              &m.weights.layers[1].moe.experts[1].down};
  for (const Matrix *w : matrices) {
    Tensor x(9, w->in, 3), many(9, w->out), few(9, w->out);
    m.ops->matmul(x.rows(), *w, many.rows());
    for (int64_t i = 0; i < 9; ++i)
      m.ops->matmul({x.rows().row(i), 1, w->in, x.stride}, *w,
                    {few.rows().row(i), 1, w->out, few.stride});
    EXPECT_LT(difference(few.rows(), many.rows()), 1e-6);
  }
}

/// Every element type, few rows and many, against its values in f64.
TEST(Ops, ProductsOfEveryElementType) {
  TinyModel m("48b");
  constexpr int64_t out = 5, in = 96;
  std::mt19937 random(4);
  std::vector<uint8_t> bytes(out * in * 4), scales(out * in / 32);
  for (uint8_t &byte : bytes)
    byte = static_cast<uint8_t>(random());
  for (uint8_t &scale : scales)
    scale = static_cast<uint8_t>(120 + random() % 12);
  std::vector<float> wide(out * in);
  std::normal_distribution<float> normal;
  for (float &x : wide)
    x = normal(random);
  std::vector<uint16_t> half(out * in), brain(out * in);
  std::vector<double> halfValue(out * in), brainValue(out * in);
  for (size_t i = 0; i < half.size(); ++i) {
    // 5 bits of exponent and 10 of mantissa; subnormals included.
    uint32_t e = random() % 20, f = random() & 1023;
    half[i] = static_cast<uint16_t>((i % 2) << 15 | e << 10 | f);
    halfValue[i] = (i % 2 ? -1 : 1) * (e ? std::ldexp(1024.0 + f, int(e) - 25)
                                         : std::ldexp(double(f), -24));
    e = 120 + random() % 10, f = random() & 127;
    brain[i] = static_cast<uint16_t>((i % 2) << 15 | e << 7 | f);
    brainValue[i] = (i % 2 ? -1 : 1) * std::ldexp(128.0 + f, int(e) - 134);
  }
  const double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  auto packed = [&](int64_t o, int64_t i) {
    uint8_t pair = bytes[static_cast<size_t>(o * in / 2 + i / 2)];
    int nibble = i % 2 ? pair >> 4 : pair & 15;
    int scale = scales[static_cast<size_t>(o * in / 32 + i / 32)];
    return std::ldexp(e2m1[nibble & 7] * (nibble & 8 ? -1 : 1), scale - 127);
  };
  auto at = [](const auto &values) {
    return [&](int64_t o, int64_t i) {
      return double(values[static_cast<size_t>(o * in + i)]);
    };
  };
  using Value = std::function<double(int64_t, int64_t)>;
  const std::pair<Matrix, Value> cases[] = {
      {{wide.data(), nullptr, MatrixType::F32, out, in}, at(wide)},
      {{half.data(), nullptr, MatrixType::F16, out, in}, at(halfValue)},
      {{brain.data(), nullptr, MatrixType::BF16, out, in}, at(brainValue)},
      {{bytes.data(), scales.data(), MatrixType::Mxfp4, out, in}, packed}};
  for (const auto &[matrix, value] : cases)
    for (int64_t rows : {1, 4, 5, 33}) {
      Tensor x(rows, in, 9), y(rows, out), want(rows, out);
      m.ops->matmul(x.rows(), matrix, y.rows());
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t o = 0; o < out; ++o) {
          double sum = 0;
          for (int64_t i = 0; i < in; ++i)
            sum += value(o, i) * x.view.row(r)[i];
          want.view.row(r)[o] = static_cast<float>(sum);
        }
      EXPECT_LT(difference(y.rows(), want.rows()), 1e-6)
          << static_cast<int>(matrix.type) << ", " << rows << " rows";
    }
}

/// Scales at the ends of E8M0: 2^-127 is a subnormal number, 255 is no number
/// and must not pass for one.
TEST(Ops, ScalesAtTheirEnds) {
  TinyModel m("48b");
  constexpr int64_t out = 3, in = 32;
  std::vector<uint8_t> bytes(out * in / 2, 0x22); // 1 and 1
  const uint8_t scales[out] = {0, 127, 255};
  Matrix matrix = {bytes.data(), scales, MatrixType::Mxfp4, out, in};
  for (int64_t rows : {1, 8}) {
    Tensor x(rows, in), y(rows, out);
    for (int64_t i = 0; i < rows; ++i)
      std::fill_n(x.view.row(i), in, 1.0f);
    m.ops->matmul(x.rows(), matrix, y.rows());
    for (int64_t i = 0; i < rows; ++i) {
      EXPECT_EQ(y.view.row(i)[0], 0x1p-122f);
      EXPECT_EQ(y.view.row(i)[1], 32.0f);
      EXPECT_TRUE(std::isnan(y.view.row(i)[2]));
    }
  }
}

/// The bias decides who is chosen; what they weigh is without it.
TEST(Ops, RoutingWeightsAreUnbiased) {
  TinyModel m("k3");
  Tensor logits(1, 12);
  for (int64_t e = 0; e < 12; ++e)
    logits.view.row(0)[e] = -0.1f * static_cast<float>(e);
  Vector bias(12, 0.0f);
  bias[11] = 5;
  std::vector<int32_t> expert(4);
  std::vector<float> weight(4);
  m.ops->route(logits.rows(), bias, {expert.data(), weight.data(), 4});
  EXPECT_EQ(expert, std::vector<int32_t>({11, 0, 1, 2}));
  auto score = [](double x) { return 1 / (1 + std::exp(-x)); };
  double sum = score(-1.1) + score(0) + score(-0.1) + score(-0.2);
  EXPECT_NEAR(weight[0], 1.5 * score(-1.1) / sum, 1e-6);
  EXPECT_NEAR(weight[1], 1.5 * score(0) / sum, 1e-6);
}

/// NaN in a router's logits must not send rows to experts that do not exist.
TEST(Ops, RoutingSurvivesNaN) {
  TinyModel m("48b");
  Tensor logits(1, 8);
  std::fill_n(logits.view.row(0), 8, NAN);
  std::vector<int32_t> expert(3, -1);
  std::vector<float> weight(3);
  m.ops->route(logits.rows(), Vector(8, 0.0f),
               {expert.data(), weight.data(), 3});
  for (int32_t e : expert)
    EXPECT_TRUE(e >= 0 && e < 8);
}

TEST(Ops, CallsBeyondTheLimitsAreRefused) {
  TinyModel m("48b", 1, 4);
  Tensor x(5, m.config.hidden, 1), y(5, m.config.hidden);
  std::vector<int32_t> expert(15, 0);
  std::vector<float> weight(15, 1);
  m.ops->experts(x.rows(), {expert.data(), weight.data(), 3},
                 m.weights.layers[1].moe, y.rows());
  EXPECT_EQ(m.ops->status().message(),
            "a call of 5 rows and 0 pieces is larger than these operations "
            "were made for, 4 and 1");
}

/// Before anything is allocated or run, not by the first call.
TEST(Ops, RowsThatKernelsCannotTakeAreRefused) {
  auto pack = PackReader::open(KDAC_RUN_PACK);
  ASSERT_TRUE(pack.ok()) << pack.status().message();
  ModelConfig config = TinyModel("48b").config;
  auto refusal = [&](int64_t ModelConfig::*width, int64_t value) {
    ModelConfig changed = config;
    changed.name = "odd";
    changed.*width = value;
    return makeHostOps(changed, *pack, {4, 1, 1}).status().message();
  };
  EXPECT_EQ(refusal(&ModelConfig::latentRank, 30),
            "odd: on the host kv_lora_rank = 30 should be a multiple of 4");
  EXPECT_EQ(refusal(&ModelConfig::ropeDim, 6),
            "odd: on the host qk_rope_head_dim = 6 should be a multiple of 4");
  EXPECT_EQ(refusal(&ModelConfig::latentRank, 2048),
            "odd: kv_lora_rank = 2048 and qk_rope_head_dim = 8: value-dim = "
            "2048 and key-dim = 2112 are not supported in form attention; use "
            "a value-dim of 64 to 1024 and a key-dim that is 64 to 256 more, "
            "both multiples of 64");
}

TEST(Ops, AFailureIsKeptAndStopsTheRest) {
  TinyModel m("48b");
  const KdaWeights &w = m.weights.layers[1].kda;
  int64_t width = m.config.kdaWidth();
  Tensor x(1, width, 1), beta(1, m.config.kdaHeads, 2), out(1, width);
  Packed one({{0, 0, 0, 1}});
  Rows misaligned = {x.view.row(0) + 1, 1, width, x.stride};
  m.ops->kdaLayer(one.view(), w, misaligned, x.rows(), x.rows(), x.rows(),
                  beta.rows(), x.rows(), m.session->kda(1), out.rows());
  ASSERT_FALSE(m.ops->status().ok());
  EXPECT_NE(m.ops->status().message().find("argument q = 0x"),
            std::string::npos);
  m.ops->copy(x.rows(), out.rows());
  EXPECT_EQ(out.view.row(0)[0], 0.0f);
  m.ops->clear();
  m.ops->copy(x.rows(), out.rows());
  EXPECT_EQ(out.view.row(0)[0], x.view.row(0)[0]);
}

INSTANTIATE_TEST_SUITE_P(Models, OpsTest, testing::Values("48b", "k3"),
                         [](const auto &info) { return info.param; });
