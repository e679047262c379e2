// Promises: calls of a pack's kernels of form rows (norms, products with a
// gate, sums, copies) on activations, for host and GPU alike. Does not: know
// how a kernel is launched.
#ifndef KDAC_LIB_MODEL_ROWCALLS_H
#define KDAC_LIB_MODEL_ROWCALLS_H

#include "NamedCall.h"

#include <algorithm>
#include <map>
#include <memory>

namespace kdac::model {

/// The variant of `pack` for the operation on rows of `type`; of those that
/// hold a row at once the one that takes `width` elements and hardly more.
StatusOr<const PackVariant *> selectRows(const PackReader &pack,
                                         const Place &place, RowOp op,
                                         Element type, int64_t width = 0);

/// Refuses a config with rows that kernels cannot take `multiple` elements at a
/// time, `where` they run: "on the host".
Status checkWidths(const ModelConfig &config, int64_t multiple,
                   const std::string &where);

/// The gated product behind the config's first two products of an MLP.
inline RowOp activationOf(const ModelConfig &config) {
  return config.activation == Activation::Situ ? RowOp::Situ : RowOp::Silu;
}

/// What a kernel holds at once of a latent's row: either of its parts.
inline int64_t latentWidth(const ModelConfig &config) {
  return std::max(config.latentRank, config.ropeDim);
}

/// The kernels of one machine, a GpuKernel or HostKernel each.
template <typename Kernel> class RowCalls {
public:
  struct One {
    explicit One(Kernel k) : kernel(std::move(k)), call(kernel.variant()) {}
    Kernel kernel;
    NamedCall call;
  };

  /// Loads what layers of `config` need; `load` makes a kernel of a variant.
  template <typename Load>
  Status prepare(const PackReader &pack, const Place &place,
                 const ModelConfig &config, Element type, Load load) {
    auto add = [&](RowOp op, int64_t width) {
      StatusOr<const PackVariant *> variant =
          selectRows(pack, place, op, type, width);
      if (!variant.ok())
        return variant.status();
      std::unique_ptr<One> &one = kernels[{op, (*variant)->variant.width}];
      if (one)
        return Status::success();
      StatusOr<Kernel> kernel = load(**variant);
      if (kernel.ok())
        one = std::make_unique<One>(std::move(*kernel));
      return kernel.status();
    };
    for (RowOp op :
         {RowOp::Add, RowOp::Sigmoid, RowOp::Gather, activationOf(config)})
      if (Status s = add(op, 0); !s.ok())
        return s;
    if (config.experts > 0 && place.gpu) // the host goes expert by expert
      if (Status s = add(RowOp::Combine, 0); !s.ok())
        return s;
    for (int64_t width : {config.hidden, config.queryRank, config.expertInput})
      if (width > 0)
        if (Status s = add(RowOp::Norm, width); !s.ok())
          return s;
    if (config.count(Mixer::Mla) > 0)
      if (Status s = add(RowOp::Latent, latentWidth(config)); !s.ok())
        return s;
    if (config.residualBlock > 0)
      return add(RowOp::Mix, config.hidden);
    return Status::success();
  }

  /// Calls the kernel of `op` for rows of `width`, where it holds one: `set`
  /// makes the call, `launch` takes kernel and arguments.
  template <typename Set, typename Launch>
  Status run(RowOp op, int64_t width, Set set, Launch launch) {
    auto found = kernels.lower_bound({op, width});
    if (found == kernels.end() || found->first.first != op)
      return Status(ErrorCode::Unsupported,
                    "no kernel was loaded for rows of " +
                        std::to_string(width) + " elements");
    One &one = *found->second;
    set(one.call);
    return launch(one.kernel, one.call.arguments());
  }

private:
  std::map<std::pair<RowOp, int64_t>, std::unique_ptr<One>> kernels;
};

/// sum = x + branch, y = rmsNorm(sum); `branch` may have no data, and then sum
/// is not written.
void setNorm(NamedCall &call, Rows branch, Rows x, const void *weight,
             double eps, Rows y);
/// y = x + branch.
void setAdd(NamedCall &call, Rows x, Rows branch, Rows y);
/// y = act(gate) up; the scales of the config's SiTU are set where the kernel
/// has them.
void setProduct(NamedCall &call, const ModelConfig &config, Rows gate, Rows up,
                Rows y);
/// y[i] = x[index[i]]; null: x[i].
void setGather(NamedCall &call, Rows x, const int32_t *index, Rows y);

/// y[i] = sum over j of weight[i, j] x[index[i, j]], `entries` of each row.
void setCombine(NamedCall &call, Rows x, const int32_t *index,
                const float *weight, int64_t entries, Rows y);

/// Slot and position of every row of the pieces.
void listRows(const Piece *pieces, int64_t count, int32_t *slots,
              int32_t *positions);
/// Rows [latent | shared key] to their pages, the latent part normalised.
void setLatent(NamedCall &call, const ModelConfig &config, Rows c,
               const void *weight, double eps, const int32_t *slots,
               const int32_t *positions, const MlaCache &cache);
/// Attention residuals of `stream` and the `entries` tensors behind it.
void setMix(NamedCall &call, Rows stream, int64_t pitch, int64_t entries,
            const void *query, double eps, Rows y);

} // namespace kdac::model

#endif // KDAC_LIB_MODEL_ROWCALLS_H
