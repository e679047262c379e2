// Promises: that a call's arguments fit what a launch relies on, checked before
// anything runs. Does not: look at tensor contents (a kernel clamps offsets
// itself), or launch.
#ifndef KDAC_RUNTIME_CALL_H
#define KDAC_RUNTIME_CALL_H

#include "kdac/Pack/Manifest.h"

namespace kdac {

/// Arguments in ABI order by cuLaunchKernel's convention, on GPU and host
/// alike: `argv[i]` points to the value of argument i, which is a pointer
/// (Input, Output), an int64_t (Size) or a float (Scale).
using CallArguments = void *const *;

/// Refuses, with a sentence naming the argument, its value and the limit: a
/// null pointer where the argument is not optional, a misaligned pointer,
/// negative sizes, HV that is no multiple of H, misaligned or negative strides,
/// output strides under one token's width, and sizes beyond 64 bits.
Status checkCall(const PackVariant &variant, const Launch &launch,
                 CallArguments argv);

/// What the status word of a pool variant's checked launch says, once its
/// stream has been synchronised: success, or which index was bad. The launch
/// wrote nothing in that case.
Status poolStatus(int64_t word);

/// What of a GPU size expressions may use; the host's unless said.
struct Processors {
  int64_t multiprocessors = 1;
  /// How many of the variant's widest clusters run at once; 0: it has none, or
  /// the driver does not say.
  int64_t clusters = 0;
};

/// The number of program instances of every launch of a checked call: 0 means
/// that there is nothing to run, as for a launch of a schedule that the sizes
/// do not pick. `schedule`: the one to run, named by its launches' `when`,
/// whatever the sizes; null: as they pick.
StatusOr<std::vector<int64_t>> gridsOf(const PackVariant &variant,
                                       const Processors &processors,
                                       CallArguments argv,
                                       const std::string *schedule = nullptr);

/// Bytes of workspace that the call needs; 0 where a null workspace will do.
/// Only sizes and `offsets` being null or not are read; the number of
/// multiprocessors does not matter. `schedule` as for gridsOf.
StatusOr<int64_t> workspaceBytes(const PackVariant &variant, CallArguments argv,
                                 const std::string *schedule = nullptr);

} // namespace kdac

#endif // KDAC_RUNTIME_CALL_H
