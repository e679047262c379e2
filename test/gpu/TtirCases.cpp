// kdac-ttir-cases: kernels as Triton IR on a GPU, without LLVM or kdac there.
//
//   kdac-ttir-cases prepare DIR               text, inputs and launches into
//   DIR python3 ttir.py DIR OUT                   where the GPU is: runs them
//   kdac-ttir-cases interpret OUT NAME        instead, one case on this CPU
//   kdac-ttir-cases judge OUT [LEDGER]        compares OUT with the oracle, and
//                                             appends ledger lines
//   kdac-ttir-cases missing LEDGER [EXPECTED] names of cases whose text no GPU
//                                             has run; or fails if they are not
//                                             those of a file
//
// `judge` makes the cases anew from their seeds: DIR and the judge must be of
// one commit, which the digests of the texts show.
#include "../Numerics/TritonInterpreter.h"

#include "kdac/Pipeline/Compile.h"
#include "kdac/Reference/Check.h"
#include "kdac/Target/Gpus.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"

#include <cstring>
#include <nlohmann/json.hpp>

using namespace kdac;
using namespace kdac::reference;
using nlohmann::ordered_json;

namespace {

/// A case, and how often its heads are repeated for the time that is taken.
struct GpuCase {
  std::string name;
  CaseSpec spec;
  int64_t repeat = 1;
};

int fail(const llvm::Twine &text) {
  llvm::errs() << "kdac-ttir-cases: " << text << '\n';
  return 2;
}

//===-- What runs
//----------------------------------------------------------===//

GpuCase packed(std::string name, Variant v, const char *recipe = "random") {
  GpuCase c;
  c.name = std::move(name);
  c.spec.variant = std::move(v);
  bool isChunk = c.spec.variant.form == Form::Chunk;
  c.spec.lengths = isChunk ? std::vector<int64_t>{0, 37, 200}
                           : std::vector<int64_t>{0, 5, 1};
  c.spec.trailing = c.spec.variant.slots ? 0 : 3;
  c.spec.heads = 1;
  c.spec.valueHeads = c.spec.variant.conv ? 1 : 2;
  c.spec.tokenGap = 8;
  c.spec.checked = false; // Triton launches one kernel
  c.spec.recipe = recipe;
  return c;
}

/// Dense, with the heads of a real model.
GpuCase timed(std::string name, Variant v, int64_t sequences, int64_t tokens) {
  GpuCase c;
  c.name = std::move(name);
  c.spec.variant = std::move(v);
  c.spec.sequences = sequences;
  c.spec.tokens = tokens;
  c.repeat = 96;
  return c;
}

std::vector<GpuCase> gpuCases() {
  Variant kda;
  kda.target = "sm_90a";
  auto with = [](Variant v, auto change) {
    change(v);
    return v;
  };
  Variant soft = with(kda, [](Variant &v) { v.gate = Gate::Softplus; });
  Variant high = with(soft, [](Variant &v) {
    v.precision = Precision::High;
    v.stateLayout = StateLayout::KV;
  });
  Variant f32 = with(kda, [](Variant &v) {
    v.dtype = DType::F32;
    v.gate = Gate::Identity;
    v.keyDim = v.valueDim = 64;
    v.offsetDtype = DType::I64;
  });
  Variant padded = with(kda, [](Variant &v) {
    v.dtype = DType::F16;
    v.keyDim = v.valueDim = 96;
  });
  Variant wide = with(kda, [](Variant &v) { v.keyDim = v.valueDim = 256; });
  Variant step = with(kda, [](Variant &v) { v.form = Form::Step; });
  Variant pool = with(step, [](Variant &v) {
    v.slots = DType::I32;
    v.snapshots = true;
  });
  Variant layer = with(step, [](Variant &v) {
    v.slots = DType::I32;
    v.conv = 4;
    v.norm = OutputNorm::Sigmoid;
  });
  std::vector<GpuCase> list = {
      packed("kda-chunk", kda),
      packed("kda-chunk-correlated", kda, "correlated"),
      packed("kda-chunk-softplus-extreme", soft, "gate_extreme"),
      packed("kda-chunk-high", high),
      packed("kda-chunk-f32", f32),
      packed("kda-chunk-k96", padded),
      packed("kda-chunk-k256", wide),
      packed("kda-step", step),
      packed("kda-step-pool", pool),
      packed("kda-step-layer", layer),
      timed("kda-chunk-time", kda, 1, 8192),
      timed("kda-step-time", step, 64, 1)};
  for (const char *name :
       {"gated_delta", "delta", "gla", "retention", "linear"})
    list.push_back(packed(std::string(name) + "-chunk",
                          with(kda, [&](Variant &v) { v.recurrence = name; })));
  list.push_back(packed("dplr-step", with(step, [](Variant &v) {
                          v.recurrence = "dplr";
                          v.gate = Gate::Softplus;
                        })));
  return list;
}

//===-- Files
//--------------------------------------------------------------===//

bool writeFile(const std::string &path, llvm::StringRef bytes) {
  std::error_code code;
  llvm::raw_fd_ostream os(path, code);
  os << bytes;
  os.close();
  return !code && !os.has_error();
}

llvm::Expected<std::string> readFile(const std::string &path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer)
    return llvm::createStringError(buffer.getError(), "cannot read " + path);
  return (*buffer)->getBuffer().str();
}

