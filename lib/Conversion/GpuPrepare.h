// Promises: the prepare role of a kernel whose roles are warps, as one class.
// Does not: say what belongs to the role (tile-split-roles).
#ifndef KDAC_LIB_CONVERSION_GPUPREPARE_H
#define KDAC_LIB_CONVERSION_GPUPREPARE_H

#include "GpuRoles.h"
#include "kdac/Dialect/PrepareScratch.h"

namespace kdac {

class ChunkPreparer {
public:
  /// `assists`: in a block that only prepares, for several programs.
  explicit ChunkPreparer(RoleLowering &roles, bool assists = false)
      : roles(roles), at(roles.at), b(roles.b), parts(roles.parts),
        assists(assists), slices(roles.keyDim() / 16),
        layout(roles.keyDim(), roles.chunkRows(), at.schedule.getLeaf()) {}
  void run();

private:
  using Value = mlir::Value;
  using Values = GpuEmitter::Values;

  void locate();
  Value scratchOf(Value pair) const;
  Value firstChunk();
  void chunk(Value &number, Values &bits);
  Values diagonal();
  void park(Value number, llvm::ArrayRef<Value> vectors);
  void unpark(Value &number, Values &vectors);
  Group rowOfLane() const;
  Values vectorsOf(Value number);
  Values elementsOf(llvm::ArrayRef<Value> bits);
  Value evaluateRow(Value expression, llvm::ArrayRef<Value> vectors);

  // Fragments. A slice is 16 columns of the block's 16 rows.
  void enterSlice(Value slice);
  Group rowPairs(int64_t part) const;
  Group tokenPairs(int64_t part) const;
  /// `tile`'s 16x16 elements at `offset`, from sliceAt.
  Values fragment(Value tile, Value offset, bool transposed, int64_t rows = 0);
  void putFragment(Value tile, Value offset, mlir::ValueRange words,
                   int64_t rows = 0);
  llvm::SmallVector<Value> rowsBehind(Value expression) const;
  void readLoads(Value expression, bool tokens,
                 std::optional<int64_t> half = {});
  Value ownHalf(int64_t half) const;
  Value sliceAt(Value slice, Value rows) const;
  Value scratchAt(int64_t offset, Value bytes = {}, int64_t constant = 0) const;

  //===-- From head to head (GpuPrepareHead.cpp)
  //---------------------------===//
  void placeHead();
  void loadHead(Value number, Values &loaded);
  void enterHead(llvm::ArrayRef<Value> loaded);

  //===-- Norms (GpuPrepareNorms.cpp)
  //----------------------===//
  void sumNorms();
  void rememberNorms();
  void finishNorms();
  void storeOwn(Value at8, Value atQuad);

  //===-- Log-decays (GpuPrepareDecays.cpp)
  //----------------------===//
  double sumScale() const;
  Values scaledDecays(Value input, const Group &group);
  bool storesDecaysAhead() const;
  bool findsDecays() const;
  bool readsDecaysAhead() const;
  Value decayRows() const;
  Values storedDecays(Value slice);
  void storeDecaysOfSlice(llvm::function_ref<void(int64_t)> between);
  Values madeDecays(Value input, llvm::function_ref<void(int64_t)> between);
  Values decays(Value input);
  Values sumDecays(llvm::ArrayRef<Value> sums, llvm::ArrayRef<Value> words);

  //===-- Before the pair meets (GpuPrepareBlock.cpp)
  //----------------------===//
  static constexpr int64_t kDiagonalSums = 12;
  Value triangle(int64_t unit);
  void boundedSlice(Value slice, Values &sums);
  Values takeDecays(Values &sums) const;
  void storeTotals(Value slice, llvm::ArrayRef<Value> exponents);
  void oneAnchor(llvm::ArrayRef<Value> exponents, Values &sums);
  void storeDiagonal(const Values &sums, Value strength);
  void storeSystem(const Values &sums, Value strength);

  //===-- The same without a bound (GpuPrepareUnbounded.cpp)
  //---------------===//
  struct HalfRows;
  struct SliceWords;
  bool isBounded() const { return at.schedule.getLeaf() >= tile::kRoleBlock; }
  void unboundedSlice(Value slice, Values &sums);
  Value tokenFactors(Value &input);
  Value sumWord(Value factors, int64_t tokens);
  Values anchoredDecays(Values &x);
  Value isNear(Value anchored);
  void anchoredSlice(llvm::ArrayRef<Value> anchored, bool isFar, Values &sums);
  Value fromQuarter(Value anchored);
  Value anyFar(llvm::ArrayRef<Value> exponents);
  void addQuarters(llvm::ArrayRef<Value> anchored, Values &sums);
  void halve(llvm::ArrayRef<Value> anchored, Values &sums);
  Value keptFrom(Value kept, Value k, Value own, Value last);
  void addOwn(llvm::ArrayRef<Value> own, Values &sums);
  void round(const HalfRows &rows, int64_t bottom, SliceWords &to);
  Value lifted(Value x);
  Value withoutAnchor(Value pair, bool isLifted = true);
  void lowerSums(Values &sums);
  void addProducts(llvm::ArrayRef<int64_t> to, mlir::ValueRange left,
                   Value right0, Value right1, Values &sums);
  Value times(Value x, Value y);
  Values times(mlir::ValueRange x, mlir::ValueRange y);

