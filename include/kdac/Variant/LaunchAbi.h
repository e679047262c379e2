// Promises: how a GPU kernel's parameter list ends, and who may launch it. Does
// not: say what comes before (kernelArgs in Variant.h).
#ifndef KDAC_VARIANT_LAUNCHABI_H
#define KDAC_VARIANT_LAUNCHABI_H

#include <cstddef>
#include <optional>
#include <string_view>

namespace kdac {

enum class LaunchAbi {
  Bare, ///< kernelArgs and nothing else
  /// Then two 64-bit pointers that are never read, Triton's global_scratch and
  /// profile_scratch: what kernels of Triton 3.5 and newer take.
  Triton,
};

/// Parameters after kernelArgs.
constexpr size_t scratchParameters(LaunchAbi abi) {
  return abi == LaunchAbi::Triton ? 2 : 0;
}

/// As manifests and kernels spell it: "bare" or "triton-2scratch".
std::string_view spell(LaunchAbi abi);
std::optional<LaunchAbi> parseLaunchAbi(std::string_view text);

} // namespace kdac

#endif // KDAC_VARIANT_LAUNCHABI_H
