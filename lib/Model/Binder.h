// Promises: tensors of a checkpoint by name, with dtype and shape checked; the
// first failure is kept. Does not: know any model.
#ifndef KDAC_LIB_MODEL_BINDER_H
#define KDAC_LIB_MODEL_BINDER_H

#include "RandomTensors.h"
#include "kdac/Model/Weights.h"

#include <set>

namespace kdac::model {

class Binder {
public:
  explicit Binder(const Checkpoint &checkpoint) : checkpoint(&checkpoint) {}
  /// Makes every tensor that is asked for.
  explicit Binder(RandomTensors &random) : random(&random) {}

  /// The matrix `name`.weight of [out, in].
  Matrix matrix(const std::string &name, int64_t out, int64_t in);
  /// The same, or its MXFP4 form: `name`.weight_packed and `name`.weight_scale.
  Matrix expert(const std::string &name, int64_t out, int64_t in);
  /// Parameters of exactly one of the shapes.
  Vector vector(const std::string &name,
                const std::vector<std::vector<int64_t>> &shapes);
  /// Parameters of any shape, of which the first `count` count; further ones
  /// must be zero.
  Vector padded(const std::string &name, int64_t count);

  /// `name` may be there and is not needed.
  void ignore(const std::string &name) { used.insert(name); }

  const Status &status() const { return first; }
  /// Tensors that nobody asked for.
  std::vector<std::string> unused() const;

private:
  /// `shape` and `type` are those of a tensor that has to be made.
  const StoredTensor *find(const std::string &name,
                           const std::vector<int64_t> &shape, TensorType type);
  void fail(const StoredTensor *tensor, const std::string &name,
            const std::string &what);
  bool hasShape(const StoredTensor &tensor, const std::string &name,
                const std::vector<std::vector<int64_t>> &shapes);
  Vector toFloats(const StoredTensor &tensor, const std::string &name);

  const Checkpoint *checkpoint = nullptr; ///< one of the two is not null
  RandomTensors *random = nullptr;
  std::set<std::string> used;
  Status first;
};

} // namespace kdac::model

#endif // KDAC_LIB_MODEL_BINDER_H
