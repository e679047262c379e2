// Promises: SHA-256 as hexadecimal digits, by Debian's libmd.
// Does not: stream from files.
#ifndef KDAC_LIB_PACK_SHA256_H
#define KDAC_LIB_PACK_SHA256_H

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace kdac {

using Digest = std::array<uint8_t, 32>;

/// The digest of the concatenation of `parts`.
Digest sha256(std::initializer_list<std::string_view> parts);

/// 64 lower-case hexadecimal digits.
std::string hex(const Digest &digest);

} // namespace kdac

#endif // KDAC_LIB_PACK_SHA256_H
