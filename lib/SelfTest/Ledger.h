// Promises: ledger lines, one JSON object each, with the fields of issue 2 in
// their order. Does not: decide what may be recorded, or merge files
// (python/ledger.py).
#ifndef KDAC_LIB_SELFTEST_LEDGER_H
#define KDAC_LIB_SELFTEST_LEDGER_H

#include "kdac/Pack/Manifest.h"

#include <optional>

namespace kdac::selftest {

/// What is the same for a whole run.
struct Machine {
  std::string gpu;    ///< "NVIDIA H200"; the processor with --host
  std::string driver; ///< "580.159.04"
  std::string commit;
  std::string date; ///< ISO 8601, UTC
};

/// One measured case.
struct Entry {
  int64_t batch = 1;  ///< dense: sequences; packed: 1
  int64_t tokens = 0; ///< of a dense sequence, or of the packed buffer
  int64_t sequences = 1;
  std::vector<int64_t> lengths; ///< packed, else empty
  int64_t heads = 1, valueHeads = 1;
  std::string inputs; ///< recipe, seed and what was absent
  double errorOut = 0;
  std::optional<double> errorState;
  std::optional<double> microseconds; ///< none: untimed
  double floorMicroseconds = 0;
  std::string digest;            ///< of the PTX; of a host image itself
  bool compiledByDriver = false; ///< the PTX ran, not the cubin
};

/// The line, with its newline.
std::string ledgerLine(const Machine &machine, const PackVariant &variant,
                       const Entry &entry);

/// Appends lines to `path` in one write each.
Status appendLines(const std::string &path,
                   const std::vector<std::string> &lines);

/// The floor of a line: the bytes that any kernel must move, at the bandwidth
/// of the GPU where we measure, whatever the GPU of the line.
double floorMicroseconds(double bytes);

} // namespace kdac::selftest

#endif // KDAC_LIB_SELFTEST_LEDGER_H
