// Promises: times of one variant on benchmark shapes, with the error of sampled
// heads at the same size. Does not: replace the correctness cases.
#ifndef KDAC_TEST_GPU_BENCH_H
#define KDAC_TEST_GPU_BENCH_H

#include "Pattern.h"
#include "Runner.h"

namespace kdac::gputest {

/// Prints and returns the device's copy bandwidth in bytes per microsecond,
/// bytes read plus bytes written.
StatusOr<double> copyBandwidth(const Device &device);

class BenchRunner {
public:
  BenchRunner(const Session &session, const Device &device);

  /// Times the variant on every shape of its form, prints a line each, and
  /// writes the ledger lines of those within tolerance.
  Outcome run(const PackReader &pack, const PackVariant &variant,
              const std::vector<BenchShape> &shapes);

private:
  StatusOr<Entry> measure(const GpuKernel &kernel, const BenchShape &shape);
  const reference::Results &oracle(const Variant &variant,
                                   const BenchShape &shape);

  const Session &session;
  Device device;
  Patterns patterns;
  std::map<std::string, reference::Results> known;
};

} // namespace kdac::gputest

#endif // KDAC_TEST_GPU_BENCH_H
