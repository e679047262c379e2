// Promises: memory of the machine that a model runs on, and copies in and out
// of it. Does not: compute, or give memory back before its end.
#ifndef KDAC_MODEL_MEMORY_H
#define KDAC_MODEL_MEMORY_H

#include "kdac/Runtime/Status.h"

#include <cstdint>
#include <memory>
#include <string>

namespace kdac::model {

/// Elements of activations and caches.
enum class Element { F32, BF16 };

constexpr int64_t bytesOf(Element type) { return type == Element::F32 ? 4 : 2; }

class Memory {
public:
  virtual ~Memory() = default;

  /// What sentences call the machine: "this machine", "cuda:0".
  virtual std::string place() const = 0;
  /// Bytes that allocations can have in all.
  virtual StatusOr<int64_t> available() const = 0;
  /// Memory at a multiple of 256 bytes, with any contents, until this object
  /// ends; null for 0 bytes. `what` is how the error calls it.
  virtual StatusOr<void *> allocate(int64_t bytes, const std::string &what) = 0;

  // Copies that see everything the operations were told before, and have
  // finished when they return. `there` is memory of allocate().
  virtual Status read(void *to, const void *there, int64_t bytes) = 0;
  virtual Status write(void *there, const void *from, int64_t bytes) = 0;
  virtual Status copy(void *there, const void *thereToo, int64_t bytes) = 0;
};

/// Memory of this process, zeroed.
std::shared_ptr<Memory> hostMemory();

} // namespace kdac::model

#endif // KDAC_MODEL_MEMORY_H
