// Promises: the variant of a pack that fits what a caller has and where it
// runs, or every reason why none does. Does not: load or launch anything, or
// decide defaults of variants (kdac/Variant does).
#ifndef KDAC_RUNTIME_SELECT_H
#define KDAC_RUNTIME_SELECT_H

#include "kdac/Pack/PackReader.h"
#include "kdac/Runtime/Device.h"

#include <string>
#include <utility>
#include <vector>

namespace kdac {

/// Where a kernel is to run: a GPU, or this processor.
struct Place {
  const DeviceInfo *gpu = nullptr; ///< null: this processor

  std::string name() const; ///< "NVIDIA H200 (sm_90)", "this processor"
  /// True if the image is code for this place.
  bool runs(const Image &image) const;
  /// How well the best image of a launch fits: 0 not at all; machine code
  /// before PTX, newer before older.
  int fit(const Manifest &manifest, const Launch &launch) const;
};

/// The distance between two tokens of a caller's tensor, in elements.
struct TokenStride {
  std::string tensor;
  int64_t elements = 0;
};

/// What a caller has. Options are names and spellings of variantOptions(). One
/// left out means the recurrence's default, as everywhere, because another
/// value computes something else; except `offsets` and `precision`, where any
/// will do and the default is preferred.
struct Request {
  std::vector<std::pair<std::string, std::string>> options;
  std::vector<TokenStride> strides;
};

/// The variant to use. The error lists, for the variants that come closest,
/// what keeps each from fitting.
StatusOr<const PackVariant *> selectVariant(const PackReader &pack,
                                            const Place &place,
                                            const Request &request);

/// The best variant for `place` that is called `name`, or whose name without
/// its target is `name`.
StatusOr<const PackVariant *>
selectNamed(const PackReader &pack, const Place &place, std::string_view name);

} // namespace kdac

#endif // KDAC_RUNTIME_SELECT_H
