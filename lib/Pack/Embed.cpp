#include "kdac/Pack/Embed.h"
#include "EmbedText.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace kdac {

namespace {

bool isIdentifier(const std::string &name) {
  bool good =
      !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0]));
  for (char c : name)
    good = good && (std::isalnum(static_cast<unsigned char>(c)) || c == '_');
  return good;
}

std::string identifier(std::string text) {
  for (char &c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)))
      c = '_';
  return text;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  return text;
}

} // namespace

std::vector<embed::Function> embed::functionsOf(const PackReader &pack,
                                                const std::string &name) {
  std::vector<Function> functions;
  for (const PackVariant &v : pack.manifest().variants) {
    if (!isRecurrent(v.variant.form))
      continue; // no call of the C ABI
    std::string stem = variantStem(v.variant);
    bool known = std::any_of(functions.begin(), functions.end(),
                             [&](const Function &f) { return f.stem == stem; });
    if (!known)
      functions.push_back({stem, name + "_" + identifier(stem), &v});
  }
  return functions;
}

Status embed::checkName(const std::string &name) {
  if (isIdentifier(name))
    return Status::success();
  return Status(ErrorCode::InvalidArgument,
                "name '" + name + "' is not a C identifier");
}

std::string embed::wordsOf(std::string_view file, const std::string &name) {
  std::string text = "static const uint64_t " + name + "_pack[] = {\n";
  text.reserve(text.size() + file.size() / 8 * 20 + 32);
  for (size_t at = 0, count = 0; at < file.size(); at += 8, ++count) {
    uint64_t word = 0;
    for (size_t i = std::min<size_t>(8, file.size() - at); i-- > 0;)
      word = word << 8 | static_cast<unsigned char>(file[at + i]);
    char digits[24];
    std::snprintf(digits, sizeof digits, "0x%llx,",
                  static_cast<unsigned long long>(word));
    text += digits;
    if (count % 4 == 3)
      text += '\n';
  }
  return text + "};\n\n";
}

