// Promises: failure as a value: a code for programs and one sentence for
// people. Does not: throw, print, allocate on success, or depend on anything of
// kdac.
#ifndef KDAC_RUNTIME_STATUS_H
#define KDAC_RUNTIME_STATUS_H

#include <cassert>
#include <optional>
#include <string>
#include <utility>

namespace kdac {

/// What kind of failure a Status carries.
enum class ErrorCode {
  Ok,
  InvalidArgument, ///< the caller passed something the kernel cannot take
  NotFound,        ///< no such file, variant, device or symbol
  Corrupt,         ///< a file is damaged, truncated or of another kind
  Unsupported,     ///< valid, but not on this device or in this version
  Unavailable,     ///< a driver or device is missing
  Io,              ///< the operating system refused
  Device,          ///< the GPU driver reported an error
};

/// Success, or a code and a sentence: lower case, no full stop, naming the
/// object, the value and the limit.
class [[nodiscard]] Status {
public:
  Status() = default;
  Status(ErrorCode code, std::string message)
      : code_(code), message_(std::move(message)) {
    assert(code != ErrorCode::Ok && "an error needs a code");
  }
  static Status success() { return Status(); }

  bool ok() const { return code_ == ErrorCode::Ok; }
  ErrorCode code() const { return code_; }
  const std::string &message() const { return message_; }

  /// The same failure, said with what the caller knows: "context: message".
  Status with(const std::string &context) const {
    return ok() ? *this : Status(code_, context + ": " + message_);
  }

private:
  ErrorCode code_ = ErrorCode::Ok;
  std::string message_;
};

/// A value, or the Status that says why there is none.
template <typename T> class [[nodiscard]] StatusOr {
public:
  StatusOr(T value) : value_(std::move(value)) {}
  StatusOr(Status status) : status_(std::move(status)) {
    assert(!status_.ok() && "success needs a value");
  }

  bool ok() const { return value_.has_value(); }
  const Status &status() const { return status_; }
  T &operator*() { return *value_; }
  const T &operator*() const { return *value_; }
  T *operator->() { return &*value_; }
  const T *operator->() const { return &*value_; }

private:
  Status status_;
  std::optional<T> value_;
};

} // namespace kdac

#endif // KDAC_RUNTIME_STATUS_H
