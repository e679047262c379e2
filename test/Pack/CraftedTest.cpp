// Packs whose digests are right and whose contents are not: what a hostile or
// broken writer could make.
#include "../../lib/Pack/Format.h"
#include "../../lib/Pack/Sha256.h"
#include "Sample.h"

#include <cstring>
#include <gtest/gtest.h>

using namespace kdac;

namespace {

std::string manifestOf(const std::string &file) {
  return file.substr(format::headerSize,
                     format::readLittle(file, format::manifestSizeAt, 8));
}

/// A file around `manifest` and `images`, with correct sizes and digests.
std::string seal(const std::string &manifest, const std::string &images,
                 uint32_t version = packVersion) {
  StatusOr<std::string> sample = sample::writer().serialize();
  std::string file = sample->substr(0, format::headerSize) + manifest;
  format::writeLittle(file, format::versionAt, 4, version);
  file.resize(format::aligned(file.size()), '\0');
  file += images;
  format::writeLittle(file, format::manifestSizeAt, 8, manifest.size());
  format::writeLittle(file, format::fileSizeAt, 8, file.size());
  Digest digest = sha256({manifest});
  std::memcpy(&file[format::manifestDigestAt], digest.data(), digest.size());
  std::memset(&file[format::fileDigestAt], 0, format::digestSize);
  digest = sha256({file});
  std::memcpy(&file[format::fileDigestAt], digest.data(), digest.size());
  return file;
}

struct Parts {
  std::string manifest, images;
  Parts() {
    StatusOr<std::string> file = sample::writer().serialize();
    manifest = manifestOf(*file);
    images =
        file->substr(format::aligned(format::headerSize + manifest.size()));
  }
  void replace(const std::string &from, const std::string &to) {
    size_t at = manifest.find(from);
    ASSERT_NE(at, std::string::npos) << manifest;
    manifest.replace(at, from.size(), to);
  }
  /// Without `from`, everywhere.
  void remove(const std::string &from) {
    ASSERT_NE(manifest.find(from), std::string::npos) << manifest;
    for (size_t at; (at = manifest.find(from)) != std::string::npos;)
      manifest.erase(at, from.size());
  }
  std::string refusal(uint32_t version = packVersion) const {
    StatusOr<PackReader> pack =
        PackReader::fromBytes(seal(manifest, images, version), "crafted");
    return pack.ok() ? "" : pack.status().message();
  }
};

TEST(Crafted, SealedSampleIsAccepted) { EXPECT_EQ(Parts().refusal(), ""); }

TEST(Crafted, ImageOutsideTheFile) {
  for (const char *size : {"11", "193", "4294967296", "9223372036854775807"}) {
    Parts p;
    p.replace("\"size\":10}", "\"size\":" + std::string(size) + "}");
    EXPECT_NE(p.refusal().find("image 0 (cubin of kda"), std::string::npos)
        << p.refusal();
  }
  Parts p;
  p.replace("\"size\":10}", "\"size\":18446744073709551615}");
  EXPECT_NE(p.refusal().find("images[0].size"), std::string::npos)
      << p.refusal();
}

TEST(Crafted, ImageAtAnotherOffset) {
  for (const char *offset : {"0", "63", "128", "9223372036854775744"}) {
    Parts p;
    p.replace("\"offset\":64", "\"offset\":" + std::string(offset));
    EXPECT_NE(p.refusal().find("image 1 (ptx of kda"), std::string::npos)
        << p.refusal();
  }
}

TEST(Crafted, ImageOfAnotherDigest) {
  Parts p;
  size_t at = p.manifest.find("\"sha256\":\"") + 10;
  p.manifest[at] = p.manifest[at] == '0' ? '1' : '0';
  EXPECT_NE(p.refusal().find("does not match its digest"), std::string::npos);
}

TEST(Crafted, BytesThatNobodyOwns) {
  Parts p;
  p.images += std::string(64, '\0');
  EXPECT_NE(p.refusal().find("64 bytes follow the last image"),
            std::string::npos)
      << p.refusal();
  Parts q;
  q.images.pop_back();
  EXPECT_NE(q.refusal().find("inside the padding"), std::string::npos)
      << q.refusal();
}

/// What version 2 has and the first packs of version 1 lacked.
const std::pair<const char *, const char *> added[] = {
    {"abi", "\"abi\":\"bare\","},
    {"slots", ",\"slots\":\"none\""},
    {"snapshots", ",\"snapshots\":false"},
    {"conv", "\"conv\":0,"},
    {"cache_layout", "\"cache_layout\":\"full\","},
    {"norm", "\"norm\":\"none\","},
    {"norm_eps", "\"norm_eps\":1e-05,"},
    {"workspace", ",\"workspace\":\"\""}};
/// What version 3 has and version 2 lacked.
const std::pair<const char *, const char *> addedLater[] = {
    {"sizes", "\"sizes\":[],"},
    {"when", ",\"when\":\"\""},
    {"uses_workspace", ",\"uses_workspace\":false"},
    {"overlaps", "\"overlaps\":false,"}};

/// An old pack is read as what it was when it was written.
TEST(Crafted, OlderVersionLacksNewFields) {
  Parts old;
  for (const auto &[key, text] : addedLater)
    old.remove(text);
  EXPECT_EQ(old.refusal(2), "");
  for (const auto &[key, text] : added)
    old.remove(text);
  EXPECT_EQ(old.refusal(1), "");
  StatusOr<PackReader> pack =
      PackReader::fromBytes(seal(old.manifest, old.images, 1), "crafted");
  ASSERT_TRUE(pack.ok());
  StatusOr<std::string> now = sample::writer().serialize();
  EXPECT_EQ(toJson(pack->manifest()), manifestOf(*now));
  // A version 1 from just before version 2 has most of them.
  EXPECT_EQ(Parts().refusal(1), "");
}

TEST(Crafted, NewVersionHasThemAll) {
  for (const auto *list : {std::begin(added), std::begin(addedLater)}) {
    size_t count = list == added ? std::size(added) : std::size(addedLater);
    for (size_t i = 0; i < count; ++i) {
      Parts p;
      p.remove(list[i].second);
      EXPECT_NE(
          p.refusal().find("." + std::string(list[i].first) + ": is missing"),
          std::string::npos)
          << list[i].first << ": " << p.refusal();
    }
  }
}

TEST(Crafted, AbiOfNobody) {
  Parts p;
  p.replace("\"abi\":\"bare\"", "\"abi\":\"stdcall\"");
  EXPECT_NE(p.refusal().find("launches[0].abi: unknown value 'stdcall'"),
            std::string::npos)
      << p.refusal();
}

/// Random damage to valid JSON: an error or a manifest, never a crash.
TEST(Crafted, MutatedManifests) {
  const std::string original = Parts().manifest;
  uint64_t state = 12345;
  auto random = [&](size_t below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<size_t>(state >> 33) % below;
  };
  const char *tokens[] = {
      "-1",   "1e400", "null", "[]",  "{}",
      "\"\"", "true",  "0.5",  "\\u", "9999999999999999999"};
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = original;
    for (size_t edits = 1 + random(3); edits > 0; --edits) {
      size_t at = random(text.size());
      switch (random(4)) {
      case 0:
        text[at] = static_cast<char>(random(256));
        break;
      case 1:
        text.erase(at, 1 + random(20));
        break;
      case 2:
        text.insert(at, tokens[random(10)]);
        break;
      default: {
        // A whole value, so that the JSON often stays well formed.
        size_t colon = text.find(':', at);
        size_t end = text.find_first_of(",}", colon);
        if (end != std::string::npos)
          text.replace(colon + 1, end - colon - 1, tokens[random(10)]);
      }
      }
    }
    StatusOr<Manifest> result = manifestFromJson(text);
    accepted += result.ok();
    if (!result.ok())
      EXPECT_FALSE(result.status().message().empty());
  }
  // Some edits only change free text; most must be noticed.
  EXPECT_LT(accepted, 1500);
}

} // namespace
