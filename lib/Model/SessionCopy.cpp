// Sessions as data: fork, mark and rollback, save and restore.
#include "../Pack/Sha256.h"
#include "FileBytes.h"
#include "SessionState.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace kdac::model {

namespace {

constexpr char magic[8] = {'K', 'D', 'A', 'C', 'S', 'E', 'S', '3'};

/// Everything that must agree between the session that saved and the one that
/// restores.
struct Header {
  char magic[8];
  int64_t layers, kdaLayers, kdaHeads, kdaDim, convWidth, cacheDim;
  int64_t elementBytes; ///< of convolution inputs and latents
  int64_t tokens;
  uint8_t mixers[32]; ///< digest of each layer's kind
  uint8_t digest[32]; ///< of the header up to here and the data
};

Header headerOf(const ModelConfig &config, const SessionLimits &limits,
                int64_t tokens) {
  Header header = {};
  std::memcpy(header.magic, magic, sizeof magic);
  header.layers = config.layers();
  header.kdaLayers = config.count(Mixer::Kda);
  header.kdaHeads = config.kdaHeads;
  header.kdaDim = config.kdaDim;
  header.convWidth = config.convWidth;
  header.cacheDim = config.cacheDim();
  header.elementBytes = bytesOf(limits.element);
  header.tokens = tokens;
  std::string kinds;
  for (Mixer mixer : config.mixers)
    kinds += mixer == Mixer::Kda ? 'K' : 'M';
  Digest digest = sha256({kinds});
  std::copy(digest.begin(), digest.end(), header.mixers);
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
  StatusOr<Mark> copy = mark(slot);
  if (!copy.ok())
    return copy.status();
  StatusOr<int32_t> other = open();
  if (!other.ok())
    return other;
  int64_t tokens = length(slot);
  Status status = reserve(*other, tokens);
  std::vector<char *> to;
  if (status.ok())
    status = state->forLatent(*other, tokens, [&](char *page, int64_t) {
      return to.push_back(page), Status::success();
    });
  size_t next = 0;
  if (status.ok())
    status = state->forLatent(slot, tokens, [&](char *from, int64_t bytes) {
      return state->memory->copy(to[next++], from, bytes);
    });
  if (status.ok())
    status = state->writeFixed(*other, copy->fixed.data());
  if (!status.ok()) {
    close(*other);
    return status;
  }
  advance(*other, tokens);
  return other;
}

StatusOr<Mark> Session::mark(int32_t slot) const {
  if (!isOpen(slot))
    return Status(ErrorCode::InvalidArgument,
                  "slot " + std::to_string(slot) + " is not open");
  Mark mark;
  mark.slot = slot;
  mark.tokens = length(slot);
  mark.branch = state->branchAt(slot, mark.tokens);
  mark.fixed.resize(static_cast<size_t>(state->fixedBytes()));
  char *to = mark.fixed.data();
  Status status = state->forFixed(slot, [&](const char *from, int64_t bytes) {
    char *at = to;
    to += bytes;
    return state->memory->read(at, from, bytes);
  });
  if (!status.ok())
    return status;
  return mark;
}

Status Session::State::writeFixed(int32_t slot, const char *from) const {
  return forFixed(slot, [&](char *to, int64_t bytes) {
    const char *at = from;
    from += bytes;
    return memory->write(to, at, bytes);
  });
}

Status Session::rollback(int32_t slot, const Mark &mark) {
  auto refuse = [&](const char *why) {
    return Status(ErrorCode::InvalidArgument,
                  "slot " + std::to_string(slot) +
                      " cannot go back to a mark of slot " +
                      std::to_string(mark.slot) + " at token " +
                      std::to_string(mark.tokens) + why);
  };
  if (!isOpen(slot) || mark.slot != slot || mark.tokens > length(slot))
    return refuse("");
  // States of the mark with latents of other tokens would fit each other in
  // shape only.
  if (state->branchAt(slot, mark.tokens) != mark.branch)
    return refuse(": other tokens are there since");
  if (Status s = state->writeFixed(slot, mark.fixed.data()); !s.ok())
    return s;
  state->releasePages(slot, state->pagesOf(mark.tokens));
  state->lengths[static_cast<size_t>(slot)] = mark.tokens;
  std::vector<State::Branch> &branches =
      state->branches[static_cast<size_t>(slot)];
  while (branches.size() > 1 && branches.back().begin >= mark.tokens)
    branches.pop_back();
  branches.push_back({mark.tokens, ++state->lastBranch});
  return Status::success();
}

Status Session::save(int32_t slot, const std::string &path) const {
  StatusOr<Mark> copy = mark(slot);
  if (!copy.ok())
    return copy.status();
  std::vector<char> data = std::move(copy->fixed);
  Status status = state->forLatent(
      slot, copy->tokens, [&](const char *page, int64_t bytes) {
        size_t at = data.size();
        data.resize(at + static_cast<size_t>(bytes));
        return state->memory->read(data.data() + at, page, bytes);
      });
  if (!status.ok())
    return status;
  std::string_view bytes(data.data(), data.size());
  Header header = headerOf(state->config, state->limits, copy->tokens);
  Digest digest = sha256({front(header), bytes});
  std::copy(digest.begin(), digest.end(), header.digest);
  return writeFile(
      path, {reinterpret_cast<const char *>(&header), sizeof header}, bytes);
}

/// A block of noise, then copies of it that double. Pairs of bf16 values are
/// f32 values of the same size.
Status Session::fillWithNoise() {
  constexpr int64_t block = 1 << 20;
  std::vector<uint16_t> noise(block / 2);
  uint32_t random = 1;
  for (uint16_t &x : noise) {
    random = random * 1664525 + 1013904223;
    x = static_cast<uint16_t>((random >> 16 & 0x807f) |
                              125 << 7); // 0.25 to 0.5
  }
  int64_t done = std::min(block, state->cacheBytes);
  Status status = state->memory->write(state->cacheBase, noise.data(), done);
  while (status.ok() && done < state->cacheBytes) {
    int64_t count = std::min(done, state->cacheBytes - done);
    status =
        state->memory->copy(state->cacheBase + done, state->cacheBase, count);
    done += count;
  }
  return status;
}

/// The header of what may be a saved session.
static StatusOr<Header> headerIn(std::string_view bytes,
                                 const std::string &path) {
  constexpr size_t kind = sizeof magic - 1; // the last byte is the version
  Header header;
  if (bytes.substr(0, kind) != std::string_view(magic, kind))
    return Status(ErrorCode::Corrupt, path + " is not a saved session");
  if (bytes.substr(0, sizeof magic) != std::string_view(magic, sizeof magic))
    return Status(ErrorCode::Unsupported,
                  path + " was saved by another version of this program");
  if (bytes.size() < sizeof header)
    return Status(ErrorCode::Corrupt, path + " is damaged or truncated");
  std::memcpy(&header, bytes.data(), sizeof header);
  return header;
}

StatusOr<int64_t> Session::savedTokens(const std::string &path) {
  StatusOr<MappedFile> file = MappedFile::open(path);
  if (!file.ok())
    return file.status();
  StatusOr<Header> header = headerIn(file->bytes(), path);
  if (!header.ok())
    return header.status();
  constexpr int64_t most = int64_t(1) << 31; // of a session
  if (header->tokens < 0 || header->tokens > most)
    return Status(ErrorCode::Corrupt, path + " is damaged or truncated");
  return header->tokens;
}

/// The same, once file and model are known to fit.
static StatusOr<Header> checkSaved(std::string_view bytes,
                                   const std::string &path,
                                   const ModelConfig &config,
                                   const SessionLimits &limits) {
  StatusOr<Header> header = headerIn(bytes, path);
  if (!header.ok())
    return header;
  Digest digest = sha256({front(*header), bytes.substr(sizeof(Header))});
  if (!std::equal(digest.begin(), digest.end(), header->digest))
    return Status(ErrorCode::Corrupt, path + " is damaged or truncated");
  Header wanted = headerOf(config, limits, header->tokens);
  if (front(*header) != front(wanted) || header->tokens < 0)
    return Status(ErrorCode::InvalidArgument,
                  path + " was saved by a model of another shape or dtype");
  return header;
}

StatusOr<int32_t> Session::restore(const std::string &path) {
  StatusOr<MappedFile> file = MappedFile::open(path);
  if (!file.ok())
    return file.status();
  std::string_view bytes = file->bytes();
  StatusOr<Header> header =
      checkSaved(bytes, path, state->config, state->limits);
  if (!header.ok())
    return header.status();
  StatusOr<int32_t> slot = open();
  if (!slot.ok())
    return slot;
  Status status = reserve(*slot, header->tokens);
  int64_t mlaLayers = header->layers - header->kdaLayers;
  // Tokens fit the session by now, so that the product fits too.
  auto wanted = static_cast<size_t>(
      status.ok() ? state->fixedBytes() +
                        mlaLayers * header->tokens * state->latentBytes()
                  : 0);
  if (status.ok() && bytes.size() != sizeof(Header) + wanted)
    status = Status(ErrorCode::Corrupt, path + " has the wrong size");
  const char *from = bytes.data() + sizeof(Header);
  if (status.ok())
    status = state->writeFixed(*slot, from);
  from += state->fixedBytes();
  if (status.ok())
    status =
        state->forLatent(*slot, header->tokens, [&](char *page, int64_t count) {
          const char *at = from;
          from += count;
          return state->memory->write(page, at, count);
        });
  if (!status.ok()) {
    close(*slot);
    return status;
  }
  advance(*slot, header->tokens);
  return slot;
}

} // namespace kdac::model
