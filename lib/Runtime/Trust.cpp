#include "kdac/Runtime/Trust.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <unistd.h>

namespace kdac {

namespace {

constexpr std::string_view firstLine = "kdac receipts 1";
constexpr size_t fieldCount = 5;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t end; (end = text.find(separator)) != std::string_view::npos;
       text.remove_prefix(end + 1))
    parts.push_back(text.substr(0, end));
  parts.push_back(text);
  return parts;
}

Status ioError(const std::string &path, const char *what) {
  return Status(ErrorCode::Io,
                std::string(what) + " '" + path + "': " + std::strerror(errno));
}

/// A field must not break its line.
std::string cleaned(std::string text) {
  for (char &c : text)
    if (c == '\t' || c == '\n')
      c = ' ';
  return text;
}

} // namespace

const std::vector<SuspectAssembler> &suspectAssemblers() {
  static const std::vector<SuspectAssembler> table = {
      {"12.8.93", "reported to give wrong results for a valid sm_90a kernel "
                  "(flash-linear-attention issue 1262)"},
      {"13.0.88", "reported to write outside shared memory for a valid sm_90a "
                  "kernel (flash-linear-attention issue 1262)"},
  };
  return table;
}

const SuspectAssembler *findSuspectAssembler(std::string_view version) {
  for (const SuspectAssembler &row : suspectAssemblers())
    if (row.version == version)
      return &row;
  return nullptr;
}

StatusOr<Receipts> Receipts::parse(std::string_view text,
                                   const std::string &name) {
  std::vector<std::string_view> lines = split(text, '\n');
  if (lines[0] != firstLine)
    return Status(ErrorCode::Corrupt, "'" + name + "' does not begin with '" +
                                          std::string(firstLine) + "'");
  Receipts result;
  for (size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].empty())
      continue;
    std::vector<std::string_view> f = split(lines[i], '\t');
    if (f.size() != fieldCount || f[0].size() != 64)
      return Status(ErrorCode::Corrupt, "'" + name + "' line " +
                                            std::to_string(i + 1) +
                                            " is not a receipt");
    result.add({std::string(f[0]), std::string(f[1]), std::string(f[2]),
                std::string(f[3]), std::string(f[4])});
  }
  return result;
}

StatusOr<Receipts> Receipts::read(const std::string &path) {
  FILE *file = std::fopen(path.c_str(), "rbe");
  if (!file)
    return errno == ENOENT ? StatusOr<Receipts>(Receipts())
                           : ioError(path, "cannot read");
  std::string text;
  char buffer[4096];
  while (size_t got = std::fread(buffer, 1, sizeof buffer, file))
    text.append(buffer, got);
  bool failed = std::ferror(file) != 0;
  std::fclose(file);
  return failed ? ioError(path, "cannot read") : parse(text, path);
}

Status Receipts::write(const std::string &path) const {
  std::string text = std::string(firstLine) + "\n";
  for (const Receipt &r : receipts)
    text += cleaned(r.sha256) + "\t" + cleaned(r.gpu) + "\t" +
            cleaned(r.driver) + "\t" + cleaned(r.date) + "\t" +
            cleaned(r.variant) + "\n";
  std::string temporary = path + ".tmp." + std::to_string(::getpid());
  FILE *file = std::fopen(temporary.c_str(), "wbe");
  if (!file)
    return ioError(temporary, "cannot write");
  bool good = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  good = std::fclose(file) == 0 && good;
  if (good && std::rename(temporary.c_str(), path.c_str()) == 0)
    return Status::success();
  Status status = ioError(path, "cannot write");
  ::unlink(temporary.c_str());
  return status;
}

void Receipts::add(Receipt receipt) {
  remove(receipt.sha256, receipt.gpu);
  receipts.push_back(std::move(receipt));
}

void Receipts::remove(std::string_view sha256, std::string_view gpu) {
  receipts.erase(std::remove_if(receipts.begin(), receipts.end(),
                                [&](const Receipt &r) {
                                  return r.sha256 == sha256 && r.gpu == gpu;
                                }),
                 receipts.end());
}

const Receipt *Receipts::find(std::string_view sha256,
                              std::string_view gpu) const {
  for (const Receipt &r : receipts)
    if (r.sha256 == sha256 && r.gpu == gpu)
      return &r;
  return nullptr;
}

Trust trustOf(const PackVariant &variant, const Image &image,
              std::string_view gpu, const Receipts &receipts) {
  if (image.kind != ImageKind::Cubin)
    return {true, "no assembler of the list made it"};
  const SuspectAssembler *row = findSuspectAssembler(variant.ptxasVersion);
  if (!row)
    return {true, "ptxas " + variant.ptxasVersion + " is not on the list"};
  std::string made =
      "ptxas " + variant.ptxasVersion + " is " + std::string(row->reason);
  if (const Receipt *r = receipts.find(image.sha256, gpu))
    return {true, made + ", but this machine code passed its self-test on " +
                      r->gpu + ", driver " + r->driver + ", " + r->date};
  return {false, made +
                     ", and this machine code has not passed `kdac-pack "
                     "check` on " +
                     std::string(gpu)};
}

} // namespace kdac
