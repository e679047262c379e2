// Promises: products of rows with the weights of their groups in f64, in
// obvious code: the oracle of their kernels. Does not: round anything.
#ifndef KDAC_REFERENCE_MATMUL_H
#define KDAC_REFERENCE_MATMUL_H

#include "kdac/Reference/Reference.h"

namespace kdac::reference {

/// Everything that a call of form matmul reads.
struct MatmulOperands {
  Rows x; ///< (row, 0): [width]
  Rows weights,
      up; ///< (group * columns + column, 0): [width]; up of gated ones
  /// [group, first entry], ...; empty: one group, all entries
  std::vector<int64_t> tiles, starts;
  std::vector<int64_t> order; ///< [entries]; empty: entry e has row e
  int64_t each = 1;           ///< entries of a row
  int64_t entries = 0, width = 0, columns = 0, rows = 0, groups = 1;
  RowOp kind = RowOp::None; ///< of gated products: silu or situ
  double beta = 1, linear = 1;
};

/// `out` is [entries, columns], 0 where no tile is.
Results runMatmul(const MatmulOperands &operands, int threads = 0);

} // namespace kdac::reference

#endif // KDAC_REFERENCE_MATMUL_H
