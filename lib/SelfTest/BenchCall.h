// Promises: a call of benchmark size in device memory, and what it left there.
// Does not: launch or time.
#ifndef KDAC_LIB_SELFTEST_BENCHCALL_H
#define KDAC_LIB_SELFTEST_BENCHCALL_H

#include "BenchForm.h"
#include "Pattern.h"
#include "kdac/Reference/Buffer.h"
#include "kdac/Runtime/Call.h"
#include "kdac/SelfTest/Plan.h"

namespace kdac::selftest {

/// One set of device tensors, contiguous, and the argument array of a call on
/// them. Outputs are poisoned (all bits set).
class BenchCall {
public:
  static StatusOr<std::unique_ptr<BenchCall>>
  make(const Device &device, const Variant &variant, const BenchShape &shape,
       Patterns &patterns, cuda::Stream stream);

  /// Allocates the scratch that a schedule of the variant wants.
  Status bringWorkspace(const Device &device, const PackVariant &variant);

  CallArguments arguments() const { return argv.data(); }
  /// Of a variant with a log: the call that commits all tokens from here on, or
  /// again the one that keeps them.
  void commit(bool isSecond);
  /// Bytes of all tensors: what any kernel must move.
  double bytes() const { return total; }
  /// The tensor called `name`, or null.
  const DeviceBuffer *find(const std::string &name) const;

private:
  /// The argument that the last slot is of.
  Status addTensor(const Device &device, const Variant &variant,
                   const BenchForm &form, const Arg &arg, Patterns &patterns,
                   cuda::Stream stream);

  std::vector<uint64_t> slots;
  std::vector<void *> argv;
  size_t workspaceSlot = 0, acceptedSlot = 0;
  std::map<std::string, DeviceBuffer> tensors;
  double total = 0;
};

/// The first and the last value head: those that a wrong index misses first.
std::vector<int64_t> sampledHeads(const BenchShape &shape);

/// Rows of a device tensor [.., heads, width] from `firstRow` on, reduced to
/// the sampled heads.
StatusOr<reference::Buffer>
sampledOutput(const DeviceBuffer &from, const std::string &name, DType dtype,
              int64_t rows, int64_t heads, int64_t width,
              const std::vector<int64_t> &samples, int64_t firstRow = 0);

} // namespace kdac::selftest

#endif // KDAC_LIB_SELFTEST_BENCHCALL_H
