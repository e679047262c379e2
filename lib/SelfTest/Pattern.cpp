#include "Pattern.h"

#include "kdac/Reference/Float.h"
#include "kdac/Reference/Parallel.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace kdac::selftest {

namespace {

using reference::Recipe;
using reference::Site;

/// Draws element `site` of the argument called `name`.
double draw(const Recipe &recipe, const Variant &v, const std::string &name,
            const Site &site) {
  reference::Purpose purpose;
  purpose.gate = *v.gate;
  purpose.dtype = v.dtype;
  purpose.norms = v.norm != OutputNorm::None;
  double perChannel = 1 / std::sqrt(static_cast<double>(v.keyDim));
  if (name == "q" || name == "k")
    return recipe.direction(site) * (*v.l2norm ? 1.0 : perChannel);
  if (name == "a" || name == "b") // too small to matter after a few tokens
    return 0.1 * recipe.direction(site) * perChannel;
  return reference::drawElement(recipe, v, purpose, name, site);
}

} // namespace

double Pattern::at(int64_t element) const {
  return reference::load(bytes.data(), dtype, element % period);
}

Status Pattern::fill(DeviceBuffer &buffer, int64_t elements,
                     cuda::Stream stream, const Device &device) const {
  size_t total = static_cast<size_t>(elements * dtypeSize(dtype));
  size_t done = std::min(total, bytes.size());
  if (Status s = buffer.upload(bytes.data(), done); !s.ok())
    return s;
  // Doubling: what is there already is a whole number of periods.
  Device::Scope scope(device);
  while (done < total) {
    size_t count = std::min(done, total - done);
    if (Status s = device.driver().check(
            device.driver().memcpyDtoDAsync(buffer.address() + done,
                                            buffer.address(), count, stream),
            "cuMemcpyDtoD");
        !s.ok())
      return s;
    done += count;
  }
  return Status::success();
}

const Pattern &Patterns::of(const Variant &v, const Arg &arg) {
  bool isUnit = arg.name == "a" || arg.name == "b" ||
                ((arg.name == "q" || arg.name == "k") && !*v.l2norm);
  std::string key = arg.name + "." + std::string(spell(arg.dtype)) + "." +
                    std::string(spell(*v.gate)) + "." +
                    std::string(spell(*v.beta)) + (*v.l2norm ? ".n" : ".r") +
                    (isUnit ? std::to_string(v.keyDim) : "");
  std::unique_ptr<Pattern> &slot = known[key];
  if (slot)
    return *slot;
  slot = std::make_unique<Pattern>();
  slot->dtype = arg.dtype;
  slot->bytes.resize(
      static_cast<size_t>(Pattern::period * dtypeSize(arg.dtype)));
  uint64_t stream = std::hash<std::string>{}(key);
  constexpr int64_t block = 1 << 16;
  reference::parallelFor((Pattern::period + block - 1) / block, [&](int64_t b) {
    int64_t end = std::min(Pattern::period, (b + 1) * block);
    for (int64_t i = b * block; i < end; ++i)
      reference::store(slot->bytes.data(), arg.dtype, i,
                       draw(recipe, v, arg.name, {seed, stream, i, 0, 0}));
  });
  return *slot;
}

const Pattern &Patterns::of(const Variant &v, std::string_view name) {
  for (const Arg &arg : kernelArgs(v))
    if (arg.name == name)
      return of(v, arg);
  std::abort(); // no argument of the kernel
}

reference::Rows rowsOf(const Pattern &pattern, int64_t width, int64_t stride,
                       std::vector<int64_t> heads,
                       std::vector<int64_t> numbers) {
  return [&pattern, width, stride, heads = std::move(heads),
          numbers = std::move(numbers)](int64_t row, int64_t head, double *x) {
    if (!numbers.empty())
      row = numbers[static_cast<size_t>(row)];
    int64_t first = row * stride;
    if (!heads.empty())
      first += heads[static_cast<size_t>(head)] * width;
    for (int64_t i = 0; i < width; ++i)
      x[i] = pattern.at(first + i);
  };
}

} // namespace kdac::selftest
