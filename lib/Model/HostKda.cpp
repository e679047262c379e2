// KDA layers on the host: kernels of a pack, with all that is around the
// recurrence.
#include "HostOps.h"
#include "kdac/Runtime/Select.h"

namespace kdac::model {

static KdaParameters parametersOf(const KdaWeights &w) {
  return {w.aLog.data(),  w.dtBias.data(), w.qConv.data(),
          w.kConv.data(), w.vConv.data(),  w.oNorm.data()};
}

Status HostOps::loadKernel(const PackReader &pack, bool isStep) {
  StatusOr<const PackVariant *> variant =
      selectVariant(pack, Place(), kdaRequest(config, isStep, Element::F32));
  if (!variant.ok())
    return variant.status();
  StatusOr<HostKernel> kernel = HostKernel::load(pack, **variant);
  if (!kernel.ok())
    return kernel.status();
  auto call = std::make_unique<KdaKernel>(std::move(*kernel));
  StatusOr<int64_t> bytes =
      kdaWorkspaceBytes(call->call, config, limits.pieces, limits.tokens);
  if (!bytes.ok())
    return bytes.status();
  if (*bytes > workspace.size()) {
    StatusOr<AlignedBuffer> memory =
        AlignedBuffer::allocate(*bytes, "a kernel's workspace");
    if (!memory.ok())
      return memory.status();
    workspace = std::move(*memory);
  }
  (isStep ? step : chunk) = std::move(call);
  return Status::success();
}

void HostOps::kdaLayer(const BatchView &batch, const KdaWeights &w, Rows q,
                       Rows k, Rows v, Rows decay, Rows beta, Rows z,
                       const KdaCache &cache, Rows out) {
  if (!fits(batch.tokens, batch.count))
    return;
  KdaKernel &kernel = batch.isDecode ? *step : *chunk;
  KdaParameters parameters = parametersOf(w);
  setRecurrence(kernel.call, config, batch, parameters, {q, k, v}, decay, beta,
                cache, out, workspace.bytes());
  setNeighbours(kernel.call, config, parameters, cache, z);
  launch(kernel);
}

void HostOps::launch(const KdaKernel &kernel) {
  if (Status s = kernel.kernel.launch(pool, kernel.call.arguments()); !s.ok())
    fail(s);
}

} // namespace kdac::model
