#include "kdac/Target/Targets.h"

namespace kdac {

const std::vector<Target> &targets() {
  // Shared memory per block: CUDA C++ Programming Guide, compute capabilities.
  // clang-format off
  static const std::vector<Target> table = {
    {"host",    TargetKind::Host, "",       0,      0,   false, false, false, 0,   "any x86-64 or AArch64 CPU, no GPU needed"},
    {"sm_80",   TargetKind::Gpu,  "+ptx78", 166912, 255, false, false, false, 108, "Ampere A100; mma.sync; runs on every later GPU family's driver JIT"},
    {"sm_89",   TargetKind::Gpu,  "+ptx78", 101376, 255, false, false, false, 142, "Ada L40, RTX 40; mma.sync"},
    {"sm_90a",  TargetKind::Gpu,  "+ptx86", 232448, 255, true,  true,  true,  132, "Hopper H100, H200"},
    {"sm_100a", TargetKind::Gpu,  "+ptx86", 232448, 255, false, true,  true,  148, "Blackwell B200; portable mma.sync path"},
    {"sm_120",  TargetKind::Gpu,  "+ptx87", 101376, 255, false, true,  true,  170, "Blackwell RTX 50; mma.sync"},
  };
  // clang-format on
  return table;
}

const Target *findTarget(std::string_view name) {
  for (const Target &target : targets())
    if (target.name == name)
      return &target;
  return nullptr;
}

std::string targetNames() {
  std::string names;
  for (const Target &target : targets())
    names += (names.empty() ? "" : ", ") + std::string(target.name);
  return names;
}

} // namespace kdac
