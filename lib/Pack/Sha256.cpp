#include "Sha256.h"

#include <sys/types.h>

#include <sha2.h>

namespace kdac {

Digest sha256(std::initializer_list<std::string_view> parts) {
  SHA2_CTX context;
  SHA256Init(&context);
  for (std::string_view part : parts)
    SHA256Update(&context, reinterpret_cast<const uint8_t *>(part.data()),
                 part.size());
  Digest digest;
  SHA256Final(digest.data(), &context);
  return digest;
}

std::string hex(const Digest &digest) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (uint8_t byte : digest) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

} // namespace kdac
