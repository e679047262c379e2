// Promises: files as bytes, read whole or mapped, with the operating system's
// reason and the path in every error. Does not: interpret them.
#ifndef KDAC_LIB_MODEL_FILEBYTES_H
#define KDAC_LIB_MODEL_FILEBYTES_H

#include "kdac/Runtime/Status.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace kdac::model {

/// The file's bytes; more than `largest`, or a Git LFS pointer, are an error.
StatusOr<std::string> readWholeFile(const std::string &path, int64_t largest);

/// An error if the bytes of the file called `name` are a Git LFS pointer.
Status checkNoPointer(std::string_view bytes, const std::string &name);

/// A file in read-only memory. Copies share it.
class MappedFile {
public:
  static StatusOr<MappedFile> open(const std::string &path);
  std::string_view bytes() const { return {state->data, state->size}; }

  /// A copy of the file whose byte `aligned` is at a multiple of 64, for files
  /// that mapping puts elsewhere.
  static StatusOr<MappedFile> copy(const std::string &path, size_t aligned);

private:
  struct State {
    char *data = nullptr;
    size_t size = 0;
    void *memory = nullptr; ///< what is mapped: data, or what has it inside
    size_t mapped = 0;
    ~State();
  };
  explicit MappedFile(std::shared_ptr<State> state) : state(std::move(state)) {}
  std::shared_ptr<State> state;
};

/// True if there is a file or folder at `path`.
bool exists(const std::string &path);

} // namespace kdac::model

#endif // KDAC_LIB_MODEL_FILEBYTES_H
