// Promises: the state and the parts of tile-to-host: one Emitter writes one
// kernel. Does not: decide where values live (TileToHostPlan.h).
//
// All integers are i64, all floats f32 in registers and scratch. Tiles are read
// through `eval`, which recomputes inline values for one vector of elements.
#ifndef KDAC_CONVERSION_TILETOHOSTEMITTER_H
#define KDAC_CONVERSION_TILETOHOSTEMITTER_H

#include "TileToHostPlan.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"

namespace kdac::host {

/// Where to evaluate a tile: elements (row, col .. col + lanes), or one element
/// as a scalar when lanes is 0. Vectors have no row, tiles of rank 0 neither.
struct Point {
  mlir::Value row, col;
  int64_t lanes = 0;
};

/// A matrix in memory: element (r, c) is base[r * pitch + c], or with
/// `transposed` base[c * pitch + r].
struct Matrix {
  mlir::Value base;
  int64_t pitch = 0;
  bool transposed = false;
};

/// out[m x n] = init + a[m x k] b[k x n] in registers, written by `store`.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  Matrix a, b;
  bool lowerA = false; ///< a is zero above its diagonal
  llvm::function_ref<mlir::Value(Point)> init;
  llvm::function_ref<void(mlir::Value, Point)> store;
};

/// On the lowered function: bytes of scratch per thread, aligned to 64.
inline constexpr llvm::StringLiteral kScratchBytesAttr = "kdac.scratch_bytes";

class Emitter {
public:
  Emitter(mlir::OpBuilder builder, mlir::Location loc, const Plan &plan,
          int64_t width, mlir::Value scratch)
      : b(builder), loc(loc), plan(plan), width(width), scratch(scratch) {}

  /// Emits the body of the kernel for the program instance `program`.
  void emitKernel(mlir::func::FuncOp kernel, mlir::ValueRange args,
                  mlir::Value program);

private:
  using Body = llvm::function_ref<void(mlir::Value)>;
  using Values = llvm::SmallVector<mlir::Value>;

  // TileToHost.cpp: control flow and scalars.
  void emitBlock(mlir::Block &block);
  void emitOp(mlir::Operation *op);
  void emitLoop(mlir::scf::ForOp loop);
  void emitIf(mlir::scf::IfOp op);
  void emitScalar(mlir::Operation *op);
  void emitView(tile::ViewOp op);
  void emitGuard(tile::GuardOp op);
  void emitChoose(tile::ChooseOp op);
  void emitCheckSlots(tile::CheckSlotsOp op);
  void emitLoadScalar(tile::LoadScalarOp op);
  void emitYield(mlir::scf::ForOp loop);
  mlir::Type scalarType(mlir::Type type);
  mlir::Value castInteger(mlir::Value x, mlir::Type type, bool isSigned);

  // Small pieces.
  mlir::Value index(int64_t value);
  mlir::Value f32(double value);
  mlir::Value add(mlir::Value a, mlir::Value b);
  mlir::Value add(mlir::Value a, int64_t b);
  mlir::Value mul(mlir::Value a, int64_t b);
  mlir::Value splat(mlir::Value scalar, int64_t lanes);
  mlir::Value zeros(int64_t lanes);
  mlir::Value iota(int64_t lanes, int64_t bits);
  mlir::Type vectorOf(mlir::Type element, int64_t lanes);
  void loop(mlir::Value begin, mlir::Value end, int64_t step, Body body);
  void loop(int64_t begin, int64_t end, int64_t step, Body body);

  // TileToHostMemory.cpp: scratch and kernel arguments.
  Matrix matrix(const Buffer &buffer);
  mlir::Value at(const Matrix &m, mlir::Value row, mlir::Value col);
  mlir::Value loadF32(mlir::Value address, int64_t lanes);
  void storeF32(mlir::Value value, mlir::Value address);
  mlir::Value loadBuffer(const Buffer &buffer, Point p);
  void storeBuffer(mlir::Value value, const Buffer &buffer, Point p);
  mlir::Value fromMemory(mlir::Value raw, mlir::Type element);
  mlir::Value toMemory(mlir::Value value, mlir::Type element);
  mlir::Value maskBelow(mlir::Value limit, int64_t lanes);
  mlir::Value loadMasked(mlir::Value address, mlir::Type element,
                         mlir::Value limit, int64_t lanes);
  void storeMasked(mlir::Value value, mlir::Value address, mlir::Type element,
                   mlir::Value limit);
  mlir::Value loadRaw(mlir::Value address, mlir::Type element);
  mlir::Value loadElement(mlir::Value address, mlir::Type element,
                          mlir::Value inside);
  mlir::Value element(mlir::Value ref, mlir::Type type, mlir::Value offset);
  void lookAhead(tile::LoadOp load);
  mlir::Value evalLoad(tile::LoadOp load, Point p);
  mlir::Value pickedRow(tile::LoadOp load, mlir::Value row,
                        mlir::Value isValid);
  void emitVectorLoad(tile::LoadOp load);
  void prefetch(mlir::Value address, bool forWrite);
  /// An address and how many elements from there on are valid.
  struct Line {
    mlir::Value address, limit;
  };
  template <typename Access>
  Line transposedLine(Access op, mlir::Value row, mlir::Value col);
  template <typename Access>
  void forEachSquare(
      Access op, mlir::RankedTensorType type, bool forWrite,
      llvm::function_ref<void(mlir::Value, mlir::Value, int64_t)> body);
  void emitTransposedLoad(tile::LoadOp load);
  void emitStore(tile::StoreOp store);
  void emitStoreBody(tile::StoreOp store);
  void emitVectorStore(tile::StoreOp store, mlir::Value valid, int64_t lanes);
  void emitTransposedStore(tile::StoreOp store);
  mlir::Value isPresent(mlir::Value ref);

