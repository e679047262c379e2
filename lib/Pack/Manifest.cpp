#include "kdac/Pack/Manifest.h"
#include "Fields.h"
#include "kdac/Pack/SizeExpr.h"

#include <limits>
#include <numeric>

using nlohmann::json;

namespace kdac {

namespace {

constexpr int64_t anySize = std::numeric_limits<int64_t>::max();
/// Bytes that a pointer argument is aligned to; one 16-byte vector load.
constexpr int64_t pointerAlignment = 16;

std::optional<ImageKind> parseImageKind(std::string_view text) {
  for (ImageKind kind : {ImageKind::Ptx, ImageKind::Cubin, ImageKind::HostSo})
    if (spell(kind) == text)
      return kind;
  return std::nullopt;
}

std::string_view spellKind(ArgKind kind) {
  switch (kind) {
  case ArgKind::Input:
    return "input";
  case ArgKind::Output:
    return "output";
  case ArgKind::Workspace:
    return "workspace";
  case ArgKind::Size:
    return "size";
  case ArgKind::Scale:
    return "scale";
  }
  return "?";
}

std::optional<ArgKind> parseArgKind(std::string_view text) {
  for (ArgKind kind : {ArgKind::Input, ArgKind::Output, ArgKind::Workspace,
                       ArgKind::Size, ArgKind::Scale})
    if (spellKind(kind) == text)
      return kind;
  return std::nullopt;
}

// Writing. nlohmann::json keeps object keys sorted: dump() is canonical.

json recurrenceJson(const Variant &v) {
  return {{"recurrence", v.recurrence},
          {"form", spell(v.form)},
          {"key_dim", v.keyDim},
          {"value_dim", v.valueDim},
          {"dtype", spell(v.dtype)},
          {"state_dtype", spell(v.stateDtype)},
          {"state_layout", spell(v.stateLayout)},
          {"gate", spell(*v.gate)},
          {"gate_dtype", spell(*v.gateDtype)},
          {"beta", spell(*v.beta)},
          {"l2norm", *v.l2norm},
          {"lower_bound", v.lowerBound},
          {"offset_dtype", spell(v.offsetDtype)},
          {"slots", v.slots ? spell(*v.slots) : "none"},
          {"snapshots", v.snapshots},
          {"log", v.log},
          {"conv", v.conv},
          {"cache_layout", spell(v.cacheLayout)},
          {"norm", spell(v.norm)},
          {"norm_eps", v.normEps},
          {"precision", spell(v.precision)},
          {"target", v.target}};
}

/// Every option of the variant. Those of forms rows and matmul belong to them
/// alone: older runtimes read the others as ever.
json variantJson(const Variant &v) {
  json value = recurrenceJson(v);
  if (v.form == Form::Rows || v.form == Form::Matmul)
    value["rows"] = spell(v.rows);
  if (v.form == Form::Rows)
    value["width"] = v.width;
  return value;
}

json argJson(const LaunchArg &a) {
  return {{"name", a.arg.name},          {"kind", spellKind(a.arg.kind)},
          {"dtype", spell(a.arg.dtype)}, {"optional", a.arg.optional},
          {"shape", a.arg.shape},        {"alignment", a.alignment}};
}

json launchJson(const Launch &launch) {
  json args = json::array();
  for (const LaunchArg &arg : launch.args)
    args.push_back(argJson(arg));
  return {{"entry", launch.entry},
          {"args", std::move(args)},
          {"abi", spell(launch.abi)},
          {"grid", launch.grid},
          {"when", launch.when},
          {"uses_workspace", launch.usesWorkspace},
          {"overlaps", launch.overlaps},
          {"block_threads", launch.blockThreads},
          {"shared_bytes", launch.sharedBytes},
          {"waits", launch.waits},
          {"scratch_bytes", launch.scratchBytes},
          {"registers", launch.registers},
          {"spill_bytes", launch.spillBytes},
          {"ptx_sha256", launch.ptxSha256},
          {"images", launch.images}};
}

json packVariantJson(const PackVariant &v) {
  json launches = json::array(), sizes = json::array();
  for (const auto &[name, text] : v.sizes)
    sizes.push_back({{"name", name}, {"value", text}});
  for (const Launch &launch : v.launches)
    launches.push_back(launchJson(launch));
  return {{"name", v.name()},         {"variant", variantJson(v.variant)},
          {"schedule", v.schedule},   {"llvm", v.llvmVersion},
          {"ptxas", v.ptxasVersion},  {"launches", std::move(launches)},
          {"workspace", v.workspace}, {"sizes", std::move(sizes)}};
}

json imageJson(const Image &image) {
  return {{"kind", spell(image.kind)},
          {"arch", image.arch},
          {"offset", image.offset},
          {"size", image.size},
          {"sha256", image.sha256}};
}

std::string dump(const json &value) {
  // Strings from users may hold anything; replace what is not UTF-8.
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Reading. A field that came after version 1 may be missing in a pack of that
// version, and then means what kernels were before there was the field.

/// True if the field is to be read.
bool expects(const Fields &f, const char *key, uint32_t version) {
  return version > 1 || f.has(key);
}

/// The type of slot indices, or "none".
std::optional<DType> readSlots(Fields &f) {
  std::string text = f.text("slots");
  std::optional<DType> dtype = parseDType(text);
  if (!dtype && text != "none")
    f.reject("slots", "unknown value '" + text + "'");
  return dtype;
}

Variant readVariant(const json &value, const std::string &where,
                    uint32_t version, Status &status) {
  Fields f(value, where, status);
  Variant v;
  v.recurrence = f.text("recurrence");
  v.form = f.spelled("form", parseForm);
  v.keyDim = f.integer("key_dim", 1, anySize);
  v.valueDim = f.integer("value_dim", 1, anySize);
  v.dtype = f.spelled("dtype", parseDType);
  v.stateDtype = f.spelled("state_dtype", parseDType);
  v.stateLayout = f.spelled("state_layout", parseStateLayout);
  v.gate = f.spelled("gate", parseGate);
  v.gateDtype = f.spelled("gate_dtype", parseDType);
  v.beta = f.spelled("beta", parseBeta);
  v.l2norm = f.boolean("l2norm");
  v.lowerBound = f.number("lower_bound");
  v.offsetDtype = f.spelled("offset_dtype", parseDType);
  auto has = [&](const char *key) { return expects(f, key, version); };
  if (has("slots"))
    v.slots = readSlots(f);
  if (has("snapshots"))
    v.snapshots = f.boolean("snapshots");
  if (f.has("log"))
    v.log = f.boolean("log");
  if (has("conv"))
    v.conv = f.integer("conv", 0, anySize);
  if (has("cache_layout"))
    v.cacheLayout = f.spelled("cache_layout", parseCacheLayout);
  if (has("norm"))
    v.norm = f.spelled("norm", parseOutputNorm);
  if (has("norm_eps"))
    v.normEps = f.number("norm_eps");
  v.precision = f.spelled("precision", parsePrecision);
  if (f.has("rows"))
    v.rows = f.spelled("rows", parseRowOp);
  if (f.has("width"))
    v.width = f.integer("width", 0, anySize);
  v.target = f.text("target");
  if (!status.ok())
    return v;
  if (auto error = resolve(v))
    f.reject("", *error);
  return v;
}

/// What size expressions may use; Call.cpp binds them.
const std::vector<std::string_view> sizeNames = {
    "N",  "T", "D", "E",       "tile_count", "tokens", "H",
    "HV", "K", "V", "checked", "committed",  "sms",    "clusters"};

LaunchArg readArg(const json &value, const std::string &where, Status &status) {
  Fields f(value, where, status);
  LaunchArg a;
  a.arg.name = f.text("name");
  a.arg.kind = f.spelled("kind", parseArgKind);
  a.arg.dtype = f.spelled("dtype", parseDType);
  a.arg.optional = f.boolean("optional");
  a.arg.shape = f.text("shape");
  a.alignment = f.integer("alignment", 1, 4096);
  return a;
}

/// Names that size expressions of a variant may use.
using SizeNames = std::vector<std::string_view>;

void readSizes(Fields &f, NamedSizes &sizes, SizeNames &names, Status &status) {
  f.array("sizes", [&](const json &size, const std::string &at) {
    Fields inner(size, at, status);
    std::string name = inner.text("name"), text = inner.text("value");
    if (status.ok() && name.empty())
      inner.reject("name", "is empty");
    if (status.ok())
      if (Status s = checkSizeExpr(text, names); !s.ok())
        inner.reject("value", s.message());
    sizes.emplace_back(std::move(name), std::move(text));
    names = sizeNames; // all again: a growing vector moves its strings
    for (const auto &named : sizes)
      names.push_back(named.first);
  });
}

Launch readLaunch(const json &value, const std::string &where,
                  size_t imageCount, const SizeNames &names, uint32_t version,
                  Status &status) {
  Fields f(value, where, status);
  Launch launch;
  launch.entry = f.text("entry");
  f.array("args", [&](const json &arg, const std::string &at) {
    launch.args.push_back(readArg(arg, at, status));
  });
  if (expects(f, "abi", version))
    launch.abi = f.spelled("abi", parseLaunchAbi);
  launch.grid = f.text("grid");
  if (version > 2) {
    launch.when = f.text("when");
    launch.usesWorkspace = f.boolean("uses_workspace");
    launch.overlaps = f.boolean("overlaps");
  }
  for (auto [key, text] :
       {std::pair("grid", &launch.grid), std::pair("when", &launch.when)})
    if (status.ok() && (key == std::string_view("grid") || !text->empty()))
      if (Status size = checkSizeExpr(*text, names); !size.ok())
        f.reject(key, size.message());
  launch.blockThreads = f.integer("block_threads", 1, 1024);
  launch.sharedBytes = f.integer("shared_bytes", 0, 1 << 20);
  if (f.has("waits"))
    launch.waits = f.boolean("waits");
  launch.scratchBytes = f.integer("scratch_bytes", 0, int64_t(1) << 40);
  launch.registers = f.integer("registers", 0, 1 << 16);
  launch.spillBytes = f.integer("spill_bytes", 0, 1 << 30);
  launch.ptxSha256 = f.text("ptx_sha256");
  f.array("images", [&](const json &index, const std::string &) {
    if (!index.is_number_unsigned() || index.get<uint64_t>() >= imageCount)
      f.reject("images", index.dump() + " is not one of " +
                             std::to_string(imageCount) + " images");
    else
      launch.images.push_back(index.get<size_t>());
  });
  if (launch.images.empty())
    f.reject("images", "is empty");
  return launch;
}

PackVariant readPackVariant(const json &value, const std::string &where,
                            size_t imageCount, uint32_t version,
                            Status &status) {
  Fields f(value, where, status);
  PackVariant v;
  std::string name = f.text("name");
  auto variant = value.is_object() ? value.find("variant") : value.end();
  if (value.is_object() && variant != value.end())
    v.variant = readVariant(*variant, where + ".variant", version, status);
  else
    f.reject("variant", "is missing");
  v.schedule = f.text("schedule");
  v.llvmVersion = f.text("llvm");
  v.ptxasVersion = f.text("ptxas");
  SizeNames names = sizeNames;
  if (version > 2)
    readSizes(f, v.sizes, names, status);
  if (expects(f, "workspace", version))
    v.workspace = f.text("workspace");
  if (status.ok() && !v.workspace.empty())
    if (Status bytes = checkSizeExpr(v.workspace, names); !bytes.ok())
      f.reject("workspace", bytes.message());
  f.array("launches", [&](const json &launch, const std::string &at) {
    v.launches.push_back(
        readLaunch(launch, at, imageCount, names, version, status));
    if (version <= 2)
      v.launches.back().usesWorkspace = !v.workspace.empty();
  });
  if (v.launches.empty())
    f.reject("launches", "is empty");
  if (status.ok() && name != v.name())
    f.reject("name", "'" + name +
                         "' does not match its options, which spell '" +
                         v.name() + "'");
  return v;
}

Image readImage(const json &value, const std::string &where, Status &status) {
  Fields f(value, where, status);
  Image image;
  image.kind = f.spelled("kind", parseImageKind);
  image.arch = f.text("arch");
  image.offset = static_cast<uint64_t>(f.integer("offset", 0, anySize));
  image.size = static_cast<uint64_t>(f.integer("size", 0, anySize));
  image.sha256 = f.text("sha256");
  return image;
}

StatusOr<json> parseJson(std::string_view text) {
  json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded())
    return Status(ErrorCode::Corrupt, "the manifest is not valid JSON");
  return value;
}

void checkOrder(const Manifest &manifest, Fields &f) {
  for (size_t i = 1; i < manifest.variants.size(); ++i)
    if (manifest.variants[i - 1].name() >= manifest.variants[i].name())
      f.reject("variants", "'" + manifest.variants[i].name() +
                               "' is not sorted or appears twice");
}

/// What a stride of a tensor of this shape is a multiple of, in elements.
int64_t strideAlignment(const Variant &v, const Arg &tensor) {
  int64_t line = 1;
  if (tensor.shape.find(", D]") != std::string::npos) // of 16 bytes
    line = pointerAlignment;
  else if (tensor.shape.find(", K]") != std::string::npos)
    line = v.keyDim;
  else if (tensor.shape.find(", V]") != std::string::npos)
    line = v.valueDim;
  int64_t size = dtypeSize(tensor.dtype);
  return std::max<int64_t>(1, std::gcd(pointerAlignment, line * size) / size);
}

/// Lines of a pool's states stay aligned.
int64_t pitchAlignment(const Variant &v) {
  int64_t line = v.stateLayout == StateLayout::VK ? v.keyDim : v.valueDim;
  int64_t size = dtypeSize(v.stateDtype);
  return std::max<int64_t>(1, std::gcd(pointerAlignment, line * size) / size);
}

/// Channels of a cache [D, W] stay aligned where W is a power of two: their
/// entries are stored together.
int64_t cachePitchAlignment(const Variant &v) {
  bool isPowerOf2 = v.conv > 0 && (v.conv & (v.conv - 1)) == 0;
  return v.cacheLayout == CacheLayout::Full && isPowerOf2 ? v.conv : 1;
}

/// Integers are read one by one.
bool isIndices(const Arg &arg) {
  return arg.dtype == DType::I32 || arg.dtype == DType::I64;
}

} // namespace

std::string_view spell(ImageKind kind) {
  switch (kind) {
  case ImageKind::Ptx:
    return "ptx";
  case ImageKind::Cubin:
    return "cubin";
  case ImageKind::HostSo:
    return "host-so";
  }
  return "?";
}

std::string spellImages(const Manifest &manifest, const Launch &launch) {
  std::string text;
  for (size_t index : launch.images)
    text += (text.empty() ? "" : " ") +
            std::string(spell(manifest.images[index].kind)) + ":" +
            manifest.images[index].arch;
  return text;
}

std::vector<LaunchArg> launchArgs(const Variant &variant) {
  std::vector<Arg> args = kernelArgs(variant);
  std::vector<LaunchArg> result;
  for (const Arg &arg : args) {
    int64_t alignment = 1;
    if (arg.kind == ArgKind::Input || arg.kind == ArgKind::Output ||
        arg.kind == ArgKind::Workspace)
      alignment = isIndices(arg) ? dtypeSize(arg.dtype) : pointerAlignment;
    if (arg.name == "slot_pitch" || arg.name == "head_pitch")
      alignment = pitchAlignment(variant);
    if (arg.name == "q_cache_pitch" || arg.name == "k_cache_pitch" ||
        arg.name == "v_cache_pitch")
      alignment = cachePitchAlignment(variant);
    bool isPrompt = variant.form == Form::Prompt;
    bool isMatmul = variant.form == Form::Matmul;
    if (arg.name == "D" || arg.name == "rank" || arg.name == "x_pitch" ||
        (arg.name == "R" && (isPrompt || variant.form == Form::Attention)) ||
        (arg.name == "E" && isPrompt))
      alignment = pointerAlignment / dtypeSize(variant.dtype);
    for (const Arg &tensor : args)
      if (arg.name == tensor.name + "_stride")
        alignment = isPrompt || isMatmul
                        ? pointerAlignment / dtypeSize(tensor.dtype)
                        : strideAlignment(variant, tensor);
    // Results of products are stored in pairs.
    bool isResult = arg.kind == ArgKind::Output;
    if (isMatmul && (isResult || arg.name == "E" || arg.name == "out_stride" ||
                     arg.name == "sums_stride"))
      alignment = 2 * (isResult ? dtypeSize(arg.dtype) : 1);
    result.push_back({arg, alignment});
  }
  return result;
}

std::string gridExpr(int64_t vTile) {
  return "N * HV * ceildiv(V, " + std::to_string(vTile) + ")";
}

std::string toJson(const Variant &variant) {
  return dump(variantJson(variant));
}

StatusOr<Variant> variantFromJson(std::string_view text) {
  StatusOr<json> value = parseJson(text);
  if (!value.ok())
    return value.status();
  Status status;
  Variant variant = readVariant(*value, "variant", packVersion, status);
  if (!status.ok())
    return status;
  return variant;
}

std::string toJson(const Manifest &manifest) {
  json variants = json::array(), images = json::array();
  for (const PackVariant &v : manifest.variants)
    variants.push_back(packVariantJson(v));
  for (const Image &image : manifest.images)
    images.push_back(imageJson(image));
  return dump(
      {{"variants", std::move(variants)}, {"images", std::move(images)}});
}

StatusOr<Manifest> manifestFromJson(std::string_view text, uint32_t version) {
  StatusOr<json> value = parseJson(text);
  if (!value.ok())
    return value.status();
  Status status;
  Manifest manifest;
  Fields f(*value, "", status);
  f.array("images", [&](const json &image, const std::string &where) {
    manifest.images.push_back(readImage(image, where, status));
  });
  f.array("variants", [&](const json &v, const std::string &where) {
    manifest.variants.push_back(
        readPackVariant(v, where, manifest.images.size(), version, status));
  });
  if (status.ok())
    checkOrder(manifest, f);
  if (!status.ok())
    return status;
  return manifest;
}

} // namespace kdac
