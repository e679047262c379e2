#include "kdac/Runtime/Kernel.h"

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

namespace kdac {

namespace {

/// Host images from best to plainest; a processor runs a suffix of its family.
constexpr std::string_view hostArchs[] = {"x86-64-v4", "x86-64-v3", "x86-64-v2",
                                          "x86-64", "aarch64"};

Status ioError(const char *what) {
  return Status(ErrorCode::Io, std::string(what) + ": " + std::strerror(errno));
}

/// An anonymous file that holds `bytes`: what dlopen can load without a disk.
StatusOr<int> memoryFile(std::string_view bytes) {
  int fd = ::memfd_create("kdac-host-image", MFD_CLOEXEC);
  if (fd < 0)
    return ioError("cannot create an anonymous file");
  while (!bytes.empty()) {
    ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0) {
      Status status = ioError("cannot fill an anonymous file");
      ::close(fd);
      return status;
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return fd;
}

} // namespace

bool runsOnHost(std::string_view arch) {
#if defined(__x86_64__)
  if (arch == "x86-64-v4")
    return __builtin_cpu_supports("x86-64-v4");
  if (arch == "x86-64-v3")
    return __builtin_cpu_supports("x86-64-v3");
  if (arch == "x86-64-v2")
    return __builtin_cpu_supports("x86-64-v2");
  return arch == "x86-64";
#elif defined(__aarch64__)
  return arch == "aarch64";
#else
  return false;
#endif
}

HostKernel::State::~State() {
  if (library)
    ::dlclose(library);
  if (file >= 0)
    ::close(file);
}

Status HostKernel::State::loadImage(std::string_view bytes) {
  StatusOr<int> fd = memoryFile(bytes);
  if (!fd.ok())
    return fd.status();
  // dlopen knows libraries by their path: as long as this one is loaded, its
  // number must not be given to another image, which would silently be this.
  file = *fd;
  std::string path = "/proc/self/fd/" + std::to_string(file);
  library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return Status(ErrorCode::Corrupt, "its shared object does not load: " +
                                          std::string(::dlerror()));
  for (const Launch &launch : variant.launches) {
    entries.push_back(
        reinterpret_cast<HostEntry>(::dlsym(library, launch.entry.c_str())));
    if (!entries.back())
      return Status(ErrorCode::NotFound,
                    "its shared object has no symbol " + launch.entry);
  }
  return Status::success();
}

StatusOr<HostKernel> HostKernel::load(const PackReader &pack,
                                      const PackVariant &variant) {
  const Manifest &manifest = pack.manifest();
  std::string offered;
  for (std::string_view arch : hostArchs)
    for (size_t index : variant.launches[0].images) {
      const Image &image = manifest.images[index];
      if (image.kind != ImageKind::HostSo || image.arch != arch)
        continue;
      offered += (offered.empty() ? "" : ", ") + image.arch;
      if (!runsOnHost(arch))
        continue;
      auto state = std::make_shared<State>(variant);
      state->origin = "host-so " + image.arch;
      if (Status s = state->loadImage(pack.bytes(image)); !s.ok())
        return s.with(variant.name());
      return HostKernel(std::move(state));
    }
  return Status(ErrorCode::Unsupported,
                variant.name() +
                    ": no image runs on this processor; there is " +
                    (offered.empty() ? "none for a host" : offered));
}

Status HostKernel::launch(HostPool &pool, CallArguments argv) const {
  const PackVariant &variant = state->variant;
  // Every launch of a call takes the same arguments.
  if (Status s = checkCall(variant, variant.launches.front(), argv); !s.ok())
    return s.with(variant.name());
  StatusOr<std::vector<int64_t>> grids = gridsOf(variant, Processors(), argv);
  if (!grids.ok())
    return grids.status().with(variant.name());
  for (size_t i = 0; i < variant.launches.size(); ++i) {
    const Launch &launch = variant.launches[i];
    // Kernels only read the array; the launcher's convention lacks the const.
    if (!pool.run(state->entries[i], const_cast<void **>(argv), (*grids)[i],
                  launch.scratchBytes))
      return Status(ErrorCode::Io, variant.name() + ": no memory for " +
                                       std::to_string(launch.scratchBytes) +
                                       " bytes of scratch on each of " +
                                       std::to_string(pool.threads()) +
                                       " threads");
  }
  return Status::success();
}

Status HostKernel::launch(CallArguments argv, int threads) const {
  HostPool pool(threads);
  return launch(pool, argv);
}

} // namespace kdac
