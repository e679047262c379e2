// Promises: a pack's variant ready to launch, on a GPU or on the host, with
// every call checked first. Does not: allocate, synchronise or load anything
// during a GPU launch; own the caller's memory.
#ifndef KDAC_RUNTIME_KERNEL_H
#define KDAC_RUNTIME_KERNEL_H

#include "kdac/Pack/PackReader.h"
#include "kdac/Runtime/Call.h"
#include "kdac/Runtime/Device.h"
#include "kdac/Runtime/HostLaunch.h"

#include <array>
#include <memory>
#include <string>

namespace kdac {

/// A variant loaded onto one GPU. Copies share the module. Launching is safe
/// from many threads and inside graph capture.
class GpuKernel {
public:
  /// The most launches of one call, and how many instances each has.
  static constexpr size_t maxLaunches = 16;
  static constexpr size_t maxParameters = 72; ///< of one kernel
  using Grids = std::array<int64_t, maxLaunches>;

  /// Loads the machine code that fits the device, or else compiles the PTX that
  /// does; origin() says which. `variant` belongs to `pack`.
  static StatusOr<GpuKernel> load(const Device &device, const PackReader &pack,
                                  const PackVariant &variant);

  /// "cubin sm_90a", or "ptx sm_80, compiled by the driver: ..." with why.
  const std::string &origin() const { return state->origin; }
  const PackVariant &variant() const { return state->variant; }
  /// The image that was loaded.
  const Image &image() const { return state->image; }
  /// Local memory per thread that the driver reports, in bytes.
  int64_t localBytes() const { return state->localBytes; }

  /// Checks the call and enqueues it on `stream`; with a status word after a
  /// kernel that checks its indices (poolStatus reads the word).
  /// `overlap`: if the first kernel waits by itself, it may begin before the
  /// one ahead of it in the stream has ended (programmatic dependent launch),
  /// which then may still write inputs, but no pool, index, cache or parameter.
  Status launch(cuda::Stream stream, CallArguments argv,
                bool overlap = false) const;
  /// Enqueues a call of `grid` instances that was checked before: checkCall and
  /// gridsOf done once for a call that is repeated.
  Status launchChecked(cuda::Stream stream, CallArguments argv,
                       const Grids &grids, bool overlap = false) const;
  /// checkCall, and gridsOf; `schedule` as there.
  StatusOr<Grids> check(CallArguments argv,
                        const std::string *schedule = nullptr) const;

private:
  struct Parameters;
  struct State {
    Device device;
    PackVariant variant;
    std::string origin;
    Image image;
    cuda::Module module = nullptr;
    std::array<cuda::Function, maxLaunches> functions = {};
    int64_t localBytes = 0;
    int widestCluster = 0, clusters = 0; ///< blocks of one; how many at once
    State(Device device, PackVariant variant)
        : device(std::move(device)), variant(std::move(variant)) {}
    ~State();
    Status loadAny(const PackReader &pack);
    Status loadImage(std::string_view bytes);
    Status prepareFunction(size_t number);
    void countClusters(const Launch &launch, cuda::Function function);
  };
  explicit GpuKernel(std::shared_ptr<State> state) : state(std::move(state)) {}

  std::shared_ptr<State> state;
};

/// A variant's shared object, loaded from memory. Copies share it.
class HostKernel {
public:
  /// Loads the best host image that this processor can run.
  static StatusOr<HostKernel> load(const PackReader &pack,
                                   const PackVariant &variant);

  const std::string &origin() const { return state->origin; }
  const PackVariant &variant() const { return state->variant; }

  /// Checks the call, then runs it to completion on `pool`.
  Status launch(HostPool &pool, CallArguments argv) const;
  /// The same on a pool of its own; 0 threads: one per core.
  Status launch(CallArguments argv, int threads = 0) const;

private:
  struct State {
    PackVariant variant;
    std::string origin;
    void *library = nullptr;
    int file = -1;                  ///< the library's memory
    std::vector<HostEntry> entries; ///< one per launch
    explicit State(PackVariant variant) : variant(std::move(variant)) {}
    ~State();
    Status loadImage(std::string_view bytes);
  };
  explicit HostKernel(std::shared_ptr<State> state) : state(std::move(state)) {}

  std::shared_ptr<State> state;
};

/// True if this processor runs host code for `arch` (x86-64-v3, aarch64, ...).
bool runsOnHost(std::string_view arch);

} // namespace kdac

#endif // KDAC_RUNTIME_KERNEL_H
