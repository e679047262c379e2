#include "Sample.h"
#include "kdac/Pack/PackReader.h"

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>

using namespace kdac;

namespace {

std::string sampleFile() {
  StatusOr<std::string> file = sample::writer().serialize();
  EXPECT_TRUE(file.ok());
  return *file;
}

/// The sentence with which `bytes` are refused.
std::string refusal(const std::string &bytes) {
  StatusOr<PackReader> pack = PackReader::fromBytes(bytes, "sample");
  return pack.ok() ? "" : pack.status().message();
}

uint64_t little(const std::string &bytes, size_t at) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i)
    value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

TEST(Pack, RoundTrip) {
  StatusOr<PackReader> pack = PackReader::fromBytes(sampleFile(), "sample");
  ASSERT_TRUE(pack.ok()) << pack.status().message();
  const Manifest &m = pack->manifest();
  ASSERT_EQ(m.variants.size(), 2u);
  ASSERT_EQ(m.images.size(), 3u);
  const PackVariant *v =
      pack->find("kda.chunk.k128v128.bf16.f32vk.bounded.sm_90a");
  ASSERT_NE(v, nullptr);
  EXPECT_EQ(pack->find("kda"), nullptr);
  const Launch &launch = v->launches[0];
  EXPECT_EQ(launch.entry, entryName(v->variant));
  EXPECT_EQ(launch.grid, "N * HV * ceildiv(V, 64)");
  EXPECT_EQ(launch.blockThreads, 128);
  EXPECT_EQ(launch.sharedBytes, 65536);
  EXPECT_EQ(launch.registers, 168);
  EXPECT_EQ(launch.args.size(), kernelArgs(v->variant).size());
  EXPECT_EQ(v->schedule, "#tile.schedule<chunk = 64>");
  const Image &cubin = m.images[launch.images[0]];
  EXPECT_EQ(cubin.arch, "sm_90a");
  EXPECT_EQ(pack->bytes(cubin), std::string_view("\x7f"
                                                 "ELF\0cubin",
                                                 10));
}

TEST(Pack, SameBytesInAnyOrder) {
  EXPECT_EQ(sampleFile(), *sample::writer(/*reversed=*/true).serialize());
}

TEST(Pack, EqualImagesAreStoredOnce) {
  PackWriter w;
  size_t a = w.addImage(ImageKind::Ptx, "sm_80", "text");
  EXPECT_EQ(w.addImage(ImageKind::Ptx, "sm_80", "text"), a);
  EXPECT_NE(w.addImage(ImageKind::Ptx, "sm_90a", "text"), a);
}

/// What a refusal must mention when the byte at `position` is wrong.
std::string expectedPart(const std::string &file, const std::string &damaged,
                         size_t position) {
  if (position < 8)
    return "is not a kdac pack";
  // An older version is read, but is not what the digest was made of.
  if (position == 8 && damaged[8] > 0 && damaged[8] < int(packVersion))
    return "does not match its digest (bytes 64 to 96)";
  if (position < 12)
    return "pack version";
  if (position < 16)
    return "header size";
  if (position < 24)
    return "manifest";
  if (position < 32)
    return "file size";
  if (position < 64)
    return "manifest";
  if (position < 96)
    return "does not match its digest (bytes 64 to 96)";
  if (position < 128)
    return "reserved header byte " + std::to_string(position);
  if (position < 128 + little(file, 16))
    return "the manifest (bytes 128 to ";
  // A zero is either padding or part of an image.
  return file[position] ? "image " : " is damaged: ";
}

TEST(Pack, EveryFlippedByteIsNamed) {
  std::string file = sampleFile();
  for (size_t position = 0; position < file.size(); ++position)
    for (char mask : {'\x01', '\x80'}) {
      std::string damaged = file;
      damaged[position] ^= mask;
      std::string message = refusal(damaged);
      ASSERT_FALSE(message.empty()) << "byte " << position << " not noticed";
      EXPECT_NE(message.find(expectedPart(file, damaged, position)),
                std::string::npos)
          << "byte " << position << ": " << message;
      EXPECT_NE(message.find("pack 'sample' "), std::string::npos);
    }
}

TEST(Pack, FlippedImageNamesItsVariant) {
  std::string file = sampleFile();
  file[file.find("cubin", 128 + little(file, 16))] ^= 4;
  EXPECT_NE(refusal(file).find("(cubin of kda.chunk.k128v128"),
            std::string::npos)
      << refusal(file);
}

