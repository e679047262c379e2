// Promises: cases run on a GPU or on the host through the runtime's public API,
// the same way for both. Does not: judge results.
#ifndef KDAC_LIB_SELFTEST_EXECUTOR_H
#define KDAC_LIB_SELFTEST_EXECUTOR_H

#include "Ledger.h"
#include "kdac/Reference/Case.h"
#include "kdac/Runtime/Kernel.h"
#include "kdac/SelfTest/SelfTest.h"

#include <memory>

namespace kdac::selftest {

/// Device memory of a run, reused from case to case.
class Arena {
public:
  explicit Arena(Device device) : device(std::move(device)) {}
  /// Room for `bytes`, whose contents are undefined.
  StatusOr<DeviceBuffer *> reserve(size_t bytes);

private:
  Device device;
  std::optional<DeviceBuffer> buffer;
};

/// One variant, loaded.
class Kernel {
public:
  virtual ~Kernel() = default;
  /// How the code came to the device (Kernel.h: origin).
  virtual std::string origin() const = 0;
  /// The image that a GPU runs; null on the host.
  virtual const Image *image() const { return nullptr; }
  /// From now on runs this one of the variant's schedules (Launch::when),
  /// whatever the sizes of a call.
  virtual void useSchedule(const std::string &when) { (void)when; }
  /// Copies the case to the device, launches, and copies everything back,
  /// inputs and guards included.
  virtual Status run(reference::Case &c) = 0;
  /// Median microseconds of one launch on the case of the last run().
  virtual StatusOr<double> time(reference::Case &c, int launches) = 0;
};

/// A place where kernels run.
class Executor {
public:
  virtual ~Executor() = default;
  /// gpu and driver; the host calls its processor a gpu.
  virtual Machine machine() const = 0;
  /// True if one of the variant's images could run here.
  virtual bool supports(const PackReader &pack, const PackVariant &v) const = 0;
  virtual StatusOr<std::unique_ptr<Kernel>> load(const PackReader &pack,
                                                 const PackVariant &v) = 0;
  /// The GPU, for benchmarks; null on the host.
  virtual const Device *device() const { return nullptr; }
};

StatusOr<std::unique_ptr<Executor>> makeExecutor(const Settings &settings);

} // namespace kdac::selftest

#endif // KDAC_LIB_SELFTEST_EXECUTOR_H
