// Weights in a GPU's memory.
#include "../Lanes.h"
#include "Gpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kdac::model {

namespace {

/// Hands out one region, or only counts where it has none.
class Region {
public:
  explicit Region(char *base) : base(base) {}
  void *take(int64_t bytes) {
    int64_t at = used;
    used += (bytes + 255) / 256 * 256;
    return base ? base + at : nullptr;
  }
  int64_t bytes() const { return used; }

private:
  char *base;
  int64_t used = 0;
};

uint16_t toBF16(float x) {
  uint32_t b;
  std::memcpy(&b, &x, sizeof b);
  if (x != x)
    return static_cast<uint16_t>(b >> 16 | 64);
  return static_cast<uint16_t>((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

/// Elements of `type` from f32.
void narrow(const float *from, int64_t count, Element type, char *to) {
  if (type == Element::F32) {
    std::memcpy(to, from, static_cast<size_t>(count) * 4);
    return;
  }
  auto *half = reinterpret_cast<uint16_t *>(to);
  for (int64_t i = 0; i < count; ++i)
    half[i] = toBF16(from[i]);
}

/// Places every weight of a model, and fills it where there is a GPU.
class Placer {
public:
  Placer(Element type, Region &region) : type(type), region(region) {}
  Placer(Element type, Region &region, Gpu &gpu, bool isRandom)
      : type(type), region(region), gpu(&gpu), isRandom(isRandom) {}

  void model(Weights &w);
  const Status &status() const { return first; }

private:
  int64_t bytes(const Matrix &m) const { return m.out * m.in * bytesOf(type); }
  void layer(LayerWeights &w);
  void kda(KdaWeights &w);
  void moe(MoeWeights &w);
  void matrix(Matrix &m) {
    if (m)
      place(m, region.take(bytes(m)));
  }
  void matrices(std::initializer_list<Matrix *> all) {
    for (Matrix *m : all)
      matrix(*m);
  }
  void vector(Vector &v) { vectorOf(v, Element::F32); }
  void vectorOf(Vector &v, Element element);
  void place(Matrix &m, void *to);
  void randomise(const Matrix &m, void *to);
  void convert(const Matrix &m, void *to);
  /// Copies and waits: `from` may change afterwards.
  void copy(void *to, const void *from, int64_t count) {
    if (first.ok())
      first = gpu->upload(to, from, count);
    if (first.ok())
      first = gpu->synchronize();
  }

  Element type;
  Region &region;
  Gpu *gpu = nullptr; ///< null: count only
  bool isRandom = false;
  uint32_t seed = 1;
  Status first;
};

void Placer::vectorOf(Vector &v, Element element) {
  auto count = static_cast<int64_t>(v.size());
  if (count == 0)
    return;
  void *to = region.take(count * bytesOf(element));
  if (!gpu)
    return;
  std::vector<char> values(static_cast<size_t>(count * bytesOf(element)));
  narrow(v.data(), count, element, values.data());
  copy(to, values.data(), count * bytesOf(element));
  v.device = to;
}

void Placer::place(Matrix &m, void *to) {
  if (!gpu)
    return;
  if (isRandom)
    randomise(m, to);
  else if (m.type == MatrixType::BF16 && type == Element::BF16)
    copy(to, m.data, bytes(m));
  else
    convert(m, to);
  m.data = to;
  m.scales = nullptr;
  m.type = type == Element::F32 ? MatrixType::F32 : MatrixType::BF16;
}

void Placer::randomise(const Matrix &m, void *to) {
  int exponent = 127 - std::ilogb(std::sqrt(static_cast<double>(m.in))) - 1;
  if (first.ok())
    first =
        gpu->launch("random_bf16", {{264, 1, 1}}, to,
                    static_cast<long long>(m.out * m.in / 2), exponent, seed++);
}

/// Blocks of rows through f32.
void Placer::convert(const Matrix &m, void *to) {
  int64_t block = std::clamp<int64_t>((int64_t(1) << 22) / m.in, 1, m.out);
  std::vector<float> wide(static_cast<size_t>(block * m.in));
  std::vector<char> narrowed(wide.size() * 4);
  for (int64_t row = 0; row < m.out && first.ok(); row += block) {
    int64_t count = std::min(block, m.out - row);
    widenRows(m, row, count, wide.data());
    narrow(wide.data(), count * m.in, type, narrowed.data());
    copy(static_cast<char *>(to) + row * m.in * bytesOf(type), narrowed.data(),
         count * m.in * bytesOf(type));
  }
}

void Placer::kda(KdaWeights &w) {
  matrices({&w.q, &w.k, &w.v, &w.fA, &w.fB, &w.beta, &w.gA, &w.gB, &w.g, &w.o});
  for (Vector *v : {&w.qConv, &w.kConv, &w.vConv})
    vectorOf(*v, type);
  for (Vector *v : {&w.aLog, &w.dtBias, &w.oNorm})
    vector(*v);
}

/// One kind of matrix after the other, experts side by side.
void Placer::moe(MoeWeights &w) {
  matrices({&w.router, &w.shared.gate, &w.shared.up, &w.shared.down,
            &w.toLatent, &w.fromLatent});
  vector(w.bias);
  vector(w.latentNorm);
  for (Matrix MlpWeights::*kind :
       {&MlpWeights::gate, &MlpWeights::up, &MlpWeights::down}) {
    if (w.experts.empty())
      continue;
    int64_t each = bytes(w.experts[0].*kind);
    void *base = region.take(each * static_cast<int64_t>(w.experts.size()));
    for (size_t e = 0; e < w.experts.size(); ++e)
      place(w.experts[e].*kind,
            gpu ? static_cast<char *>(base) + static_cast<int64_t>(e) * each
                : nullptr);
  }
}

void Placer::layer(LayerWeights &w) {
  for (Vector *v : {&w.inputNorm, &w.postNorm, &w.attentionMix, &w.mlpMix})
    vector(*v);
  kda(w.kda);
  matrices({&w.mla.q, &w.mla.qA, &w.mla.qB, &w.mla.kvA, &w.mla.kvB, &w.mla.g,
            &w.mla.o, &w.mlp.gate, &w.mlp.up, &w.mlp.down});
  vector(w.mla.qNorm);
  vector(w.mla.kvNorm);
  moe(w.moe);
}

void Placer::model(Weights &w) {
  bool isTied = w.head.data == w.embedding.data;
  matrix(w.embedding);
  if (isTied)
    w.head = w.embedding;
  else
    matrix(w.head);
  vector(w.norm);
  vector(w.outputMix);
  for (LayerWeights &one : w.layers)
    layer(one);
}

} // namespace

int64_t gpuWeightBytes(const Weights &weights, Element type) {
  Region region(nullptr);
  Weights copy = weights;
  Placer(type, region).model(copy);
  return region.bytes();
}

StatusOr<Weights> gpuWeights(std::shared_ptr<Gpu> gpu, const Weights &weights,
                             Element type, bool isRandom) {
  if (isRandom && type != Element::BF16)
    return Status(ErrorCode::Unsupported,
                  "random weights on a GPU are bf16; use --dtype=bf16");
  std::shared_ptr<Memory> memory = gpuMemory(gpu);
  StatusOr<void *> base =
      memory->allocate(gpuWeightBytes(weights, type), "weights");
  if (!base.ok())
    return base.status();
  Region region(static_cast<char *>(*base));
  Weights placed = weights;
  Placer placer(type, region, *gpu, isRandom);
  placer.model(placed);
  if (!placer.status().ok())
    return placer.status().with("weights");
  placed.memory = memory;
  if (Status s = gpu->synchronize(); !s.ok())
    return s.with("weights");
  return placed;
}

} // namespace kdac::model
