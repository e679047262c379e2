#include "Binder.h"

#include "Elements.h"

#include <algorithm>

namespace kdac::model {

void Binder::fail(const StoredTensor *tensor, const std::string &name,
                  const std::string &what) {
  if (first.ok())
    first = Status(ErrorCode::Corrupt, (tensor       ? tensor->file
                                        : checkpoint ? checkpoint->folder()
                                                     : "random weights") +
                                           ": tensor " + name + " " + what);
}

const StoredTensor *Binder::find(const std::string &name,
                                 const std::vector<int64_t> &shape,
                                 TensorType type) {
  used.insert(name);
  if (random) {
    StatusOr<const StoredTensor *> made = random->make(name, shape, type);
    if (!made.ok() && first.ok())
      first = made.status();
    return made.ok() ? *made : nullptr;
  }
  const StoredTensor *tensor = checkpoint->find(name);
  if (!tensor)
    fail(nullptr, name, "is missing");
  return tensor;
}

bool Binder::hasShape(const StoredTensor &tensor, const std::string &name,
                      const std::vector<std::vector<int64_t>> &shapes) {
  if (std::find(shapes.begin(), shapes.end(), tensor.shape) != shapes.end())
    return true;
  fail(&tensor, name,
       "has shape " + spellShape(tensor.shape) + ", but the config wants " +
           spellShape(shapes.front()));
  return false;
}

Matrix Binder::matrix(const std::string &name, int64_t out, int64_t in) {
  std::string full = name + ".weight";
  const StoredTensor *tensor = find(full, {out, in}, TensorType::BF16);
  if (!tensor || !hasShape(*tensor, full, {{out, in}}))
    return {};
  Matrix matrix{tensor->data, nullptr, MatrixType::F32, out, in};
  if (tensor->type == TensorType::F16)
    matrix.type = MatrixType::F16;
  else if (tensor->type == TensorType::BF16)
    matrix.type = MatrixType::BF16;
  else if (tensor->type != TensorType::F32)
    fail(tensor, full,
         "is " + tensor->typeName + ", but should be F32, F16 or BF16");
  return matrix;
}

Matrix Binder::expert(const std::string &name, int64_t out, int64_t in) {
  std::string packedName = name + ".weight_packed";
  if (random || !checkpoint->find(packedName))
    return matrix(name, out, in);
  std::string scaleName = name + ".weight_scale";
  const StoredTensor *packed = find(packedName, {out, in / 2}, TensorType::U8);
  const StoredTensor *scale = find(scaleName, {out, in / 32}, TensorType::U8);
  if (!packed || !scale)
    return {};
  if (in % 32 != 0) {
    fail(packed, packedName,
         "has " + std::to_string(in) + " inputs, but MXFP4 packs groups of 32");
    return {};
  }
  if (!hasShape(*packed, packedName, {{out, in / 2}}) ||
      !hasShape(*scale, scaleName, {{out, in / 32}}))
    return {};
  for (auto [tensor, full] :
       {std::pair(packed, packedName), std::pair(scale, scaleName)})
    if (tensor->type != TensorType::U8)
      fail(tensor, full, "is " + tensor->typeName + ", but should be U8");
  return {packed->data, reinterpret_cast<const uint8_t *>(scale->data),
          MatrixType::Mxfp4, out, in};
}

Vector Binder::toFloats(const StoredTensor &tensor, const std::string &name) {
  bool isWide = tensor.type == TensorType::F32;
  Vector values(static_cast<size_t>(tensor.bytes / (isWide ? 4 : 2)));
  const auto *halves = reinterpret_cast<const uint16_t *>(tensor.data);
  if (isWide && tensor.bytes > 0)
    std::memcpy(values.data(), tensor.data, static_cast<size_t>(tensor.bytes));
  else if (tensor.type == TensorType::BF16)
    std::transform(halves, halves + values.size(), values.begin(), floatOfBF16);
  else if (tensor.type == TensorType::F16)
    std::transform(halves, halves + values.size(), values.begin(), floatOfF16);
  else if (!isWide)
    fail(&tensor, name,
         "is " + tensor.typeName + ", but should be F32, F16 or BF16");
  return values;
}

Vector Binder::vector(const std::string &name,
                      const std::vector<std::vector<int64_t>> &shapes) {
  const StoredTensor *tensor = find(name, shapes.front(), TensorType::F32);
  if (!tensor || !hasShape(*tensor, name, shapes))
    return {};
  return toFloats(*tensor, name);
}

Vector Binder::padded(const std::string &name, int64_t count) {
  const StoredTensor *tensor = find(name, {count}, TensorType::F32);
  if (!tensor)
    return {};
  Vector values = toFloats(*tensor, name);
  auto wanted = static_cast<size_t>(count);
  if (values.size() < wanted) {
    fail(tensor, name,
         "has shape " + spellShape(tensor->shape) + ", but there are " +
             std::to_string(count) + " heads");
    return {};
  }
  for (size_t i = wanted; i < values.size(); ++i)
    if (values[i] != 0)
      fail(tensor, name,
           "has a value that is not 0 at " + std::to_string(i) +
               ", behind the " + std::to_string(count) + " heads");
  values.resize(wanted);
  return values;
}

std::vector<std::string> Binder::unused() const {
  std::vector<std::string> names;
  if (random)
    return names;
  for (const auto &[name, tensor] : checkpoint->tensors())
    if (!used.count(name))
      names.push_back(name);
  return names;
}

} // namespace kdac::model
