#include "kdac/Variant/LaunchAbi.h"

namespace kdac {

std::string_view spell(LaunchAbi abi) {
  return abi == LaunchAbi::Triton ? "triton-2scratch" : "bare";
}

std::optional<LaunchAbi> parseLaunchAbi(std::string_view text) {
  for (LaunchAbi abi : {LaunchAbi::Bare, LaunchAbi::Triton})
    if (spell(abi) == text)
      return abi;
  return std::nullopt;
}

} // namespace kdac
