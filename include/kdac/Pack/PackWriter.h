// Promises: one .kdac file, written whole or not at all, byte-identical for
// identical inputs in any order. Does not: compile anything or read packs.
#ifndef KDAC_PACK_PACKWRITER_H
#define KDAC_PACK_PACKWRITER_H

#include "kdac/Pack/Manifest.h"

namespace kdac {

/// Collects images and variants, then writes them as one file (docs/RUNTIME.md
/// has the format). Not for use from several threads at once.
class PackWriter {
public:
  /// Stores an image once and returns its index, for Launch::images.
  size_t addImage(ImageKind kind, std::string arch, std::string bytes);

  /// Adds a resolved variant whose launches refer to added images.
  void add(PackVariant variant) { variants.push_back(std::move(variant)); }

  /// The file's bytes. Variants are sorted by name and images numbered by first
  /// use, so that the order of adding does not show. Refuses two variants of
  /// one name, a variant without launches, and a launch without images.
  StatusOr<std::string> serialize() const;

  /// Writes serialize() to a temporary file beside `path`, then renames it.
  Status write(const std::string &path) const;

private:
  struct Blob {
    Image image;
    std::string bytes;
  };
  Status check() const;

  std::vector<Blob> blobs;
  std::vector<PackVariant> variants;
};

} // namespace kdac

#endif // KDAC_PACK_PACKWRITER_H
