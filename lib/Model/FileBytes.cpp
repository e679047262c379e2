#include "FileBytes.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace kdac::model {

namespace {

Status systemError(const std::string &path) {
  return Status(errno == ENOENT ? ErrorCode::NotFound : ErrorCode::Io,
                path + ": " + std::strerror(errno));
}

/// A file descriptor that closes itself.
struct Descriptor {
  int fd;
  explicit Descriptor(const std::string &path)
      : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~Descriptor() {
    if (fd >= 0)
      ::close(fd);
  }
};

/// The size of a regular file.
StatusOr<int64_t> sizeOf(const Descriptor &file, const std::string &path) {
  struct stat info;
  if (file.fd < 0 || ::fstat(file.fd, &info) != 0)
    return systemError(path);
  if (!S_ISREG(info.st_mode))
    return Status(ErrorCode::InvalidArgument, path + " is not a file");
  return static_cast<int64_t>(info.st_size);
}

/// How many of `size` bytes the file still had.
StatusOr<size_t> readBytes(const Descriptor &file, const std::string &path,
                           char *to, size_t size) {
  size_t done = 0;
  while (done < size) {
    ssize_t got = ::read(file.fd, to + done, size - done);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return systemError(path);
    if (got == 0)
      break; // the file shrank meanwhile
    done += static_cast<size_t>(got);
  }
  return done;
}

} // namespace

bool exists(const std::string &path) {
  return ::access(path.c_str(), F_OK) == 0;
}

StatusOr<std::string> readWholeFile(const std::string &path, int64_t largest) {
  Descriptor file(path);
  StatusOr<int64_t> size = sizeOf(file, path);
  if (!size.ok())
    return size.status();
  if (*size > largest)
    return Status(ErrorCode::InvalidArgument,
                  path + " has " + std::to_string(*size) +
                      " bytes, but at most " + std::to_string(largest) +
                      " are expected of such a file");
  std::string bytes(static_cast<size_t>(*size), '\0');
  StatusOr<size_t> done = readBytes(file, path, bytes.data(), bytes.size());
  if (!done.ok())
    return done.status();
  bytes.resize(*done);
  if (Status s = checkNoPointer(bytes, path); !s.ok())
    return s;
  return bytes;
}

Status checkNoPointer(std::string_view bytes, const std::string &name) {
  constexpr std::string_view pointer = "version https://git-lfs";
  if (bytes.substr(0, pointer.size()) != pointer)
    return Status::success();
  return Status(ErrorCode::Corrupt,
                name + " is a Git LFS pointer, not the file itself; run `git "
                       "lfs pull`");
}

MappedFile::State::~State() {
  if (memory)
    ::munmap(memory, mapped);
}

/// Anonymous memory where there is no `file`.
static void *mapBytes(size_t size, int file) {
  bool isFile = file >= 0;
  void *data =
      ::mmap(nullptr, size, isFile ? PROT_READ : PROT_READ | PROT_WRITE,
             isFile ? MAP_PRIVATE : MAP_PRIVATE | MAP_ANONYMOUS,
             isFile ? file : -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

StatusOr<MappedFile> MappedFile::open(const std::string &path) {
  Descriptor file(path);
  StatusOr<int64_t> size = sizeOf(file, path);
  if (!size.ok())
    return size.status();
  auto state = std::make_shared<State>();
  state->size = static_cast<size_t>(*size);
  if (state->size == 0)
    return MappedFile(std::move(state));
  state->memory = mapBytes(state->size, file.fd);
  if (!state->memory)
    return systemError(path);
  state->mapped = state->size;
  state->data = static_cast<char *>(state->memory);
  return MappedFile(std::move(state));
}

StatusOr<MappedFile> MappedFile::copy(const std::string &path, size_t aligned) {
  constexpr size_t unit = 64;
  Descriptor file(path);
  StatusOr<int64_t> size = sizeOf(file, path);
  if (!size.ok())
    return size.status();
  auto state = std::make_shared<State>();
  size_t shift = (unit - aligned % unit) % unit;
  size_t mapped = static_cast<size_t>(*size) + unit;
  state->memory = mapBytes(mapped, -1);
  if (!state->memory)
    return systemError(path);
  state->mapped = mapped;
  state->data = static_cast<char *>(state->memory) + shift;
  StatusOr<size_t> done =
      readBytes(file, path, state->data, static_cast<size_t>(*size));
  if (!done.ok())
    return done.status();
  state->size = *done;
  return MappedFile(std::move(state));
}

} // namespace kdac::model
