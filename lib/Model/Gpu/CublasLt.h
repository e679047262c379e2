// Promises: bf16 products of many rows by cuBLASLt, found at run time. Does
// not: link it, or need CUDA's headers.
#ifndef KDAC_LIB_MODEL_GPU_CUBLASLT_H
#define KDAC_LIB_MODEL_GPU_CUBLASLT_H

#include "kdac/Model/Ops.h"
#include "kdac/Runtime/CudaDriver.h"

#include <array>
#include <map>

namespace kdac::model {

class CublasLt {
public:
  /// Loads libcublasLt.so.13 or .12; the error is what the loader says. The
  /// device's context must be current, here and below.
  static StatusOr<std::unique_ptr<CublasLt>> load();
  ~CublasLt();
  CublasLt(const CublasLt &) = delete;
  CublasLt &operator=(const CublasLt &) = delete;

  static constexpr int64_t workspaceBytes = int64_t(32) << 20;
  /// y = x wᵀ in `stream`'s order; `workspace` is on the GPU.
  Status matmul(Rows x, const Matrix &w, Rows y, void *workspace,
                cuda::Stream stream);

private:
  struct Library;
  struct Plan;
  CublasLt();
  StatusOr<const Plan *> planOf(Rows x, const Matrix &w, Rows y);

  std::unique_ptr<Library> library;
  /// By rows, out, in, both strides and the type of y.
  std::map<std::array<int64_t, 6>, std::unique_ptr<Plan>> plans;
};

} // namespace kdac::model

#endif // KDAC_LIB_MODEL_GPU_CUBLASLT_H
