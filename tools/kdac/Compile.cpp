// kdac compile: variants to a pack, all or nothing.
#include "Commands.h"
#include "HostCheck.h"

#include "kdac/Target/Targets.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/ThreadPool.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <mutex>

using namespace llvm;

namespace kdac {

//===-- What to compile
//----------------------------------------------------===//

static Error failure(const Twine &text) {
  return createStringError(inconvertibleErrorCode(), text);
}

static Expected<std::vector<CompileJob>> collectJobs(const Options &options) {
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

static bool isGpu(const CompileJob &job) {
  return findTarget(job.variant.target)->kind == TargetKind::Gpu;
}

/// Where a tool may be: every directory of $PATH, then its usual one.
static std::vector<std::string> toolDirectories(StringRef usual) {
  std::vector<std::string> directories;
  std::string path = sys::Process::GetEnv("PATH").value_or("");
  SmallVector<StringRef> parts;
  StringRef(path).split(parts, sys::EnvPathSeparator, -1, /*KeepEmpty=*/false);
  for (StringRef part : parts)
    directories.push_back(part.str());
  directories.push_back(usual.str());
  return directories;
}

/// The assembler, nothing if none is needed.
static Expected<std::optional<Assembler>>
chooseAssembler(const Options &options, ArrayRef<CompileJob> jobs) {
  if (!options.assemble || none_of(jobs, isGpu))
    return std::nullopt;
  Expected<Assembler> found =
      findPtxas(options.ptxas, toolDirectories("/usr/local/cuda/bin"));
  if (!found)
    return failure(toString(found.takeError()) +
                   "; pass --ptxas=PATH, or --no-assemble for PTX only");
  return *found;
}

/// A linker, empty if none is needed.
static Expected<std::string> chooseLinker(ArrayRef<CompileJob> jobs) {
  if (all_of(jobs, isGpu))
    return std::string();
  Expected<std::string> found =
      findHostLinker(toolDirectories("/usr/lib/llvm-22/bin"));
  if (!found)
    return failure(toString(found.takeError()) +
                   "; install lld for the host target, or use GPU targets");
  return found;
}

/// The directory where the inputs of tools that failed stay.
static Expected<std::string> makeKeepDirectory() {
  SmallString<64> path;
  sys::path::system_temp_directory(/*ErasedOnReboot=*/true, path);
  sys::path::append(path, "kdac-refused");
  if (std::error_code code = sys::fs::create_directories(path))
    return failure("cannot create '" + path + "': " + code.message());
  return std::string(path);
}

//===-- Compiling
//----------------------------------------------------------===//

namespace {
/// What became of the jobs, in their order.
struct Outcome {
  std::vector<std::optional<CompiledKernel>> kernels;
  std::vector<std::string> errors; ///< one per failed job
  StringMap<std::string> measured; ///< errors of what ran, by variant name
};
} // namespace

/// Compiles all jobs on `threads` threads with a line of progress for each.
static Outcome compileAll(ArrayRef<CompileJob> jobs,
                          const CompileOptions &options, unsigned threads) {
  Outcome outcome;
  outcome.kernels.resize(jobs.size());
  std::mutex mutex;
  size_t done = 0;
  auto compileOne = [&](size_t i) {
    auto start = std::chrono::steady_clock::now();
    Expected<CompiledKernel> kernel = compileVariant(jobs[i], options);
    std::chrono::duration<double> seconds =
        std::chrono::steady_clock::now() - start;
    std::lock_guard<std::mutex> lock(mutex);
    errs() << formatv("[{0}/{1}] {2} {3:F2} s{4}\n", ++done, jobs.size(),
                      variantName(jobs[i].variant), seconds.count(),
                      kernel ? "" : " failed");
    if (kernel)
      outcome.kernels[i] = std::move(*kernel);
    else
      outcome.errors.push_back(toString(kernel.takeError()));
  };
  DefaultThreadPool pool(hardware_concurrency(threads));
  for (size_t i = 0; i < jobs.size(); ++i)
    pool.async([&, i] { compileOne(i); });
  pool.wait();
  return outcome;
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

static Error writeAll(const Outcome &outcome, const Options &options) {
  if (!options.looseDir.empty()) {
    if (std::error_code code = sys::fs::create_directories(options.looseDir))
      return failure("cannot create '" + options.looseDir +
                     "': " + code.message());
    for (const auto &kernel : outcome.kernels)
      if (Error error = writeLoose(*kernel, options.looseDir))
        return error;
  }
  if (options.output.empty())
    return Error::success();
  PackWriter writer;
  for (const auto &kernel : outcome.kernels)
    addToPack(writer, *kernel);
  if (Status status = writer.write(options.output); !status.ok())
    return failure(status.message());
  return Error::success();
}

static std::string registersOf(const CompiledKernel &kernel) {
  if (!kernel.report)
    return "-";
  return formatv("{0}/{1}", kernel.report->registers,
                 kernel.report->spillStoreBytes +
                     kernel.report->spillLoadBytes);
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
                    std::to_string(kernel->sharedBytes),
                    measured == outcome.measured.end() ? "not run here"
                                                       : measured->second});
  }
  printTable(rows);
}

/// Tools for the jobs, as the environment has them.
static Error chooseTools(const Options &options, ArrayRef<CompileJob> jobs,
                         std::optional<Assembler> &assembler,
                         CompileOptions &how) {
  Expected<std::optional<Assembler>> found = chooseAssembler(options, jobs);
  if (!found)
    return found.takeError();
  assembler = *found;
  how.assembler = assembler ? &*assembler : nullptr;
  Expected<std::string> linker = chooseLinker(jobs);
  if (!linker)
    return linker.takeError();
  how.linker = *linker;
  Expected<std::string> keep = makeKeepDirectory();
  if (!keep)
    return keep.takeError();
  how.keepDir = *keep;
  return Error::success();
}

int runCompile(const Options &options) {
  if (options.output.empty() && options.looseDir.empty())
    return refuse("nothing to write; pass -o FILE.kdac or --loose=DIR");
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
