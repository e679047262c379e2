// kdac compile: variants to a pack, all or nothing.
#include "../Table.h"
#include "Build.h"
#include "Commands.h"
#include "HostCheck.h"

#include "kdac/Pack/Triton.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace kdac {

//===-- What to compile
//----------------------------------------------------===//

static Error failure(const Twine &text) {
  return createStringError(inconvertibleErrorCode(), text);
}

static Expected<std::vector<CompileJob>> readJobs(const Options &options) {
  if (!options.spec.empty()) {
    if (!options.flags.empty())
      return failure("a pack spec and --" + options.flags.front().first +
                     " exclude each other; put the option into the spec");
    return jobsFromSpec(options.spec, options.targets);
  }
  std::vector<std::string> targets = options.targets;
  if (targets.empty())
    targets.push_back("host");
  std::vector<CompileJob> jobs;
  for (const std::string &target : targets) {
    Expected<CompileJob> job = jobFromFlags(options, target);
    if (!job)
      return job.takeError();
    jobs.push_back(std::move(*job));
  }
  return jobs;
}

/// What --triton needs of a job, said before anything is compiled.
static Error prepareForTriton(CompileJob &job, const Options &options) {
  if (!isGpu(job))
    return failure(variantName(job.variant) +
                   " is host code; --triton takes GPU targets only");
  if (!options.assemble)
    return failure("--triton needs cubins, which --no-assemble leaves out");
  // Its launcher makes one launch.
  if (job.variant.form == Form::Chunk && job.schedule.roles.empty() &&
      job.schedule.vTile == 0)
    job.schedule.roles = "fused";
  return Error::success();
}

static Expected<std::vector<CompileJob>> collectJobs(const Options &options) {
  Expected<std::vector<CompileJob>> jobs = readJobs(options);
  if (!jobs)
    return jobs;
  bool forTriton = !options.tritonDir.empty();
  bool scratch = options.abi.empty() ? forTriton : options.abi == "triton";
  for (CompileJob &job : *jobs) {
    job.abi = scratch ? LaunchAbi::Triton : LaunchAbi::Bare;
    if (forTriton)
      if (Error error = prepareForTriton(job, options))
        return std::move(error);
  }
  return jobs;
}

//===-- Checking
//-----------------------------------------------------------===//

/// Two sequences with a tail chunk each, two heads.
static reference::CaseSpec sampleCase(const Variant &variant) {
  reference::CaseSpec spec;
  spec.variant = variant;
  spec.sequences = 2;
  spec.tokens = 300;
  spec.heads = 2;
  return spec;
}

/// Runs every host kernel on a sample; a kernel that is too far off is an error
/// of the outcome.
static void checkAll(ArrayRef<CompileJob> jobs, Outcome &outcome) {
  for (const CompileJob &job : jobs) {
    if (isGpu(job))
      continue;
    std::string name = variantName(job.variant);
    Expected<reference::CheckResult> result =
        checkOnHost(job, sampleCase(job.variant));
    if (!result)
      outcome.errors.push_back(toString(result.takeError()));
    else if (!result->passed())
      outcome.errors.push_back(name + ": " + reference::toString(*result));
    else
      for (const reference::Comparison &tensor : result->tensors)
        outcome.measured[name] +=
            formatv("{0} {1:e1} ", tensor.tensor, tensor.relative);
  }
}

//===-- Writing
//------------------------------------------------------------===//

static Error writeLoose(const CompiledKernel &kernel, StringRef directory) {
  for (const Artefact &artefact : kernel.artefacts)
    if (Error error = writeFile(directory + "/" + variantName(kernel.variant) +
                                    "." + artefact.suffix,
                                artefact.bytes))
      return error;
  return Error::success();
}

