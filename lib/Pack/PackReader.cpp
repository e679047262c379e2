#include "kdac/Pack/PackReader.h"
#include "Format.h"
#include "Sha256.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace kdac {

namespace {

Status corrupt(const std::string &message) {
  return Status(ErrorCode::Corrupt, message);
}

std::string range(uint64_t begin, uint64_t size) {
  return "bytes " + std::to_string(begin) + " to " +
         std::to_string(begin + size);
}

std::string_view digestAt(std::string_view file, size_t at) {
  return file.substr(at, format::digestSize);
}

bool equals(const Digest &digest, std::string_view bytes) {
  return std::memcmp(digest.data(), bytes.data(), bytes.size()) == 0;
}

/// Everything before the manifest that can be judged without digests.
Status checkHeader(std::string_view file) {
  size_t prefix = std::min(file.size(), format::magic.size());
  if (file.empty() || file.substr(0, prefix) != format::magic.substr(0, prefix))
    return corrupt("is not a kdac pack: its first 8 bytes are not the magic");
  if (file.size() < format::headerSize)
    return corrupt("is truncated: it has " + std::to_string(file.size()) +
                   " bytes, but the header alone has 128");
  uint64_t version = format::readLittle(file, format::versionAt, 4);
  if (version > packVersion)
    return Status(ErrorCode::Unsupported,
                  "has pack version " + std::to_string(version) +
                      ", but this kdac reads versions 1 to " +
                      std::to_string(packVersion) +
                      "; use a newer kdac, or compile the pack with this one");
  if (version == 0)
    return corrupt("is damaged: bytes 8 to 12 give pack version 0");
  uint64_t headerSize = format::readLittle(file, format::headerSizeAt, 4);
  if (headerSize != format::headerSize)
    return corrupt("is damaged: bytes 12 to 16 give a header size of " +
                   std::to_string(headerSize) + ", expected 128");
  uint64_t fileSize = format::readLittle(file, format::fileSizeAt, 8);
  if (fileSize != file.size())
    return corrupt(
        std::string(fileSize > file.size() ? "is truncated" : "is damaged") +
        ": bytes 24 to 32 give a file size of " + std::to_string(fileSize) +
        ", but it has " + std::to_string(file.size()) + " bytes");
  for (size_t i = format::reservedAt; i < format::headerSize; ++i)
    if (file[i] != '\0')
      return corrupt("is damaged: reserved header byte " + std::to_string(i) +
                     " is not zero");
  return Status::success();
}

StatusOr<std::string_view> checkedManifest(std::string_view file) {
  uint64_t size = format::readLittle(file, format::manifestSizeAt, 8);
  uint64_t room = file.size() - format::headerSize;
  if (size > room)
    return corrupt("is damaged: bytes 16 to 24 give a manifest of " +
                   std::to_string(size) + " bytes, but " +
                   std::to_string(room) + " follow the header");
  std::string_view text = file.substr(format::headerSize, size);
  if (!equals(sha256({text}), digestAt(file, format::manifestDigestAt)))
    return corrupt("is damaged: the manifest (" +
                   range(format::headerSize, size) +
                   ") does not match its digest (bytes 32 to 64)");
  return text;
}

Status checkZeros(std::string_view file, uint64_t begin, uint64_t end) {
  for (uint64_t i = begin; i < end; ++i)
    if (file[i] != '\0')
      return corrupt("is damaged: padding byte " + std::to_string(i) +
                     " is not zero");
  return Status::success();
}

/// "image 3 (cubin of kda...)": the image, by the first variant that uses it.
std::string imageName(const Manifest &manifest, size_t index) {
  std::string name = "image " + std::to_string(index) + " (" +
                     std::string(spell(manifest.images[index].kind));
  for (const PackVariant &v : manifest.variants)
    for (const Launch &launch : v.launches)
      for (size_t used : launch.images)
        if (used == index)
          return name + " of " + v.name() + ")";
  return name + ", unused)";
}

/// Images follow one another without holes, so that every byte of the file has
/// one owner; `at` is where they start.
Status checkImages(std::string_view file, uint64_t at,
                   const Manifest &manifest) {
  uint64_t next = at;
  for (size_t i = 0; i < manifest.images.size(); ++i) {
    const Image &image = manifest.images[i];
    std::string name = imageName(manifest, i);
    if (image.offset != next - at)
      return corrupt("is damaged: " + name + " is at offset " +
                     std::to_string(image.offset) + ", expected " +
                     std::to_string(next - at));
    if (image.size > file.size() - next)
      return corrupt("is damaged: " + name + " has " +
                     std::to_string(image.size) + " bytes at byte " +
                     std::to_string(next) + ", but the file ends at " +
                     std::to_string(file.size()));
    if (hex(sha256({file.substr(next, image.size)})) != image.sha256)
      return corrupt("is damaged: " + name + ", " + range(next, image.size) +
                     ", does not match its digest");
    uint64_t end = next + image.size;
    next = format::aligned(end);
    if (next > file.size())
      return corrupt("is truncated: it ends at byte " +
                     std::to_string(file.size()) + ", inside the padding of " +
                     name);
    if (Status status = checkZeros(file, end, next); !status.ok())
      return status;
  }
  if (next != file.size())
    return corrupt("is damaged: " + std::to_string(file.size() - next) +
                   " bytes follow the last image");
  return Status::success();
}

struct Verified {
  Manifest manifest;
  uint64_t imagesAt;
};

StatusOr<Verified> verify(std::string_view file) {
  if (Status status = checkHeader(file); !status.ok())
    return status;
  StatusOr<std::string_view> text = checkedManifest(file);
  if (!text.ok())
    return text.status();
  StatusOr<Manifest> manifest = manifestFromJson(
      *text,
      static_cast<uint32_t>(format::readLittle(file, format::versionAt, 4)));
  if (!manifest.ok())
    return manifest.status();
  uint64_t end = format::headerSize + text->size();
  uint64_t imagesAt = format::aligned(end);
  if (imagesAt > file.size())
    return corrupt("is truncated: it ends inside the manifest's padding");
  if (Status status = checkZeros(file, end, imagesAt); !status.ok())
    return status;
  if (Status status = checkImages(file, imagesAt, *manifest); !status.ok())
    return status;
  std::string zeros(format::digestSize, '\0');
  Digest whole =
      sha256({file.substr(0, format::fileDigestAt), zeros,
              file.substr(format::fileDigestAt + format::digestSize)});
  if (!equals(whole, digestAt(file, format::fileDigestAt)))
    return corrupt("is damaged: the file does not match its digest (bytes 64 "
                   "to 96), though each of its parts does");
  return Verified{std::move(*manifest), imagesAt};
}

StatusOr<std::string> readFile(const std::string &path) {
  auto fail = [&](ErrorCode code) {
    return Status(code, std::string("cannot be read: ") + std::strerror(errno));
  };
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return fail(errno == ENOENT ? ErrorCode::NotFound : ErrorCode::Io);
  struct stat info;
  std::string bytes;
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
    bytes.reserve(static_cast<size_t>(info.st_size));
  char buffer[1 << 16];
  ssize_t got;
  while ((got = ::read(fd, buffer, sizeof buffer)) != 0) {
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      break;
    bytes.append(buffer, static_cast<size_t>(got));
  }
  Status status = got < 0 ? fail(ErrorCode::Io) : Status::success();
  ::close(fd);
  if (!status.ok())
    return status;
  return bytes;
}

} // namespace

StatusOr<PackReader> PackReader::open(const std::string &path) {
  StatusOr<std::string> bytes = readFile(path);
  if (!bytes.ok())
    return Status(bytes.status().code(),
                  "pack '" + path + "' " + bytes.status().message());
  return fromBytes(std::move(*bytes), path);
}

StatusOr<PackReader> PackReader::fromBytes(std::string bytes,
                                           const std::string &name) {
  StatusOr<Verified> verified = verify(bytes);
  if (!verified.ok())
    return Status(verified.status().code(),
                  "pack '" + name + "' " + verified.status().message());
  return PackReader(std::move(bytes), verified->imagesAt,
                    std::move(verified->manifest));
}

const PackVariant *PackReader::find(std::string_view name) const {
  for (const PackVariant &v : manifest_.variants)
    if (v.name() == name)
      return &v;
  return nullptr;
}

} // namespace kdac