  // TileToHostEval.cpp: elementwise values.
  mlir::Value eval(mlir::Value tile, Point p);
  mlir::Value compute(mlir::Value tile, Point p);
  mlir::Value computePointwise(mlir::Operation *op, Point p);
  mlir::Value computeBroadcast(tile::BroadcastOp op, Point p);
  mlir::Value computeConstant(mlir::arith::ConstantOp op, Point p);
  void cacheRowFactors(mlir::Value tile, mlir::Value row, int64_t lanes);
  void forEachVector(mlir::RankedTensorType type,
                     llvm::function_ref<void(Point)> body,
                     mlir::ValueRange tiles);
  void emitElementwise(mlir::Value result);
  void copyBuffer(const Buffer &from, const Buffer &to);

  // TileToHostMath.cpp: functions of f32 scalars and vectors.
  mlir::Value like(mlir::Value shape, double value);
  mlir::Value likeBits(mlir::Value shape, int64_t value);
  mlir::Value bits(mlir::Value x);
  mlir::Value asFloat(mlir::Value x);
  mlir::Value fma(mlir::Value a, mlir::Value b, mlir::Value c);
  mlir::Value polynomial(mlir::Value x, llvm::ArrayRef<double> coefficients);
  mlir::Value exp2(mlir::Value x);
  mlir::Value log2(mlir::Value x);
  mlir::Value rsqrt(mlir::Value x);
  mlir::Value round(mlir::Value x, mlir::Type type);
  mlir::Value roundMantissa(mlir::Value x, int64_t dropped);
  mlir::Value mathOp(mlir::Operation *op, mlir::ValueRange operands);

  // TileToHostDot.cpp: products.
  void emitDot(tile::DotOp op);
  void emitProduct(const Product &p);
  void emitProductColumns(const Product &p, mlir::Value col, int64_t vectors,
                          int64_t lanes);
  void emitProductBlock(const Product &p, Point at, int64_t rows,
                        int64_t vectors);
  Values productStep(const Product &p, Point at, mlir::Value k, int64_t vectors,
                     Values sums);
  void transpose(const Matrix &from, const Matrix &to, int64_t rows,
                 int64_t cols);
  Values transposeSquare(Values rows);

  // TileToHostGram.cpp: products of rows weighted by decay.
  void emitGram(tile::DecayedGramOp op);
  void emitGramLevel(tile::DecayedGramOp op, int64_t half);
  void emitGramLeaves(tile::DecayedGramOp op);
  void emitScaledRows(tile::DecayedGramOp op, mlir::Value tile,
                      const Buffer &to, mlir::Value begin, int64_t rows,
                      mlir::Value anchor, bool isRight);
  void emitGramBlock(tile::DecayedGramOp op, size_t side, int64_t size,
                     mlir::Value row, mlir::Value col, bool isLeaf);
  void emitSmallBlock(tile::DecayedGramOp op, size_t side, int64_t size,
                      mlir::Value row, mlir::Value col, mlir::Value anchor);
  mlir::Value scaled(tile::DecayedGramOp op, mlir::Value tile, Point p,
                     mlir::Value anchor, bool isRight);
  void transposeRows(const Buffer &from, const Buffer &to, mlir::Value begin,
                     int64_t rows);
  mlir::Value keepBelow(mlir::Value value, Point p, bool strict);
  void clear(const Buffer &buffer);

  // TileToHostScan.cpp: sums and the triangular inverse.
  void emitCumsum(tile::CumsumOp op);
  void emitVectorCumsum(tile::CumsumOp op);
  void emitReduce(tile::ReduceOp op);
  void emitReduceColumns(tile::ReduceOp op, mlir::Value col, int64_t vectors,
                         int64_t lanes);
  mlir::Value neutral(bool greatest, int64_t lanes);
  mlir::Value joined(bool greatest, mlir::Value x, mlir::Value y);
  mlir::Value reduceRow(tile::ReduceOp op, mlir::Value row, int64_t size);
  Values reduceBlock(tile::ReduceOp op, mlir::Value row, mlir::Value begin,
                     mlir::Value end, int64_t vectors, int64_t lanes);
  mlir::Value reduceLanes(bool greatest, mlir::Value x);
  mlir::Value identityRow(mlir::Value row, mlir::Value col, int64_t lanes);
  void emitInverse(tile::UnitTrilInverseOp op);
  void emitInverseRows(tile::UnitTrilInverseOp op, mlir::Value row,
                       int64_t rows);

  mlir::OpBuilder b;
  mlir::Location loc;
  const Plan &plan;
  int64_t width;
  mlir::Value scratch, programId;
  mlir::IRMapping scalars; // scalars and refs, i64 for index
  llvm::DenseMap<mlir::Value, mlir::Value> cache; // row factors of one row
  // Elements from a load to the same load in the next iteration of its loop.
  llvm::DenseMap<mlir::Operation *, mlir::Value> ahead;
};

} // namespace kdac::host

#endif // KDAC_CONVERSION_TILETOHOSTEMITTER_H
