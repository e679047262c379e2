// Promises: the class behind makeGpuOps. Does not: belong to the interface.
#ifndef KDAC_LIB_MODEL_GPU_GPUOPS_H
#define KDAC_LIB_MODEL_GPU_GPUOPS_H

#include "../AttentionCall.h"
#include "../MatmulCall.h"
#include "../NamedCall.h"
#include "../RowCalls.h"
#include "Args.h"
#include "CublasLt.h"
#include "Gpu.h"
#include "kdac/Runtime/Kernel.h"

#include <map>

namespace kdac::model {

class GpuOps : public Ops {
public:
  GpuOps(std::shared_ptr<Gpu> gpu, const ModelConfig &config,
         const GpuLimits &limits);
  ~GpuOps() override;
  /// Loads the kernels and plans the scratch.
  Status prepare(const PackReader &pack);
  int64_t scratchBytes() const { return scratch.bytes; }
  Status allocate();

  Status status() const override { return first; }
  void clear() override { first = Status(); }
  bool begin(CallData &call) override;
  void end() override;

  void embed(const int32_t *tokens, const Matrix &table, Rows y) override;
  void matmul(Rows x, const Matrix &w, Rows y) override;
  void products(std::initializer_list<Product> list) override;
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
  bool allExperts(Rows x, const Routing &routing, const MoeWeights &w,
                  Rows y) override;
  void mix(Rows stream, int64_t pitch, int64_t entries, const Vector &query,
           double eps, Rows y) override;

private:
  /// Where a call's arrays are, in the staging buffer and on the GPU alike.
  struct CallLayout {
    int64_t slots = 0, sources = 0, offsets = 0, outputs = 0;
    int64_t rows = 0; ///< tokens, slots and positions of as many as there are
    int64_t keyOffsets = 0; ///< of the plan of prompts
    int64_t bytes = 0;      ///< of the largest call
  };
  /// Scratch of the operations, in one allocation.
  struct Scratch {
    int64_t bytes = 0;
    char *call = nullptr;      ///< CallLayout
    char *workspace = nullptr; ///< of the pack's kernels
    char *blas = nullptr;      ///< of cuBLASLt
    char *hidden = nullptr;    ///< [rows, topK + 1, expertWidth]
    int *starts = nullptr, *order = nullptr, *place = nullptr, *tiles = nullptr;
    char *parts = nullptr;   ///< [entries, expertInput]
    char *query = nullptr;   ///< [pieces, heads, rank + rope]
    char *singles = nullptr; ///< [pieces, heads, rank]
    int *lengths = nullptr;  ///< [pieces]
    float *averages = nullptr, *logs = nullptr; ///< of prompts, between blocks
    char *expanded = nullptr; ///< [keyBlock, heads (nope + value)]
    char *latents = nullptr;  ///< [keyBlock, rank + rope]
  };
  struct KdaKernel {
    explicit KdaKernel(GpuKernel k)
        : kernel(std::move(k)), call(kernel.variant()) {}
    GpuKernel kernel;
    NamedCall call;
  };
  /// Decoding calls of one shape: seen once, then recorded.
  struct Recorded {
    cuda::GraphExec graph = nullptr;
  };

  Status checkConfig() const;
  Status loadKernel(const PackReader &pack, bool isStep);
  /// The kernel of a variant that was selected, if one was.
  StatusOr<std::unique_ptr<KdaKernel>>
  loadSelected(const PackReader &pack, StatusOr<const PackVariant *> variant);
  void layOut(char *base);
  /// The most tiles of rows that entries, sorted by expert, can have.
  int64_t tilesOf(int64_t entries) const;
  void keep(Status status) {
    if (first.ok())
      first = std::move(status);
  }
  /// Enqueues `name` with the suffix of the type, unless something failed.
  template <typename... Parameter>
  void launch(const char *name, const Shape &shape, Parameter... parameters) {
    if (first.ok())
      first = gpu->launch(name, shape, parameters...);
  }
  /// `f32` or `bf16`, by the type of activations.
  const char *typed(const char *f32, const char *bf16) const {
    return limits.type == Element::F32 ? f32 : bf16;
  }
  /// Enqueues the kernel of `op` on what `set` makes of its call.
  template <typename Set> void launchRows(RowOp op, int64_t width, Set set) {
    if (!first.ok())
      return;
    // It waits for the kernel before it, whose writes are its inputs.
    keep(rowCalls.run(op, width, set,
                      [&](const GpuKernel &kernel, CallArguments arguments) {
                        return kernel.launch(gpu->stream(), arguments,
                                             /*overlap=*/true);
                      }));
  }
  void fewRows(const Product *list, int64_t count);
  void manyRows(const Product &p);
  Status loadMatmul(const PackReader &pack);
  /// Enqueues a kernel of the pack, whose call is set.
  void launchPacked(KdaKernel &one) {
    if (first.ok())
      first = one.kernel.launch(gpu->stream(), one.call.arguments(),
                                /*overlap=*/true);
  }
  /// Attention by the pack's kernels: of single tokens with Mla.cuh around it,
  /// of longer pieces on expanded keys.
  bool hasAttention() const { return config.count(Mixer::Mla) > 0; }
  Status loadAttention(const PackReader &pack);
  void attendSingle(const BatchView &batch, Rows q, const Matrix &kvB,
                    const MlaCache &cache, Rows out);
  void attendPrompt(const BatchView &batch, const PromptBlock &block, Rows q,
                    const Matrix &kvB, const MlaCache &cache, Rows out);
  int64_t keyBlock() const;
  void planPrompts();
  void expertsDirectly(Rows x, const Routing &routing, const MoeWeights &w,
                       bool addsShared, Rows y);
  void expertsSorted(Rows x, const Routing &routing, const MoeWeights &w,
                     Rows y);
  gpu::ActivationArgs activation() const;

  std::shared_ptr<Gpu> gpu;
  std::unique_ptr<CublasLt> blas; ///< null: matmulKernel does its work
  ModelConfig config;
  GpuLimits limits;
  Status first;
  std::unique_ptr<KdaKernel> chunk, step; ///< none without KDA layers
  std::unique_ptr<KdaKernel> latentKernel, promptKernel; ///< without MLA: none
  std::unique_ptr<KdaKernel> matmulKernel, gatedKernel;  ///< of bf16
  RowCalls<GpuKernel> rowCalls;
  int64_t workspaceBytes = 0;
  CallLayout layout;
  Scratch scratch;
  std::shared_ptr<Memory> memory; ///< of scratch
  std::unique_ptr<PinnedBuffer> staging;
  // Of the call under way.
  std::vector<Piece> pieces;
  PromptPlan prompts;
  const int32_t *promptOffsets = nullptr; ///< the plan's, on the GPU
  const int32_t *rowSlots = nullptr, *rowPositions = nullptr;
  std::map<std::pair<int64_t, const void *>, Recorded> recorded;
  Recorded *recording = nullptr; ///< the call under way is recorded
  bool isCapturing = false;
};

} // namespace kdac::model

#endif // KDAC_LIB_MODEL_GPU_GPUOPS_H
