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
  Value add64(Value a, int64_t b);
  Value less(Value a, Value b); ///< signed
  Value equal(Value a, Value b);
  /// i1: it is not null; hidden: compared where it stands, and not before.
  Value isPresent(Value pointer, bool isHidden = false);
  Value toI64(Value a); ///< from i32, i64 or index
  Value toI32(Value a);
  Value at(Coord coord); ///< base + offset

  // f32, approximate where tile-to-nvvm's documentation says so.
  Value f32(double value);
  Value intrinsic(llvm::StringRef name, mlir::Type type, mlir::ValueRange args);
  Value exp2(Value x);
  Value log2(Value x);
  Value rsqrt(Value x);
  Value reciprocal(Value x);
  Value addF(Value a, Value b);
  Value mulF(Value a, Value b);
  Value negF(Value a);
  /// Lets products of a value and constants become one product from here on.
  void mergeFactors() {
    mathFlags = mathFlags | mlir::arith::FastMathFlags::reassoc;
  }
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
  /// The same under a predicate, zeros where it does not hold: a branch would
  /// keep ptxas from issuing what comes after before this has arrived.
  Values loadIf(Value condition, Value pointer, mlir::Type element,
                int64_t count, int64_t align, bool invariant = false);
  /// `count` words as they are in memory, in pieces of what `align` allows:
  /// pairs of 16-bit elements as i32, or f32.
  Values loadWordsIf(Value condition, Value pointer, bool isPair, int64_t count,
                     int64_t align, bool invariant);
  /// The f32 values of words as they are in memory, of 16-bit pairs or f32.
  Values unpack(mlir::ValueRange words, mlir::Type element);
  /// One element, an integer extended to 64 bits; `otherwise` where the
  /// condition does not hold.
  Value loadScalarIf(Value condition, Value pointer, mlir::Type element,
                     Value otherwise);

  // Threads.
  /// What keeps LLVM and ptxas from unrolling a loop.
  mlir::LLVM::LoopAnnotationAttr rolled();
  void barrier();
  void barrierIf(Value condition); ///< which all threads agree on
  /// Keeps LLVM from sharing loads across this point, which would hold a whole
  /// tile's elements in registers; no instruction.
  void memoryFence();
  /// The same number, but not known to be: what is computed from it stays where
  /// it is used instead of being kept, and spilled, around a loop. For the
  /// thread index ptxas must not know either, so each lane asks itself for it.
  Value opaqueThread(Value thread);
  Value opaqueSize(Value size64);
  /// How many multiprocessors there are, about.
  Value multiprocessors();
  Value opaqueWord(Value word); ///< the same of an i32
  /// The x of the lane whose number differs in these bits.
  Value shuffleXor(Value x, int64_t mask);
  /// Adds x over the lanes that differ in the bits of `laneMask`, in all of
  /// them.
  Value sumLanes(Value x, llvm::ArrayRef<int64_t> laneMasks);

  // Tensor cores: 16x8 f32 accumulators += a (4 registers) * b (2 registers),
  // or half as deep, of half as many.
  Values ldmatrix(Value pointer, int64_t count, bool transposed);
  void mma(llvm::MutableArrayRef<Value> accumulators, mlir::ValueRange a,
           mlir::ValueRange b, mlir::Type element);
  /// 2 or 4 matrices of 8 rows; lanes 8 i to 8 i + 7 point to the rows of
  /// matrix i.
  void stmatrix(Value pointer, mlir::ValueRange words, bool transposed,
                int64_t constant = 0); ///< bytes beyond the pointer

  /// Two or four f32 to shared memory under a predicate. Of two such stores in
  /// a row ptxas makes a branch, which ends a block.
  void storeIf(Value condition, mlir::ValueRange elements, Value pointer,
               int64_t constant);

  // Pairs of 16-bit elements in a 32-bit word.
  Value unpack16(Value word, bool high, mlir::Type element);
  Value pack16(Value low, Value high, mlir::Type element);
  /// The word that products in tf32 take x as.
  Value toTF32(Value x);
  /// The two products, each rounded once.
  Value mulPairs(Value a, Value b, mlir::Type element);

  //===-- Hopper (GpuWarpgroup.cpp)
  //-----------------------------------------===//
  Value bitAnd(Value a, int64_t b);
  Value bitXor(Value a, Value b);
  Value shiftLeft(Value a, int64_t b);
  Value shiftRight(Value a, int64_t b);
  /// The 32-bit address of a pointer to shared memory.
  Value address(Value pointer);
  Value shuffle(Value x, Value fromLane);
  Value anyLane(Value condition); ///< i1: it holds in some lane of the warp
  void warpSync();
  /// A barrier of `count` threads that is not the block's own (id 0).
  void namedBarrier(Value id, int64_t count);
  /// Registers of each thread of this warpgroup from here on.
  void setRegisters(int64_t count, int64_t atLaunch);

  // mbarriers, by their address.
  void initBarrier(Value barrier, Value arrivals);
  void arrive(Value barrier);
  /// Arrives once this thread's asynchronous copies so far have landed.
  void arriveAfterCopies(Value barrier);
  /// Waits until the phase of this parity (i32, 0 or 1) is over; `cluster`: for
  /// what other blocks of the cluster did before they arrived as well.
  void waitBarrier(Value barrier, Value parity, bool cluster = false);
  void publishBarriers();
  /// Programmatic dependent launch: until the launch before is done; the next
  /// one may start.
  void awaitLaunch();
  void startNext();
  /// Arrives at an mbarrier whose phase also waits for `bytes` to be copied.
  void arriveExpecting(Value barrier, int64_t bytes);
  /// Copies of whole, aligned 16 bytes by one thread; addresses as integers.
  void bulkLoad(Value shared, Value global, int64_t bytes, Value barrier);
  void bulkStore(Value global, Value shared, int64_t bytes);
  /// To another block of the cluster, whose barrier alone says when it is done.
  void bulkSend(Value clusterTo, Value shared, int64_t bytes,
                Value clusterBarrier);
  /// 16 bytes by cp.async, of which `count` (i32, 0 or 16) exist, the others
  /// are zeros; the 256 bytes that they are part of come to the L2.
  void copyFetching(Value shared, Value global, Value count);
  /// Asks for whole, aligned 16 bytes of global memory in the L2.
  void prefetch(Value global, int64_t bytes);
  /// The same of the lines that begin at `pointer` or up to `bytes` behind it,
  /// each lane its own.
  void prefetchLines(Value pointer, int64_t bytes);
  /// Until all but the `left` last stores are done, or have read their source.
  void waitBulkStores(int64_t left, bool read);
  /// What an address in this block's shared memory is in block `rank` (i32) of
  /// the cluster.
  Value inBlock(Value address, Value rank);
  void arriveInCluster(Value clusterBarrier);
  /// Four words to another block's memory.
  void storeInCluster(Value words, Value clusterTo, int64_t constant);
  /// As proxyFence, also for what this thread wrote to other blocks.
  void clusterProxyFence();
  /// Of all threads of the cluster's blocks.
  void clusterBarrier();
  /// Makes this thread's writes to shared memory visible to wgmma.
  void proxyFence();

  /// A matrix in panels (tile.place): `leading` and `strided` are the bytes
  /// between panels and between groups of 8 rows.
  Value matrixDescriptor(Value address, int64_t leading, int64_t strided);
  /// sums += a (4 registers, 64 rows) * B; with `fresh`, sums = a * B. B is 16
  /// deep, 2 * sums.size() wide, stored [n][k], or [k][n] with `transposed`.
  /// Reads and writes in the background.
  void warpgroupProduct(llvm::MutableArrayRef<Value> sums, mlir::ValueRange a,
                        Value descriptor, bool fresh, bool transposed);
  /// The same with a left side in panels, stored [m][k], and a right side
  /// stored [n][k].
  void warpgroupProduct(llvm::MutableArrayRef<Value> sums, Value left,
                        Value right, bool fresh);
  /// Orders this warpgroup's register writes before its next products.
  void warpgroupFence(llvm::MutableArrayRef<Value> sums, mlir::ValueRange a);
  void warpgroupCommit();
  /// Waits for all products but those of the `left` last commits; `a` are
  /// operands that must last until then.
  void warpgroupWait(llvm::MutableArrayRef<Value> sums, mlir::ValueRange a,
                     int64_t left = 0);

private:
  // ptxas fuses multiplications and additions only where it is allowed to.
  mlir::arith::FastMathFlags mathFlags = mlir::arith::FastMathFlags::contract;
  Values assembly(llvm::StringRef text, llvm::StringRef constraints,
                  mlir::TypeRange results, mlir::ValueRange operands);
  void issueProduct(llvm::MutableArrayRef<Value> sums, mlir::ValueRange a,
                    Value right, bool fresh, llvm::StringRef flags);
  void tied(llvm::StringRef text, llvm::MutableArrayRef<Value> sums,
            mlir::ValueRange a);
};

using tile::bytesOf;

} // namespace kdac

#endif // KDAC_LIB_CONVERSION_GPUEMITTER_H