/// The folders of Triton's cache, through the pack that holds the same kernels.
static Error writeForTriton(const PackWriter &writer, StringRef directory) {
  StatusOr<std::string> bytes = writer.serialize();
  if (!bytes.ok())
    return failure(bytes.status().message());
  StatusOr<PackReader> pack =
      PackReader::fromBytes(std::move(*bytes), "for Triton");
  if (!pack.ok())
    return failure(pack.status().message());
  SmallString<128> root(directory);
  if (std::error_code code = sys::fs::make_absolute(root))
    return failure("cannot find '" + directory + "': " + code.message());
  StatusOr<std::vector<NamedFile>> files = tritonCache(*pack, root.c_str());
  if (!files.ok())
    return failure(files.status().message());
  for (const NamedFile &file : *files) {
    std::string path = (root + "/" + file.path).str();
    StringRef folder = sys::path::parent_path(path);
    if (std::error_code code = sys::fs::create_directories(folder))
      return failure("cannot create '" + folder + "': " + code.message());
    if (Error error = writeFile(path, file.bytes))
      return error;
  }
  return Error::success();
}

static Error writeAll(const Outcome &outcome, const Options &options) {
  if (!options.looseDir.empty()) {
    if (std::error_code code = sys::fs::create_directories(options.looseDir))
      return failure("cannot create '" + options.looseDir +
                     "': " + code.message());
    for (const auto &kernel : outcome.kernels)
      if (Error error = writeLoose(*kernel, options.looseDir))
        return error;
  }
  if (options.output.empty() && options.tritonDir.empty())
    return Error::success();
  PackWriter writer;
  for (const auto &kernel : outcome.kernels)
    addToPack(writer, *kernel);
  if (!options.tritonDir.empty())
    if (Error error = writeForTriton(writer, options.tritonDir))
      return error;
  if (options.output.empty())
    return Error::success();
  if (Status status = writer.write(options.output); !status.ok())
    return failure(status.message());
  return Error::success();
}

/// The most of any launch.
static int64_t sharedBytes(const CompiledKernel &kernel) {
  int64_t bytes = 0;
  for (const CompiledLaunch &launch : kernel.launches)
    bytes = std::max(bytes, launch.sharedBytes);
  return bytes;
}

static std::string registersOf(const CompiledKernel &kernel) {
  int64_t registers = 0, spills = 0, reports = 0;
  for (const CompiledLaunch &launch : kernel.launches) {
    if (!launch.report)
      continue;
    ++reports;
    registers = std::max(registers, launch.report->registers);
    spills += launch.report->spillStoreBytes + launch.report->spillLoadBytes;
  }
  if (!reports)
    return "-";
  return formatv("{0}/{1}", registers, spills);
}

static void printSummary(const Outcome &outcome) {
  std::vector<std::vector<std::string>> rows = {
      {"variant", "target", "artefacts", "registers/spills", "shared",
       "error"}};
  for (const auto &kernel : outcome.kernels) {
    std::string artefacts;
    for (const Artefact &artefact : kernel->artefacts)
      artefacts += (artefacts.empty() ? "" : "+") + artefact.suffix;
    auto measured = outcome.measured.find(variantName(kernel->variant));
    rows.push_back({variantStem(kernel->variant), kernel->variant.target,
                    artefacts, registersOf(*kernel),
                    std::to_string(sharedBytes(*kernel)),
                    measured == outcome.measured.end() ? "not run here"
                                                       : measured->second});
  }
  outs() << formatTable(rows);
}

int runCompile(const Options &options) {
  if (options.output.empty() && options.looseDir.empty() &&
      options.tritonDir.empty())
    return refuse(
        "nothing to write; pass -o FILE.kdac, --loose=DIR or --triton=DIR");
  Expected<std::vector<CompileJob>> jobs = collectJobs(options);
  if (!jobs)
    return refuse(toString(jobs.takeError()));
  std::optional<Assembler> assembler;
  CompileOptions how;
  if (Error error = chooseTools(options, *jobs, assembler, how))
    return refuse(toString(std::move(error)));
  if (!options.assemble && any_of(*jobs, isGpu))
    errs() << "kdac: PTX only, as --no-assemble asks\n";
  Outcome outcome = compileAll(*jobs, how, options.jobs);
  if (options.check && outcome.errors.empty())
    checkAll(*jobs, outcome);
  for (const std::string &error : outcome.errors)
    errs() << "kdac: " << error << '\n';
  if (!outcome.errors.empty())
    return refuse(Twine(outcome.errors.size()) + " of " + Twine(jobs->size()) +
                  " variants failed; nothing written");
  if (Error error = writeAll(outcome, options))
    return refuse(toString(std::move(error)));
  printSummary(outcome);
  return 0;
}

} // namespace kdac
