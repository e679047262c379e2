#include "kdac/Target/Ptxas.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/BinaryFormat/ELF.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace kdac {

static Error failure(const Twine &text) {
  return createStringError(inconvertibleErrorCode(), text);
}

namespace {
/// Exit code and everything printed.
struct ToolResult {
  int code;
  std::string output;
};
} // namespace

static std::string readText(StringRef path) {
  ErrorOr<std::unique_ptr<MemoryBuffer>> buffer = MemoryBuffer::getFile(path);
  return buffer ? (*buffer)->getBuffer().str() : std::string();
}

/// Runs a program to its end with stdout and stderr in one text.
static ToolResult runTool(ArrayRef<StringRef> command) {
  SmallString<128> log;
  if (std::error_code code =
          sys::fs::createTemporaryFile("kdac-ptxas", "log", log))
    return {-1, "cannot create a temporary file: " + code.message()};
  scope_exit removeLog([&] { sys::fs::remove(log); });
  std::optional<StringRef> redirects[] = {StringRef(""), StringRef(log),
                                          StringRef(log)};
  std::string error;
  int code = sys::ExecuteAndWait(command.front(), command, std::nullopt,
                                 redirects, 0, 0, &error);
  return {code, readText(log) + error};
}

static std::string shellCommand(ArrayRef<StringRef> command) {
  std::string text;
  raw_string_ostream os(text);
  interleave(
      command, os,
      [&](StringRef word) { sys::printArg(os, word, /*Quote=*/false); }, " ");
  return text;
}

//===-- Finding
//------------------------------------------------------------===//

/// The "13.0.88" of "Cuda compilation tools, release 13.0, V13.0.88".
static std::string parseVersion(StringRef output) {
  StringRef rest = output.split(", V").second;
  return rest.take_while([](char c) { return isDigit(c) || c == '.'; }).str();
}

static Expected<Assembler> askVersion(StringRef path) {
  ToolResult result = runTool({path, "--version"});
  std::string version = parseVersion(result.output);
  if (result.code != 0 || version.empty())
    return failure("'" + path +
                   " --version' does not answer like ptxas (exit " +
                   Twine(result.code) + ")");
  return Assembler{path.str(), version};
}

Expected<Assembler> findPtxas(StringRef explicitPath,
                              ArrayRef<std::string> directories) {
  if (!explicitPath.empty()) {
    if (!sys::fs::can_execute(explicitPath))
      return failure("no ptxas at '" + explicitPath + "'");
    return askVersion(explicitPath);
  }
  for (const std::string &directory : directories) {
    SmallString<128> path(directory);
    sys::path::append(path, "ptxas");
    if (sys::fs::can_execute(path))
      return askVersion(path);
  }
  return failure("no ptxas in " + (directories.empty()
                                       ? std::string("an empty search path")
                                       : join(directories, ", ")));
}

//===-- Reading the report
//-------------------------------------------------===//

/// The number right before `unit` in a line such as "Used 90 registers, 8 bytes
/// smem"; 0 if `unit` does not occur.
static int64_t numberBefore(StringRef text, StringRef unit) {
  size_t at = text.find(unit);
  if (at == StringRef::npos)
    return 0;
  StringRef head = text.take_front(at).rtrim();
  size_t start = head.find_last_not_of("0123456789");
  int64_t value = 0;
  head.drop_front(start == StringRef::npos ? 0 : start + 1)
      .getAsInteger(10, value);
  return value;
}

/// The lines about `entry`: from its "Compiling entry function" to the next.
static StringRef sectionOf(StringRef output, StringRef entry) {
  std::string mark = ("Compiling entry function '" + entry + "'").str();
  size_t begin = output.find(mark);
  if (begin == StringRef::npos)
    return {};
  StringRef section = output.drop_front(begin + mark.size());
  return section.take_front(section.find("Compiling entry function"));
}

