// Promises: a pack as C99 source and header with typed launch functions over
// kdac-c/kdac.h, to be compiled into an engine. Does not: write files.
#ifndef KDAC_PACK_EMBED_H
#define KDAC_PACK_EMBED_H

#include "kdac/Pack/PackReader.h"

namespace kdac {

/// The text of NAME.h and NAME.c.
struct EmbeddedSources {
  std::string header, source;
};

/// Where the pack's bytes are.
enum class EmbedBytes {
  InSource, ///< in NAME.c
  InObject, ///< at the symbol embedSymbol(NAME) of an object file
};

/// `name` prefixes every symbol and must be a C identifier. One function a
/// variant, whatever number of targets it has; symbols are hidden outside the
/// program or library they are linked into. Little-endian machines only, as
/// everything of kdac.
StatusOr<EmbeddedSources> embedPack(const PackReader &pack,
                                    const std::string &name,
                                    EmbedBytes bytes = EmbedBytes::InSource);

/// The symbol of a pack's bytes in an object file.
std::string embedSymbol(const std::string &name);

/// A C identifier for a pack's file: "a/kda-k3.kdac" is "kda_k3".
std::string embedName(const std::string &path);

} // namespace kdac

#endif // KDAC_PACK_EMBED_H
