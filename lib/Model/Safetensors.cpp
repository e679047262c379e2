#include "kdac/Model/Safetensors.h"

#include "FileBytes.h"
#include "JsonFields.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace kdac::model {

using nlohmann::json;

namespace {

struct TypeRow {
  std::string_view name;
  TensorType type;
  int64_t size; ///< bytes of an element
};

constexpr std::array<TypeRow, 18> typeTable{{
    {"F32", TensorType::F32, 4},
    {"F16", TensorType::F16, 2},
    {"BF16", TensorType::BF16, 2},
    {"U8", TensorType::U8, 1},
    {"I8", TensorType::Other, 1},
    {"BOOL", TensorType::Other, 1},
    {"I16", TensorType::Other, 2},
    {"U16", TensorType::Other, 2},
    {"I32", TensorType::Other, 4},
    {"U32", TensorType::Other, 4},
    {"F64", TensorType::Other, 8},
    {"I64", TensorType::Other, 8},
    {"U64", TensorType::Other, 8},
    {"F8_E5M2", TensorType::Other, 1},
    {"F8_E4M3", TensorType::Other, 1},
    {"F8_E8M0", TensorType::U8, 1},
    {"C64", TensorType::Other, 8},
    {"F8_E4M3FN", TensorType::Other, 1},
}};

Status corrupt(const std::string &message) {
  return Status(ErrorCode::Corrupt, message);
}

StatusOr<json> parseHeader(std::string_view text, const std::string &name) {
  std::string header =
      name + ": its header of " + std::to_string(text.size()) + " bytes";
  StatusOr<json> value = parseJson(text, header);
  if (value.ok() && !value->is_object())
    return corrupt(header + " is not a JSON object");
  return value;
}

/// What the file's first 8 bytes say; it has them.
uint64_t headerBytes(std::string_view bytes) {
  uint64_t size = 0;
  for (size_t i = 8; i-- > 0;)
    size = size << 8 | static_cast<unsigned char>(bytes[i]);
  return size;
}

/// The header's text, once the file is known to begin with one.
StatusOr<std::string_view> headerOf(std::string_view bytes,
                                    const std::string &name) {
  constexpr uint64_t largest = 100'000'000;
  if (Status s = checkNoPointer(bytes, name); !s.ok())
    return s;
  if (bytes.size() < 8)
    return corrupt(name + " has " + std::to_string(bytes.size()) +
                   " bytes, too few for a safetensors file");
  uint64_t size = headerBytes(bytes);
  if (size > largest)
    return corrupt(name + ": its header should have " + std::to_string(size) +
                   " bytes, but at most " + std::to_string(largest) +
                   " are allowed; it is damaged or no safetensors file");
  if (size > bytes.size() - 8)
    return corrupt(name + ": its header should have " + std::to_string(size) +
                   " bytes, but the file has " + std::to_string(bytes.size()) +
                   "; it is truncated or no safetensors file");
  return bytes.substr(8, static_cast<size_t>(size));
}

/// A header entry on its way to a StoredTensor.
struct Entry {
  const std::string &file, &name;
  const json &value;
  std::string_view data; ///< the file behind its header

