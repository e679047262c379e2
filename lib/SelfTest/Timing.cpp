#include "Timing.h"

#include <algorithm>

namespace kdac::selftest {

double median(std::vector<double> values) {
  auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

StatusOr<double> medianMicroseconds(const Device &device, cuda::Stream stream,
                                    int samples,
                                    const std::function<Status()> &enqueue) {
  std::vector<EventHandle> events;
  for (int i = 0; i <= samples; ++i) {
    StatusOr<EventHandle> event = EventHandle::create(device);
    if (!event.ok())
      return event.status();
    events.push_back(std::move(*event));
  }
  if (Status s = events[0].record(stream); !s.ok())
    return s;
  for (int i = 1; i <= samples; ++i) {
    if (Status s = enqueue(); !s.ok())
      return s;
    if (Status s = events[i].record(stream); !s.ok())
      return s;
  }
  if (Status s = events.back().synchronize(); !s.ok())
    return s;
  std::vector<double> times;
  for (int i = 0; i < samples; ++i) {
    StatusOr<double> us = events[i + 1].microsecondsSince(events[i]);
    if (!us.ok())
      return us;
    times.push_back(*us);
  }
  return median(std::move(times));
}

StatusOr<double> copyBandwidth(const Device &device) {
  constexpr size_t bytes = size_t(1) << 30;
  constexpr int samples = 8;
  StatusOr<StreamHandle> stream = StreamHandle::create(device);
  StatusOr<DeviceBuffer> from = DeviceBuffer::allocate(device, bytes);
  StatusOr<DeviceBuffer> to = DeviceBuffer::allocate(device, bytes);
  for (const Status &s : {stream.status(), from.status(), to.status()})
    if (!s.ok())
      return s;
  if (Status s = from->fill(0x3c, stream->get()); !s.ok())
    return s;
  StatusOr<double> us = medianMicroseconds(device, stream->get(), samples, [&] {
    Device::Scope scope(device);
    return device.driver().check(
        device.driver().memcpyDtoDAsync(to->address(), from->address(), bytes,
                                        stream->get()),
        "cuMemcpyDtoD");
  });
  if (!us.ok())
    return us;
  return 2.0 * static_cast<double>(bytes) / std::max(*us, 1e-3);
}

} // namespace kdac::selftest
