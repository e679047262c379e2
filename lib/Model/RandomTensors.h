// Promises: tensors of any shape with random values of a size that keeps a
// model's activations finite. Does not: make a model that says anything.
#ifndef KDAC_LIB_MODEL_RANDOMTENSORS_H
#define KDAC_LIB_MODEL_RANDOMTENSORS_H

#include "AlignedBuffer.h"
#include "kdac/Model/Safetensors.h"

#include <list>

namespace kdac::model {

class RandomTensors {
public:
  /// Without values for matrices, those have shapes only and are not to be
  /// read.
  RandomTensors(uint64_t seed, bool hasMatrices)
      : state(seed | 1), hasMatrices(hasMatrices) {}

  /// A BF16 matrix with values below 1/√in, or F32 parameters: norms near 1,
  /// others below 1.
  StatusOr<const StoredTensor *> make(const std::string &name,
                                      const std::vector<int64_t> &shape,
                                      TensorType type);
  /// Of all tensors, matrices without values included.
  int64_t bytes() const { return total; }

private:
  uint32_t draw();

  std::list<StoredTensor> tensors;
  std::vector<AlignedBuffer> memory;
  uint64_t state;
  int64_t total = 0;
  bool hasMatrices;
  std::list<char> outlines; ///< an address for every matrix without values
};

} // namespace kdac::model

#endif // KDAC_LIB_MODEL_RANDOMTENSORS_H
