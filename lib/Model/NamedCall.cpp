#include "NamedCall.h"

#include <cstring>

namespace kdac::model {

namespace {

/// Index of the argument, or -1.
int64_t indexOf(const PackVariant &variant, std::string_view name) {
  const std::vector<LaunchArg> &args = variant.launches.front().args;
  for (size_t i = 0; i < args.size(); ++i)
    if (args[i].arg.name == name)
      return static_cast<int64_t>(i);
  return -1;
}

} // namespace

NamedCall::NamedCall(HostKernel k)
    : kernel(std::move(k)),
      values(kernel.variant().launches.front().args.size(), 0) {
  for (uint64_t &value : values)
    argv.push_back(&value);
}

void NamedCall::pointer(std::string_view name, const void *value) {
  if (int64_t i = indexOf(kernel.variant(), name); i >= 0)
    std::memcpy(argv[static_cast<size_t>(i)], &value, sizeof value);
}

void NamedCall::size(std::string_view name, int64_t value) {
  if (int64_t i = indexOf(kernel.variant(), name); i >= 0)
    std::memcpy(argv[static_cast<size_t>(i)], &value, sizeof value);
}

void NamedCall::scale(float value) {
  if (int64_t i = indexOf(kernel.variant(), "scale"); i >= 0)
    std::memcpy(argv[static_cast<size_t>(i)], &value, sizeof value);
}

StatusOr<int64_t> NamedCall::workspaceBytes() const {
  return kdac::workspaceBytes(kernel.variant(), argv.data());
}

} // namespace kdac::model
