// Sessions as data: fork, mark and rollback, save and restore.
#include "../Pack/Sha256.h"
#include "FileBytes.h"
#include "SessionState.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace kdac::model {

namespace {

constexpr char magic[8] = {'K', 'D', 'A', 'C', 'S', 'E', 'S', '1'};

/// Everything that must agree between the session that saved and the one that
/// restores.
struct Header {
  char magic[8];
  int64_t layers, kdaLayers, kdaHeads, kdaDim, convWidth, cacheDim, tokens;
  uint8_t digest[32]; ///< of the header up to here and the data
};

Header headerOf(const ModelConfig &config, int64_t tokens) {
  Header header = {};
  std::memcpy(header.magic, magic, sizeof magic);
  header.layers = config.layers();
  header.kdaLayers = config.count(Mixer::Kda);
  header.kdaHeads = config.kdaHeads;
  header.kdaDim = config.kdaDim;
  header.convWidth = config.convWidth;
  header.cacheDim = config.cacheDim();
  header.tokens = tokens;
  return header;
}

std::string_view front(const Header &header) {
  return {reinterpret_cast<const char *>(&header), offsetof(Header, digest)};
}

Status writeFile(const std::string &path, std::string_view head,
                 std::string_view data) {
  std::FILE *file = std::fopen(path.c_str(), "wb");
  bool isWritten =
      file && std::fwrite(head.data(), 1, head.size(), file) == head.size() &&
      std::fwrite(data.data(), 1, data.size(), file) == data.size();
  if (file && std::fclose(file) != 0)
    isWritten = false;
  return isWritten ? Status::success()
                   : Status(ErrorCode::Io, path + ": " + std::strerror(errno));
}

} // namespace

StatusOr<int32_t> Session::fork(int32_t slot) {
  StatusOr<int32_t> other = open();
  if (!other.ok())
    return other;
  int64_t tokens = length(slot);
  if (Status s = reserve(*other, tokens); !s.ok()) {
    close(*other);
    return s;
  }
  for (int64_t layer = 0; layer < state->config.layers(); ++layer) {
    MlaCache cache = mla(layer);
    for (int64_t t = 0; cache.pages && t < tokens; ++t)
      std::copy_n(cache.row(slot, t), cache.cacheDim, cache.row(*other, t));
  }
  Mark copy = mark(slot);
  const float *from = copy.fixed.data();
  state->forFixed(*other, [&](float *to, int64_t count) {
    std::copy_n(from, count, to);
    from += count;
  });
  advance(*other, tokens);
  return other;
}

Mark Session::mark(int32_t slot) const {
  Mark mark;
  mark.slot = slot;
  mark.tokens = length(slot);
  mark.fixed.reserve(static_cast<size_t>(state->fixedElements()));
  state->forFixed(slot, [&](const float *from, int64_t count) {
    mark.fixed.insert(mark.fixed.end(), from, from + count);
  });
  return mark;
}

Status Session::rollback(int32_t slot, const Mark &mark) {
  if (!isOpen(slot) || mark.slot != slot || mark.tokens > length(slot))
    return Status(ErrorCode::InvalidArgument,
                  "slot " + std::to_string(slot) +
                      " cannot go back to a mark of slot " +
                      std::to_string(mark.slot) + " at token " +
                      std::to_string(mark.tokens));
  const float *from = mark.fixed.data();
  state->forFixed(slot, [&](float *to, int64_t count) {
    std::copy_n(from, count, to);
    from += count;
  });
  state->releasePages(slot, state->pagesOf(mark.tokens));
  state->lengths[static_cast<size_t>(slot)] = mark.tokens;
  return Status::success();
}

Status Session::save(int32_t slot, const std::string &path) const {
  Mark copy = mark(slot);
  std::vector<float> data = std::move(copy.fixed);
  for (int64_t layer = 0; layer < state->config.layers(); ++layer) {
    MlaCache cache = state->mlaCache(layer);
    for (int64_t t = 0; cache.pages && t < copy.tokens; ++t) {
      const float *row = cache.row(slot, t);
      data.insert(data.end(), row, row + cache.cacheDim);
    }
  }
  std::string_view bytes(reinterpret_cast<const char *>(data.data()),
                         data.size() * sizeof(float));
  Header header = headerOf(state->config, copy.tokens);
  Digest digest = sha256({front(header), bytes});
  std::copy(digest.begin(), digest.end(), header.digest);
  return writeFile(
      path, {reinterpret_cast<const char *>(&header), sizeof header}, bytes);
}

/// The header of a saved session, once file and model are known to fit.
static StatusOr<Header> checkSaved(std::string_view bytes,
                                   const std::string &path,
                                   const ModelConfig &config) {
  Header header;
  if (bytes.size() < sizeof header ||
      std::memcmp(bytes.data(), magic, sizeof magic) != 0)
    return Status(ErrorCode::Corrupt, path + " is not a saved session");
  std::memcpy(&header, bytes.data(), sizeof header);
  Digest digest = sha256({front(header), bytes.substr(sizeof header)});
  if (!std::equal(digest.begin(), digest.end(), header.digest))
    return Status(ErrorCode::Corrupt, path + " is damaged or truncated");
  Header wanted = headerOf(config, header.tokens);
  if (front(header) != front(wanted) || header.tokens < 0)
    return Status(ErrorCode::InvalidArgument,
                  path + " was saved by a model of another shape");
  return header;
}

StatusOr<int32_t> Session::restore(const std::string &path) {
  StatusOr<MappedFile> file = MappedFile::open(path);
  if (!file.ok())
    return file.status();
  std::string_view bytes = file->bytes();
  StatusOr<Header> header = checkSaved(bytes, path, state->config);
  if (!header.ok())
    return header.status();
  StatusOr<int32_t> slot = open();
  if (!slot.ok())
    return slot;
  Status status = reserve(*slot, header->tokens);
  int64_t mlaLayers = header->layers - header->kdaLayers;
  // Tokens fit the session by now, so that the product fits too.
  auto wanted = static_cast<size_t>(
      status.ok() ? state->fixedElements() +
                        mlaLayers * header->tokens * header->cacheDim
                  : 0);
  if (status.ok() && bytes.size() != sizeof(Header) + wanted * sizeof(float))
    status = Status(ErrorCode::Corrupt, path + " has the wrong size");
  if (!status.ok()) {
    close(*slot);
    return status;
  }
  const char *from = bytes.data() + sizeof(Header);
  auto take = [&](float *to, int64_t count) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    from += count * static_cast<int64_t>(sizeof(float));
  };
  state->forFixed(*slot, take);
  for (int64_t layer = 0; layer < state->config.layers(); ++layer) {
    MlaCache cache = mla(layer);
    for (int64_t t = 0; cache.pages && t < header->tokens; ++t)
      take(cache.row(*slot, t), cache.cacheDim);
  }
  advance(*slot, header->tokens);
  return slot;
}

} // namespace kdac::model
