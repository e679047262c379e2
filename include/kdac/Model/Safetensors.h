// Promises: tensors of a safetensors file, or of a model folder's one or many,
// mapped into memory, every offset checked. Does not: convert, copy or know
// what the tensors are for.
#ifndef KDAC_MODEL_SAFETENSORS_H
#define KDAC_MODEL_SAFETENSORS_H

#include "kdac/Runtime/Status.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kdac::model {

/// Element types that the runtime computes with; a file may hold others.
enum class TensorType { F32, F16, BF16, U8, Other };

/// A tensor in a file; `data` lives as long as what it was found in.
struct StoredTensor {
  TensorType type = TensorType::Other;
  std::string typeName; ///< as the file spells it: "BF16"
  std::vector<int64_t> shape;
  const char *data = nullptr; ///< aligned to an element
  int64_t bytes = 0;
  std::string file; ///< for errors
};

using StoredTensors = std::map<std::string, StoredTensor, std::less<>>;

/// "[4096, 1, 4]".
std::string spellShape(const std::vector<int64_t> &shape);

/// The tensors of the safetensors file in `bytes`, which must outlive them;
/// `name` is how errors call it. Refused, with a sentence naming file, tensor
/// and value: a header that is no header, a Git LFS pointer, unknown element
/// types, offsets that overlap, leave holes, are misaligned, go beyond the file
/// or do not fit the shape.
StatusOr<StoredTensors> parseSafetensors(std::string_view bytes,
                                         const std::string &name);

/// Where the data begins in a file that may be none; 0 where it does not.
size_t safetensorsData(std::string_view bytes);

/// A model folder: model.safetensors, or the shards that
/// model.safetensors.index.json names.
class Checkpoint {
public:
  /// Maps every file, or copies it where its header is no multiple of 8 bytes
  /// so that mapped data would be misaligned, and checks that the index and the
  /// files agree.
  static StatusOr<Checkpoint> open(const std::string &folder);

  /// The tensor called `name`, or null.
  const StoredTensor *find(std::string_view name) const;
  const StoredTensors &tensors() const { return state->tensors; }
  const std::string &folder() const { return state->folder; }
  int64_t bytes() const; ///< of all tensors
  /// Tensors of the shards that the index does not name, and that find() does
  /// not find.
  const std::vector<std::string> &unlisted() const { return state->unlisted; }

private:
  struct State {
    std::string folder;
    StoredTensors tensors;
    std::vector<std::string> unlisted;
    std::vector<std::shared_ptr<void>> files; ///< mapped
  };
  explicit Checkpoint(std::shared_ptr<State> state) : state(std::move(state)) {}
  Status addFile(const std::string &file, StoredTensors &into);
  Status addIndex(const std::string &file);
  Status checkShards(const std::string &path,
                     const std::map<std::string, std::string> &index,
                     const std::map<std::string, StoredTensors> &shards);

  std::shared_ptr<State> state;
};

} // namespace kdac::model

#endif // KDAC_MODEL_SAFETENSORS_H
