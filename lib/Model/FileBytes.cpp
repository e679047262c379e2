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
  size_t done = 0;
  while (done < bytes.size()) {
    ssize_t got = ::read(file.fd, &bytes[done], bytes.size() - done);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return systemError(path);
    if (got == 0)
      break; // the file shrank meanwhile
    done += static_cast<size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

MappedFile::State::~State() {
  if (data)
    ::munmap(data, size);
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
  void *data = ::mmap(nullptr, state->size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED)
    return systemError(path);
  state->data = static_cast<char *>(data);
  return MappedFile(std::move(state));
}

} // namespace kdac::model
