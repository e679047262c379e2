// Promises: a pack in memory whose every byte has been verified against its
// digests. Does not: select variants for a device or launch them
// (kdac/Runtime).
#ifndef KDAC_PACK_PACKREADER_H
#define KDAC_PACK_PACKREADER_H

#include "kdac/Pack/Manifest.h"

#include <string>
#include <string_view>

namespace kdac {

/// A verified pack. A flipped byte anywhere, a truncated file, a newer version
/// or a file of another kind is an error that names the part and its offsets.
class PackReader {
public:
  /// Reads and verifies the file at `path`.
  static StatusOr<PackReader> open(const std::string &path);
  /// Verifies `bytes` as a pack; `name` is how errors call it.
  static StatusOr<PackReader> fromBytes(std::string bytes,
                                        const std::string &name);

  const Manifest &manifest() const { return manifest_; }
  /// The bytes of an image of the manifest; valid while the reader lives.
  std::string_view bytes(const Image &image) const {
    return std::string_view(bytes_).substr(imagesAt_ + image.offset,
                                           image.size);
  }
  /// The whole file.
  std::string_view file() const { return bytes_; }
  /// The variant called `name`, or null.
  const PackVariant *find(std::string_view name) const;

private:
  PackReader(std::string bytes, uint64_t imagesAt, Manifest manifest)
      : bytes_(std::move(bytes)), imagesAt_(imagesAt),
        manifest_(std::move(manifest)) {}

  std::string bytes_;
  uint64_t imagesAt_;
  Manifest manifest_;
};

} // namespace kdac

#endif // KDAC_PACK_PACKREADER_H
