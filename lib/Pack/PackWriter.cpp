#include "kdac/Pack/PackWriter.h"
#include "Format.h"
#include "Sha256.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace kdac {

namespace {

Status ioError(const std::string &what, const std::string &path) {
  return Status(ErrorCode::Io,
                "cannot " + what + " '" + path + "': " + std::strerror(errno));
}

/// Closes a file descriptor when it goes out of scope.
struct OwnedFd {
  int fd;
  ~OwnedFd() {
    if (fd >= 0)
      ::close(fd);
  }
};

Status writeAll(const std::string &path, std::string_view bytes) {
  OwnedFd file{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644)};
  if (file.fd < 0)
    return ioError("create", path);
  while (!bytes.empty()) {
    ssize_t written = ::write(file.fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return ioError("write", path);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  // Without it a crash after the rename could leave an empty pack.
  if (::fsync(file.fd) != 0)
    return ioError("flush", path);
  return Status::success();
}

} // namespace

size_t PackWriter::addImage(ImageKind kind, std::string arch,
                            std::string bytes) {
  Image image{kind, std::move(arch), 0, bytes.size(), hex(sha256({bytes}))};
  for (size_t i = 0; i < blobs.size(); ++i) {
    const Image &known = blobs[i].image;
    if (known.sha256 == image.sha256 && known.kind == image.kind &&
        known.arch == image.arch)
      return i;
  }
  blobs.push_back({std::move(image), std::move(bytes)});
  return blobs.size() - 1;
}

Status PackWriter::check() const {
  auto refuse = [](const std::string &name, const std::string &why) {
    return Status(ErrorCode::InvalidArgument, "variant " + name + " " + why);
  };
  std::vector<std::string> names;
  for (const PackVariant &v : variants) {
    names.push_back(v.name());
    if (v.launches.empty())
      return refuse(v.name(), "has no launches");
    for (const Launch &launch : v.launches) {
      if (launch.images.empty())
        return refuse(v.name(), "has a launch without images");
      for (size_t index : launch.images)
        if (index >= blobs.size())
          return refuse(v.name(), "refers to image " + std::to_string(index) +
                                      ", but " + std::to_string(blobs.size()) +
                                      " were added");
    }
  }
  std::sort(names.begin(), names.end());
  auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    return refuse(*twice, "was added twice");
  return Status::success();
}

StatusOr<std::string> PackWriter::serialize() const {
  if (Status status = check(); !status.ok())
    return status;
  Manifest manifest{variants, {}};
  std::sort(manifest.variants.begin(), manifest.variants.end(),
            [](const auto &a, const auto &b) { return a.name() < b.name(); });

  // Images in order of first use, at aligned places after one another.
  // Offsets count from the end of the manifest until its size is known.
  std::string images;
  std::vector<size_t> renumbered(blobs.size(), SIZE_MAX);
  for (PackVariant &v : manifest.variants)
    for (Launch &launch : v.launches)
      for (size_t &index : launch.images) {
        const Image &added = blobs[index].image;
        if (added.kind == ImageKind::Ptx && launch.ptxSha256.empty())
          launch.ptxSha256 = added.sha256;
        if (renumbered[index] == SIZE_MAX) {
          renumbered[index] = manifest.images.size();
          Image image = added;
          image.offset = images.size();
          images += blobs[index].bytes;
          images.resize(format::aligned(images.size()), '\0');
          manifest.images.push_back(std::move(image));
        }
        index = renumbered[index];
      }

  std::string json = toJson(manifest);
  std::string file(format::headerSize, '\0');
  file.replace(0, format::magic.size(), format::magic);
  uint64_t imagesAt = format::aligned(format::headerSize + json.size());
  format::writeLittle(file, format::versionAt, 4, packVersion);
  format::writeLittle(file, format::headerSizeAt, 4, format::headerSize);
  format::writeLittle(file, format::manifestSizeAt, 8, json.size());
  format::writeLittle(file, format::fileSizeAt, 8, imagesAt + images.size());
  Digest manifestDigest = sha256({json});
  std::memcpy(&file[format::manifestDigestAt], manifestDigest.data(),
              format::digestSize);
  file += json;
  file.resize(imagesAt, '\0');
  file += images;
  Digest fileDigest = sha256({file});
  std::memcpy(&file[format::fileDigestAt], fileDigest.data(),
              format::digestSize);
  return file;
}

Status PackWriter::write(const std::string &path) const {
  StatusOr<std::string> bytes = serialize();
  if (!bytes.ok())
    return bytes.status();
  std::string temporary = path + ".tmp." + std::to_string(::getpid());
  Status status = writeAll(temporary, *bytes);
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0)
    status = ioError("replace", path);
  if (!status.ok())
    ::unlink(temporary.c_str());
  return status;
}

} // namespace kdac
