#include "BenchCall.h"

#include "kdac/Reference/Cache.h"
#include "kdac/Reference/Float.h"

#include <cstring>

namespace kdac::selftest {

using reference::Buffer;

/// Pieces at least this big are copied alone, smaller ones with the whole
/// tensor.
static constexpr int64_t minPieceBytes = 16384;

static Status uploadIntegers(DeviceBuffer &buffer, DType dtype,
                             const std::vector<int64_t> &numbers) {
  std::vector<std::byte> bytes(buffer.bytes());
  for (size_t i = 0; i < numbers.size(); ++i)
    reference::store(bytes.data(), dtype, static_cast<int64_t>(i),
                     static_cast<double>(numbers[i]));
  return buffer.upload(bytes.data(), bytes.size());
}

StatusOr<std::unique_ptr<BenchCall>> BenchCall::make(const Device &device,
                                                     const Variant &variant,
                                                     const BenchShape &shape,
                                                     Patterns &patterns,
                                                     cuda::Stream stream) {
  auto call = std::make_unique<BenchCall>();
  std::unique_ptr<BenchForm> form = BenchForm::make(variant, shape);
  for (const Arg &arg : kernelArgs(variant)) {
    call->slots.push_back(0);
    if (arg.kind == ArgKind::Size) {
      call->slots.back() = static_cast<uint64_t>(form->size(arg.name));
    } else if (arg.kind == ArgKind::Scale) {
      float scale = form->scale(arg.name);
      std::memcpy(&call->slots.back(), &scale, sizeof scale);
    } else if (arg.kind == ArgKind::Workspace) {
      call->workspaceSlot = call->slots.size() - 1;
    } else if (Status s = call->addTensor(device, variant, *form, arg, patterns,
                                          stream);
               !s.ok()) {
      return s;
    }
  }
  for (uint64_t &slot : call->slots)
    call->argv.push_back(&slot);
  return call;
}

Status BenchCall::bringWorkspace(const Device &device,
                                 const PackVariant &variant) {
  StatusOr<int64_t> bytes = workspaceBytes(variant, arguments());
  if (!bytes.ok() || *bytes == 0)
    return bytes.ok() ? Status::success() : bytes.status();
  StatusOr<DeviceBuffer> buffer =
      DeviceBuffer::allocate(device, static_cast<size_t>(*bytes));
  if (!buffer.ok())
    return buffer.status().with("workspace");
  slots[workspaceSlot] = buffer->address();
  if (variant.variant.log) // a result, unlike scratch
    total += static_cast<double>(buffer->bytes());
  tensors.emplace("workspace", std::move(*buffer));
  return Status::success();
}

void BenchCall::commit(bool isSecond) {
  slots[acceptedSlot] = isSecond ? find("accepted")->address() : 0;
}

const DeviceBuffer *BenchCall::find(const std::string &name) const {
  auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : &found->second;
}

Status BenchCall::addTensor(const Device &device, const Variant &variant,
                            const BenchForm &form, const Arg &arg,
                            Patterns &patterns, cuda::Stream stream) {
  int64_t elements = form.elements(arg);
  if (elements == 0)
    return Status::success(); // absent: a null pointer
  size_t size = static_cast<size_t>(elements * dtypeSize(arg.dtype));
  StatusOr<DeviceBuffer> buffer = DeviceBuffer::allocate(device, size);
  if (!buffer.ok())
    return buffer.status().with(arg.name);
  bool isResult = arg.kind == ArgKind::Output && !reference::isCache(arg.name);
  bool hasIntegers = arg.dtype == DType::I32 || arg.dtype == DType::I64;
  Status status =
      isResult ? buffer->fill(0xff, stream)
      : hasIntegers
          ? uploadIntegers(*buffer, arg.dtype, form.integers(arg))
          : patterns.of(variant, arg).fill(*buffer, elements, stream, device);
  if (arg.name == "accepted")
    acceptedSlot = slots.size() - 1; // null until commit
  else
    slots.back() = buffer->address();
  total += form.moved(arg, static_cast<double>(size));
  tensors.emplace(arg.name, std::move(*buffer));
  return status;
}

std::vector<int64_t> sampledHeads(const BenchShape &shape) {
  if (shape.valueHeads == 1)
    return {0};
  return {0, shape.valueHeads - 1};
}

StatusOr<Buffer> sampledOutput(const DeviceBuffer &from,
                               const std::string &name, DType dtype,
                               int64_t rows, int64_t heads, int64_t width,
                               const std::vector<int64_t> &samples,
                               int64_t firstRow) {
  auto count = static_cast<int64_t>(samples.size());
  Buffer result(name, ArgKind::Output, dtype,
                reference::Layout{rows, count, width, count * width});
  auto size = static_cast<size_t>(width * dtypeSize(dtype));
  bool inPieces = static_cast<int64_t>(size) >= minPieceBytes;
  std::vector<std::byte> whole(inPieces ? 0 : from.bytes());
  if (Status s = from.download(whole.data(), whole.size()); !s.ok())
    return s;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < count; ++i) {
      std::byte *to = static_cast<std::byte *>(result.data()) +
                      static_cast<size_t>(row * count + i) * size;
      size_t at =
          static_cast<size_t>((firstRow + row) * heads + samples[i]) * size;
      if (!inPieces)
        std::memcpy(to, whole.data() + at, size);
      else if (Status s = from.download(to, size, at); !s.ok())
        return s;
    }
  return result;
}

} // namespace kdac::selftest
