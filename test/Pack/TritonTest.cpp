// Kernels in the forms of Triton's tools: names, hashes and lines that its
// loader and its linker read, by values worked out by hand (docs/TRITON.md).
#include "kdac/Pack/Triton.h"
#include "Sample.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace kdac;
using nlohmann::json;

namespace {

PackReader packOf(Launch (*change)(Launch) = nullptr, size_t launches = 1,
                  bool hasCubin = true) {
  PackWriter writer;
  std::vector<size_t> images;
  if (hasCubin)
    images.push_back(
        writer.addImage(ImageKind::Cubin, "sm_90a", "machine code"));
  images.push_back(writer.addImage(ImageKind::Ptx, "sm_90a", "text"));
  PackVariant v = sample::packVariant(sample::variant("sm_90a", 128), images);
  v.schedule = "#tile.schedule<chunk = 64, stages = 3, operand = bf16>";
  if (change)
    v.launches[0] = change(v.launches[0]);
  v.launches.resize(launches, v.launches[0]);
  writer.add(v);
  return *PackReader::fromBytes(*writer.serialize(), "sample");
}

const std::string entry = "kdac_kda_chunk_k128v128_bf16_f32vk_bounded_sm_90a";

const NamedFile *find(const std::vector<NamedFile> &files,
                      const std::string &ending) {
  for (const NamedFile &file : files)
    if (file.path.size() >= ending.size() &&
        file.path.compare(file.path.size() - ending.size(), ending.size(),
                          ending) == 0)
      return &file;
  return nullptr;
}

TEST(Triton, CacheFolder) {
  PackReader pack = packOf();
  auto files = tritonCache(pack, "/root");
  ASSERT_TRUE(files.ok()) << files.status().message();
  ASSERT_EQ(files->size(), 4u);
  EXPECT_EQ(find(*files, entry + ".cubin")->bytes, "machine code");
  EXPECT_EQ(find(*files, entry + ".ptx")->bytes, "text");
  std::string folder = (*files)[0].path.substr(0, (*files)[0].path.find('/'));
  EXPECT_EQ(folder.size(), 52u); // base32 of 256 bits
  EXPECT_EQ(folder.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"),
            std::string::npos);
  json group = json::parse(find(*files, "__grp__" + entry + ".json")->bytes);
  EXPECT_EQ(group["child_paths"][entry + ".cubin"],
            "/root/" + folder + "/" + entry + ".cubin");
  EXPECT_EQ(group["child_paths"].size(), 3u);
}

/// Everything that Triton 3.5 to 3.8 reads, and names that namedtuple takes.
TEST(Triton, Metadata) {
  auto files = tritonCache(packOf(), "/root");
  json m = json::parse((*files)[0].bytes);
  EXPECT_EQ(m["name"], entry);
  EXPECT_EQ(m["target"],
            json({{"backend", "cuda"}, {"arch", 90}, {"warp_size", 32}}));
  EXPECT_EQ(m["shared"], 65536);
  EXPECT_EQ(m["num_warps"], 4);
  EXPECT_EQ(m["num_ctas"], 1);
  EXPECT_EQ(m["num_stages"], 3);
  EXPECT_EQ(m["cluster_dims"], json({1, 1, 1}));
  EXPECT_EQ(m["hash"].get<std::string>().size(), 64u);
  for (const char *key : {"global_scratch_size", "profile_scratch_size"})
    EXPECT_EQ(m[key], 0);
  for (const char *key : {"global_scratch_align", "profile_scratch_align"})
    EXPECT_EQ(m[key], 1);
  for (const char *key : {"launch_cooperative_grid", "launch_pdl"})
    EXPECT_EQ(m[key], false);
  EXPECT_TRUE(m["tmem_size"].is_null());
  EXPECT_EQ(m["tensordesc_meta"], json::array());
  for (const auto &item : m.items())
    EXPECT_EQ(item.key().find_first_not_of("abcdefghijklmnopqrstuvwxyz_"),
              std::string::npos)
        << item.key();
  const json &own = m["kdac"];
  EXPECT_EQ(own["grid"], "N * HV * ceildiv(V, 64)");
  EXPECT_EQ(own["abi"], "bare");
  EXPECT_EQ(own["args"][0]["type"], "*bf16");
  EXPECT_EQ(own["args"][0]["align_bytes"], 16);
}

/// Kernels that differ in machine code or in parameters have other folders.
TEST(Triton, HashIsOfTheKernel) {
  auto hash = [](const PackReader &pack) {
    auto files = tritonCache(pack, "/root");
    return json::parse((*files)[0].bytes)["hash"].get<std::string>();
  };
  std::string bare = hash(packOf());
  EXPECT_EQ(bare, hash(packOf()));
  EXPECT_NE(bare, hash(packOf([](Launch launch) {
              launch.abi = LaunchAbi::Triton;
              return launch;
            })));
}

std::string refusal(const PackReader &pack) {
  auto files = tritonCache(pack, "/root");
  EXPECT_FALSE(files.ok());
  auto aot = tritonAot(pack, "name");
  EXPECT_EQ(aot.status().message(), files.status().message());
  return files.status().message();
}

TEST(Triton, Refusals) {
  const std::string name = "kda.chunk.k128v128.bf16.f32vk.bounded.sm_90a "
                           "cannot be launched by Triton: ";
  EXPECT_EQ(refusal(packOf(nullptr, 2)),
            name + "it has 2 launches, but Triton's launcher makes one; "
                   "compile it with roles fused");
  EXPECT_EQ(refusal(packOf(nullptr, 1, false)),
            name + "it has no cubin; compile it with ptxas at hand");
  EXPECT_EQ(refusal(packOf([](Launch launch) {
              launch.blockThreads = 33;
              return launch;
            })),
            name + "its blocks of 33 threads are not whole warps");
  StatusOr<std::string> both = sample::writer().serialize();
  EXPECT_NE(refusal(*PackReader::fromBytes(*both, "both"))
                .find("it is host code; use GPU targets only"),
            std::string::npos);
  EXPECT_NE(tritonAot(packOf(), "9").status().message().find("C identifier"),
            std::string::npos);
}

/// sha256("*bf16:16 ... fp32 warps4xstages3")[:8], and the full-index suffix
/// that linkers of every version read.
TEST(Triton, AotNames) {
  auto files = tritonAot(packOf(), "mine");
  ASSERT_TRUE(files.ok()) << files.status().message();
  ASSERT_EQ(files->size(), 4u);
  std::string base = "mine_kda_chunk_k128v128_bf16_f32vk_bounded";
  const std::string &path = (*files)[2].path;
  ASSERT_EQ(path.substr(0, base.size() + 1), base + ".");
  std::string hash = path.substr(base.size() + 1, 8);
  EXPECT_EQ(hash, "28b3798f");
  const std::string &header = (*files)[2].bytes;
  EXPECT_NE(header.find("// tt-linker: " + base + "_" + hash +
                        "_0d1d2d3d4d5d6d7d"
                        "89d10d11d1213141516171819202122:CUdeviceptr q, "
                        "CUdeviceptr k, "),
            std::string::npos)
      << header;
  EXPECT_NE(header.find(", float scale:_warps4xstages3\n"), std::string::npos);
  EXPECT_NE(header.find("// tt-linker-backend: cuda\n"), std::string::npos);
}

} // namespace
