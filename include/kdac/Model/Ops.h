// Promises: the operations of a hybrid model's forward pass, each one call, as
// an engine can use them alone. Does not: own tensors, allocate during a call,
// or know the order of layers (Forward.h).
#ifndef KDAC_MODEL_OPS_H
#define KDAC_MODEL_OPS_H

#include "kdac/Model/Memory.h"
#include "kdac/Model/Weights.h"

#include <initializer_list>

namespace kdac::model {

/// A matrix of activations [rows, width] where the operations compute. Rows are
/// `stride` elements apart and begin at multiples of 16 elements.
struct Rows {
  void *data = nullptr;
  int64_t rows = 0, width = 0, stride = 0;
  Element type = Element::F32;

  /// Of f32 rows in this process's memory.
  float *row(int64_t i) const {
    return static_cast<float *>(data) + i * stride;
  }
  /// The first `count` rows.
  Rows first(int64_t count) const { return {data, count, width, stride, type}; }
  /// Row `begin` and those behind it.
  Rows from(int64_t begin) const {
    char *at = static_cast<char *>(data) + begin * stride * bytesOf(type);
    return {at, rows - begin, width, stride, type};
  }
  /// The first `count` columns.
  Rows columns(int64_t count) const {
    return {data, rows, count, stride, type};
  }
};

/// A piece of one sequence in a batch.
struct Piece {
  int32_t slot = 0;  ///< where the sequence's caches are
  int64_t past = 0;  ///< tokens in the caches; 0: a fresh sequence
  int64_t begin = 0; ///< its first row in the batch
  int64_t count = 0; ///< its rows
};

/// The pieces of a call as kernels want them. Arrays outlive the call.
struct BatchView {
  const Piece *pieces = nullptr;
  int64_t count = 0;                ///< pieces
  int64_t tokens = 0;               ///< rows of all pieces
  const int32_t *slots = nullptr;   ///< [count]
  const int32_t *sources = nullptr; ///< [count]: the slot, or -1 if fresh
  const int32_t *offsets = nullptr; ///< [count + 1]
  /// Every piece is one token: the step form runs.
  bool isDecode = false;
  int64_t longest = 0; ///< rows of the longest piece
  int64_t keys = 0;    ///< of the piece with the most, its own rows included
};

/// What a forward call brings with it, apart from activations and caches.
struct CallData {
  BatchView batch;
  const int32_t *tokens = nullptr;  ///< [batch.tokens]
  const int32_t *outputs = nullptr; ///< [outputCount]: rows with logits
  int64_t outputCount = 0;
  const void *session = nullptr; ///< which activations and caches it uses
};

/// A KDA layer's caches: slots of states and of the last raw inputs of q, k, v.
struct KdaCache {
  float *state = nullptr; ///< [slots, heads, V, K]
  void *q = nullptr, *k = nullptr,
       *v = nullptr; ///< [slots, P, W], oldest first, of the activations' type
  int64_t slots = 0;
};

/// An MLA layer's cache: pages of latent rows, and which pages a slot has.
struct MlaCache {
  void *pages =
      nullptr; ///< [pages, pageTokens, cacheDim], the activations' type
  const int32_t *table = nullptr; ///< [slots, pagesPerSlot]
  int64_t pageTokens = 0, pagesPerSlot = 0, cacheDim = 0;
  int64_t slots = 0, pageCount = 0; ///< what there is of table rows, of pages

  /// Row of token `t` of `slot` in f32 pages of this process's memory; 64-bit
  /// throughout.
  float *row(int32_t slot, int64_t t) const {
    int64_t page = table[slot * pagesPerSlot + t / pageTokens];
    return static_cast<float *>(pages) +
           (page * pageTokens + t % pageTokens) * cacheDim;
  }
};

/// What the router chose for each row: experts and their weights.
struct Routing {
  int32_t *expert = nullptr; ///< [rows, topK]
  float *weight = nullptr;   ///< [rows, topK]
  int64_t topK = 0;
};

/// y = x Wᵀ, one of several that are independent of each other.
struct Product {
  Rows x;
  const Matrix *w = nullptr;
  Rows y;
};

/// The operations. A failure is kept, later calls do nothing, and status() says
/// it: a forward pass is a list of calls with one check at its end. Inputs and
/// outputs do not overlap unless said.
class Ops {
public:
  virtual ~Ops() = default;