namespace {

using namespace embed;

std::string_view cType(DType dtype) {
  switch (dtype) {
  case DType::BF16:
  case DType::F16:
    return "uint16_t";
  case DType::F32:
    return "float";
  case DType::I32:
    return "int32_t";
  case DType::I64:
    return "int64_t";
  case DType::I8:
    return "int8_t";
  }
  return "void";
}

std::string fieldOf(const LaunchArg &a) {
  const Arg &arg = a.arg;
  switch (arg.kind) {
  case ArgKind::Size:
    return "  int64_t " + arg.name + ";\n";
  case ArgKind::Scale:
    return "  float " + arg.name + "; /* 0: K^-0.5 */\n";
  case ArgKind::Workspace:
    return "  void *workspace; /* device memory, may be NULL if 0 bytes */\n"
           "  int64_t workspace_bytes;\n";
  case ArgKind::Input:
  case ArgKind::Output:
    break;
  }
  return std::string("  ") + (arg.kind == ArgKind::Input ? "const " : "") +
         std::string(cType(arg.dtype)) + " *" + arg.name + "; /* " +
         std::string(spell(arg.dtype)) + " " + arg.shape +
         (arg.optional ? ", may be NULL" : "") + " */\n";
}

/// The bytes are in an object file beside this source.
std::string externalOf(const std::string &name) {
  return "#ifdef __GNUC__\n__attribute__((visibility(\"hidden\")))\n#endif\n"
         "extern const unsigned char " +
         embedSymbol(name) + "[];\n\n";
}

std::string loaderOf(size_t fileSize, const std::string &name,
                     size_t functionCount) {
  std::string count = std::to_string(functionCount);
  return "void " + name + "_close(" + name +
         "_kernels *kernels) {\n  int i;\n  for (i = 0; i < " + count +
         "; ++i) {\n    kdac_kernel_close(kernels->kernel[i]);\n"
         "    kernels->kernel[i] = 0;\n  }\n}\n\nkdac_status *" +
         name + "_load(kdac_device *device, " + name +
         "_kernels *out_kernels) {\n  kdac_pack *pack;\n  int i;\n"
         "  kdac_status *status = kdac_pack_open_memory(" +
         name + "_pack, " + std::to_string(fileSize) + ", \"" + name +
         "\", &pack);\n  for (i = 0; i < " + count +
         "; ++i)\n    out_kernels->kernel[i] = 0;\n  if (status)\n"
         "    return status;\n  for (i = 0; !status && i < " +
         count + "; ++i)\n    status = kdac_kernel_load_named(device, pack, " +
         name +
         "_names[i],\n                                    "
         "&out_kernels->kernel[i]);\n  kdac_pack_close(pack);\n"
         "  if (status)\n    " +
         name + "_close(out_kernels);\n  return status;\n}\n\n";
}

bool hasWorkspace(const Function &f) {
  for (const LaunchArg &a : f.variant->launches[0].args)
    if (a.arg.kind == ArgKind::Workspace)
      return true;
  return false;
}

std::string declarationOf(const Function &f, const std::string &name) {
  const Variant &v = f.variant->variant;
  std::string text = "/* " + std::string(equationOf(v)) + ";\n * " +
                     std::string(spell(v.form)) + " form, K " +
                     std::to_string(v.keyDim) + ", V " +
                     std::to_string(v.valueDim) +
                     ". Fields as in kdac_call; strides of 0: contiguous. */\n"
                     "typedef struct " +
                     f.symbol + "_args {\n";
  for (const LaunchArg &a : f.variant->launches[0].args)
    text += fieldOf(a);
  std::string first = "(const " + name + "_kernels *kernels,\n    ";
  std::string args = "const " + f.symbol + "_args *args";
  text += "} " + f.symbol + "_args;\nKDAC_CHECKED kdac_status *" + f.symbol +
          first + "void *stream, " + args + ");\n";
  if (hasWorkspace(f))
    text += "KDAC_CHECKED kdac_status *" + f.symbol + "_workspace_bytes" +
            first + args + ", int64_t *out_bytes);\n";
  return text + "\n";
}

std::string definitionsOf(const Function &f, const std::string &name,
                          size_t index) {
  std::string args = "const " + f.symbol + "_args *args";
  std::string kernels = "(const " + name + "_kernels *kernels";
  std::string kernel = "(kernels->kernel[" + std::to_string(index) + "], ";
  std::string text = "static kdac_call call_of_" + f.symbol + "(" + args +
                     ") {\n  kdac_call call = {0};\n"
                     "  call.struct_size = sizeof call;\n";
  for (const LaunchArg &a : f.variant->launches[0].args)
    text += "  call." + a.arg.name + " = args->" + a.arg.name + ";\n";
  if (hasWorkspace(f))
    text += "  call.workspace_bytes = args->workspace_bytes;\n";
  text += "  return call;\n}\n\n";
  if (hasWorkspace(f))
    text += "kdac_status *" + f.symbol + "_workspace_bytes" + kernels +
            ",\n    " + args +
            ", int64_t *out_bytes) {\n  kdac_call call = call_of_" + f.symbol +
            "(args);\n  return kdac_kernel_workspace_bytes" + kernel +
            "&call, out_bytes);\n}\n\n";
  return text + "kdac_status *" + f.symbol + kernels + ", void *stream,\n    " +
         args + ") {\n  kdac_call call = call_of_" + f.symbol +
         "(args);\n  return kdac_kernel_launch" + kernel +
         "stream, &call);\n}\n\n";
}

std::string headerOf(const std::vector<Function> &functions,
                     const std::string &name) {
  std::string guard = "KDAC_EMBEDDED_" + upper(name) + "_H";
  std::string text =
      "/* Written by kdac embed; do not edit. The kernels of pack " + name +
      ", and a typed\n * launch function for each. */\n#ifndef " + guard +
      "\n#define " + guard +
      "\n\n#include <kdac-c/kdac.h>\n\n#ifdef __cplusplus\nextern \"C\" "
      "{\n#endif\n#ifdef __GNUC__\n#pragma GCC visibility "
      "push(hidden)\n#endif\n\n";
  text += "/* Every kernel of the pack, loaded onto one device. */\n"
          "typedef struct " +
          name + "_kernels {\n  kdac_kernel *kernel[" +
          std::to_string(functions.size()) + "];\n} " + name +
          "_kernels;\n\n"
          "/* Loads them all, or none and says why. */\n"
          "KDAC_CHECKED kdac_status *" +
          name + "_load(kdac_device *device, " + name +
          "_kernels *out_kernels);\nvoid " + name + "_close(" + name +
          "_kernels *kernels);\n\n";
  for (const Function &f : functions)
    text += declarationOf(f, name);
  return text + "#ifdef __GNUC__\n#pragma GCC visibility pop\n#endif\n#ifdef "
                "__cplusplus\n}\n#endif\n\n#endif\n";
}

std::string sourceOf(const PackReader &pack,
                     const std::vector<Function> &functions,
                     const std::string &name, EmbedBytes bytes) {
  std::string data = bytes == EmbedBytes::InSource ? wordsOf(pack.file(), name)
                                                   : externalOf(name);
  std::string text = "/* Written by kdac embed; do not edit. */\n#include \"" +
                     name + ".h\"\n\n" + data + "static const char *const " +
                     name + "_names[] = {\n";
  for (const Function &f : functions)
    text += "    \"" + f.stem + "\",\n";
  text += "};\n\n" + loaderOf(pack.file().size(), name, functions.size());
  for (size_t i = 0; i < functions.size(); ++i)
    text += definitionsOf(functions[i], name, i);
  return text;
}

} // namespace

std::string embedSymbol(const std::string &name) { return name + "_pack"; }

StatusOr<EmbeddedSources> embedPack(const PackReader &pack,
                                    const std::string &name, EmbedBytes bytes) {
  if (Status status = checkName(name); !status.ok())
    return status;
  std::vector<Function> functions = functionsOf(pack, name);
  if (functions.empty())
    return Status(ErrorCode::InvalidArgument,
                  pack.manifest().variants.empty()
                      ? "the pack has no variants"
                      : "the pack has no recurrences, which are what the C ABI "
                        "calls");
  return EmbeddedSources{headerOf(functions, name),
                         sourceOf(pack, functions, name, bytes)};
}

std::string embedName(const std::string &path) {
  std::string name = path.substr(path.rfind('/') + 1);
  name = identifier(name.substr(0, name.find('.')));
  return name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))
             ? "pack_" + name
             : name;
}

} // namespace kdac
