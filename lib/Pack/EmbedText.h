// Promises: the parts that generated C files share: names, and a pack's bytes.
// Does not: decide what a file contains.
#ifndef KDAC_LIB_PACK_EMBEDTEXT_H
#define KDAC_LIB_PACK_EMBEDTEXT_H

#include "kdac/Pack/PackReader.h"

namespace kdac::embed {

/// One function of the sources.
struct Function {
  std::string stem;   ///< of the variant
  std::string symbol; ///< NAME_stem
  const PackVariant *variant;
};

/// Variants without their targets; all targets of one have equal arguments.
std::vector<Function> functionsOf(const PackReader &pack,
                                  const std::string &name);

/// An error unless `name` is a C identifier.
Status checkName(const std::string &name);

/// "static const uint64_t NAME_pack[] = {...};": the file as little-endian
/// words, fewer tokens for a compiler than bytes are.
std::string wordsOf(std::string_view file, const std::string &name);

} // namespace kdac::embed

#endif // KDAC_LIB_PACK_EMBEDTEXT_H
