#include "AlignedBuffer.h"
#include "kdac/Model/Memory.h"

#include <cstring>
#include <unistd.h>
#include <vector>

namespace kdac::model {

namespace {

class HostMemory : public Memory {
public:
  std::string place() const override { return "this machine"; }
  StatusOr<int64_t> available() const override {
    return int64_t(::sysconf(_SC_PHYS_PAGES)) *
           int64_t(::sysconf(_SC_PAGESIZE));
  }
  StatusOr<void *> allocate(int64_t bytes, const std::string &what) override {
    StatusOr<AlignedBuffer> buffer = AlignedBuffer::allocate(bytes, what);
    if (!buffer.ok())
      return buffer.status();
    buffers.push_back(std::move(*buffer));
    return static_cast<void *>(buffers.back().bytes());
  }
  Status read(void *to, const void *there, int64_t bytes) override {
    return copy(to, there, bytes);
  }
  Status write(void *there, const void *from, int64_t bytes) override {
    return copy(there, from, bytes);
  }
  Status copy(void *to, const void *from, int64_t bytes) override {
    if (bytes > 0)
      std::memcpy(to, from, static_cast<size_t>(bytes));
    return Status::success();
  }

private:
  std::vector<AlignedBuffer> buffers;
};

} // namespace

std::shared_ptr<Memory> hostMemory() { return std::make_shared<HostMemory>(); }

} // namespace kdac::model
