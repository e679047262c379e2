// Promises: the ops of form rows in f64, in obvious code: the oracle of their
// kernels. Does not: know recurrences (Reference.h), or round anything.
#ifndef KDAC_REFERENCE_ROWOPS_H
#define KDAC_REFERENCE_ROWOPS_H

#include "kdac/Reference/Reference.h"

#include <string_view>

namespace kdac::reference {

/// Everything that a call of form rows reads. An empty Rows is an absent
/// operand; tensors are [rows, 1, width].
struct RowOperands {
  RowOp op = RowOp::Norm;
  int64_t tokens = 0;         ///< rows of the result
  int64_t width = 1;          ///< D
  Rows x;                     ///< of norm, add, gather, latent and mix
  Rows branch;                ///< of norm and add
  Rows weight;                ///< of norm, [1, 1, D]; of latent, [1, 1, rank]
  Rows gate, up;              ///< of products
  std::vector<int64_t> index; ///< of gather; empty: the row's own number
  Rows scales;                ///< of combine, [tokens, 1, entries]
  int64_t entries = 1;        ///< of combine, in index too; mix's tensors
  int64_t sources = 0;        ///< rows of gather's x, of each tensor of mix
  Rows query;                 ///< of mix, [1, 1, D]
  int64_t rank = 0;           ///< of latent
  std::vector<int64_t> place; ///< of latent, [tokens], -1: nowhere
  int64_t places = 0;         ///< rows of latent's result
  double eps = 0, beta = 1, linear = 1;
};

/// `out` is the result [tokens, D], `finalState` norm's sum, else empty. Of
/// latent the result is [places, D], zero where nothing goes.
Results runRows(const RowOperands &operands);

/// What the gate lets through of `up`: silu, situ and sigmoid.
double gatedProduct(RowOp op, double gate, double up, double beta,
                    double linear);

/// Entries of a row that cases and timed calls give combine and mix.
constexpr int64_t usualEntries = 8;

/// The longest row that cases give a variant of bounded width: latent's has an
/// eighth more behind its normalised columns.
int64_t longestRow(const Variant &variant);

/// What cases and timed calls pass as the scale `name` of a kernel: as f32, as
/// kernels see it.
float usualScale(std::string_view name);

} // namespace kdac::reference

#endif // KDAC_REFERENCE_ROWOPS_H