Expected<PtxasReport> parsePtxasReport(StringRef output, StringRef entry) {
  StringRef section = sectionOf(output, entry);
  size_t used = section.find("Used ");
  if (used == StringRef::npos || !section.contains("bytes spill stores"))
    return failure("ptxas printed no report for kernel '" + entry + "'");
  StringRef usedLine = section.drop_front(used).split('\n').first;
  PtxasReport report;
  report.registers = numberBefore(usedLine, "registers");
  report.sharedBytes = numberBefore(usedLine, "bytes smem");
  report.stackBytes = numberBefore(section, "bytes stack frame");
  report.spillStoreBytes = numberBefore(section, "bytes spill stores");
  report.spillLoadBytes = numberBefore(section, "bytes spill loads");
  SmallVector<StringRef> lines;
  output.split(lines, '\n');
  for (StringRef line : lines)
    if (line.contains("Potential Performance Loss"))
      report.performanceLosses.push_back(line.trim().str());
  return report;
}

/// What in the report of `kernel` makes it unfit to ship, or an empty string.
static std::string complaint(const std::string &kernel,
                             const PtxasReport &report) {
  if (report.spillStoreBytes || report.spillLoadBytes)
    return kernel + " spills registers (" + itostr(report.spillStoreBytes) +
           " bytes stored, " + itostr(report.spillLoadBytes) + " loaded)";
  if (report.stackBytes)
    return kernel + " uses " + itostr(report.stackBytes) +
           " bytes of local memory per thread";
  if (!report.performanceLosses.empty())
    return report.performanceLosses.front();
  return {};
}

//===-- Assembling
//---------------------------------------------------------===//

static bool isCubin(StringRef bytes) {
  constexpr size_t machineAt = 18, headerSize = 64;
  return bytes.size() > headerSize &&
         bytes.starts_with("\x7f"
                           "ELF") &&
         static_cast<uint8_t>(bytes[machineAt]) == (ELF::EM_CUDA & 0xff);
}

static Error writePtx(StringRef path, StringRef ptx) {
  return writeToOutput(path, [&](raw_ostream &os) {
    os << ptx;
    return Error::success();
  });
}

Expected<Assembly> assemblePtx(const Assembler &assembler, StringRef ptx,
                               ArrayRef<std::string> entries,
                               const Target &target, StringRef keepDir,
                               std::string *unfit) {
  StringRef entry = entries.front();
  SmallString<128> model(keepDir), dir;
  sys::path::append(model, entry + "-%%%%%%");
  sys::fs::createUniquePath(model, dir, /*MakeAbsolute=*/true);
  if (std::error_code code = sys::fs::create_directories(dir))
    return failure("cannot create '" + dir + "': " + code.message());
  std::string input = (dir + "/" + entry + ".ptx").str();
  std::string output = (dir + "/" + entry + ".cubin").str();
  scope_exit removeDir([&] { sys::fs::remove_directories(dir); });
  if (Error error = writePtx(input, ptx))
    return error;
  std::string arch = "-arch=" + std::string(target.name);
  StringRef command[] = {assembler.path, "-v", "-O3", arch,
                         input,          "-o", output};
  ToolResult result = runTool(command);
  auto refuse = [&](const Twine &reason) -> Error {
    removeDir.release();
    sys::fs::remove(output);
    return failure(reason + "\n" + StringRef(result.output).rtrim() +
                   "\nPTX kept at " + input +
                   "\nto reproduce: " + shellCommand(command));
  };
  if (result.code != 0)
    return refuse("ptxas " + assembler.version + " failed with exit code " +
                  Twine(result.code));
  Assembly assembly;
  assembly.cubin = readText(output);
  if (!isCubin(assembly.cubin))
    return refuse("ptxas at '" + assembler.path +
                  "' reported success but wrote no cubin");
  for (const std::string &kernel : entries) {
    Expected<PtxasReport> report = parsePtxasReport(result.output, kernel);
    if (!report)
      return refuse(toString(report.takeError()));
    if (std::string reason = complaint(kernel, *report); !reason.empty()) {
      // A loss of performance is in the kernel that its line names.
      const auto *named = find_if(entries, [&](const std::string &entry) {
        return StringRef(reason).contains("'" + entry + "'");
      });
      if (unfit)
        *unfit = named == entries.end() ? kernel : *named;
      return refuse(reason);
    }
    assembly.reports.push_back(std::move(*report));
  }
  return assembly;
}

} // namespace kdac
