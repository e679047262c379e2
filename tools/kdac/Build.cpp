#include "Build.h"

#include "kdac/Target/Targets.h"

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

static Error failure(const Twine &text) {
  return createStringError(inconvertibleErrorCode(), text);
}

bool isGpu(const CompileJob &job) {
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

Error chooseTools(const Options &options, ArrayRef<CompileJob> jobs,
                  std::optional<Assembler> &assembler, CompileOptions &how) {
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

//===-- Compiling
//----------------------------------------------------------===//

/// Compiles all jobs on `threads` threads with a line of progress for each.
Outcome compileAll(ArrayRef<CompileJob> jobs, const CompileOptions &options,
                   unsigned threads) {
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
    if (!kernel) {
      outcome.errors.push_back(toString(kernel.takeError()));
      return;
    }
    for (const std::string &retry : kernel->retries)
      errs() << "  " << retry << '\n';
    outcome.kernels[i] = std::move(*kernel);
  };
  DefaultThreadPool pool(hardware_concurrency(threads));
  for (size_t i = 0; i < jobs.size(); ++i)
    pool.async([&, i] { compileOne(i); });
  pool.wait();
  return outcome;
}

} // namespace kdac
