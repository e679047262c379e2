// Promises: one spelling per thread-level instruction the NVVM exit uses.
// Does not: know tile ops or placements.
#ifndef KDAC_LIB_CONVERSION_GPUEMITTER_H
#define KDAC_LIB_CONVERSION_GPUEMITTER_H

#include "kdac/Dialect/Tile.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace kdac {

/// A coordinate inside a tile: a thread-dependent part plus a constant, kept
/// apart so that the constant becomes an address immediate.
struct Coord {
  mlir::Value base; ///< i32, or null for 0
  int64_t offset = 0;

  Coord plus(int64_t more) const { return {base, offset + more}; }
  bool operator<(const Coord &other) const {
    return std::make_pair(base.getAsOpaquePointer(), offset) <
           std::make_pair(other.base.getAsOpaquePointer(), other.offset);
  }
};

/// Emits per-thread code. Integers are i32 unless a name says otherwise.
class GpuEmitter : public mlir::ImplicitLocOpBuilder {
public:
  using Value = mlir::Value;
  using Values = llvm::SmallVector<mlir::Value>;
  GpuEmitter(mlir::Location loc, mlir::OpBuilder &builder)
      : ImplicitLocOpBuilder(loc, builder) {}

  // Integers.
  Value i32(int64_t value);
  Value i64(int64_t value);
  Value add(Value a, Value b);
  Value add(Value a, int64_t b);
  Value mul(Value a, int64_t b);
  Value div(Value a, int64_t b);
  Value rem(Value a, int64_t b);
  Value mul64(Value a, Value b);
  Value less(Value a, Value b); ///< signed
  Value toI64(Value a);         ///< from i32, i64 or index
  Value toI32(Value a);
  Value at(Coord coord); ///< base + offset

  // f32, approximate where tile-to-nvvm's documentation says so.
  Value f32(double value);
  Value intrinsic(llvm::StringRef name, mlir::Type type, mlir::ValueRange args);
  Value exp2(Value x);
  Value rsqrt(Value x);
  Value reciprocal(Value x);
  Value addF(Value a, Value b);
  Value mulF(Value a, Value b);
  /// a * b + c in one rounding.
  Value fma(Value a, Value b, Value c);

  // Memory. Elements of 16-bit and tf32 types travel as f32 values, which hold
  // them exactly; `element` is the type in memory.
  Value pointer(Value base, Value index64, mlir::Type element);
  Value bytes(Value base, Value offset32, int64_t constant);
  Values load(Value pointer, mlir::Type element, int64_t count, int64_t align,
              bool invariant = false);
  void store(mlir::ValueRange elements, Value pointer, mlir::Type element,
             int64_t align);

  // Threads.
  void barrier();
  /// Keeps LLVM from sharing loads across this point, which would hold a whole
  /// tile's elements in registers; no instruction.
  void memoryFence();
  /// The same number, but not known to be: what is computed from it stays where
  /// it is used instead of being kept, and spilled, around a loop. For the
  /// thread index ptxas must not know either, so each lane asks itself for it.
  Value opaqueThread(Value thread);
  Value opaqueSize(Value size64);
  /// Adds x over the lanes that differ in the bits of `laneMask`, in all of
  /// them.
  Value sumLanes(Value x, llvm::ArrayRef<int64_t> laneMasks);

  // Tensor cores: 16x8 f32 accumulators += a (4 registers) * b (2 registers).
  Values ldmatrix(Value pointer, int64_t count, bool transposed);
  void mma(llvm::MutableArrayRef<Value> accumulators, mlir::ValueRange a,
           mlir::ValueRange b, mlir::Type element);

private:
  Value unpack16(Value word, bool high, mlir::Type element);
  Value pack16(Value low, Value high, mlir::Type element);
};

using tile::bytesOf;

} // namespace kdac

#endif // KDAC_LIB_CONVERSION_GPUEMITTER_H
