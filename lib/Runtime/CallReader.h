// Promises: the arguments of a call by name, and how one is refused. Does not:
// check them.
#ifndef KDAC_LIB_RUNTIME_CALLREADER_H
#define KDAC_LIB_RUNTIME_CALLREADER_H

#include "kdac/Runtime/Call.h"

#include <string>
#include <string_view>

namespace kdac {

inline bool isPointer(const Arg &arg) {
  return arg.kind == ArgKind::Input || arg.kind == ArgKind::Output ||
         arg.kind == ArgKind::Workspace;
}

inline Status refuse(const std::string &message) {
  return Status(ErrorCode::InvalidArgument, message);
}

/// Reads arguments by name; the manifest decides where they are.
class CallReader {
public:
  CallReader(const Launch &launch, CallArguments argv)
      : launch(launch), argv(argv) {}

  int64_t size(std::string_view name, int64_t otherwise = 0) const {
    for (size_t i = 0; i < launch.args.size(); ++i)
      if (launch.args[i].arg.name == name &&
          launch.args[i].arg.kind == ArgKind::Size)
        return *static_cast<const int64_t *>(argv[i]);
    return otherwise;
  }
  float scale(std::string_view name) const {
    for (size_t i = 0; i < launch.args.size(); ++i)
      if (launch.args[i].arg.name == name &&
          launch.args[i].arg.kind == ArgKind::Scale)
        return *static_cast<const float *>(argv[i]);
    return 0;
  }
  /// Argument `i`, which is a size.
  int64_t sizeAt(size_t i) const {
    return *static_cast<const int64_t *>(argv[i]);
  }
  bool isNull(std::string_view name) const {
    for (size_t i = 0; i < launch.args.size(); ++i)
      if (launch.args[i].arg.name == name && isPointer(launch.args[i].arg))
        return *static_cast<void *const *>(argv[i]) == nullptr;
    return true;
  }

private:
  const Launch &launch;
  CallArguments argv;
};

/// Of any form: sizes that its kernel takes, tensors of less than 2^63 bytes,
/// so that no address computation can wrap, and rows of outputs that do not
/// overlap. In plain arithmetic where it can be: this runs at every launch.
Status checkSizes(const PackVariant &variant, const Launch &launch,
                  const CallReader &reader);

} // namespace kdac

#endif // KDAC_LIB_RUNTIME_CALLREADER_H
