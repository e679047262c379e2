// Metadata that Triton's CompiledKernel reads. The keys are the union of what
// Triton 3.5 to 3.8 read (docs/TRITON.md); sizes of scratch are 0 because
// kdac's kernels never use it.
#include "Sha256.h"
#include "TritonKernels.h"
#include "kdac/Pack/Triton.h"

#include <nlohmann/json.hpp>

namespace kdac {

using nlohmann::ordered_json;

namespace triton {

std::string_view scalarName(DType dtype) {
  switch (dtype) {
  case DType::BF16:
    return "bf16";
  case DType::F16:
    return "fp16";
  case DType::F32:
    return "fp32";
  case DType::I32:
    return "i32";
  case DType::I64:
    return "i64";
  case DType::I8:
    return "i8";
  }
  return "?";
}

bool isPointer(const Arg &arg) {
  return arg.kind != ArgKind::Size && arg.kind != ArgKind::Scale;
}

int64_t stagesOf(const PackVariant &variant) {
  constexpr std::string_view key = "stages = ";
  size_t at = variant.schedule.find(key);
  int64_t stages = 0;
  for (size_t i = at == std::string::npos ? at : at + key.size();
       i < variant.schedule.size() && stages < 100; ++i) {
    char c = variant.schedule[i];
    if (c < '0' || c > '9')
      break;
    stages = stages * 10 + (c - '0');
  }
  return std::max<int64_t>(stages, 1);
}

namespace {

Status refuse(const PackVariant &variant, const std::string &why) {
  return Status(ErrorCode::Unsupported,
                variant.name() + " cannot be launched by Triton: " + why);
}

StatusOr<Kernel> kernelOf(const Manifest &manifest, const PackVariant &v) {
  constexpr int64_t warpSize = 32;
  if (v.launches.size() != 1)
    return refuse(v, "it has " + std::to_string(v.launches.size()) +
                         " launches, but Triton's launcher makes one; " +
                         (v.variant.slots ? "use slots none"
                                          : "compile it with roles fused"));
  Kernel kernel{&v, &v.launches[0], nullptr, nullptr, 0};
  for (size_t index : kernel.launch->images) {
    const Image &image = manifest.images[index];
    if (image.kind == ImageKind::Cubin)
      kernel.cubin = &image;
    else if (image.kind == ImageKind::Ptx)
      kernel.ptx = &image;
    else
      return refuse(v, "it is host code; use GPU targets only");
  }
  if (!kernel.cubin)
    return refuse(v, "it has no cubin; compile it with ptxas at hand");
  if (kernel.launch->blockThreads % warpSize != 0)
    return refuse(v, "its blocks of " +
                         std::to_string(kernel.launch->blockThreads) +
                         " threads are not whole warps");
  kernel.warps = kernel.launch->blockThreads / warpSize;
  return kernel;
}

} // namespace

StatusOr<std::vector<Kernel>> kernelsOf(const PackReader &pack) {
  std::vector<Kernel> kernels;
  for (const PackVariant &v : pack.manifest().variants) {
    StatusOr<Kernel> kernel = kernelOf(pack.manifest(), v);
    if (!kernel.ok())
      return kernel.status();
    kernels.push_back(*kernel);
  }
  if (kernels.empty())
    return Status(ErrorCode::InvalidArgument, "the pack has no variants");
  return kernels;
}

namespace {

/// 90 of "sm_90a".
int64_t archNumber(const std::string &arch) {
  int64_t number = 0;
  for (char c : arch)
    if (c >= '0' && c <= '9' && number < 100000)
      number = number * 10 + (c - '0');
  return number;
}

/// RFC 4648, without padding: how Triton names the folders of its cache.
std::string base32(const Digest &digest) {
  constexpr char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
  std::string text;
  uint32_t bits = 0;
  int count = 0;
  for (uint8_t byte : digest) {
    bits = bits << 8 | byte;
    for (count += 8; count >= 5; count -= 5)
      text += letters[bits >> (count - 5) & 31];
  }
  if (count > 0)
    text += letters[bits << (5 - count) & 31];
  return text;
}

ordered_json argumentJson(const LaunchArg &a) {
  return {{"name", a.arg.name},
          {"type", tritonType(a.arg)},
          {"shape", a.arg.shape},
          {"optional", a.arg.optional},
          {isPointer(a.arg) ? "align_bytes" : "multiple_of", a.alignment}};
}

/// What only kdac knows, under one key: Triton makes fields of the others.
ordered_json ownJson(const Kernel &kernel) {
  ordered_json args = ordered_json::array();
  for (const LaunchArg &a : kernel.launch->args)
    args.push_back(argumentJson(a));
  const Variant &v = kernel.variant->variant;
  return {{"variant", kernel.variant->name()},
          {"abi", spell(kernel.launch->abi)},
          {"args", std::move(args)},
          {"grid", kernel.launch->grid},
          {"workspace_bytes", kernel.variant->workspace},
          {"K", v.keyDim},
          {"V", v.valueDim},
          {"schedule", kernel.variant->schedule},
          {"registers", kernel.launch->registers},
          {"llvm", kernel.variant->llvmVersion},
          {"ptxas", kernel.variant->ptxasVersion},
          {"ptx_sha256", kernel.launch->ptxSha256},
          {"cubin_sha256", kernel.cubin->sha256}};
}

ordered_json metadataOf(const Kernel &kernel, const std::string &hash) {
  int64_t arch = archNumber(kernel.cubin->arch);
  return {{"name", kernel.launch->entry},
          {"hash", hash},
          {"target", {{"backend", "cuda"}, {"arch", arch}, {"warp_size", 32}}},
          {"arch", "sm" + std::to_string(arch)},
          {"backend_name", "cuda"},
          {"warp_size", 32},
          {"shared", kernel.launch->sharedBytes},
          {"num_warps", kernel.warps},
          {"num_ctas", 1},
          {"cluster_dims", {1, 1, 1}},
          {"num_stages", stagesOf(*kernel.variant)},
          {"tensordesc_meta", ordered_json::array()},
          {"tmem_size", nullptr},
          {"global_scratch_size", 0},
          {"global_scratch_align", 1},
          {"profile_scratch_size", 0},
          {"profile_scratch_align", 1},
          {"launch_cooperative_grid", false},
          {"launch_pdl", false},
          {"instrumentation_mode", ""},
          {"triton_version", "kdac"},
          {"kdac", ownJson(kernel)}};
}

void addFolder(const PackReader &pack, const Kernel &kernel,
               const std::string &root, std::vector<NamedFile> &files) {
  const std::string &name = kernel.launch->entry;
  Digest digest = sha256(
      {name, "\n", spell(kernel.launch->abi), "\n", kernel.cubin->sha256});
  std::string folder = base32(digest) + "/";
  ordered_json children = ordered_json::object();
  auto add = [&](const std::string &file, std::string bytes) {
    children[file] = root + "/" + folder + file;
    files.push_back({folder + file, std::move(bytes)});
  };
  add(name + ".json", metadataOf(kernel, hex(digest)).dump(1) + "\n");
  add(name + ".cubin", std::string(pack.bytes(*kernel.cubin)));
  if (kernel.ptx)
    add(name + ".ptx", std::string(pack.bytes(*kernel.ptx)));
  ordered_json group = {{"child_paths", std::move(children)}};
  files.push_back({folder + "__grp__" + name + ".json", group.dump() + "\n"});
}

} // namespace
} // namespace triton

std::string tritonType(const Arg &arg) {
  return (triton::isPointer(arg) ? "*" : "") +
         std::string(triton::scalarName(arg.dtype));
}

StatusOr<std::vector<NamedFile>> tritonCache(const PackReader &pack,
                                             const std::string &root) {
  StatusOr<std::vector<triton::Kernel>> kernels = triton::kernelsOf(pack);
  if (!kernels.ok())
    return kernels.status();
  std::vector<NamedFile> files;
  for (const triton::Kernel &kernel : *kernels)
    triton::addFolder(pack, kernel, root, files);
  return files;
}

} // namespace kdac
