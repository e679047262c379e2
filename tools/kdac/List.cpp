// kdac list: the family, the targets, and the variants of a spec or pack with
// what GPUs have run.
#include "../Table.h"
#include "Build.h"
#include "Commands.h"

#include "kdac/Pack/PackReader.h"
#include "kdac/Target/Targets.h"
#include "kdac/Variant/Options.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace kdac {

using Rows = std::vector<std::vector<std::string>>;

//===-- The family and the targets
//-----------------------------------------===//

static void listRecurrences() {
  Rows rows = {{"recurrence", "decay", "gate", "beta", "l2norm", "equation"}};
  for (const Recurrence &row : recurrences())
    rows.push_back({std::string(row.name), std::string(spell(row.decay)),
                    std::string(spell(row.gate)), std::string(spell(row.beta)),
                    row.l2norm ? "yes" : "no", std::string(row.summary)});
  outs() << formatTable(rows);
}

static void listTargets() {
  Rows rows = {{"target", "shared bytes", "registers", "PTX", "machines"}};
  for (const Target &target : targets()) {
    bool host = target.kind == TargetKind::Host;
    rows.push_back({std::string(target.name),
                    host ? "-" : std::to_string(target.sharedBytesPerBlock),
                    host ? "-" : std::to_string(target.registersPerThread),
                    host ? "-" : std::string(target.ptxFeature.substr(1)),
                    std::string(target.summary)});
  }
  outs() << formatTable(rows);
}

static void listOptions() {
  Rows rows = {{"option", "values", "meaning"}};
  for (const VariantOption &option : variantOptions())
    rows.push_back({std::string(option.name), std::string(option.values),
                    std::string(option.help)});
  outs() << formatTable(rows);
}

//===-- The ledger
//---------------------------------------------------------===//

/// GPUs on which each PTX ran, by digest.
using Ledger = StringMap<std::string>;

static Error failure(const Twine &text) {
  return createStringError(inconvertibleErrorCode(), text);
}

/// The ledger's lines; a missing file is an error, a malformed line too.
static Expected<Ledger> readLedger(const std::string &path) {
  auto buffer = MemoryBuffer::getFile(path, /*IsText=*/true);
  if (!buffer)
    return failure("cannot read ledger '" + path +
                   "': " + buffer.getError().message());
  Ledger ledger;
  SmallVector<StringRef> lines;
  (*buffer)->getBuffer().split(lines, '\n');
  for (auto [i, line] : enumerate(lines)) {
    if (line.trim().empty())
      continue;
    Expected<json::Value> value = json::parse(line);
    json::Object *entry = value ? value->getAsObject() : nullptr;
    auto digest = entry ? entry->getString("ptx_sha256") : std::nullopt;
    auto gpu = entry ? entry->getString("gpu") : std::nullopt;
    if (!value)
      consumeError(value.takeError());
    if (!digest || !gpu)
      return failure(path + ":" + Twine(i + 1) +
                     ": expected an object with ptx_sha256 and gpu");
    std::string &gpus = ledger[*digest];
    if (!StringRef(gpus).contains(*gpu))
      gpus += (gpus.empty() ? "" : ", ") + gpu->str();
  }
  return ledger;
}

static std::string status(const Ledger &ledger, StringRef digest) {
  if (digest.empty())
    return "-";
  auto it = ledger.find(digest);
  return it == ledger.end() ? "no GPU has run this PTX"
                            : "ran on " + it->second;
}

//===-- Variants
//-----------------------------------------------------------===//

/// The ledger the user named, else that of the repository if it is here.
static Expected<Ledger> chooseLedger(const Options &options) {
  if (!options.ledger.empty())
    return readLedger(options.ledger);
  const char *usual = "test/gpu/ledger.jsonl";
  if (!sys::fs::exists(usual)) {
    errs() << "kdac: no ledger at " << usual << "; pass --ledger=FILE\n";
    return Ledger();
  }
  return readLedger(usual);
}

static int listPack(const Options &options) {
  StatusOr<PackReader> pack = PackReader::open(options.spec);
  if (!pack.ok())
    return refuse(pack.status().message());
  Expected<Ledger> ledger = chooseLedger(options);
  if (!ledger)
    return refuse(toString(ledger.takeError()));
  Rows rows = {{"variant", "images", "registers", "shared", "on a GPU"}};
  const Manifest &manifest = pack->manifest();
  for (const PackVariant &variant : manifest.variants)
    for (const Launch &launch : variant.launches)
      rows.push_back({variant.name(), spellImages(manifest, launch),
                      launch.registers ? std::to_string(launch.registers) : "-",
                      std::to_string(launch.sharedBytes),
                      status(*ledger, launch.ptxSha256)});
  outs() << formatTable(rows);
  return 0;
}

/// PTX digest of every job, empty for host jobs. Compiles as kdac compile does,
/// because the ledger knows kernels by their PTX.
static Expected<std::vector<std::string>> digestsOf(const Options &options,
                                                    ArrayRef<CompileJob> jobs) {
  std::vector<CompileJob> gpuJobs;
  copy_if(jobs, std::back_inserter(gpuJobs), isGpu);
  std::optional<Assembler> assembler;
  CompileOptions how;
  if (Error error = chooseTools(options, gpuJobs, assembler, how))
    return error;
  Outcome outcome = compileAll(gpuJobs, how, 0);
  if (!outcome.errors.empty())
    return createStringError(inconvertibleErrorCode(), outcome.errors.front());
  std::vector<std::string> digests;
  auto next = outcome.kernels.begin();
  for (const CompileJob &job : jobs)
    digests.push_back(isGpu(job) ? (*next++)->ptxSha256 : "");
  return digests;
}

static int listSpec(const Options &options) {
  Expected<std::vector<CompileJob>> jobs =
      jobsFromSpec(options.spec, options.targets);
  if (!jobs)
    return refuse(toString(jobs.takeError()));
  Expected<Ledger> ledger = chooseLedger(options);
  if (!ledger)
    return refuse(toString(ledger.takeError()));
  Expected<std::vector<std::string>> digests = digestsOf(options, *jobs);
  if (!digests)
    return refuse(toString(digests.takeError()));
  Rows rows = {{"variant", "on a GPU"}};
  for (auto [job, digest] : zip(*jobs, *digests))
    rows.push_back({variantName(job.variant), status(*ledger, digest)});
  outs() << formatTable(rows);
  return 0;
}

int runList(const Options &options) {
  if (StringRef(options.spec).ends_with(".kdac"))
    return listPack(options);
  if (!options.spec.empty())
    return listSpec(options);
  listRecurrences();
  outs() << '\n';
  listTargets();
  outs() << '\n';
  listOptions();
  return 0;
}

} // namespace kdac