  //===-- From logits of 32 bits (GpuPrepareLogits.cpp)
  //---------------------===//
  void storeDecays();
  void askForLogits(Value number);

  //===-- With a decay for every head, or none (GpuPrepareRows.cpp)
  //--------===//
  bool hasChannels() const {
    return parts.decay &&
           mlir::cast<mlir::RankedTensorType>(parts.decay.getResult().getType())
                   .getRank() == 2;
  }
  /// Products of keys with keys are wanted.
  bool hasSystem() const { return static_cast<bool>(parts.inverse); }
  void sumTokens(Value decay);
  void rowSlice(Value slice, Values &sums);
  void decayDiagonal(Values &sums);
  void rowTotals(bool first);
  Value timesOther(Value pair);
  Value tokenSum; ///< lane l: from the block's start to row l % 16
  Values rowStart,
      rowEnd;       ///< 2^ that and 2^(total - that): rows quad, quad + 8
  Value otherBlock; ///< what the pair's other block decays by

  //===-- Without norms, with decays for every channel (GpuPrepareScales.cpp)
  //-------===//
  bool scalesRows() const { return hasChannels() && parts.norms.empty(); }
  void findScales();
  Value scaleAt(bool ofKeys, int64_t half) const;
  Value scaleOf(bool ofKeys, int64_t half) const;
  /// Elements of row quad (`bottom`: quad + 8) times its scale, if it has one.
  Values scaled(const Values &x, bool ofKeys, int64_t bottom);
  Value unscaled(Value pair, bool ofKeys, int64_t bottom);
  void unscaleSums(Values &sums);

  //===-- Afterwards
  //--------------------------------------------------------===//
  void meet();
  void firstBlock();
  void secondBlock();
  Value columnOfTotal(Value entry) const;
  void tables(bool first);
  Values factorsAt(int64_t table, Value slice);
  Value strengthsAt(Value bytes, int64_t constant = 0) const;
  Value vectorAt(Value vector, Value bytes) const;
  Value rowStrength(int64_t first) const;
  void scaleRemaining();
  Values scaleLower();

  //===-- The inverse (GpuPrepareInverse.cpp)
  //-------------------------------===//
  bool isWideInverse() const;
  void invertDiagonal();
  void storeColumn(llvm::ArrayRef<Value> x);
  void storeWideColumn(llvm::ArrayRef<Value> x);
  Values lowerSystem(llvm::ArrayRef<Value> sums);
  void lowerInverse(const Values &lower);
  Values lowerProducts(const Values &lower);
  Values wideLowerProducts(const Values &lower);

  Value word(Value x, Value y, mlir::Type element) {
    return b.pack16(x, y, element);
  }
  void multiply(llvm::MutableArrayRef<Value> sums, mlir::ValueRange a, Value b0,
                Value b1, mlir::Type element);
  Value loadWord(Value pointer) {
    return mlir::LLVM::LoadOp::create(b, b.getI32Type(), pointer, 4);
  }
  mlir::Type bf16() { return b.getBF16Type(); }
  mlir::Type f16() { return b.getF16Type(); }
  mlir::Type tf32() { return b.getTF32Type(); }

  RoleLowering &roles;
  GpuLowering &at;
  GpuEmitter &b;
  PreparedChunk &parts;
  bool assists;
  int64_t slices;
  Value pair, block;      ///< which pair of the program, which block
  Value quad, inQuad;     ///< lane / 4, lane % 4
  Value tileRow, ownRows; ///< this lane's ldmatrix row of a 16x16 tile, bytes;
                          ///< of the first block and of this warp's
  Value scratch;          ///< of this pair, bytes
  Value firstRow, firstToken; ///< 16 block + quad, 16 block + 2 inQuad
  Value buffer;               ///< bytes to this chunk's image
  Value own; ///< of the present slice, bytes to this warp's rows
  Value pairColumn, tokenColumn; ///< and its columns: 2 inQuad, quad
  Values normRows;               ///< of every norm: rows quad and quad + 8
  bool normsFinished = false;    ///< they are the factors of rows
  tile::PrepareScratch layout;   ///< of the scratch
};

} // namespace kdac

#endif // KDAC_LIB_CONVERSION_GPUPREPARE_H
