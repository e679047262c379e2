// Promises: what the handles of kdac-c/kdac.h are, and how C structs that grow
// are read and written. Does not: check calls (kdac/Runtime/Call.h).
#ifndef KDAC_LIB_RUNTIME_CHANDLES_H
#define KDAC_LIB_RUNTIME_CHANDLES_H

#include "kdac-c/kdac.h"

#include "kdac/Runtime/Kernel.h"
#include "kdac/Runtime/Select.h"
#include "kdac/Runtime/Trust.h"

#include <algorithm>
#include <cstring>
#include <mutex>

/// A failure; success is a null pointer.
struct kdac_status {
  kdac::Status status;
};

namespace kdac::capi {

/// Null for success.
kdac_status *toC(Status status);
kdac_status *invalid(const std::string &message);

/// The host's threads; one call at a time uses them.
struct HostThreads {
  std::mutex mutex;
  HostPool pool;
  explicit HostThreads(int threads) : pool(threads) {}
};

/// What the default of a size is counted by; Nothing: there is no default.
enum class Per { Nothing, One, KeyHead, ValueHead };

/// One argument of a launch and where a kdac_call has it.
struct Binding {
  ArgKind kind = ArgKind::Input;
  size_t offset = 0; ///< of the field in kdac_call
  /// What a size that is not said is: so many of these, `width` each.
  Per unsaid = Per::Nothing;
  int64_t width = 1;
};

/// Pointers that a kdac_call has and a variant does not.
struct Foreign {
  const char *name;
  size_t offset;
};

/// How a kdac_call becomes the arguments of one launch.
class CallLayout {
public:
  static StatusOr<CallLayout> of(const PackVariant &variant);

  /// Values of arguments, on the caller's stack.
  static constexpr size_t maxArgs = 64;
  struct Arguments {
    uint64_t slots[maxArgs];
    void *argv[maxArgs];
  };
  Status fill(const kdac_call &call, Arguments &out) const;

private:
  Status fillOne(const Binding &binding, const kdac_call &call,
                 uint64_t &slot) const;

  std::string name;
  int64_t keyDim = 0;
  std::vector<Binding> bindings;
  std::vector<Foreign> foreign;
};

/// Copies a caller's struct, which may be shorter than ours.
template <typename T>
Status readStruct(const T *from, const char *what, T &to) {
  to = T();
  if (!from)
    return Status(ErrorCode::InvalidArgument, std::string(what) + " is null");
  if (from->struct_size < static_cast<int64_t>(sizeof(int64_t)))
    return Status(ErrorCode::InvalidArgument,
                  "struct_size of " + std::string(what) + " is " +
                      std::to_string(from->struct_size) +
                      ", expected its size in bytes");
  std::memcpy(&to, from,
              std::min(sizeof(T), static_cast<size_t>(from->struct_size)));
  return Status::success();
}

/// Writes as much of `from` as the caller's struct has room for.
template <typename T> Status writeStruct(T from, const char *what, T *to) {
  T asked;
  if (Status s = readStruct(static_cast<const T *>(to), what, asked); !s.ok())
    return s;
  from.struct_size = asked.struct_size;
  std::memcpy(to, &from,
              std::min(sizeof(T), static_cast<size_t>(asked.struct_size)));
  return Status::success();
}

} // namespace kdac::capi

struct kdac_device {
  std::optional<kdac::Device> gpu; ///< else the host
  std::shared_ptr<kdac::capi::HostThreads> host;

  kdac::Place place() const { return {gpu ? &gpu->info() : nullptr}; }
};

struct kdac_pack {
  kdac::PackReader reader;
  kdac::Receipts receipts;
  std::vector<std::string> names;
};

struct kdac_kernel {
  std::optional<kdac::GpuKernel> gpu;
  std::optional<kdac::HostKernel> onHost;
  std::shared_ptr<kdac::capi::HostThreads> host;
  kdac::capi::CallLayout layout;
  std::string name, origin;
  kdac::Trust trust;

  const kdac::PackVariant &packed() const {
    return gpu ? gpu->variant() : onHost->variant();
  }
};

#endif // KDAC_LIB_RUNTIME_CHANDLES_H
