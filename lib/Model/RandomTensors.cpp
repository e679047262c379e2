#include "RandomTensors.h"

#include <cmath>

namespace kdac::model {

/// xorshift64*: fast, and good enough to fill memory.
uint32_t RandomTensors::draw() {
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return static_cast<uint32_t>((state * 0x2545f4914f6cdd1du) >> 32);
}

StatusOr<const StoredTensor *>
RandomTensors::make(const std::string &name, const std::vector<int64_t> &shape,
                    TensorType type) {
  int64_t elements = 1;
  for (int64_t dim : shape)
    if (__builtin_mul_overflow(elements, dim, &elements) ||
        elements > int64_t(1) << 50)
      return Status(ErrorCode::InvalidArgument,
                    "tensor " + name + " of shape " + spellShape(shape) +
                        " is too large");
  bool isMatrix = type == TensorType::BF16;
  int64_t bytes = elements * (isMatrix ? 2 : 4);
  total += bytes;
  if (isMatrix && !hasMatrices) {
    const char *address = &outlines.emplace_back();
    tensors.push_back({type, "BF16", shape, address, bytes, "an outline"});
    return &tensors.back();
  }
  StatusOr<AlignedBuffer> buffer =
      AlignedBuffer::allocate(bytes, "tensor " + name);
  if (!buffer.ok())
    return buffer.status();
  if (isMatrix) {
    // Random sign and mantissa, the exponent of 1/√in.
    int exponent = 127 - std::ilogb(std::sqrt(double(shape.back()))) - 1;
    auto *values = reinterpret_cast<uint16_t *>(buffer->bytes());
    for (int64_t i = 0; i < elements; ++i)
      values[i] = static_cast<uint16_t>((draw() & 0x807f) | exponent << 7);
  } else {
    bool isNorm = name.find("norm") != std::string::npos;
    for (int64_t i = 0; i < elements; ++i) {
      float value = static_cast<float>(draw()) * 0x1p-31f - 1;
      buffer->floats()[i] = isNorm ? 1 + 0.1f * value : value;
    }
  }
  tensors.push_back({type, isMatrix ? "BF16" : "F32", shape, buffer->bytes(),
                     bytes, "random weights"});
  memory.push_back(std::move(*buffer));
  return &tensors.back();
}

} // namespace kdac::model