std::string sha256(llvm::StringRef bytes) {
  return llvm::toHex(llvm::SHA256::hash(llvm::arrayRefFromStringRef(bytes)),
                     /*LowerCase=*/true);
}

/// True if a run may change a buffer.
bool isWritten(const Case &c, const Buffer &buffer) {
  return buffer.kind() == ArgKind::Output || &buffer == c.poolAfter();
}

//===-- prepare
//------------------------------------------------------------===//

ordered_json bufferJson(const Case &c, const Buffer &buffer) {
  const Layout &layout = buffer.layout();
  return {{"name", buffer.name()},          {"dtype", spell(buffer.dtype())},
          {"tokens", layout.tokens},        {"heads", layout.heads},
          {"width", layout.width},          {"stride", layout.stride},
          {"bytes", buffer.bytes()},        {"guard", Buffer::guardBytes},
          {"written", isWritten(c, buffer)}};
}

/// What a launch passes: the number of a buffer, nothing, an integer, a float.
ordered_json argumentJson(const Arg &arg, void *value, const Case &c) {
  ordered_json json = {{"name", arg.name}};
  if (arg.kind == ArgKind::Size)
    json["i64"] = *static_cast<const int64_t *>(value);
  else if (arg.kind == ArgKind::Scale)
    json["f32"] = *static_cast<const float *>(value);
  else
    for (auto [i, buffer] : llvm::enumerate(c.buffers()))
      if (buffer.data() == *static_cast<void *const *>(value))
        json["buffer"] = i;
  return json;
}

std::string contents(const Case &c) {
  std::string bytes;
  for (const Buffer &buffer : c.buffers())
    bytes.append(static_cast<const char *>(buffer.whole()),
                 static_cast<size_t>(buffer.wholeBytes()));
  return bytes;
}

/// An empty text and a message if the case cannot be.
std::string textOf(const GpuCase &one) {
  llvm::Expected<std::string> text =
      printStage({one.spec.variant, {}}, Stage::Ttir);
  if (text)
    return *text;
  fail(llvm::toString(text.takeError()));
  return "";
}

int prepare(const std::string &directory) {
  if (std::error_code code = llvm::sys::fs::create_directories(directory))
    return fail("cannot create " + directory + ": " + code.message());
  ordered_json list = ordered_json::array();
  for (GpuCase &one : gpuCases()) {
    if (auto error = resolve(one.spec.variant))
      return fail(one.name + ": " + *error);
    if (auto error = validate(one.spec))
      return fail(one.name + ": " + *error);
    std::string text = textOf(one), stem = directory + "/" + one.name;
    Case c = makeCase(one.spec);
    c.poisonOutputs();
    ordered_json buffers = ordered_json::array(), args = buffers;
    for (const Buffer &buffer : c.buffers())
      buffers.push_back(bufferJson(c, buffer));
    void **argv = c.argv();
    for (auto [i, arg] : llvm::enumerate(kernelArgs(one.spec.variant)))
      args.push_back(argumentJson(arg, argv[i], c));
    list.push_back(
        {{"name", one.name},
         {"programs_per_slice", c.programs(one.spec.variant.valueDim)},
         {"repeat", one.repeat},
         {"buffers", buffers},
         {"args", args}});
    if (text.empty() || !writeFile(stem + ".ttir", text) ||
        !writeFile(stem + ".bin", contents(c)))
      return fail("cannot write " + stem);
  }
  if (!writeFile(directory + "/cases.json", list.dump(1)))
    return fail("cannot write " + directory + "/cases.json");
  llvm::outs() << list.size() << " cases in " << directory << '\n';
  return 0;
}

//===-- interpret
//----------------------------------------------------------===//