TEST(Pack, EveryTruncationIsNoticed) {
  std::string file = sampleFile();
  for (size_t size = 0; size < file.size(); ++size)
    EXPECT_FALSE(refusal(file.substr(0, size)).empty()) << size;
  EXPECT_NE(refusal(file.substr(0, file.size() - 1)).find("is truncated"),
            std::string::npos);
  EXPECT_FALSE(refusal(file + '\0').empty());
}

TEST(Pack, AbsurdSizes) {
  for (size_t at : {16u, 24u})
    for (uint64_t value :
         {uint64_t(0), uint64_t(1) << 63, ~uint64_t(0), ~uint64_t(0) - 127}) {
      std::string file = sampleFile();
      for (int i = 0; i < 8; ++i)
        file[at + i] = static_cast<char>(value >> (8 * i));
      // A manifest of 0 bytes is possible, so its digest tells.
      std::string part =
          at == 16 && value == 0 ? "bytes 128 to 128" : std::to_string(value);
      EXPECT_NE(refusal(file).find(part), std::string::npos) << refusal(file);
    }
}

TEST(Pack, NewerVersionHasItsOwnSentence) {
  std::string file = sampleFile();
  file[8] = packVersion + 1;
  StatusOr<PackReader> pack = PackReader::fromBytes(file, "sample");
  ASSERT_FALSE(pack.ok());
  EXPECT_EQ(pack.status().code(), ErrorCode::Unsupported);
  EXPECT_EQ(pack.status().message(),
            "pack 'sample' has pack version 4, but this kdac reads versions 1 "
            "to 3; use a newer kdac, or compile the pack with this one");
}

TEST(Pack, NoVersion) {
  std::string file = sampleFile();
  file[8] = 0;
  EXPECT_NE(refusal(file).find("bytes 8 to 12 give pack version 0"),
            std::string::npos);
}

TEST(Pack, ForeignFile) {
  EXPECT_NE(refusal("\x7f"
                    "ELF" +
                    std::string(200, 'x'))
                .find("not a kdac pack"),
            std::string::npos);
}

TEST(Pack, WriterRefuses) {
  PackWriter twice = sample::writer();
  twice.add(sample::packVariant(sample::variant("host", 64), {0}));
  EXPECT_NE(twice.serialize().status().message().find("was added twice"),
            std::string::npos);
  PackWriter noImage;
  noImage.add(sample::packVariant(sample::variant("host", 64), {}));
  EXPECT_FALSE(noImage.serialize().ok());
  PackWriter badIndex;
  badIndex.add(sample::packVariant(sample::variant("host", 64), {0}));
  EXPECT_FALSE(badIndex.serialize().ok());
}

/// A folder of its own, removed with what was written there.
struct TemporaryFolder {
  std::string path = "/tmp/kdac-pack-XXXXXX";
  TemporaryFolder() { EXPECT_NE(::mkdtemp(path.data()), nullptr); }
  ~TemporaryFolder() { std::system(("rm -rf " + path).c_str()); }
};

TEST(Pack, WriteThenOpen) {
  TemporaryFolder folder;
  std::string path = folder.path + "/a.kdac";
  ASSERT_TRUE(sample::writer().write(path).ok());
  ASSERT_TRUE(sample::writer().write(path).ok()); // replaces
  StatusOr<PackReader> pack = PackReader::open(path);
  ASSERT_TRUE(pack.ok()) << pack.status().message();
  EXPECT_EQ(pack->manifest().variants.size(), 2u);
}

TEST(Pack, FailedWriteLeavesNothing) {
  TemporaryFolder folder;
  // The target is a folder that is not empty, so the rename fails.
  std::string path = folder.path + "/a.kdac";
  ASSERT_EQ(::mkdir(path.c_str(), 0755), 0);
  std::ofstream(path + "/keep") << "x";
  Status status = sample::writer().write(path);
  EXPECT_EQ(status.code(), ErrorCode::Io);
  EXPECT_NE(status.message().find(path), std::string::npos);
  EXPECT_EQ(std::system(("test $(ls " + folder.path + " | wc -l) = 1").c_str()),
            0);
}

TEST(Pack, OpenErrorsNameThePath) {
  EXPECT_EQ(PackReader::open("/no/such.kdac").status().code(),
            ErrorCode::NotFound);
  StatusOr<PackReader> folder = PackReader::open("/tmp");
  EXPECT_EQ(folder.status().code(), ErrorCode::Io);
  EXPECT_NE(folder.status().message().find("pack '/tmp'"), std::string::npos);
}

} // namespace
