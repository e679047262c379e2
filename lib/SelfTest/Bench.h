// Promises: times of one variant on benchmark shapes, with the error of sampled
// heads at the same size. Does not: replace the correctness cases.
#ifndef KDAC_LIB_SELFTEST_BENCH_H
#define KDAC_LIB_SELFTEST_BENCH_H

#include "BenchCall.h"
#include "BenchOracle.h"
#include "Runner.h"

namespace kdac::selftest {

class BenchRunner {
public:
  BenchRunner(const Session &session, const Device &device);

  /// Times the variant on every shape of its form, prints a line each, and
  /// writes the ledger lines of those within tolerance.
  Outcome run(const PackReader &pack, const PackVariant &variant,
              const std::vector<BenchShape> &shapes);

private:
  using Sets = std::vector<std::unique_ptr<BenchCall>>;

  /// Enough sets of tensors that one launch finds nothing of the last in L2.
  StatusOr<Sets> makeSets(const PackVariant &pack, const BenchShape &shape,
                          cuda::Stream stream);
  /// Runs the first set and fills in the entry's errors; fails if one is above
  /// its bound.
  Status checkHeads(const GpuKernel &kernel, const BenchShape &shape,
                    BenchCall &call, cuda::Stream stream, Entry &entry);
  /// A line for the commit of all tokens.
  Status timeCommit(const GpuKernel &kernel, const Sets &sets,
                    cuda::Stream stream, std::string &launches);
  StatusOr<double> time(const GpuKernel &kernel, const Sets &sets,
                        cuda::Stream stream, const GpuKernel::Grids &grids,
                        bool &isGraph);
  /// A time for the call, and where it has several launches, alone in
  /// `launches`, one for each.
  StatusOr<double> time(const GpuKernel &kernel, const Sets &sets,
                        cuda::Stream stream, std::string &launches,
                        bool &isGraph);
  StatusOr<Entry> measure(const GpuKernel &kernel, const BenchShape &shape,
                          std::string &launches);

  const Session &session;
  Device device;
  Patterns patterns; ///< of the inputs
  BenchOracle oracle;
};

} // namespace kdac::selftest

#endif // KDAC_LIB_SELFTEST_BENCH_H