/// What ttir.py leaves behind of one case.
int interpret(const std::string &out, const std::string &name) {
  std::vector<GpuCase> cases = gpuCases();
  auto one =
      llvm::find_if(cases, [&](const GpuCase &c) { return c.name == name; });
  if (one == cases.end())
    return fail("no case " + name);
  if (auto error = resolve(one->spec.variant))
    return fail(name + ": " + *error);
  mlir::DialectRegistry registry;
  registerKdacDialects(registry);
  registry.insert<mlir::gpu::GPUDialect>();
  mlir::MLIRContext context(registry);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(textOf(*one), &context);
  if (!module)
    return 2;
  auto kernel = *module->getOps<tt::FuncOp>().begin();
  auto vTile = kernel->getAttrOfType<mlir::IntegerAttr>("kdac.v_tile").getInt();
  Case c = makeCase(one->spec);
  c.poisonOutputs();
  std::vector<Extent> extents;
  std::string written;
  for (Buffer &buffer : c.buffers())
    extents.emplace_back(buffer.data(), buffer.bytes());
  if (auto error =
          interpretTriton(kernel, c.argv(), c.programs(vTile), extents))
    return fail(name + ": " + *error);
  for (const Buffer &buffer : c.buffers())
    if (isWritten(c, buffer))
      written.append(static_cast<const char *>(buffer.whole()),
                     static_cast<size_t>(buffer.wholeBytes()));
  std::string path = out + "/" + name + ".out";
  return writeFile(path, written) ? 0 : fail("cannot write " + path);
}

//===-- judge
//--------------------------------------------------------------===//

/// Puts what a run left into the case's buffers.
std::optional<std::string> restore(Case &c, const std::string &path) {
  llvm::Expected<std::string> bytes = readFile(path);
  if (!bytes)
    return llvm::toString(bytes.takeError());
  size_t at = 0;
  for (Buffer &buffer : c.buffers()) {
    if (!isWritten(c, buffer))
      continue;
    auto size = static_cast<size_t>(buffer.wholeBytes());
    if (at + size > bytes->size())
      return path + " is too short";
    std::memcpy(buffer.whole(), bytes->data() + at, size);
    at += size;
  }
  if (at != bytes->size())
    return path + " is too long";
  return std::nullopt;
}

/// Bytes that any kernel must move.
double bytesMoved(const Case &c) {
  double bytes = 0;
  for (const Buffer &buffer : c.buffers())
    bytes += double(buffer.layout().elements() * dtypeSize(buffer.dtype()));
  return bytes;
}

double fourDigits(double value) {
  return std::stod(llvm::formatv("{0:e3}", value).str());
}

/// A line of test/gpu/ledger.jsonl. The PTX is the one that Triton made.
ordered_json ledgerLine(const GpuCase &one, const Case &c,
                        const CheckResult &result, const ordered_json &run,
                        const ordered_json &measured) {
  const Variant &v = one.spec.variant;
  bool isPacked = !one.spec.lengths.empty();
  ordered_json lengths, state;
  if (isPacked)
    lengths = one.spec.lengths;
  if (result.tensors.size() > 1)
    state = fourDigits(result.tensors[1].relative);
  std::string inputs = one.spec.recipe +
                       " seed=" + std::to_string(one.spec.seed) +
                       (one.repeat > 1 ? " repeated heads warm" : " warm");
  ordered_json what = {{"recurrence", v.recurrence},
                       {"form", spell(v.form)},
                       {"B", isPacked ? 1 : one.spec.sequences},
                       {"T", isPacked ? c.tokens() : one.spec.tokens},
                       {"N", c.sequences()},
                       {"lengths", lengths},
                       {"H", c.heads() * one.repeat},
                       {"HV", c.valueHeads() * one.repeat},
                       {"K", v.keyDim},
                       {"V", v.valueDim},
                       {"gate", spell(*v.gate)},
                       {"dtype", spell(v.dtype)},
                       {"state_dtype", spell(v.stateDtype)},
                       {"precision", spell(v.precision)},
                       {"schedule", measured["options"]},
                       {"inputs", inputs}};
  double floor = bytesMoved(c) * double(one.repeat) / gpus().front().bytes;
  return {{"variant", variantName(v) + ".ttir"},
          {"case", what},
          {"gpu", run["gpu"]},
          {"driver", run["driver"]},
          {"llvm", "Triton " + run["triton"].get<std::string>()},
          {"ptxas", run["ptxas"]},
          {"ptx_sha256", measured["ptx_sha256"]},
          {"ttir_sha256", measured["ttir_sha256"]},
          {"commit", run["commit"]},
          {"date", run["date"]},
          {"err",
           {{"out", fourDigits(result.tensors[0].relative)}, {"state", state}}},
          {"us", fourDigits(measured["us"].get<double>())},
          {"floor_us", fourDigits(floor)}};
}

