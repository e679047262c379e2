// Promises: what Triton IR text computes, program instance by program instance,
// on host memory: f32 arithmetic, roundings where the text says, every access
// inside one of the buffers given.
// Does not: model layouts, warps or the order of f32 sums.
#ifndef KDAC_TEST_NUMERICS_TRITONINTERPRETER_H
#define KDAC_TEST_NUMERICS_TRITONINTERPRETER_H

#include "kdac/Dialect/Triton.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kdac::reference {

/// Memory that a kernel may touch: first byte and number of bytes.
using Extent = std::pair<const void *, int64_t>;

/// Runs instances [0, programs) of a kernel. `argv` points to the arguments as
/// for cuLaunchKernel. Returns a sentence if an op is unknown or an access lies
/// outside every extent.
std::optional<std::string> interpretTriton(tt::FuncOp kernel, void **argv,
                                           int64_t programs,
                                           const std::vector<Extent> &extents);

} // namespace kdac::reference

#endif // KDAC_TEST_NUMERICS_TRITONINTERPRETER_H