  /// The first failure since the last clear().
  virtual Status status() const = 0;
  virtual void clear() = 0;

  /// Moves the arrays of `call` to where the operations read them. False: an
  /// earlier call of the same shape was recorded and has been started again on
  /// this one's data, so that no operation is to be called.
  virtual bool begin(CallData &call) { return static_cast<void>(call), true; }
  /// Behind the last operation of a call.
  virtual void end() {}

  /// y[i] = table[tokens[i]]; tokens are below table.out.
  virtual void embed(const int32_t *tokens, const Matrix &table, Rows y) = 0;
  /// y = x Wᵀ.
  virtual void matmul(Rows x, const Matrix &w, Rows y) = 0;
  /// All of them; a machine may run them as one.
  virtual void products(std::initializer_list<Product> list) {
    for (const Product &p : list)
      matmul(p.x, *p.w, p.y);
  }
  /// y = x rsqrt(mean(x²) + eps) w; y may be x.
  virtual void rmsNorm(Rows x, const Vector &w, double eps, Rows y) = 0;
  /// x += y.
  virtual void add(Rows y, Rows x) = 0;
  /// x += y, then normed = rmsNorm(x).
  virtual void addNorm(Rows y, Rows x, const Vector &w, double eps,
                       Rows normed) {
    add(y, x);
    rmsNorm(x, w, eps, normed);
  }
  /// y = x.
  virtual void copy(Rows x, Rows y) = 0;
  /// x *= sigmoid(gate).
  virtual void sigmoidGate(Rows gate, Rows x) = 0;
  /// y = activation(gate) up, by the config; y may be gate.
  virtual void activate(Rows gate, Rows up, Rows y) = 0;
  /// y = x[index[i]] for y.rows rows.
  virtual void gather(Rows x, const int32_t *index, Rows y) = 0;
  /// best[i] = the column of the largest of x's row i, the first of equals; NaN
  /// is below everything.
  virtual void argmax(Rows x, int32_t *best) = 0;

  /// A KDA layer between its projections, of raw q, k, v and z [tokens, P]:
  /// convolutions with SiLU, whose caches give the inputs before a piece and
  /// keep its last ones; normalisation of q and k, gate map, recurrence with
  /// states in their slots; per head out = o rsqrt(mean(o²) + eps) oNorm
  /// sigmoid(z).
  virtual void kdaLayer(const BatchView &batch, const KdaWeights &w, Rows q,
                        Rows k, Rows v, Rows decay, Rows beta, Rows z,
                        const KdaCache &cache, Rows out) = 0;

  /// Appends rows [latent | shared key] to the pages of their pieces, the
  /// latent part normalised.
  virtual void storeLatent(const BatchView &batch, Rows c, const Vector &norm,
                           double eps, const MlaCache &cache) = 0;
  /// Causal attention of q [tokens, H (nope + rope)] over the cached rows,
  /// which include the pieces' own: out [tokens, H valueDim]. Absorbed for
  /// single tokens, materialised for longer pieces (hybrid-model.md 5).
  virtual void attend(const BatchView &batch, Rows q, const Matrix &kvB,
                      const MlaCache &cache, Rows out) = 0;

  /// Experts and weights of each row from its router logits, which change
  /// (hybrid-model.md 1.6).
  virtual void route(Rows logits, const Vector &bias, const Routing &to) = 0;
  /// y = Σ_j weight_j expert_j(x).
  virtual void experts(Rows x, const Routing &routing, const MoeWeights &w,
                       Rows y) = 0;
  /// y = Σ_j weight_j expert_j(x) + shared(x); false, with nothing done, where
  /// the operations have no such kernel for this call.
  virtual bool allExperts(Rows, const Routing &, const MoeWeights &, Rows) {
    return false;
  }
  /// Attention residuals: y = Σ_j softmax_j(score of V_j) V_j over `stream` and
  /// the `entries` tensors behind it, `pitch` elements from one to the next
  /// (hybrid-model.md 2.2); y may be stream.
  virtual void mix(Rows stream, int64_t pitch, int64_t entries,
                   const Vector &query, double eps, Rows y) = 0;
};

} // namespace kdac::model

#endif // KDAC_MODEL_OPS_H
