// Promises: the variants a pack spec file asks for, each resolved, in file
// order. Does not: open files or compile.
#ifndef KDAC_PIPELINE_PACKSPEC_H
#define KDAC_PIPELINE_PACKSPEC_H

#include "kdac/Pipeline/Pipeline.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <vector>

namespace kdac {

/// One kernel to compile: a resolved variant, overrides of its schedule, and
/// how a GPU kernel's parameters end.
struct CompileJob {
  Variant variant;
  ScheduleOptions schedule;
  LaunchAbi abi = LaunchAbi::Bare;
};

/// One override of the schedule, on command lines and in pack specs.
struct ScheduleOption {
  llvm::StringLiteral name;
  llvm::StringLiteral values; ///< what is accepted, for people
  llvm::StringLiteral help;
  int64_t ScheduleOptions::*field;
  int64_t step; ///< values are multiples of it; 0: powers of two
  std::string ScheduleOptions::*word = nullptr; ///< a word instead of a number

  /// Sets the override. Returns nothing, or a sentence that says what works.
  std::optional<std::string> set(ScheduleOptions &schedule,
                                 llvm::StringRef value) const;
};

/// chunk, v-tile, warps, min-blocks, segments, roles and order.
llvm::ArrayRef<ScheduleOption> scheduleOptions();

/// The override called `name`, or null.
const ScheduleOption *findScheduleOption(llvm::StringRef name);

/// Reads a pack spec, a YAML file of
///
///     targets: [host, sm_90a]        # for every entry
///     defaults: {value-dim: 128}     # options of every entry
///     variants:                      # entries; a list is every value in turn,
///       - recurrence: kda            # several lists are every combination
///         form: [chunk, step]
///         key-dim: [64, 128]
///
/// Options are those of variantOptions() and of scheduleOptions(), which
/// override the schedule. `targets` replaces the file's when it is not empty.
/// Errors are one sentence with file and line: unknown keys, values that do not
/// work, combinations that cannot exist, and variants that occur twice.
llvm::Expected<std::vector<CompileJob>>
parsePackSpec(llvm::StringRef text, llvm::StringRef fileName,
              llvm::ArrayRef<std::string> targets = {});

} // namespace kdac

#endif // KDAC_PIPELINE_PACKSPEC_H
