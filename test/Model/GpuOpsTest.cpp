// Operations on a GPU, in bf16 unless a test says f32, against those of the
// host in f32, on inputs that bf16 holds exactly. The wide model has the widths
// that fast kernels are for.
#include "TinyModel.h"

#include <cstring>
#include <random>

using namespace kdac;
using namespace kdac::model;

namespace {

/// Each result is rounded to bf16 once, 2^-9 of it at most; intermediates that
/// are bf16 too (softmax weights, hidden rows of experts, cached latents) add a
/// few such errors. A missing row, column or key is far above.
constexpr double bound = 1e-2;
/// The same of f32, whose rounding is 2^-24 of it: a few of them, and sums of
/// as many terms as a latent row has.
constexpr double exactBound = 1e-5;

uint16_t toBF16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float fromBF16(uint16_t x) {
  uint32_t bits = uint32_t(x) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// The same model in both places.
struct Pair {
  explicit Pair(const std::string &kind, const std::string &type = "bf16")
      : host(kind), gpu(kind + "@" + type), config(host.config) {}
  TinyModel host, gpu;
  const ModelConfig &config;
};

/// The same rows in both places; what an operation writes begins as NaN.
class Both {
public:
  Both(Pair &pair, int64_t count, int64_t width, uint32_t seed = 0)
      : memory(pair.gpu.session->memory()), type(pair.gpu.element) {
    int64_t stride = (width + 15) / 16 * 16;
    auto size = static_cast<size_t>(count * stride);
    values.resize(size + 16);
    void *base = values.data();
    size_t space = values.size() * 4;
    host = {std::align(64, 4, base, space), count, width, stride, Element::F32};
    int64_t bytes = count * stride * bytesOf(type);
    gpu = {*memory.allocate(bytes, "test rows"), count, width, stride, type};
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<uint16_t> half(size);
    for (size_t i = 0; i < size; ++i) {
      half[i] = seed ? toBF16(normal(random)) : uint16_t(0x7fc0);
      host.row(0)[i] = fromBF16(half[i]);
    }
    const void *from = half.data();
    if (type == Element::F32)
      from = host.data;
    EXPECT_TRUE(memory.write(gpu.data, from, bytes).ok());
  }
  /// The relative Frobenius distance of what the two have.
  double difference() const {
    std::vector<float> there = download();
    double error = 0, norm = 0;
    for (int64_t i = 0; i < host.rows; ++i)
      for (int64_t c = 0; c < host.width; ++c) {
        double want = host.row(i)[c];
        double got = there[static_cast<size_t>(i * gpu.stride + c)];
        error += (got - want) * (got - want);
        norm += want * want;
      }
    return std::isfinite(error) ? std::sqrt(error / norm) : INFINITY;
  }
  Rows host, gpu;

private:
  std::vector<float> download() const {
    auto size = static_cast<size_t>(gpu.rows * gpu.stride);
    std::vector<float> there(size);
    std::vector<uint16_t> half(size);
    void *to = half.data();
    if (type == Element::F32)
      to = there.data();
    int64_t bytes = gpu.rows * gpu.stride * bytesOf(type);
    EXPECT_TRUE(memory.read(to, gpu.data, bytes).ok());
    if (type == Element::BF16)
      std::transform(half.begin(), half.end(), there.begin(), fromBF16);
    return there;
  }
  Memory &memory;
  Element type; ///< on the GPU
  std::vector<float> values;
};

/// A batch of pieces that follow one another, for both.
struct Packed {
  Packed(Pair &pair, std::vector<Piece> given) : pieces(std::move(given)) {
    int64_t longest = 0, keys = 0;
    bool isDecode = true;
    for (Piece &piece : pieces) {
      piece.begin = offsets.back();
      slots.push_back(piece.slot);
      sources.push_back(piece.past > 0 ? piece.slot : -1);
      offsets.push_back(static_cast<int32_t>(piece.begin + piece.count));
      longest = std::max(longest, piece.count);
      keys = std::max(keys, piece.past + piece.count);
      isDecode &= piece.count == 1;
    }
    tokens.resize(static_cast<size_t>(offsets.back()));
    host = {pieces.data(),
            static_cast<int64_t>(pieces.size()),
            offsets.back(),
            slots.data(),
            sources.data(),
            offsets.data(),
            isDecode,
            longest,
            keys};
    CallData call = {host, tokens.data(), nullptr, 0, nullptr};
    EXPECT_TRUE(pair.gpu.ops->begin(call));
    gpu = call.batch;
    EXPECT_TRUE(pair.host.session->publish().ok());
    EXPECT_TRUE(pair.gpu.session->publish().ok());
  }
  std::vector<Piece> pieces;
  std::vector<int32_t> slots, sources, offsets = {0}, tokens;
  BatchView host, gpu;
};

void expectOk(const Pair &pair) {
  EXPECT_TRUE(pair.host.ops->status().ok())
      << pair.host.ops->status().message();
  EXPECT_TRUE(pair.gpu.ops->status().ok()) << pair.gpu.ops->status().message();
}

} // namespace

TEST(GpuOps, ProductsOfFewRowsAndMany) {
  Pair p("wide");
  for (int64_t rows : {1, 2, 3, 7, 8, 9, 100, 128})
    for (auto pick : {+[](Weights &w) { return &w.layers[1].mla.q; },
                      +[](Weights &w) { return &w.layers[0].kda.beta; },
                      +[](Weights &w) { return &w.layers[1].mla.kvB; }}) {
      const Matrix &a = *pick(p.host.weights), &b = *pick(p.gpu.weights);
      Both x(p, rows, a.in, 3), y(p, rows, a.out);
      p.host.ops->matmul(x.host, a, y.host);
      p.gpu.ops->matmul(x.gpu, b, y.gpu);
      EXPECT_LT(y.difference(), bound) << rows << " rows of " << a.out;
    }
  expectOk(p);
}

/// One row of more columns than a warp usually has under way, with few outputs
/// and with many.
TEST(GpuOps, ProductsOfLongRows) {
  Pair p("wide");
  Memory &memory = p.gpu.session->memory();
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  for (auto [out, in] :
       {std::pair<int64_t, int64_t>(100, 4096), {37, 4104}, {3000, 2312}}) {
    std::vector<uint16_t> values(static_cast<size_t>(out * in));
    for (uint16_t &x : values)
      x = toBF16(normal(random));
    Matrix host = {values.data(), nullptr, MatrixType::BF16, out, in};
    Matrix gpu = host;
    gpu.data = *memory.allocate(out * in * 2, "a matrix");
    ASSERT_TRUE(
        memory.write(const_cast<void *>(gpu.data), values.data(), out * in * 2)
            .ok());
    for (int64_t rows : {1, 2}) {
      Both x(p, rows, in, 3), y(p, rows, out);
      p.host.ops->matmul(x.host, host, y.host);
      p.gpu.ops->matmul(x.gpu, gpu, y.gpu);
      EXPECT_LT(y.difference(), bound) << rows << " rows, " << in;
    }
  }
  expectOk(p);
}

TEST(GpuOps, SeveralProductsAtOnce) {
  Pair p("wide");
  for (int64_t rows : {1, 5, 20}) {
    const KdaWeights &a = p.host.weights.layers[0].kda;
    const KdaWeights &b = p.gpu.weights.layers[0].kda;
    Both x(p, rows, p.config.hidden, 4), q(p, rows, a.q.out),
        beta(p, rows, a.beta.out), low(p, rows, a.fA.out);
    p.host.ops->products({{x.host, &a.q, q.host},
                          {x.host, &a.beta, beta.host},
                          {x.host, &a.fA, low.host}});
    p.gpu.ops->products({{x.gpu, &b.q, q.gpu},
                         {x.gpu, &b.beta, beta.gpu},
                         {x.gpu, &b.fA, low.gpu}});
    for (const Both *y : {&q, &beta, &low})
      EXPECT_LT(y->difference(), bound);
  }
  expectOk(p);
}

TEST(GpuOps, NormsAndElementwiseOperations) {
  for (const char *kind : {"48b", "k3"}) { // SiLU and SiTU
    Pair p(kind);
    int64_t rows = 5, hidden = p.config.hidden;
    Both x(p, rows, hidden, 1), branch(p, rows, hidden, 2), y(p, rows, hidden);
    p.host.ops->addNorm(branch.host, x.host, p.host.weights.norm, 1e-5, y.host);
    p.gpu.ops->addNorm(branch.gpu, x.gpu, p.gpu.weights.norm, 1e-5, y.gpu);
    EXPECT_LT(x.difference(), bound);
    EXPECT_LT(y.difference(), bound);
    Both up(p, rows, hidden, 3), gate(p, rows, hidden, 4);
    p.host.ops->activate(gate.host, up.host, y.host);
    p.gpu.ops->activate(gate.gpu, up.gpu, y.gpu);
    EXPECT_LT(y.difference(), bound);
    p.host.ops->sigmoidGate(gate.host, up.host);
    p.gpu.ops->sigmoidGate(gate.gpu, up.gpu);
    EXPECT_LT(up.difference(), bound);
    expectOk(p);
  }
}

TEST(GpuOps, AttentionResiduals) {
  Pair p("k3");
  int64_t rows = 3, hidden = p.config.hidden;
  Both all(p, 4 * rows, hidden, 1); // the last tensor is none of these
  int64_t pitch = rows * all.host.stride;
  auto mixed = [&](Ops &ops, const Weights &weights, Rows tensors) {
    Rows stream = tensors.first(rows);
    ops.mix(stream, pitch, 2, weights.outputMix, 1e-5, stream);
  };
  mixed(*p.host.ops, p.host.weights, all.host);
  mixed(*p.gpu.ops, p.gpu.weights, all.gpu);
  EXPECT_LT(all.difference(), bound);
  expectOk(p);
}

/// Prompts, their continuations in several pieces, single tokens.
TEST(GpuOps, LayersOfKda) {
  for (const char *kind : {"wide", "48b", "k3"}) {
    Pair p(kind);
    const KdaWeights &a = p.host.weights.layers[0].kda;
    const KdaWeights &b = p.gpu.weights.layers[0].kda;
    KdaCache hostCache = p.host.session->kda(0);
    KdaCache gpuCache = p.gpu.session->kda(0);
    int64_t width = p.config.kdaWidth();
    const std::vector<std::vector<Piece>> calls = {
        {{0, 0, 0, 40}, {1, 0, 0, 2}, {3, 0, 0, 1}},
        {{0, 40, 0, 33}, {1, 2, 0, 1}, {3, 1, 0, 50}},
        {{1, 3, 0, 1}, {0, 73, 0, 1}, {5, 0, 0, 1}}};
    for (const auto &pieces : calls) {
      Packed batch(p, pieces);
      int64_t n = batch.host.tokens;
      auto seed = static_cast<uint32_t>(n);
      Both q(p, n, width, seed), k(p, n, width, seed + 1),
          v(p, n, width, seed + 2), decay(p, n, width, seed + 3),
          beta(p, n, p.config.kdaHeads, seed + 4), z(p, n, width, seed + 5);
      Both out(p, n, width);
      auto run = [&](Ops &ops, const BatchView &view, const KdaWeights &w,
                     const KdaCache &cache, Rows Both::*at) {
        ops.kdaLayer(view, w, q.*at, k.*at, v.*at, decay.*at, beta.*at, z.*at,
                     cache, out.*at);
      };
      run(*p.host.ops, batch.host, a, hostCache, &Both::host);
      run(*p.gpu.ops, batch.gpu, b, gpuCache, &Both::gpu);
      EXPECT_LT(out.difference(), 2 * bound) << kind << ", " << n << " rows";
    }
    expectOk(p);
  }
}

/// Fresh and continued pieces with more keys than are expanded at a time,
/// several whose keys are expanded together, beside single tokens, and single
/// tokens alone.
TEST(GpuOps, LayersOfMla) {
  for (auto [kind, type, most] : {std::tuple("wide", "bf16", bound),
                                  {"48b", "bf16", bound},
                                  {"wide", "f32", exactBound},
                                  {"48b", "f32", exactBound}}) {
    Pair p(kind, type);
    int64_t layer = kind[0] == 'w' ? 1 : 3;
    const MlaWeights &a = p.host.weights.layers[static_cast<size_t>(layer)].mla;
    const MlaWeights &b = p.gpu.weights.layers[static_cast<size_t>(layer)].mla;
    for (int slot = 0; slot < 3; ++slot)
      for (TinyModel *m : {&p.host, &p.gpu})
        ASSERT_TRUE(m->session->reserve(m->open(), 256).ok());
    const std::vector<std::vector<Piece>> calls = {
        {{0, 0, 0, 100}, {1, 0, 0, 1}},
        {{1, 1, 0, 1}, {0, 100, 0, 90}, {2, 0, 0, 30}},
        {{2, 30, 0, 1}, {0, 190, 0, 1}, {1, 2, 0, 1}},
        {{0, 191, 0, 65}, {2, 31, 0, 3}},
        {{1, 3, 0, 20}, {2, 34, 0, 7}}};
    for (const auto &pieces : calls) {
      Packed batch(p, pieces);
      int64_t n = batch.host.tokens;
      auto seed = static_cast<uint32_t>(n);
      Both q(p, n, p.config.heads * p.config.queryDim(), seed);
      Both c(p, n, p.config.cacheDim(), seed + 1);
      Both out(p, n, p.config.heads * p.config.valueDim);
      MlaCache hostCache = p.host.session->mla(layer);
      MlaCache gpuCache = p.gpu.session->mla(layer);
      p.host.ops->storeLatent(batch.host, c.host, a.kvNorm, 1e-6, hostCache);
      p.host.ops->attend(batch.host, q.host, a.kvB, hostCache, out.host);
      p.gpu.ops->storeLatent(batch.gpu, c.gpu, b.kvNorm, 1e-6, gpuCache);
      p.gpu.ops->attend(batch.gpu, q.gpu, b.kvB, gpuCache, out.gpu);
      EXPECT_LT(out.difference(), most)
          << kind << ", " << type << ", " << n << " rows";
    }
    expectOk(p);
  }
}

/// Routing to the letter, and experts straight from the weights, sorted, and
/// with the shared one.
TEST(GpuOps, Experts) {
  for (const char *kind : {"wide", "k3"}) {
    Pair p(kind);
    const MoeWeights &a = p.host.weights.layers[1].moe;
    const MoeWeights &b = p.gpu.weights.layers[1].moe;
    Memory &memory = p.gpu.session->memory();
    for (int64_t rows : {1, 16, 17, 128}) {
      int64_t topK = p.config.topK, entries = rows * topK;
      std::mt19937 random(5);
      std::normal_distribution<float> normal;
      std::vector<float> logits(static_cast<size_t>(rows * 16));
      for (float &x : logits)
        x = normal(random);
      Rows host = {logits.data(), rows, p.config.experts, 16, Element::F32};
      Rows gpu = host;
      gpu.data = *memory.allocate(rows * 16 * 4, "logits");
      ASSERT_TRUE(memory.write(gpu.data, logits.data(), rows * 16 * 4).ok());
      std::vector<int32_t> chosen(static_cast<size_t>(entries)), got = chosen;
      std::vector<float> weight(static_cast<size_t>(entries)), heavy = weight;
      Routing to = {chosen.data(), weight.data(), topK};
      Routing there = {
          static_cast<int32_t *>(*memory.allocate(entries * 4, "experts")),
          static_cast<float *>(*memory.allocate(entries * 4, "weights")), topK};
      p.host.ops->route(host, a.bias, to);
      p.gpu.ops->route(gpu, b.bias, there);
      ASSERT_TRUE(memory.read(got.data(), there.expert, entries * 4).ok());
      ASSERT_TRUE(memory.read(heavy.data(), there.weight, entries * 4).ok());
      EXPECT_EQ(got, chosen);
      EXPECT_LT(distance(heavy, weight), 1e-6);

      Both x(p, rows, p.config.expertInput, 6),
          y(p, rows, p.config.expertInput);
      p.host.ops->experts(x.host, to, a, y.host);
      p.gpu.ops->experts(x.gpu, there, b, y.gpu);
      EXPECT_LT(y.difference(), bound) << kind << ", " << rows << " rows";
      Both all(p, rows, p.config.expertInput);
      if (!p.gpu.ops->allExperts(x.gpu, there, b, all.gpu))
        continue;
      Both gate(p, rows, a.shared.gate.out), up(p, rows, a.shared.up.out);
      p.host.ops->products({{x.host, &a.shared.gate, gate.host},
                            {x.host, &a.shared.up, up.host}});
      p.host.ops->activate(gate.host, up.host, gate.host);
      p.host.ops->matmul(gate.host, a.shared.down, all.host);
      p.host.ops->add(y.host, all.host);
      EXPECT_LT(all.difference(), bound);
    }
    expectOk(p);
  }
}
