// Checkpoints that are whole, damaged, or no checkpoints at all.
#include "kdac/Model/Safetensors.h"

#include "gtest/gtest.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

using namespace kdac;
using namespace kdac::model;

namespace {

/// A file of bytes whose data is aligned, as a mapped file's is.
class Bytes {
public:
  Bytes(const std::string &header, size_t dataBytes, char fill = 1)
      : size(8 + header.size() + dataBytes), words(size / 8 + 2) {
    uint64_t length = header.size();
    std::memcpy(text(), &length, 8);
    std::memcpy(text() + 8, header.data(), header.size());
    std::memset(text() + 8 + header.size(), fill, dataBytes);
  }
  char *text() { return reinterpret_cast<char *>(words.data()); }
  std::string_view view() { return {text(), size}; }

private:
  size_t size;
  std::vector<uint64_t> words;
};

/// Spaces behind a header so that the data begins at a multiple of 8.
std::string padded(std::string header) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

const std::string good = padded(
    R"({"__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]}})");

std::string refusal(std::string_view bytes) {
  StatusOr<StoredTensors> tensors = parseSafetensors(bytes, "f");
  return tensors.ok() ? "accepted" : tensors.status().message();
}

std::string edited(const std::string &from, const std::string &to,
                   size_t data = 32) {
  std::string header = good;
  header.replace(header.find(from), from.size(), to);
  return refusal(Bytes(padded(header), data).view());
}

/// A folder that goes away.
class Folder {
public:
  Folder() {
    std::string name =
        std::filesystem::temp_directory_path() / "kdac-model-XXXXXX";
    path = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  void write(const std::string &name, std::string_view bytes) const {
    std::ofstream(path + "/" + name, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  std::string path;
};

std::string openRefusal(const Folder &folder) {
  StatusOr<Checkpoint> checkpoint = Checkpoint::open(folder.path);
  if (checkpoint.ok())
    return "accepted";
  std::string text = checkpoint.status().message();
  for (size_t at; (at = text.find(folder.path + "/")) != std::string::npos;)
    text.erase(at, folder.path.size() + 1);
  if (size_t at = text.find(folder.path); at != std::string::npos)
    text.replace(at, folder.path.size(), "@");
  return text;
}

} // namespace

TEST(Safetensors, ReadsNamesShapesAndPlaces) {
  Bytes bytes(good, 32);
  StatusOr<StoredTensors> tensors = parseSafetensors(bytes.view(), "f");
  ASSERT_TRUE(tensors.ok()) << tensors.status().message();
  ASSERT_EQ(tensors->size(), 2u);
  const StoredTensor &b = tensors->at("b");
  EXPECT_EQ(b.type, TensorType::BF16);
  EXPECT_EQ(b.shape, std::vector<int64_t>({4}));
  EXPECT_EQ(b.data, bytes.text() + 8 + good.size() + 24);
  EXPECT_EQ(tensors->at("a").bytes, 24);
}

TEST(Safetensors, ScalarsAndEmptyTensorsExist) {
  EXPECT_EQ(refusal(Bytes(padded(R"({"s": {"dtype": "F32", "shape": [],
      "data_offsets": [0, 4]}, "e": {"dtype": "F32", "shape": [0, 7],
      "data_offsets": [4, 4]}})"),
                          4)
                        .view()),
            "accepted");
  EXPECT_EQ(refusal(Bytes("{}", 0).view()), "accepted");
}

