// Promises: a recurrence with its neighbours, read off a dplr function once.
// Does not: build anything.
#ifndef KDAC_LIB_TRANSFORMS_PROBLEM_H
#define KDAC_LIB_TRANSFORMS_PROBLEM_H

#include "kdac/Dialect/Dplr.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace kdac {

/// A sequence operand of the recurrence and the map in front of it.
struct MappedOperand {
  mlir::Value source;     ///< function argument, null when the part is absent
  mlir::Operation *map{}; ///< the dplr map op between, or null
  mutable dplr::ShortConvOp conv; ///< before the map, or null

  explicit operator bool() const { return static_cast<bool>(source); }
};

/// What a kernel computes, in terms of its function's arguments.
struct Problem {
  mutable dplr::RecurrenceOp
      recurrence; ///< a handle; ops have no const accessors
  MappedOperand q, k, v, decay, beta, eraseA, eraseB;
  mutable dplr::GatedRmsNormOp norm; ///< of the output, or null

  int64_t keyDim() const;
  int64_t valueDim() const;
  /// Rank of the log-decay: 0 none, 1 constant per head, 2 per head, 3 per
  /// channel.
  int64_t decayRank() const;
  /// The log-decay is at least this (natural log), or nothing is proven.
  std::optional<double> decayBound() const;
  /// |k| <= 1 is proven.
  bool keysNormalised() const;
  /// Whole heads are needed in one program: a norm over V, or a cache that only
  /// one program may change.
  bool needsWholeHeads() const { return norm || q.conv || k.conv || v.conv; }
  mlir::Type dtype() const;
  mlir::Type stateType() const;

  /// Reads `function`; emits a diagnostic and fails when it is not one
  /// recurrence whose operands are arguments behind at most one map each.
  static mlir::FailureOr<Problem> match(mlir::func::FuncOp function);
};

} // namespace kdac

#endif // KDAC_LIB_TRANSFORMS_PROBLEM_H
