#include "kdac/Runtime/Kernel.h"

#include <algorithm>
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
        this->image = image;
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

Status GpuKernel::State::prepareFunction(size_t number) {
  const cuda::Driver &d = device.driver();
  const Launch &launch = variant.launches[number];
  cuda::Function &function = functions[number];
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
  localBytes = std::max<int64_t>(localBytes, local);
  countClusters(launch, function);
  return s;
}

/// How many clusters run at once depends on which multiprocessors a GPU lacks:
/// only its driver knows. One that does not say is taken to hold none.
void GpuKernel::State::countClusters(const Launch &launch,
                                     cuda::Function function) {
  const cuda::Driver &d = device.driver();
  int width = 0, count = 0;
  if (!d.occupancyMaxActiveClusters ||
      d.funcGetAttribute(&width, cuda::functionClusterWidth, function) !=
          cuda::success ||
      width <= widestCluster)
    return;
  cuda::LaunchAttribute size;
  size.id = cuda::attributeClusterDimension;
  std::fill_n(size.value, 3, 1);
  size.value[0] = width;
  cuda::LaunchConfig config;
  config.grid[0] = static_cast<unsigned>(width);
  config.block[0] = static_cast<unsigned>(launch.blockThreads);
  config.sharedBytes = static_cast<unsigned>(launch.sharedBytes);
  config.attributes = &size;
  config.attributeCount = 1;
  if (d.occupancyMaxActiveClusters(&count, function, &config) != cuda::success)
    return;
  widestCluster = width;
  clusters = count;
}

StatusOr<GpuKernel> GpuKernel::load(const Device &device,
                                    const PackReader &pack,
                                    const PackVariant &variant) {
  if (variant.launches.size() > maxLaunches)
    return Status(ErrorCode::Unsupported,
                  variant.name() + " has " +
                      std::to_string(variant.launches.size()) +
                      " launches, but this runtime runs up to " +
                      std::to_string(maxLaunches));
  for (const Launch &launch : variant.launches)
    if (size_t count = launch.args.size() + scratchParameters(launch.abi);
        count > maxParameters)
      return Status(ErrorCode::Unsupported,
                    variant.name() + " has " + std::to_string(count) +
                        " parameters, but this runtime passes up to " +
                        std::to_string(maxParameters));
  auto state = std::make_shared<State>(device, variant);
  Device::Scope scope(device);
  if (Status s = state->loadAny(pack); !s.ok())
    return s.with(variant.name());
  for (size_t i = 0; i < variant.launches.size(); ++i)
    if (Status s = state->prepareFunction(i); !s.ok())
      return s.with(variant.name());
  return GpuKernel(std::move(state));
}

StatusOr<GpuKernel::Grids> GpuKernel::check(CallArguments argv,
                                            const std::string *schedule) const {
  const PackVariant &variant = state->variant;
  // Every launch of a call takes the same arguments.
  if (Status s = checkCall(variant, variant.launches.front(), argv); !s.ok())
    return s.with(variant.name());
  StatusOr<std::vector<int64_t>> all =
      gridsOf(variant, {state->device.info().multiprocessors, state->clusters},
              argv, schedule);
  if (!all.ok())
    return all.status().with(variant.name());
  for (int64_t grid : *all)
    if (grid > maxGrid)
      return Status(ErrorCode::InvalidArgument,
                    variant.name() + ": " + std::to_string(grid) +
                        " program instances exceed a grid's " +
                        std::to_string(maxGrid));
  Grids grids = {};
  std::copy(all->begin(), all->end(), grids.begin());
  return grids;
}

Status GpuKernel::launch(cuda::Stream stream, CallArguments argv,
                         bool overlap) const {
  StatusOr<Grids> grids = check(argv);
  if (!grids.ok())
    return grids.status();
  return launchChecked(stream, argv, *grids, overlap);
}

/// `argv` with what the kernel takes after it: null pointers.
struct GpuKernel::Parameters {
  std::array<void *, maxParameters> values;
  void *null = nullptr;

  Parameters(const Launch &launch, CallArguments argv) {
    auto end = std::copy_n(argv, launch.args.size(), values.begin());
    std::fill_n(end, scratchParameters(launch.abi), &null);
  }
};

/// One launch of a call, which may begin before the one before it has ended.
static cuda::Result launchOverlapping(const cuda::Driver &d,
                                      cuda::Function function,
                                      const Launch &launch, int64_t grid,
                                      cuda::Stream stream, void **parameters) {
  cuda::LaunchAttribute overlap;
  cuda::LaunchConfig config;
  config.grid[0] = static_cast<unsigned>(grid);
  config.block[0] = static_cast<unsigned>(launch.blockThreads);
  config.sharedBytes = static_cast<unsigned>(launch.sharedBytes);
  config.stream = stream;
  config.attributes = &overlap;
  config.attributeCount = 1;
  return d.launchKernelEx(&config, function, parameters, nullptr);
}

Status GpuKernel::launchChecked(cuda::Stream stream, CallArguments argv,
                                const Grids &grids, bool overlap) const {
  const cuda::Driver &d = state->device.driver();
  Device::Scope scope(state->device);
  bool isFirst = true;
  for (size_t i = 0; i < state->variant.launches.size(); ++i) {
    if (grids[i] == 0)
      continue;
    const Launch &launch = state->variant.launches[i];
    Parameters parameters(launch, argv);
    cuda::Result result;
    // Work of other calls is overlapped where the caller allows it.
    bool isEarly = isFirst ? overlap && launch.waits : launch.overlaps;
    if (isEarly && d.launchKernelEx)
      result = launchOverlapping(d, state->functions[i], launch, grids[i],
                                 stream, parameters.values.data());
    else
      result =
          d.launchKernel(state->functions[i], static_cast<unsigned>(grids[i]),
                         1, 1, static_cast<unsigned>(launch.blockThreads), 1, 1,
                         static_cast<unsigned>(launch.sharedBytes), stream,
                         parameters.values.data(), nullptr);
    isFirst = false;
    Status s = d.check(result, "cuLaunchKernel");
    if (!s.ok())
      return s.with(launch.entry);
  }
  return Status::success();
}

} // namespace kdac
