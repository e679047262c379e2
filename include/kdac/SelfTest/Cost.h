// Promises: the least work of a call as formulas and numbers, and the time that
// a GPU needs for it at best. Does not: know what a kernel really does (its
// schedule, its caches), or time anything.
#ifndef KDAC_SELFTEST_COST_H
#define KDAC_SELFTEST_COST_H

#include "kdac/Pack/Manifest.h"
#include "kdac/Pack/SizeExpr.h"
#include "kdac/SelfTest/Plan.h"
#include "kdac/Target/Gpus.h"

namespace kdac::selftest {

/// Size expressions over tokens (of all sequences), N, H, HV, K and V.
struct CostFormulas {
  /// Every tensor read or written once, optional ones included; offsets only
  /// of packed calls.
  std::string bytes;
  /// Multiplications and additions. The chunk form is counted with chunks of 64
  /// tokens whatever the schedule's are, so that numbers compare: the products
  /// of design.md 4, without the inverse.
  std::string flops;
};
CostFormulas costOf(const Variant &variant, bool packed);

/// A shape's sizes as bindings of those formulas and of a launch's grid.
SizeBindings bindingsOf(const Variant &variant, const BenchShape &shape);

/// What a call costs, and what must bound its time.
struct Estimate {
  int64_t bytes = 0, flops = 0;
  int64_t instances = 0;          ///< of the launch that has the fewest
  double memoryMicroseconds = 0;  ///< bytes at the GPU's bandwidth
  double computeMicroseconds = 0; ///< FLOPs at its rate for such products
  double floorMicroseconds() const {
    return memoryMicroseconds > computeMicroseconds ? memoryMicroseconds
                                                    : computeMicroseconds;
  }
  std::string limiter; ///< memory, compute or parallelism, and why
};

/// What the rules of a pack say of one call.
struct Picked {
  SizeBindings sizes; ///< of the variant, by name, in its order
  /// Of each launch: blocks of its grid, nothing if the call has no such
  /// launch.
  std::vector<std::optional<int64_t>> blocks;
};

// Errors of all: a shape whose numbers exceed 64 bits.

StatusOr<Picked> pickedBy(const PackVariant &variant, const BenchShape &shape,
                          const Gpu &gpu);

/// Bytes of workspace that a call of this shape brings.
StatusOr<int64_t> workspaceOf(const PackVariant &variant,
                              const BenchShape &shape, const Gpu &gpu);

StatusOr<Estimate> estimate(const PackVariant &variant, const BenchShape &shape,
                            const Gpu &gpu);

} // namespace kdac::selftest

#endif // KDAC_SELFTEST_COST_H
