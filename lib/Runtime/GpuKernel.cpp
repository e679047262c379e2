#include "kdac/Runtime/Kernel.h"

#include <cstring>

namespace kdac {

namespace {

constexpr int jitErrorLogBuffer = 5;      // CU_JIT_ERROR_LOG_BUFFER
constexpr int jitErrorLogBufferBytes = 6; // CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
constexpr int64_t maxGrid = INT32_MAX;    // of dimension x on every GPU
/// Above this much dynamic shared memory a kernel must ask for it.
constexpr int64_t defaultSharedBytes = 48 * 1024;

std::string archOf(const DeviceInfo &info) {
  return "sm_" + std::to_string(info.computeMajor) +
         std::to_string(info.computeMinor);
}

std::string join(const std::string &list, const std::string &item) {
  return list.empty() ? item : list + ", " + item;
}

} // namespace

GpuKernel::State::~State() {
  if (!module)
    return;
  Device::Scope scope(device);
  device.driver().moduleUnload(module);
}

Status GpuKernel::State::loadImage(std::string_view bytes) {
  // The driver reads PTX up to a zero byte.
  std::string text(bytes);
  char log[2048] = "";
  int options[] = {jitErrorLogBuffer, jitErrorLogBufferBytes};
  void *values[] = {log, reinterpret_cast<void *>(sizeof log)};
  Status status =
      device.driver().check(device.driver().moduleLoadDataEx(
                                &module, text.c_str(), 2, options, values),
                            "cuModuleLoadData");
  if (!status.ok() && log[0])
    return Status(status.code(),
                  status.message() + "; the driver says: " + log);
  return status;
}

/// Machine code first; PTX only where no machine code fits or it fails to load.
Status GpuKernel::State::loadAny(const PackReader &pack) {
  const Manifest &manifest = pack.manifest();
  std::string offered, failures;
  for (ImageKind kind : {ImageKind::Cubin, ImageKind::Ptx})
    for (size_t index : variant.launches[0].images) {
      const Image &image = manifest.images[index];
      if (image.kind != kind)
        continue;
      std::string label = std::string(spell(kind)) + " " + image.arch;
      offered = join(offered, label);
      if (!runsOn(device.info(), image.arch, kind == ImageKind::Ptx))
        continue;
      Status status = loadImage(pack.bytes(image));
      if (status.ok()) {
        origin = label;
        if (kind == ImageKind::Ptx)
          origin += ", compiled by the driver: " +
                    (failures.empty() ? "no cubin fits" : failures);
        return status;
      }
      failures = join(failures, label + ": " + status.message());
    }
  if (!failures.empty())
    return Status(ErrorCode::Device, failures);
  return Status(ErrorCode::Unsupported,
                "no image runs on " + device.info().name + " (" +
                    archOf(device.info()) + "); there is " +
                    (offered.empty() ? "none for a GPU" : offered));
}

Status GpuKernel::State::prepareFunction() {
  const cuda::Driver &d = device.driver();
  const Launch &launch = variant.launches[0];
  if (Status s =
          d.check(d.moduleGetFunction(&function, module, launch.entry.c_str()),
                  "cuModuleGetFunction");
      !s.ok())
    return s.with("symbol " + launch.entry);
  if (launch.sharedBytes > device.info().sharedBytesPerBlock)
    return Status(ErrorCode::Unsupported,
                  "needs " + std::to_string(launch.sharedBytes) +
                      " bytes of shared memory, but a block of " +
                      device.info().name + " has " +
                      std::to_string(device.info().sharedBytesPerBlock));
  if (launch.sharedBytes > defaultSharedBytes)
    if (Status s =
            d.check(d.funcSetAttribute(function, cuda::functionMaxDynamicShared,
                                       static_cast<int>(launch.sharedBytes)),
                    "cuFuncSetAttribute");
        !s.ok())
      return s;
  int local = 0;
  Status s =
      d.check(d.funcGetAttribute(&local, cuda::functionLocalBytes, function),
              "cuFuncGetAttribute");
  localBytes = local;
  return s;
}

StatusOr<GpuKernel> GpuKernel::load(const Device &device,
                                    const PackReader &pack,
                                    const PackVariant &variant) {
  if (variant.launches.size() != 1)
    return Status(ErrorCode::Unsupported,
                  variant.name() + " has " +
                      std::to_string(variant.launches.size()) +
                      " launches, but this runtime runs one");
  auto state = std::make_shared<State>(device, variant);
  Device::Scope scope(device);
  if (Status s = state->loadAny(pack); !s.ok())
    return s.with(variant.name());
  if (Status s = state->prepareFunction(); !s.ok())
    return s.with(variant.name());
  return GpuKernel(std::move(state));
}

StatusOr<int64_t> GpuKernel::check(CallArguments argv) const {
  const Launch &launch = state->variant.launches[0];
  if (Status s = checkCall(state->variant, launch, argv); !s.ok())
    return s.with(state->variant.name());
  StatusOr<int64_t> grid = gridOf(state->variant, launch, argv);
  if (grid.ok() && *grid > maxGrid)
    return Status(ErrorCode::InvalidArgument,
                  state->variant.name() + ": " + std::to_string(*grid) +
                      " program instances exceed a grid's " +
                      std::to_string(maxGrid));
  return grid;
}

Status GpuKernel::launch(cuda::Stream stream, CallArguments argv) const {
  StatusOr<int64_t> grid = check(argv);
  if (!grid.ok())
    return grid.status();
  return launchChecked(stream, argv, *grid);
}

Status GpuKernel::launchChecked(cuda::Stream stream, CallArguments argv,
                                int64_t grid) const {
  if (grid == 0)
    return Status::success();
  const Launch &launch = state->variant.launches[0];
  const cuda::Driver &d = state->device.driver();
  Device::Scope scope(state->device);
  // The driver copies the parameters; it only lacks the const.
  return d.check(d.launchKernel(state->function, static_cast<unsigned>(grid), 1,
                                1, static_cast<unsigned>(launch.blockThreads),
                                1, 1, static_cast<unsigned>(launch.sharedBytes),
                                stream, const_cast<void **>(argv), nullptr),
                 "cuLaunchKernel");
}

} // namespace kdac
