#include "Ledger.h"
#include "kdac/Target/Gpus.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

using nlohmann::ordered_json;

namespace kdac::selftest {

namespace {

/// Four significant digits: what a timing or an error is worth.
double rounded(double value) {
  if (value == 0 || !std::isfinite(value))
    return value;
  double scale = std::pow(10.0, 3 - std::floor(std::log10(std::fabs(value))));
  return std::round(value * scale) / scale;
}

ordered_json caseJson(const PackVariant &packed, const Entry &entry) {
  const Variant &v = packed.variant;
  ordered_json lengths;
  if (!entry.lengths.empty())
    lengths = entry.lengths;
  return {{"recurrence", isRecurrent(v.form) ? v.recurrence : "none"},
          {"form", spell(v.form)},
          {"B", entry.batch},
          {"T", entry.tokens},
          {"N", entry.sequences},
          {"lengths", lengths},
          {"H", entry.heads},
          {"HV", entry.valueHeads},
          {"K", v.keyDim},
          {"V", v.valueDim},
          {"gate", spell(*v.gate)},
          {"dtype", spell(v.dtype)},
          {"state_dtype", spell(v.stateDtype)},
          {"precision", spell(v.precision)},
          {"schedule", packed.schedule},
          {"inputs", entry.inputs}};
}

} // namespace

double floorMicroseconds(double bytes) { return bytes / gpus().front().bytes; }

std::string ledgerLine(const Machine &machine, const PackVariant &variant,
                       const Entry &entry) {
  ordered_json state;
  if (entry.errorState)
    state = rounded(*entry.errorState);
  ordered_json time;
  if (entry.microseconds)
    time = rounded(*entry.microseconds);
  ordered_json line = {
      {"variant", variant.name()},
      {"case", caseJson(variant, entry)},
      {"gpu", machine.gpu},
      {"driver", machine.driver},
      {"llvm", variant.llvmVersion},
      {"ptxas", entry.compiledByDriver ? "driver " + machine.driver
                                       : variant.ptxasVersion},
      {"ptx_sha256", entry.digest},
      {"commit", machine.commit},
      {"date", machine.date},
      {"err", {{"out", rounded(entry.errorOut)}, {"state", state}}},
      {"us", time},
      {"floor_us", rounded(entry.floorMicroseconds)}};
  return line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) +
         "\n";
}

Status appendLines(const std::string &path,
                   const std::vector<std::string> &lines) {
  if (path.empty() || lines.empty())
    return Status::success();
  int fd =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  bool good = fd >= 0;
  for (const std::string &line : lines)
    good = good && ::write(fd, line.data(), line.size()) ==
                       static_cast<ssize_t>(line.size());
  Status status;
  if (!good)
    status = Status(ErrorCode::Io, "cannot append to ledger '" + path +
                                       "': " + std::strerror(errno));
  if (fd >= 0)
    ::close(fd);
  return status;
}

} // namespace kdac::selftest
