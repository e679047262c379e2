// Promises: the byte layout of a .kdac file, for its writer and its reader.
// Does not: verify anything.
//
//   offset  bytes  field (integers are little-endian)
//   0       8      magic "\x89KDAC\r\n\n": a text-mode transfer breaks it
//   8       4      version
//   12      4      header size, 128
//   16      8      manifest size in bytes
//   24      8      file size in bytes
//   32      32     SHA-256 of the manifest
//   64      32     SHA-256 of the file with this field taken as zeros
//   96      32     zeros
//   128     ...    manifest (canonical JSON), zeros up to a multiple of 64
//   ...     ...    images, each at a multiple of 64, zeros in between
#ifndef KDAC_LIB_PACK_FORMAT_H
#define KDAC_LIB_PACK_FORMAT_H

#include <cstdint>
#include <string>
#include <string_view>

namespace kdac::format {

constexpr std::string_view magic("\x89KDAC\r\n\n", 8);
constexpr uint64_t headerSize = 128;
constexpr uint64_t imageAlignment = 64;

constexpr size_t versionAt = 8;
constexpr size_t headerSizeAt = 12;
constexpr size_t manifestSizeAt = 16;
constexpr size_t fileSizeAt = 24;
constexpr size_t manifestDigestAt = 32;
constexpr size_t fileDigestAt = 64;
constexpr size_t reservedAt = 96;
constexpr size_t digestSize = 32;

inline uint64_t readLittle(std::string_view bytes, size_t at, int width) {
  uint64_t value = 0;
  for (int i = width - 1; i >= 0; --i)
    value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

inline void writeLittle(std::string &bytes, size_t at, int width,
                        uint64_t value) {
  for (int i = 0; i < width; ++i, value >>= 8)
    bytes[at + i] = static_cast<char>(value & 0xff);
}

/// `size` up to the next multiple of the image alignment. Callers pass sizes of
/// bytes in memory or sizes checked against one, which cannot overflow.
inline uint64_t aligned(uint64_t size) {
  return (size + imageAlignment - 1) / imageAlignment * imageAlignment;
}

} // namespace kdac::format

#endif // KDAC_LIB_PACK_FORMAT_H
