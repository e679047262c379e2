// Promises: medians of device times.
// Does not: warm up, or choose what to launch.
#ifndef KDAC_LIB_SELFTEST_TIMING_H
#define KDAC_LIB_SELFTEST_TIMING_H

#include "kdac/Runtime/Device.h"

#include <functional>
#include <vector>

namespace kdac::selftest {

/// The median of `values`, which is not empty.
double median(std::vector<double> values);

/// Enqueues `samples` times with an event before each and after the last, and
/// returns the median microseconds from one event to the next.
StatusOr<double> medianMicroseconds(const Device &device, cuda::Stream stream,
                                    int samples,
                                    const std::function<Status()> &enqueue);

/// The device's copy bandwidth in bytes per microsecond, bytes read plus bytes
/// written.
StatusOr<double> copyBandwidth(const Device &device);

} // namespace kdac::selftest

#endif // KDAC_LIB_SELFTEST_TIMING_H
