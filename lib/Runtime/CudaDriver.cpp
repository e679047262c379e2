#include "kdac/Runtime/CudaDriver.h"

#include <dlfcn.h>
#include <string>

namespace kdac::cuda {

namespace {

struct Symbol {
  const char *name;
  void **slot;
};

template <typename F> Symbol symbol(const char *name, F *&slot) {
  return {name, reinterpret_cast<void **>(&slot)};
}

Status resolveAll(void *library, Driver &d) {
  const Symbol symbols[] = {
      symbol("cuInit", d.init),
      symbol("cuDriverGetVersion", d.driverGetVersion),
      symbol("cuGetErrorName", d.getErrorName),
      symbol("cuGetErrorString", d.getErrorString),
      symbol("cuDeviceGetCount", d.deviceGetCount),
      symbol("cuDeviceGet", d.deviceGet),
      symbol("cuDeviceGetName", d.deviceGetName),
      symbol("cuDeviceGetAttribute", d.deviceGetAttribute),
      symbol("cuDevicePrimaryCtxRetain", d.primaryCtxRetain),
      symbol("cuDevicePrimaryCtxRelease_v2", d.primaryCtxRelease),
      symbol("cuCtxPushCurrent_v2", d.ctxPushCurrent),
      symbol("cuCtxPopCurrent_v2", d.ctxPopCurrent),
      symbol("cuMemAlloc_v2", d.memAlloc),
      symbol("cuMemFree_v2", d.memFree),
      symbol("cuMemcpyHtoD_v2", d.memcpyHtoD),
      symbol("cuMemcpyDtoH_v2", d.memcpyDtoH),
      symbol("cuMemcpyDtoDAsync_v2", d.memcpyDtoDAsync),
      symbol("cuMemsetD8Async", d.memsetD8Async),
      symbol("cuStreamCreate", d.streamCreate),
      symbol("cuStreamDestroy_v2", d.streamDestroy),
      symbol("cuStreamSynchronize", d.streamSynchronize),
      symbol("cuEventCreate", d.eventCreate),
      symbol("cuEventDestroy_v2", d.eventDestroy),
      symbol("cuEventRecord", d.eventRecord),
      symbol("cuEventQuery", d.eventQuery),
      symbol("cuEventSynchronize", d.eventSynchronize),
      symbol("cuEventElapsedTime", d.eventElapsedTime),
      symbol("cuModuleLoadDataEx", d.moduleLoadDataEx),
      symbol("cuModuleUnload", d.moduleUnload),
      symbol("cuModuleGetFunction", d.moduleGetFunction),
      symbol("cuFuncSetAttribute", d.funcSetAttribute),
      symbol("cuFuncGetAttribute", d.funcGetAttribute),
      symbol("cuLaunchKernel", d.launchKernel),
  };
  const Symbol forModels[] = {
      symbol("cuMemGetInfo_v2", d.memGetInfo),
      symbol("cuMemHostAlloc", d.memHostAlloc),
      symbol("cuMemFreeHost", d.memFreeHost),
      symbol("cuMemcpyHtoDAsync_v2", d.memcpyHtoDAsync),
      symbol("cuMemcpyDtoHAsync_v2", d.memcpyDtoHAsync),
      symbol("cuStreamBeginCapture_v2", d.streamBeginCapture),
      symbol("cuStreamEndCapture", d.streamEndCapture),
      symbol("cuGraphInstantiateWithFlags", d.graphInstantiate),
      symbol("cuGraphLaunch", d.graphLaunch),
      symbol("cuGraphExecDestroy", d.graphExecDestroy),
      symbol("cuGraphDestroy", d.graphDestroy),
  };
  for (const Symbol &s : forModels)
    *s.slot = ::dlsym(library, s.name);
  for (const Symbol &s : symbols) {
    *s.slot = ::dlsym(library, s.name);
    if (!*s.slot)
      return Status(ErrorCode::Unavailable, "the CUDA driver has no function " +
                                                std::string(s.name) +
                                                "; it is older than CUDA 11");
  }
  for (const Symbol &later :
       {symbol("cuLaunchKernelEx", d.launchKernelEx),
        symbol("cuOccupancyMaxActiveClusters", d.occupancyMaxActiveClusters)})
    *later.slot = ::dlsym(library, later.name);
  return Status::success();
}

} // namespace

StatusOr<std::shared_ptr<const Driver>> Driver::load(const char *library) {
  void *handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    return Status(ErrorCode::Unavailable,
                  "no CUDA driver: " + std::string(::dlerror()));
  auto driver = std::make_shared<Driver>();
  if (Status status = resolveAll(handle, *driver); !status.ok())
    return status;
  if (Status status = driver->check(driver->init(0), "cuInit"); !status.ok())
    return Status(ErrorCode::Unavailable, status.message());
  return std::shared_ptr<const Driver>(std::move(driver));
}

bool Driver::hasModels() const {
  return memGetInfo && memHostAlloc && memFreeHost && memcpyHtoDAsync &&
         memcpyDtoHAsync && hasGraphs();
}

bool Driver::hasGraphs() const {
  return streamBeginCapture && streamEndCapture && graphInstantiate &&
         graphLaunch && graphExecDestroy && graphDestroy;
}

Status Driver::check(Result result, const char *what) const {
  if (result == success)
    return Status::success();
  const char *name = nullptr, *text = nullptr;
  getErrorName(result, &name);
  getErrorString(result, &text);
  return Status(ErrorCode::Device,
                std::string(what) + " failed: " +
                    (name ? name : std::to_string(result).c_str()) + " (" +
                    (text ? text : "unknown error") + ")");
}

} // namespace kdac::cuda
