#include "kdac/Target/Gpus.h"

#include <algorithm>
#include <cctype>

namespace kdac {

const std::vector<Gpu> &gpus() {
  // Products and f32 rates: data sheets, without sparsity.
  // clang-format off
  static const std::vector<Gpu> table = {
    {"NVIDIA H200",             132, 30, 4.27e6,  989e6,  67e6,   "measured copy (shared/reference/peers.md 2)"},
    {"NVIDIA H100",             132, 30, 3.35e6,  989e6,  67e6,   "data sheet"},
    {"NVIDIA A100",             108,  0, 2.04e6,  312e6,  19.5e6, "data sheet"},
    {"NVIDIA L40S",             142,  0, 0.864e6, 362e6,  91.6e6, "data sheet"},
    {"NVIDIA B200",             148,  0, 8.0e6,   2250e6, 75e6,   "data sheet"},
    {"NVIDIA GeForce RTX 5090", 170,  0, 1.79e6,  209e6,  105e6,  "data sheet"},
  };
  // clang-format on
  return table;
}

static std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return result;
}

const Gpu *findGpu(std::string_view text) {
  for (const Gpu &gpu : gpus())
    if (lower(gpu.name).find(lower(text)) != std::string::npos)
      return &gpu;
  return nullptr;
}

std::string gpuNames() {
  std::string names;
  for (const Gpu &gpu : gpus())
    names += (names.empty() ? "" : ", ") + std::string(gpu.name);
  return names;
}

} // namespace kdac
