// What a call is refused for, before and after it ran.
#include "CallReader.h"
#include "kdac/Variant/SlotFault.h"

#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <iterator>

namespace kdac {

namespace {

std::string hexAddress(uintptr_t address) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%" PRIxPTR, address);
  return text;
}

/// An empty tensor has no address in many libraries, and none is needed.
bool isEmpty(const Arg &arg, const CallReader &reader) {
  bool hasTokens = arg.shape.compare(0, 7, "[tokens") == 0;
  int64_t sequences = reader.size("N", 1), tokens = reader.size("T");
  return sequences == 0 || reader.size("HV", 1) == 0 ||
         reader.size("D", 1) == 0 || (hasTokens && tokens == 0);
}

Status checkPointer(const LaunchArg &a, const void *value,
                    const CallReader &reader) {
  if (!value)
    // A call that commits has no tokens.
    return a.arg.optional || isEmpty(a.arg, reader) ||
                   !reader.isNull("accepted")
               ? Status::success()
               : refuse("argument " + a.arg.name +
                        " is null, but only optional arguments may be");
  auto address = reinterpret_cast<uintptr_t>(value);
  if (address % static_cast<uintptr_t>(a.alignment) != 0)
    return refuse("argument " + a.arg.name + " = " + hexAddress(address) +
                  " is not a multiple of " + std::to_string(a.alignment) +
                  " bytes");
  return Status::success();
}

Status checkSize(const LaunchArg &a, int64_t value) {
  if (value < 0)
    return refuse("argument " + a.arg.name + " = " + std::to_string(value) +
                  " is negative");
  if (value % a.alignment != 0)
    return refuse("argument " + a.arg.name + " = " + std::to_string(value) +
                  " is not a multiple of " + std::to_string(a.alignment) +
                  " elements");
  return Status::success();
}

} // namespace

Status checkCall(const PackVariant &variant, const Launch &launch,
                 CallArguments argv) {
  CallReader reader(launch, argv);
  for (size_t i = 0; i < launch.args.size(); ++i) {
    const LaunchArg &a = launch.args[i];
    Status status;
    if (isPointer(a.arg))
      status = checkPointer(a, *static_cast<void *const *>(argv[i]), reader);
    else if (a.arg.kind == ArgKind::Size)
      status = checkSize(a, *static_cast<const int64_t *>(argv[i]));
    else if (!std::isfinite(*static_cast<const float *>(argv[i])))
      status = refuse("argument " + a.arg.name + " is not finite");
    if (!status.ok())
      return status;
  }
  if (Status status = checkSizes(variant, launch, reader); !status.ok())
    return status;
  StatusOr<int64_t> workspace = workspaceBytes(variant, argv);
  if (!workspace.ok())
    return workspace.status();
  if (*workspace > 0 && reader.isNull("workspace"))
    return refuse("argument workspace is null, but this call needs " +
                  std::to_string(*workspace) + " bytes");
  return Status::success();
}

Status poolStatus(int64_t word) {
  // By SlotFault.
  constexpr const char *kinds[] = {
      "slots[@] is neither -1 nor below the number of slots",
      "slots[@] is a slot that an earlier sequence has",
      "sources[@] is neither -1 nor below the number of slots",
      "sources[@] is a slot that another sequence writes",
      "snapshots[@] is neither -1 nor below the number of slots",
      "snapshots[@] is a slot that another snapshot or sequence has"};
  if (word == -1)
    return Status::success();
  auto kind = static_cast<uint64_t>(word % slotFaultKinds);
  if (word < 0 || kind >= std::size(kinds))
    return Status(ErrorCode::Corrupt, "the status word " +
                                          std::to_string(word) +
                                          " was not written by a kernel");
  std::string text = kinds[kind];
  text.replace(text.find('@'), 1, std::to_string(word / slotFaultKinds));
  return refuse(text);
}

} // namespace kdac
