#include "AlignedBuffer.h"

#include <sys/mman.h>

namespace kdac::model {

void Unmap::operator()(void *memory) const {
  ::munmap(memory, static_cast<size_t>(size));
}

StatusOr<AlignedBuffer> AlignedBuffer::allocate(int64_t bytes,
                                                const std::string &what) {
  AlignedBuffer buffer;
  if (bytes <= 0)
    return buffer;
  void *memory =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return Status(ErrorCode::Io, "no memory for " + std::to_string(bytes) +
                                     " bytes of " + what);
  buffer.memory = {memory, Unmap{bytes}};
  buffer.count = bytes;
  return buffer;
}

} // namespace kdac::model
