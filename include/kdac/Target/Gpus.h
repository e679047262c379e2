// Promises: what real GPUs can do at best, for floors of kernel times. Does
// not: know what code runs on them (Targets.h).
#ifndef KDAC_TARGET_GPUS_H
#define KDAC_TARGET_GPUS_H

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kdac {

/// One GPU. Rates are per microsecond.
struct Gpu {
  std::string_view name; ///< as the driver spells it
  int64_t multiprocessors;
  /// Clusters of four blocks with a multiprocessor each that one was seen to
  /// run at once; chips differ. 0: kdac makes none for it.
  int64_t clusters;
  double bytes;            ///< device memory, read plus written
  double tensorFlops;      ///< bf16 products, f32 sums, dense
  double scalarFlops;      ///< f32
  std::string_view source; ///< of the bandwidth
};

/// All rows, in the order shown to users. The first is where we measure.
const std::vector<Gpu> &gpus();

/// The first row whose name contains `text` in any case, or null.
const Gpu *findGpu(std::string_view text);

/// "NVIDIA H200, ...", for messages.
std::string gpuNames();

} // namespace kdac

#endif // KDAC_TARGET_GPUS_H
