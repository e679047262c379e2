// Promises: a kernel's arguments set by name and launched on the host. Does
// not: check values; the runtime's checkCall does.
#ifndef KDAC_LIB_MODEL_NAMEDCALL_H
#define KDAC_LIB_MODEL_NAMEDCALL_H

#include "kdac/Runtime/Kernel.h"

namespace kdac::model {

class NamedCall {
public:
  explicit NamedCall(HostKernel kernel);

  /// Arguments that the kernel does not have are ignored: variants of one form
  /// differ in which optional parts exist. All begin as null and 0.
  void pointer(std::string_view name, const void *value);
  void size(std::string_view name, int64_t value);
  void scale(float value);

  /// Bytes of scratch for the call as it is set.
  StatusOr<int64_t> workspaceBytes() const;
  Status launch(HostPool &pool) const {
    return kernel.launch(pool, argv.data());
  }

private:
  HostKernel kernel;
  std::vector<uint64_t> values; ///< one per argument
  std::vector<void *> argv;     ///< to `values`
};

} // namespace kdac::model

#endif // KDAC_LIB_MODEL_NAMEDCALL_H
