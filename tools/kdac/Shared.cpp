// What the commands share.
#include "Commands.h"

#include "kdac/Target/Targets.h"
#include "kdac/Variant/Options.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace kdac {

int refuse(const Twine &message) {
  errs() << "kdac: " << message << '\n';
  return 2;
}

static Error failure(const Twine &text) {
  return createStringError(inconvertibleErrorCode(), text);
}

Expected<CompileJob> jobFromFlags(const Options &options,
                                  const std::string &target) {
  CompileJob job;
  job.variant.target = target;
  if (!findTarget(target))
    return failure("unknown target '" + target + "'; use one of " +
                   targetNames());
  for (auto &[name, value] : options.flags) {
    const ScheduleOption *schedule = findScheduleOption(name);
    std::optional<std::string> problem =
        schedule ? schedule->set(job.schedule, value)
                 : findVariantOption(name)->set(job.variant, value);
    if (problem)
      return failure(*problem);
  }
  if (std::optional<std::string> problem = resolve(job.variant))
    return failure(*problem);
  return job;
}

Expected<std::vector<CompileJob>>
jobsFromSpec(const std::string &path, const std::vector<std::string> &targets) {
  for (const std::string &target : targets)
    if (!findTarget(target))
      return failure("unknown target '" + target + "'; use one of " +
                     targetNames());
  auto buffer = MemoryBuffer::getFile(path, /*IsText=*/true);
  if (!buffer)
    return failure("cannot read '" + path +
                   "': " + buffer.getError().message());
  return parsePackSpec((*buffer)->getBuffer(), path, targets);
}

Error writeFile(const Twine &path, StringRef bytes) {
  std::string name = path.str();
  if (sys::fs::is_directory(name))
    return failure("cannot write '" + name + "': it is a directory");
  // writeToOutput renames a temporary file; it would create no directories.
  StringRef parent = sys::path::parent_path(name);
  if (!parent.empty() && !sys::fs::is_directory(parent))
    return failure("cannot write '" + name + "': no directory '" + parent +
                   "'");
  Error error = writeToOutput(name, [&](raw_ostream &os) {
    os << bytes;
    return Error::success();
  });
  if (error)
    return failure("cannot write '" + name +
                   "': " + toString(std::move(error)));
  return Error::success();
}

} // namespace kdac
