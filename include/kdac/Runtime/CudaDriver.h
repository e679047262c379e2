// Promises: the part of the CUDA driver API that kdac uses, found at run time
// in libcuda.so.1. Does not: link libcuda, need CUDA's headers, or hold any
// state of a device.
#ifndef KDAC_RUNTIME_CUDADRIVER_H
#define KDAC_RUNTIME_CUDADRIVER_H

#include "kdac/Runtime/Status.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace kdac::cuda {

// The driver's ABI. Handles are opaque pointers; device addresses are 64-bit.
using Result = int;
using DeviceId = int;
using Address = uint64_t;
using Context = struct CUctx_st *;
using Module = struct CUmod_st *;
using Function = struct CUfunc_st *;
using Stream = struct CUstream_st *;
using Event = struct CUevent_st *;
using Graph = struct CUgraph_st *;
using GraphExec = struct CUgraphExec_st *;

/// CUdevice_attribute values that kdac reads.
enum DeviceAttribute {
  MultiprocessorCount = 16,
  L2CacheBytes = 38,
  ComputeMajor = 75,
  ComputeMinor = 76,
  SharedBytesPerBlockOptin = 97,
};

constexpr Result success = 0;
constexpr Result notReady = 600;
constexpr int functionMaxDynamicShared = 8; ///< CU_FUNC_ATTRIBUTE_...
constexpr int functionLocalBytes = 3;
constexpr int functionClusterWidth = 11;     ///< blocks on x; 0: no clusters
constexpr int attributeClusterDimension = 4; ///< CU_LAUNCH_ATTRIBUTE_...
constexpr unsigned streamNonBlocking = 1;
constexpr int captureThreadLocal = 1; ///< CU_STREAM_CAPTURE_MODE_..._LOCAL
constexpr int captureRelaxed = 2;     ///< CU_STREAM_CAPTURE_MODE_RELAXED

/// CUlaunchAttribute; as it is made, that a launch may overlap.
struct LaunchAttribute {
  int id = 6; ///< PROGRAMMATIC_STREAM_SERIALIZATION
  int pad = 0;
  int value[16] = {1}; ///< a union of 64 bytes
};

/// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, sharedBytes = 0;
  Stream stream = nullptr;
  LaunchAttribute *attributes = nullptr;
  unsigned attributeCount = 0;
};

/// The entry points, named without their "cu" and version suffix.
struct Driver {
  Result (*init)(unsigned) = nullptr;
  Result (*driverGetVersion)(int *) = nullptr;
  Result (*getErrorName)(Result, const char **) = nullptr;
  Result (*getErrorString)(Result, const char **) = nullptr;
  Result (*deviceGetCount)(int *) = nullptr;
  Result (*deviceGet)(DeviceId *, int) = nullptr;
  Result (*deviceGetName)(char *, int, DeviceId) = nullptr;
  Result (*deviceGetAttribute)(int *, int, DeviceId) = nullptr;
  Result (*primaryCtxRetain)(Context *, DeviceId) = nullptr;
  Result (*primaryCtxRelease)(DeviceId) = nullptr;
  Result (*ctxPushCurrent)(Context) = nullptr;
  Result (*ctxPopCurrent)(Context *) = nullptr;
  Result (*memAlloc)(Address *, size_t) = nullptr;
  Result (*memFree)(Address) = nullptr;
  Result (*memcpyHtoD)(Address, const void *, size_t) = nullptr;
  Result (*memcpyDtoH)(void *, Address, size_t) = nullptr;
  Result (*memcpyDtoDAsync)(Address, Address, size_t, Stream) = nullptr;
  Result (*memsetD8Async)(Address, unsigned char, size_t, Stream) = nullptr;
  Result (*streamCreate)(Stream *, unsigned) = nullptr;
  Result (*streamDestroy)(Stream) = nullptr;
  Result (*streamSynchronize)(Stream) = nullptr;
  Result (*eventCreate)(Event *, unsigned) = nullptr;
  Result (*eventDestroy)(Event) = nullptr;
  Result (*eventRecord)(Event, Stream) = nullptr;
  Result (*eventQuery)(Event) = nullptr;
  Result (*eventSynchronize)(Event) = nullptr;
  Result (*eventElapsedTime)(float *, Event, Event) = nullptr;
  Result (*moduleLoadDataEx)(Module *, const void *, unsigned, int *,
                             void **) = nullptr;
  Result (*moduleUnload)(Module) = nullptr;
  Result (*moduleGetFunction)(Function *, Module, const char *) = nullptr;
  Result (*funcSetAttribute)(Function, int, int) = nullptr;
  Result (*funcGetAttribute)(int *, int, Function) = nullptr;
  Result (*launchKernel)(Function, unsigned, unsigned, unsigned, unsigned,
                         unsigned, unsigned, unsigned, Stream, void **,
                         void **) = nullptr;

  /// Null in drivers older than CUDA 11.8.
  Result (*launchKernelEx)(const LaunchConfig *, Function, void **,
                           void **) = nullptr;
  Result (*occupancyMaxActiveClusters)(int *, Function,
                                       const LaunchConfig *) = nullptr;
  // Newer than CUDA 11.0, or not needed to launch packs: null where the driver
  // has none. hasModels() says that all are there.
  Result (*memGetInfo)(size_t *, size_t *) = nullptr;
  Result (*memHostAlloc)(void **, size_t, unsigned) = nullptr;
  Result (*memFreeHost)(void *) = nullptr;
  Result (*memcpyHtoDAsync)(Address, const void *, size_t, Stream) = nullptr;
  Result (*memcpyDtoHAsync)(void *, Address, size_t, Stream) = nullptr;
  Result (*streamBeginCapture)(Stream, int) = nullptr;
  Result (*streamEndCapture)(Stream, Graph *) = nullptr;
  Result (*graphInstantiate)(GraphExec *, Graph, unsigned long long) = nullptr;
  Result (*graphLaunch)(GraphExec, Stream) = nullptr;
  Result (*graphExecDestroy)(GraphExec) = nullptr;
  Result (*graphDestroy)(Graph) = nullptr;
  bool hasModels() const;
  bool hasGraphs() const; ///< those of streams under capture and of graphs

  /// Loads libcuda.so.1, or the library called `library` (for tests), and
  /// initialises it. The library stays loaded: drivers do not unload cleanly.
  static StatusOr<std::shared_ptr<const Driver>>
  load(const char *library = "libcuda.so.1");

  /// Success, or "`what` failed: CUDA_ERROR_... (...)".
  Status check(Result result, const char *what) const;
};

} // namespace kdac::cuda

#endif // KDAC_RUNTIME_CUDADRIVER_H
