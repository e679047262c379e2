// Promises: sizes as text in a manifest, evaluated with checked 64-bit
// arithmetic. Does not: know which names exist; an unknown name is an error
// value.
#ifndef KDAC_PACK_SIZEEXPR_H
#define KDAC_PACK_SIZEEXPR_H

#include "kdac/Runtime/Status.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kdac {

/// Values of names in a size expression.
using SizeBindings = std::vector<std::pair<std::string_view, int64_t>>;

/// Named expressions, each over names known so far and those before it.
using NamedSizes = std::vector<std::pair<std::string, std::string>>;

/// Evaluates `text`, for example "N * HV * ceildiv(V, 64)":
///
///     sum     := product ("+" product)*
///     product := factor ("*" factor)*
///     factor  := integer | name | "(" sum ")" | call
///     call    := function "(" sum "," sum ")"
///
/// Functions: ceildiv, max, min; less(a, b) is 1 where a < b, else 0;
/// minus(a, b) is a - b, or 0 where that is negative. Names are letters, digits
/// and '_'.
/// Every value is in [0, 2^63): a negative binding, an overflow and a division
/// by zero are errors that quote `text`.
StatusOr<int64_t> evaluateSize(std::string_view text,
                               const SizeBindings &bindings);

/// Adds the values of `sizes` to `bindings`, which views their names.
Status bindSizes(const NamedSizes &sizes, SizeBindings &bindings);

/// True if `text` parses and uses no name outside `names`.
Status checkSizeExpr(std::string_view text,
                     const std::vector<std::string_view> &names);

} // namespace kdac

#endif // KDAC_PACK_SIZEEXPR_H