/// What `results.json` says about a case, or a sentence.
llvm::Expected<ordered_json> measuredOf(const ordered_json &results,
                                        const GpuCase &one) {
  auto error = [&](const llvm::Twine &text) {
    return llvm::createStringError(llvm::inconvertibleErrorCode(), text);
  };
  for (const ordered_json &entry : results["cases"]) {
    if (entry["name"] != one.name)
      continue;
    if (entry.contains("error"))
      return error(entry["error"].get<std::string>());
    if (entry["ttir_sha256"] != sha256(textOf(one)))
      return error("ran other Triton IR than this commit prints");
    return entry;
  }
  return error("did not run");
}

int judge(const std::string &out, const std::string &ledger) {
  llvm::Expected<std::string> text = readFile(out + "/results.json");
  if (!text)
    return fail(llvm::toString(text.takeError()));
  ordered_json results = ordered_json::parse(*text, nullptr, false);
  if (results.is_discarded())
    return fail(out + "/results.json is not JSON");
  std::string lines;
  int failures = 0;
  for (GpuCase &one : gpuCases()) {
    if (auto error = resolve(one.spec.variant))
      return fail(one.name + ": " + *error);
    llvm::Expected<ordered_json> measured = measuredOf(results, one);
    if (!measured) {
      llvm::outs() << "FAILED " << one.name << ": "
                   << llvm::toString(measured.takeError()) << '\n';
      ++failures;
      continue;
    }
    Case c = makeCase(one.spec);
    CheckResult result = check(c, [&](Case &run) {
      return restore(run, out + "/" + one.name + ".out");
    });
    llvm::outs() << (result.passed() ? "ok     " : "FAILED ") << one.name << ' '
                 << llvm::formatv("{0:F1} us ", (*measured)["us"].get<double>())
                 << toString(result) << '\n';
    failures += !result.passed();
    if (result.passed())
      lines += ledgerLine(one, c, result, results, *measured).dump() + "\n";
  }
  llvm::outs() << failures << " of " << gpuCases().size() << " failed\n";
  if (!ledger.empty()) {
    std::error_code code;
    llvm::raw_fd_ostream os(ledger, code, llvm::sys::fs::OF_Append);
    os << lines;
    if (code)
      return fail("cannot append to " + ledger + ": " + code.message());
  }
  return failures ? 1 : 0;
}

//===-- missing
//------------------------------------------------------------===//

/// Cases whose text is in no line of the ledger.
llvm::Expected<std::vector<std::string>> notRun(const std::string &ledger) {
  llvm::Expected<std::string> text = readFile(ledger);
  if (!text)
    return text.takeError();
  std::vector<std::string> names;
  for (GpuCase &one : gpuCases()) {
    if (auto error = resolve(one.spec.variant))
      return llvm::createStringError(llvm::inconvertibleErrorCode(), *error);
    if (!llvm::StringRef(*text).contains(sha256(textOf(one))))
      names.push_back(one.name);
  }
  return names;
}

int missing(const std::string &ledger, const std::string &expected) {
  llvm::Expected<std::vector<std::string>> names = notRun(ledger);
  if (!names)
    return fail(llvm::toString(names.takeError()));
  std::string list;
  for (const std::string &name : *names)
    list += name + "\n";
  llvm::outs() << list;
  if (expected.empty())
    return 0;
  llvm::Expected<std::string> known = readFile(expected);
  if (!known)
    return fail(llvm::toString(known.takeError()));
  if (*known == list)
    return 0;
  llvm::errs() << "kdac-ttir-cases: no GPU has run the Triton IR above, but "
               << expected
               << " lists others; run it (docs/TRITON.md), or write "
               << "the list there\n";
  return 1;
}

} // namespace

int main(int argc, char **argv) {
  std::string command = argc > 1 ? argv[1] : "";
  if (command == "prepare" && argc == 3)
    return prepare(argv[2]);
  if (command == "judge" && (argc == 3 || argc == 4))
    return judge(argv[2], argc == 4 ? argv[3] : "");
  if (command == "interpret" && argc == 4)
    return interpret(argv[2], argv[3]);
  if (command == "missing" && (argc == 3 || argc == 4))
    return missing(argv[2], argc == 4 ? argv[3] : "");
  return fail("usage: kdac-ttir-cases prepare DIR | interpret OUT NAME | judge "
              "OUT [LEDGER] | "
              "missing LEDGER [EXPECTED]");
}
