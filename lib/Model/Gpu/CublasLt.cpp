#include "CublasLt.h"

#include <dlfcn.h>

namespace kdac::model {

namespace {

// The library's ABI, stable from CUDA 11 on.
constexpr int success = 0;
constexpr int computeF32 = 68;            // CUBLAS_COMPUTE_32F
constexpr int typeF32 = 0, typeBF16 = 14; // CUDA_R_32F, CUDA_R_16BF
constexpr int transposeA = 3;             // CUBLASLT_MATMUL_DESC_TRANSA
constexpr int maxWorkspace = 1;   // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_..
constexpr int32_t transposed = 1; // CUBLAS_OP_T

using Handle = void *;
struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

Status failed(const char *what, int code) {
  return Status(ErrorCode::Device, std::string(what) + " failed with status " +
                                       std::to_string(code));
}

} // namespace

struct CublasLt::Library {
  int (*create)(Handle *) = nullptr;
  int (*destroy)(Handle) = nullptr;
  int (*descCreate)(Handle *, int, int) = nullptr;
  int (*descDestroy)(Handle) = nullptr;
  int (*descSet)(Handle, int, const void *, size_t) = nullptr;
  int (*layoutCreate)(Handle *, int, uint64_t, uint64_t, int64_t) = nullptr;
  int (*layoutDestroy)(Handle) = nullptr;
  int (*preferenceCreate)(Handle *) = nullptr;
  int (*preferenceDestroy)(Handle) = nullptr;
  int (*preferenceSet)(Handle, int, const void *, size_t) = nullptr;
  int (*heuristic)(Handle, Handle, Handle, Handle, Handle, Handle, Handle, int,
                   Heuristic *, int *) = nullptr;
  int (*matmul)(Handle, Handle, const void *, const void *, Handle,
                const void *, Handle, const void *, const void *, Handle,
                void *, Handle, const Algorithm *, void *, size_t,
                cuda::Stream) = nullptr;
  Handle handle = nullptr;
};

/// What cuBLASLt has to know of one shape of product.
struct CublasLt::Plan {
  explicit Plan(const Library &library) : library(library) {}
  Plan(const Plan &) = delete;
  Plan &operator=(const Plan &) = delete;
  ~Plan() {
    if (desc)
      library.descDestroy(desc);
    for (Handle layout : {w, x, y})
      if (layout)
        library.layoutDestroy(layout);
  }
  const Library &library;
  Handle desc = nullptr, w = nullptr, x = nullptr, y = nullptr;
  Algorithm algorithm = {};
};

CublasLt::CublasLt() : library(std::make_unique<Library>()) {}

CublasLt::~CublasLt() {
  plans.clear();
  if (library->handle)
    library->destroy(library->handle);
}

StatusOr<std::unique_ptr<CublasLt>> CublasLt::load() {
  // The library stays loaded, as the driver does.
  void *file = ::dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
  if (!file)
    file = ::dlopen("libcublasLt.so.12", RTLD_NOW | RTLD_LOCAL);
  if (!file)
    return Status(ErrorCode::Unavailable, ::dlerror());
  std::unique_ptr<CublasLt> lt(new CublasLt());
  Library &l = *lt->library;
  auto find = [&](const char *name, auto &slot) {
    slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(
        ::dlsym(file, name));
    return slot != nullptr;
  };
  if (!find("cublasLtCreate", l.create) ||
      !find("cublasLtDestroy", l.destroy) ||
      !find("cublasLtMatmulDescCreate", l.descCreate) ||
      !find("cublasLtMatmulDescDestroy", l.descDestroy) ||
      !find("cublasLtMatmulDescSetAttribute", l.descSet) ||
      !find("cublasLtMatrixLayoutCreate", l.layoutCreate) ||
      !find("cublasLtMatrixLayoutDestroy", l.layoutDestroy) ||
      !find("cublasLtMatmulPreferenceCreate", l.preferenceCreate) ||
      !find("cublasLtMatmulPreferenceDestroy", l.preferenceDestroy) ||
      !find("cublasLtMatmulPreferenceSetAttribute", l.preferenceSet) ||
      !find("cublasLtMatmulAlgoGetHeuristic", l.heuristic) ||
      !find("cublasLtMatmul", l.matmul))
    return Status(ErrorCode::Unavailable,
                  "cuBLASLt lacks functions of CUDA 11");
  if (int code = l.create(&l.handle); code != success) {
    l.handle = nullptr;
    return failed("cublasLtCreate", code);
  }
  return lt;
}

/// Its matrices have columns side by side: y's transpose is w times x's.
StatusOr<const CublasLt::Plan *> CublasLt::planOf(Rows x, const Matrix &w,
                                                  Rows y) {
  std::unique_ptr<Plan> &slot = plans[{x.rows, w.out, w.in, x.stride, y.stride,
                                       static_cast<int64_t>(y.type)}];
  if (slot)
    return slot.get();
  const Library &l = *library;
  auto plan = std::make_unique<Plan>(l);
  auto rows = static_cast<uint64_t>(x.rows), out = static_cast<uint64_t>(w.out),
       in = static_cast<uint64_t>(w.in);
  Handle preference = nullptr;
  Heuristic found = {};
  int count = 0;
  size_t workspace = workspaceBytes;
  int code = l.descCreate(&plan->desc, computeF32, typeF32);
  if (code == success)
    code = l.descSet(plan->desc, transposeA, &transposed, sizeof transposed);
  if (code == success)
    code = l.layoutCreate(&plan->w, typeBF16, in, out, w.in);
  if (code == success)
    code = l.layoutCreate(&plan->x, typeBF16, in, rows, x.stride);
  if (code == success)
    code = l.layoutCreate(&plan->y, y.type == Element::F32 ? typeF32 : typeBF16,
                          out, rows, y.stride);
  if (code == success)
    code = l.preferenceCreate(&preference);
  if (code == success)
    code =
        l.preferenceSet(preference, maxWorkspace, &workspace, sizeof workspace);
  if (code == success)
    code = l.heuristic(l.handle, plan->desc, plan->w, plan->x, plan->y, plan->y,
                       preference, 1, &found, &count);
  if (preference)
    l.preferenceDestroy(preference);
  if (code != success || count == 0)
    return failed("cublasLtMatmulAlgoGetHeuristic", code);
  plan->algorithm = found.algorithm;
  slot = std::move(plan);
  return slot.get();
}

Status CublasLt::matmul(Rows x, const Matrix &w, Rows y, void *workspace,
                        cuda::Stream stream) {
  StatusOr<const Plan *> found = planOf(x, w, y);
  if (!found.ok())
    return found.status();
  const Plan &plan = **found;
  float one = 1, zero = 0;
  int code = library->matmul(library->handle, plan.desc, &one, w.data, plan.w,
                             x.data, plan.x, &zero, y.data, plan.y, y.data,
                             plan.y, &plan.algorithm, workspace,
                             static_cast<size_t>(workspaceBytes), stream);
  return code == success ? Status::success() : failed("cublasLtMatmul", code);
}

} // namespace kdac::model
