// Promises: the operations on one GPU: recurrences by kernels of a kdac pack,
// large products by cuBLASLt, the rest by kernels that the library carries.
// Does not: split a model over GPUs.
#ifndef KDAC_MODEL_GPUOPS_H
#define KDAC_MODEL_GPUOPS_H

#include "kdac/Model/HostOps.h"
#include "kdac/Runtime/Device.h"

namespace kdac::model {

/// A GPU with one stream, on which all of a model's work is.
class Gpu;

/// The GPU number `ordinal`, with the library's kernels loaded. `library` is
/// the driver's.
StatusOr<std::shared_ptr<Gpu>> openGpu(int ordinal,
                                       const char *library = "libcuda.so.1");

/// Success, or why products of many rows go without cuBLASLt.
Status findBlas(const Gpu &gpu);

/// Memory of the GPU, for sessions.
std::shared_ptr<Memory> gpuMemory(std::shared_ptr<Gpu> gpu);

/// Bytes that `weights` take on a GPU, in elements of that type.
int64_t gpuWeightBytes(const Weights &weights, Element type);
/// The same weights in the GPU's memory: matrices of `type` (MXFP4 widened),
/// experts of a layer side by side. `isRandom`: the matrices are outlines, and
/// get random values there.
StatusOr<Weights> gpuWeights(std::shared_ptr<Gpu> gpu, const Weights &weights,
                             Element type, bool isRandom);

struct GpuLimits {
  int64_t tokens = 512; ///< rows of a call
  int64_t pieces = 64;  ///< pieces of a call
  int64_t context = 0;  ///< the longest sequence
  Element type = Element::BF16;
  /// Cached tokens whose keys and values are expanded at a time.
  int64_t keyBlock = 32768;
  /// False: products of many rows by the library's own kernels, as where
  /// cuBLASLt is missing.
  bool usesBlas = true;
};

/// Bytes of scratch that the operations will allocate; the error says what they
/// cannot do.
StatusOr<int64_t> gpuScratchBytes(std::shared_ptr<Gpu> gpu,
                                  const ModelConfig &config,
                                  const PackReader &pack,
                                  const GpuLimits &limits);
/// Operations for `config` on weights of gpuWeights() and sessions in
/// gpuMemory(), of one type. Decoding calls are recorded as CUDA graphs, one
/// for each number of sequences.
StatusOr<std::unique_ptr<Ops>> makeGpuOps(std::shared_ptr<Gpu> gpu,
                                          const ModelConfig &config,
                                          const PackReader &pack,
                                          const GpuLimits &limits);

} // namespace kdac::model

#endif // KDAC_MODEL_GPUOPS_H
