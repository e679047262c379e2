// Promises: the options of a variant as people spell them, one table for
// command lines and pack specs. Does not: parse command lines or files, or
// decide defaults (Variant.h does).
#ifndef KDAC_VARIANT_OPTIONS_H
#define KDAC_VARIANT_OPTIONS_H

#include "kdac/Variant/Variant.h"

namespace kdac {

/// One option: `--name=value` on a command line, `name: value` in a pack spec.
struct VariantOption {
  std::string_view name;
  std::string_view values; ///< what is accepted, for people
  std::string_view help;
  /// Sets the option. Returns nothing, or a sentence that names option and
  /// value and says what would work.
  std::optional<std::string> (*set)(Variant &variant, std::string_view value);
};

/// All options but the target, in the order of a variant's name.
const std::vector<VariantOption> &variantOptions();

/// The option called `name`, or null.
const VariantOption *findVariantOption(std::string_view name);

} // namespace kdac

#endif // KDAC_VARIANT_OPTIONS_H