  Status fail(const std::string &what) const {
    return corrupt(file + ": tensor " + name + " " + what);
  }
  StatusOr<int64_t> readShape(StoredTensor &tensor) const;
  Status readOffsets(StoredTensor &tensor, int64_t bytes, int64_t size) const;
  StatusOr<StoredTensor> read() const;
};

/// The number of elements, in checked arithmetic.
StatusOr<int64_t> Entry::readShape(StoredTensor &tensor) const {
  auto shape = value.find("shape");
  if (shape == value.end() || !shape->is_array() || shape->size() > 16)
    return fail("has no shape");
  int64_t elements = 1;
  for (const json &dim : *shape) {
    if (!dim.is_number_unsigned() || dim.get<uint64_t>() > uint64_t(INT64_MAX))
      return fail("has the size " + shown(dim) + " in its shape");
    tensor.shape.push_back(dim.get<int64_t>());
    if (__builtin_mul_overflow(elements, tensor.shape.back(), &elements))
      return fail("has the shape " + spellShape(tensor.shape) +
                  ", more than 2^63 elements");
  }
  return elements;
}

Status Entry::readOffsets(StoredTensor &tensor, int64_t bytes,
                          int64_t size) const {
  auto offsets = value.find("data_offsets");
  if (offsets == value.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() ||
      !(*offsets)[1].is_number_unsigned())
    return fail("has no data_offsets");
  uint64_t begin = (*offsets)[0].get<uint64_t>();
  uint64_t end = (*offsets)[1].get<uint64_t>();
  std::string range = std::to_string(begin) + " to " + std::to_string(end);
  if (end < begin || end > data.size())
    return fail("is at bytes " + range + " of the data, which has " +
                std::to_string(data.size()) +
                "; the file is truncated or "
                "damaged");
  if (end - begin != static_cast<uint64_t>(bytes))
    return fail("is at bytes " + range + ", but " + tensor.typeName + " " +
                spellShape(tensor.shape) + " needs " + std::to_string(bytes));
  tensor.data = data.data() + begin;
  tensor.bytes = bytes;
  if (reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uint64_t>(size))
    return fail("begins at byte " + std::to_string(begin) +
                " of the data, where its " + std::to_string(size) +
                "-byte elements are misaligned");
  return Status::success();
}

StatusOr<StoredTensor> Entry::read() const {
  if (!value.is_object())
    return fail("is described by " + shown(value) + ", not by an object");
  StoredTensor tensor;
  tensor.file = file;
  auto type = value.find("dtype");
  if (type == value.end() || !type->is_string())
    return fail("has no dtype");
  tensor.typeName = type->get<std::string>();
  auto row =
      std::find_if(typeTable.begin(), typeTable.end(), [&](const TypeRow &row) {
        return row.name == tensor.typeName;
      });
  if (row == typeTable.end())
    return fail("has the unknown dtype " + shown(*type));
  tensor.type = row->type;
  StatusOr<int64_t> elements = readShape(tensor);
  if (!elements.ok())
    return elements.status();
  int64_t bytes = 0;
  if (__builtin_mul_overflow(*elements, row->size, &bytes))
    return fail("has the shape " + spellShape(tensor.shape) +
                ", more than 2^63 bytes");
  if (Status s = readOffsets(tensor, bytes, row->size); !s.ok())
    return s;
  return tensor;
}

/// The format has no holes: every byte of the data belongs to one tensor.
Status checkCover(const StoredTensors &tensors, std::string_view data,
                  const std::string &name) {
  std::vector<std::pair<const char *, const StoredTensors::value_type *>> order;
  for (const auto &entry : tensors)
    if (entry.second.bytes > 0)
      order.push_back({entry.second.data, &entry});
  std::sort(order.begin(), order.end());
  const char *end = data.data();
  for (const auto &[begin, entry] : order) {
    if (begin != end)
      return corrupt(name + ": tensor " + entry->first + " begins at byte " +
                     std::to_string(begin - data.data()) +
                     " of the data, but the one before ends at " +
                     std::to_string(end - data.data()));
    end = begin + entry->second.bytes;
  }
  if (end != data.data() + data.size())
    return corrupt(name + ": the data has " + std::to_string(data.size()) +
                   " bytes, but its tensors end at " +
                   std::to_string(end - data.data()));
  return Status::success();
}

} // namespace

std::string spellShape(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

size_t safetensorsData(std::string_view bytes) {
  uint64_t size = bytes.size() < 8 ? 0 : headerBytes(bytes);
  return size <= bytes.size() ? static_cast<size_t>(8 + size) : 0;
}

StatusOr<StoredTensors> parseSafetensors(std::string_view bytes,
                                         const std::string &name) {
  StatusOr<std::string_view> text = headerOf(bytes, name);
  if (!text.ok())
    return text.status();
  StatusOr<json> header = parseHeader(*text, name);
  if (!header.ok())
    return header.status();
  std::string_view data = bytes.substr(8 + text->size());
  StoredTensors tensors;
  for (auto it = header->begin(); it != header->end(); ++it) {
    if (it.key() == "__metadata__")
      continue;
    StatusOr<StoredTensor> tensor =
        Entry{name, it.key(), it.value(), data}.read();
    if (!tensor.ok())
      return tensor.status();
    tensors.emplace(it.key(), std::move(*tensor));
  }
  if (Status s = checkCover(tensors, data, name); !s.ok())
    return s;
  return tensors;
}

} // namespace kdac::model