TEST(Safetensors, DamageIsNamed) {
  EXPECT_EQ(refusal("version https://git-lfs.github.com/spec/v1\noid sha256:0"),
            "f is a Git LFS pointer, not the file itself; run `git lfs pull`");
  EXPECT_EQ(refusal(""), "f has 0 bytes, too few for a safetensors file");
  EXPECT_EQ(refusal(std::string_view("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)),
            "f: its header should have 18446744073709551615 bytes, but at most "
            "100000000 are allowed; it is damaged or no safetensors file");
  EXPECT_EQ(refusal(std::string_view("\x32\0\0\0\0\0\0\0{}", 10)),
            "f: its header should have 50 bytes, but the file has 10; it is "
            "truncated or no safetensors file");
  EXPECT_EQ(refusal(Bytes("[]", 0).view()),
            "f: its header of 2 bytes is not a JSON object");
  EXPECT_EQ(refusal(Bytes("{\"a\"", 0).view()),
            "f: its header of 4 bytes is not JSON");
  Bytes whole(good, 32);
  EXPECT_EQ(refusal(whole.view().substr(0, whole.view().size() - 4)),
            "f: tensor b is at bytes 24 to 32 of the data, which has 28; the "
            "file is truncated or damaged");
  EXPECT_EQ(refusal(Bytes(good, 36).view()),
            "f: the data has 36 bytes, but its tensors end at 32");
}

TEST(Safetensors, EntriesThatLieAreNamed) {
  EXPECT_EQ(edited("\"F32\"", "\"F33\""),
            "f: tensor a has the unknown dtype \"F33\"");
  EXPECT_EQ(edited("\"F32\"", "7"), "f: tensor a has no dtype");
  EXPECT_EQ(edited("[2, 3]", "[2, 4]"),
            "f: tensor a is at bytes 0 to 24, but F32 [2, 4] needs 32");
  EXPECT_EQ(edited("[2, 3]", "[2, -3]"),
            "f: tensor a has the size -3 in its shape");
  EXPECT_EQ(edited("[2, 3]", "[4294967296, 4294967296]"),
            "f: tensor a has the shape [4294967296, 4294967296], more than "
            "2^63 elements");
  EXPECT_EQ(edited("[2, 3]", "[4611686018427387904]"),
            "f: tensor a has the shape [4611686018427387904], more than 2^63 "
            "bytes");
  EXPECT_EQ(edited("[2, 3]", "\"x\""), "f: tensor a has no shape");
  EXPECT_EQ(edited("[0, 24]", "[24, 0]"),
            "f: tensor a is at bytes 24 to 0 of the data, which has 32; the "
            "file is truncated or damaged");
  EXPECT_EQ(edited("[0, 24]", "[0, 24, 48]"),
            "f: tensor a has no data_offsets");
  EXPECT_EQ(edited("[24, 32]", "[20, 28]"),
            "f: tensor b begins at byte 20 of the data, but the one before "
            "ends at 24");
  EXPECT_EQ(edited("[24, 32]", "[25, 33]", 33),
            "f: tensor b begins at byte 25 of the data, where its 2-byte "
            "elements are misaligned");
  EXPECT_EQ(edited("[24, 32]", "[26, 34]", 34),
            "f: tensor b begins at byte 26 of the data, but the one before "
            "ends at 24");
  EXPECT_EQ(edited("\"b\"", "\"a\""), "f: its header of " +
                                          std::to_string(good.size()) +
                                          " bytes has the key 'a' twice");
  EXPECT_EQ(edited("\"shape\": [4]", "\"shape\": [3], \"shape\": [4]"),
            "f: its header of " + std::to_string(good.size() + 16) +
                " bytes has the key 'shape' twice");
}

/// What an error shows of a value is printed by recursion.
TEST(Safetensors, DeepNestingIsRefused) {
  constexpr size_t depth = 1000000;
  std::string header =
      "{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
  EXPECT_EQ(refusal(Bytes(header, 0).view()),
            "f: its header of " + std::to_string(header.size()) +
                " bytes is nested too deeply");
}

/// pitfalls.md MOD-1: sizes at which readers with a fixed first read fail.
TEST(Safetensors, HeadersOfAnySize) {
  for (size_t size : {99992, 99993, 99994, 100000, 1 << 20}) {
    std::string header = good;
    header.resize(size, ' ');
    Folder folder;
    folder.write("model.safetensors", Bytes(header, 32, 7).view());
    StatusOr<Checkpoint> checkpoint = Checkpoint::open(folder.path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const StoredTensor *a = checkpoint->find("a");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a->data) % 4, 0u) << size;
    EXPECT_EQ(a->data[23], 7);
  }
}

TEST(Safetensors, NoBytesCrashTheReader) {
  std::mt19937 random(7);
  Bytes whole(good, 32);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    Bytes bytes(good, 32);
    size_t size = whole.view().size();
    if (round % 3 == 0)
      size = random() % (size + 1);
    for (int edit = random() % 4; edit >= 0; --edit)
      bytes.text()[random() % (8 + good.size())] = static_cast<char>(random());
    StatusOr<StoredTensors> tensors =
        parseSafetensors(bytes.view().substr(0, size), "f");
    if (!tensors.ok()) {
      EXPECT_FALSE(tensors.status().message().empty());
      continue;
    }
    ++accepted;
    for (const auto &[name, tensor] : *tensors) {
      EXPECT_GE(tensor.data, bytes.text());
      EXPECT_LE(tensor.data + tensor.bytes, bytes.text() + size);
    }
  }
  EXPECT_GT(accepted, 0) << "edits in strings and spaces do no harm";
  EXPECT_LT(accepted, 15000) << "most edits are found";
}

