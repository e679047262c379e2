#include "FileBytes.h"
#include "JsonFields.h"
#include "kdac/Model/Safetensors.h"

namespace kdac::model {

using nlohmann::json;

namespace {

constexpr char singleName[] = "model.safetensors";
constexpr char indexName[] = "model.safetensors.index.json";

/// File names of an index stay inside the folder.
bool isPlainName(const std::string &name) {
  return !name.empty() && name[0] != '.' &&
         name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

/// Tensor name to shard, from the index at `path`.
StatusOr<std::map<std::string, std::string>>
readIndex(const std::string &path) {
  constexpr int64_t largest = 1 << 30;
  StatusOr<std::string> text = readWholeFile(path, largest);
  if (!text.ok())
    return text.status();
  StatusOr<json> root = parseJson(*text, path);
  if (!root.ok())
    return root.status();
  auto weights = root->is_object() ? root->find("weight_map") : root->end();
  if (!root->is_object() || weights == root->end() || !weights->is_object())
    return Status(ErrorCode::Corrupt, path + " has no weight_map");
  std::map<std::string, std::string> shards;
  for (auto it = weights->begin(); it != weights->end(); ++it) {
    if (!it->is_string() || !isPlainName(it->get<std::string>()))
      return Status(ErrorCode::Corrupt, path + ": tensor " + it.key() +
                                            " is in " + shown(*it) +
                                            ", which is no file name");
    shards[it.key()] = it->get<std::string>();
  }
  return shards;
}

} // namespace

Status Checkpoint::addFile(const std::string &file, StoredTensors &into) {
  StatusOr<MappedFile> mapped = MappedFile::open(file);
  if (!mapped.ok())
    return mapped.status();
  if (size_t data = safetensorsData(mapped->bytes()); data % 8 != 0) {
    mapped = MappedFile::copy(file, data);
    if (!mapped.ok())
      return mapped.status();
  }
  StatusOr<StoredTensors> tensors = parseSafetensors(mapped->bytes(), file);
  if (!tensors.ok())
    return tensors.status();
  into = std::move(*tensors);
  state->files.push_back(std::make_shared<MappedFile>(std::move(*mapped)));
  return Status::success();
}

Status Checkpoint::addIndex(const std::string &path) {
  StatusOr<std::map<std::string, std::string>> index = readIndex(path);
  if (!index.ok())
    return index.status();
  std::map<std::string, StoredTensors> shards;
  for (const auto &[name, shard] : *index) {
    std::string file = state->folder + "/" + shard;
    auto [it, isNew] = shards.emplace(shard, StoredTensors());
    if (isNew)
      if (Status s = addFile(file, it->second); !s.ok())
        return s.with(path + " names " + shard + " for tensor " + name);
    auto found = it->second.find(name);
    if (found == it->second.end())
      return Status(ErrorCode::Corrupt, file + " lacks tensor " + name +
                                            ", which " + path + " expects");
    state->tensors.emplace(name, found->second);
  }
  return checkShards(path, *index, shards);
}

/// A tensor that is in two files may be of two versions of the model.
Status
Checkpoint::checkShards(const std::string &path,
                        const std::map<std::string, std::string> &index,
                        const std::map<std::string, StoredTensors> &shards) {
  for (const auto &[shard, tensors] : shards)
    for (const auto &[name, tensor] : tensors) {
      auto listed = index.find(name);
      if (listed == index.end())
        state->unlisted.push_back(name);
      else if (listed->second != shard)
        return Status(ErrorCode::Corrupt, tensor.file + " has tensor " + name +
                                              " too, which " + path +
                                              " puts into " + listed->second);
    }
  return Status::success();
}

StatusOr<Checkpoint> Checkpoint::open(const std::string &folder) {
  Checkpoint checkpoint(std::make_shared<State>());
  checkpoint.state->folder = folder;
  std::string index = folder + "/" + indexName,
              single = folder + "/" + singleName;
  if (!exists(index) && !exists(single))
    return Status(ErrorCode::NotFound,
                  folder + " has neither " + singleName + " nor " + indexName);
  Status status = exists(index)
                      ? checkpoint.addIndex(index)
                      : checkpoint.addFile(single, checkpoint.state->tensors);
  if (!status.ok())
    return status;
  return checkpoint;
}

const StoredTensor *Checkpoint::find(std::string_view name) const {
  auto it = state->tensors.find(name);
  return it == state->tensors.end() ? nullptr : &it->second;
}

int64_t Checkpoint::bytes() const {
  int64_t total = 0;
  for (const auto &[name, tensor] : state->tensors)
    total += tensor.bytes;
  return total;
}

} // namespace kdac::model
