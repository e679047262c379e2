// Promises: the class behind makeHostOps. Does not: belong to the interface.
#ifndef KDAC_LIB_MODEL_HOSTOPS_H
#define KDAC_LIB_MODEL_HOSTOPS_H

#include "AlignedBuffer.h"
#include "AttentionCall.h"
#include "NamedCall.h"
#include "RowCalls.h"
#include "kdac/Model/HostOps.h"
#include "kdac/Runtime/Kernel.h"

#include <functional>

namespace kdac::model {

class HostOps : public Ops {
public:
  HostOps(const ModelConfig &config, const OpsLimits &limits);
  /// Loads the kernels and allocates scratch.
  Status prepare(const PackReader &pack);

  Status status() const override { return first; }
  void clear() override { first = Status(); }

  void embed(const int32_t *tokens, const Matrix &table, Rows y) override;
  void matmul(Rows x, const Matrix &w, Rows y) override;
  void rmsNorm(Rows x, const Vector &w, double eps, Rows y) override;
  void add(Rows y, Rows x) override;
  void addNorm(Rows y, Rows x, const Vector &w, double eps,
               Rows normed) override;
  void copy(Rows x, Rows y) override;
  void sigmoidGate(Rows gate, Rows x) override;
  void activate(Rows gate, Rows up, Rows y) override;
  void gather(Rows x, const int32_t *index, Rows y) override;
  void argmax(Rows x, int32_t *best) override;

  void kdaLayer(const BatchView &batch, const KdaWeights &w, Rows q, Rows k,
                Rows v, Rows decay, Rows beta, Rows z, const KdaCache &cache,
                Rows out) override;

  void storeLatent(const BatchView &batch, Rows c, const Vector &norm,
                   double eps, const MlaCache &cache) override;
  void attend(const BatchView &batch, Rows q, const Matrix &kvB,
              const MlaCache &cache, Rows out) override;

  void route(Rows logits, const Vector &bias, const Routing &to) override;
  void experts(Rows x, const Routing &routing, const MoeWeights &w,
               Rows y) override;
  void mix(Rows stream, int64_t pitch, int64_t entries, const Vector &query,
           double eps, Rows y) override;

private:
  /// body(i, scratch) for i in [0, count) on all threads; `scratch` holds
  /// `scratchFloats` of the thread's own.
  using Body = std::function<void(int64_t i, float *scratch)>;
  void parallel(int64_t count, const Body &body, int64_t scratchFloats = 0);
  void fail(Status status);
  /// False, and a failure, where a call is larger than the scratch.
  bool fits(int64_t rows, int64_t pieces = 0);
  /// Rows [begin, begin + count) of w times every row of x.
  void matmulBlock(Rows x, const Matrix &w, int64_t begin, int64_t count,
                   Rows y, float *scratch) const;

  Status loadKernel(const PackReader &pack, bool isStep);
  struct KdaKernel {
    explicit KdaKernel(HostKernel k)
        : kernel(std::move(k)), call(kernel.variant()) {}
    HostKernel kernel;
    NamedCall call;
  };
  void launch(const KdaKernel &kernel);
  /// Runs the kernel of `op` on what `set` makes of its call.
  void launchRows(RowOp op, int64_t width,
                  const std::function<void(NamedCall &)> &set);

  Status loadAttention(const PackReader &pack);
  /// Single tokens of the batch: queries into the latent space, the kernel,
  /// and the way out.
  void attendSingle(const BatchView &batch, Rows q, const Matrix &kvB,
                    const MlaCache &cache, Rows out);
  void absorbQuery(const Piece &piece, int64_t head, Rows q, const Matrix &kvB,
                   float *query, float *line) const;
  void attendPrompt(const BatchView &batch, const PromptBlock &block, Rows q,
                    const Matrix &kvB, const MlaCache &cache, Rows out);
  void routeRow(float *scores, const Vector &bias, int32_t *expert,
                float *weight) const;
  void runExpert(Rows x, const Routing &routing, const MlpWeights &w,
                 const int32_t *entries, int64_t count, Rows y);

  ModelConfig config;
  OpsLimits limits;
  HostPool pool;
  Status first;
  std::unique_ptr<KdaKernel> chunk, step; ///< none without KDA layers
  RowCalls<HostKernel> rowCalls;
  std::unique_ptr<KdaKernel> attention, prompt; ///< none without MLA layers
  AlignedBuffer workspace;                      ///< of the chunk kernel
  AlignedBuffer queries, latents;     ///< [pieces, heads, rank (+ rope)]
  AlignedBuffer partials;             ///< of the attention kernel
  PromptPlan prompts;                 ///< of the present layer's call
  AlignedBuffer keyRows, expanded;    ///< of a block: latents, keys and values
  AlignedBuffer averages, logs;       ///< between blocks
  std::vector<int32_t> lengths;       ///< [pieces]: keys of single tokens
  AlignedBuffer gathered, gates, ups; ///< of an expert's rows
  std::vector<float> serial;          ///< scratch of work that one thread does
  std::vector<int32_t> rowSlots, rowPositions; ///< of a batch's rows
  std::vector<int32_t> order;  ///< entries of a routing, by expert
  std::vector<int64_t> starts; ///< [experts + 1], into `order`
};

} // namespace kdac::model

#endif // KDAC_LIB_MODEL_HOSTOPS_H