TEST(Checkpoint, OneFile) {
  Folder folder;
  folder.write("model.safetensors", Bytes(good, 32).view());
  StatusOr<Checkpoint> checkpoint = Checkpoint::open(folder.path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->bytes(), 32);
  ASSERT_NE(checkpoint->find("b"), nullptr);
  EXPECT_EQ(checkpoint->find("b")->data[0], 1);
  EXPECT_EQ(checkpoint->find("c"), nullptr);
}

TEST(Checkpoint, Shards) {
  Folder folder;
  const char other[] =
      R"({"c": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}})";
  folder.write("s1.safetensors", Bytes(good, 32).view());
  folder.write("s2.safetensors", Bytes(other, 3).view());
  folder.write("model.safetensors.index.json", R"({"weight_map":
    {"a": "s1.safetensors", "b": "s1.safetensors", "c": "s2.safetensors"}})");
  StatusOr<Checkpoint> checkpoint = Checkpoint::open(folder.path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->tensors().size(), 3u);
  EXPECT_EQ(checkpoint->find("c")->type, TensorType::U8);
}

TEST(Checkpoint, WhatIsMissingIsNamed) {
  Folder folder;
  EXPECT_EQ(openRefusal(folder),
            "@ has neither model.safetensors nor model.safetensors.index.json");
  folder.write("model.safetensors.index.json", "{}");
  EXPECT_EQ(openRefusal(folder),
            "model.safetensors.index.json has no weight_map");
  folder.write("model.safetensors.index.json",
               R"({"weight_map": {"z": "s1.safetensors"}})");
  EXPECT_EQ(openRefusal(folder),
            "model.safetensors.index.json names s1.safetensors for tensor z: "
            "s1.safetensors: No such file or directory");
  folder.write("s1.safetensors", Bytes(good, 32).view());
  EXPECT_EQ(openRefusal(folder), "s1.safetensors lacks tensor z, which "
                                 "model.safetensors.index.json expects");
  folder.write("model.safetensors.index.json",
               R"({"weight_map": {"z": "../s1.safetensors"}})");
  EXPECT_EQ(openRefusal(folder),
            "model.safetensors.index.json: tensor z is in "
            "\"../s1.safetensors\", which is no file name");
  folder.write("model.safetensors.index.json",
               "version https://git-lfs.github.com/spec/v1\noid sha256:0");
  EXPECT_EQ(openRefusal(folder),
            "model.safetensors.index.json is a Git LFS pointer, not the file "
            "itself; run `git lfs pull`");
  folder.write("model.safetensors.index.json",
               R"({"weight_map": {"a": "s1.safetensors",
                   "a": "s2.safetensors"}})");
  EXPECT_EQ(openRefusal(folder),
            "model.safetensors.index.json has the key 'a' twice");
}

/// What the index does not say of a shard must not change what is loaded.
TEST(Checkpoint, ShardsWithMoreThanTheIndexSays) {
  Folder folder;
  const char other[] =
      R"({"b": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}})";
  folder.write("s1.safetensors", Bytes(good, 32).view());
  folder.write("s2.safetensors", Bytes(other, 3).view());
  folder.write("model.safetensors.index.json",
               R"({"weight_map": {"a": "s1.safetensors"}})");
  StatusOr<Checkpoint> checkpoint = Checkpoint::open(folder.path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint->find("b"), nullptr);
  EXPECT_EQ(checkpoint->unlisted(), std::vector<std::string>({"b"}));
  folder.write("model.safetensors.index.json", R"({"weight_map":
    {"a": "s1.safetensors", "b": "s2.safetensors"}})");
  EXPECT_EQ(openRefusal(folder),
            "s1.safetensors has tensor b too, which "
            "model.safetensors.index.json puts into s2.safetensors");
}
