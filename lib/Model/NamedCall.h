// Promises: a kernel's arguments set by name, and the calls of KDA layers made
// of them, for host and GPU alike. Does not: check values, which the runtime's
// checkCall does, or launch.
#ifndef KDAC_LIB_MODEL_NAMEDCALL_H
#define KDAC_LIB_MODEL_NAMEDCALL_H

#include "kdac/Model/Ops.h"
#include "kdac/Runtime/Call.h"
#include "kdac/Runtime/Select.h"

namespace kdac::model {

/// Arguments of one variant. Those that the kernel does not have are ignored:
/// variants of one form differ in which optional parts exist. All begin as null
/// and 0.
class NamedCall {
public:
  explicit NamedCall(const PackVariant &variant);
  NamedCall(const NamedCall &) = delete;
  NamedCall &operator=(const NamedCall &) = delete;

  void pointer(std::string_view name, const void *value);
  void size(std::string_view name, int64_t value);
  void scale(std::string_view name, float value);
  /// A tensor `name` and its `name`_stride.
  void rows(const std::string &name, Rows value);

  /// Bytes of scratch for the call as it is set.
  StatusOr<int64_t> workspaceBytes() const;
  CallArguments arguments() const { return argv.data(); }

private:
  PackVariant variant;
  std::vector<uint64_t> values; ///< one per argument
  std::vector<void *> argv;     ///< to `values`
};

/// As variants spell it.
inline DType dtypeOf(Element type) {
  return type == Element::F32 ? DType::F32 : DType::BF16;
}

/// What a pack must have for the config's KDA layers: states in slots, elements
/// of `type`, convolutions and gated norm.
Request kdaRequest(const ModelConfig &config, bool isStep, Element type);

/// Scratch that is enough for every call of up to so many pieces and tokens.
StatusOr<int64_t> kdaWorkspaceBytes(NamedCall &call, const ModelConfig &config,
                                    int64_t pieces, int64_t tokens);

/// Small parameters of a KDA layer, where the kernel reads them.
struct KdaParameters {
  const void *aLog, *dtBias;
  const void *qConv, *kConv, *vConv, *oNorm;
};

/// The recurrence on q, k, v.
void setRecurrence(NamedCall &call, const ModelConfig &config,
                   const BatchView &batch, const KdaParameters &parameters,
                   const Rows (&qkv)[3], Rows decay, Rows beta,
                   const KdaCache &cache, Rows out, const void *workspace);
/// What a layer has besides.
void setNeighbours(NamedCall &call, const ModelConfig &config,
                   const KdaParameters &parameters, const KdaCache &cache,
                   Rows z);

} // namespace kdac::model

#endif // KDAC_LIB_MODEL_NAMEDCALL_H
