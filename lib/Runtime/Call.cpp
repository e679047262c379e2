// What a call launches, and the scratch that it wants.
#include "CallReader.h"
#include "kdac/Pack/SizeExpr.h"

#include <algorithm>

namespace kdac {

namespace {

/// What a call's size expressions may use, computed once for all of them. With
/// `schedule`, see gridsOf, the size that picks it is 1.
StatusOr<SizeBindings> bindingsOf(const PackVariant &packed,
                                  const CallReader &reader,
                                  const Processors &processors,
                                  const std::string *schedule = nullptr) {
  int64_t sequences = reader.size("N", 1), length = reader.size("T");
  StatusOr<int64_t> tokens =
      evaluateSize(reader.isNull("offsets") ? "N * T" : "T",
                   {{"N", sequences}, {"T", length}});
  if (!tokens.ok())
    return tokens.status();
  SizeBindings bindings = {{"N", sequences},
                           {"T", length},
                           {"D", reader.size("D")},
                           {"E", reader.size("E")},
                           {"tile_count", reader.size("tile_count")},
                           {"tokens", *tokens},
                           {"H", reader.size("H")},
                           {"HV", reader.size("HV")},
                           {"K", packed.variant.keyDim},
                           {"V", packed.variant.valueDim},
                           {"checked", reader.isNull("status") ? 0 : 1},
                           {"committed", reader.isNull("accepted") ? 0 : 1},
                           {"sms", processors.multiprocessors},
                           {"clusters", processors.clusters}};
  if (Status s = bindSizes(packed.sizes, bindings); !s.ok())
    return s;
  for (auto &[name, value] : bindings)
    if (schedule && *schedule == name)
      value = 1;
  return bindings;
}

/// True if the launch belongs to the call: see gridsOf.
StatusOr<bool> happens(const Launch &launch, const SizeBindings &bindings,
                       const std::string *schedule) {
  if (launch.when.empty() || (schedule && *schedule == launch.when))
    return true;
  if (schedule)
    return false;
  StatusOr<int64_t> isPicked = evaluateSize(launch.when, bindings);
  if (!isPicked.ok())
    return isPicked.status();
  return *isPicked != 0;
}

StatusOr<int64_t> gridOf(const Launch &launch, const SizeBindings &bindings,
                         const std::string *schedule) {
  StatusOr<bool> exists = happens(launch, bindings, schedule);
  if (!exists.ok())
    return exists.status();
  return *exists ? evaluateSize(launch.grid, bindings)
                 : StatusOr<int64_t>(int64_t(0));
}

} // namespace

StatusOr<int64_t> workspaceBytes(const PackVariant &variant, CallArguments argv,
                                 const std::string *schedule) {
  if (std::none_of(variant.launches.begin(), variant.launches.end(),
                   [](const Launch &launch) { return launch.usesWorkspace; }))
    return int64_t(0);
  StatusOr<SizeBindings> bindings =
      bindingsOf(variant, CallReader(variant.launches.front(), argv),
                 Processors(), schedule);
  if (!bindings.ok())
    return bindings.status();
  for (const Launch &launch : variant.launches) {
    if (!launch.usesWorkspace)
      continue;
    StatusOr<bool> used = happens(launch, *bindings, schedule);
    if (!used.ok())
      return used.status();
    if (*used)
      return evaluateSize(variant.workspace, *bindings);
  }
  return int64_t(0);
}

StatusOr<std::vector<int64_t>> gridsOf(const PackVariant &variant,
                                       const Processors &processors,
                                       CallArguments argv,
                                       const std::string *schedule) {
  StatusOr<SizeBindings> bindings = bindingsOf(
      variant, CallReader(variant.launches.front(), argv), processors);
  if (!bindings.ok())
    return bindings.status();
  std::vector<int64_t> grids;
  for (const Launch &launch : variant.launches) {
    StatusOr<int64_t> grid = gridOf(launch, *bindings, schedule);
    if (!grid.ok())
      return grid.status();
    grids.push_back(*grid);
  }
  return grids;
}

} // namespace kdac
