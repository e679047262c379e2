// Verifiers of the tile dialect. Labels are those of dialect/Tile/SPEC.md.
#include "kdac/Dialect/Tile.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace kdac::tile;

#include "kdac/Dialect/TileDialect.cpp.inc"
#include "kdac/Dialect/TileEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "kdac/Dialect/TileAttrs.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "kdac/Dialect/TileTypes.cpp.inc"
#define GET_OP_CLASSES
#include "kdac/Dialect/TileOps.cpp.inc"

void TileDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "kdac/Dialect/TileAttrs.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "kdac/Dialect/TileTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "kdac/Dialect/TileOps.cpp.inc"
      >();
}

int64_t kdac::tile::bytesOf(Type element) {
  return isa<FloatTF32Type>(element) ? 4 : element.getIntOrFloatBitWidth() / 8;
}

bool kdac::tile::multipliesByThreads(Type operand) { return operand.isF32(); }

static RankedTensorType tensorType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

bool kdac::tile::hasWarpRoles(ScheduleAttr schedule) {
  StringRef roles = schedule.getRoles();
  return roles == "warps" || roles == "cluster" || roles == "assisted" ||
         roles == "prepare" || roles == "chain";
}

bool kdac::tile::multipliesByWarpgroups(ScheduleAttr schedule) {
  return schedule.getRoles() == "warpgroups";
}

bool kdac::tile::isAssisted(ScheduleAttr schedule) {
  return schedule.getRoles() == "assisted";
}

int64_t kdac::tile::clusterBlocks(ScheduleAttr schedule) {
  if (isAssisted(schedule))
    return kAssistedPrograms + 1;
  return schedule.getRoles() == "cluster" ? kClusterBlocks : 1;
}

int64_t kdac::tile::programCopies(ScheduleAttr schedule) {
  if (isAssisted(schedule))
    return kAssistedPrograms;
  return schedule.getRoles() == "warps" ? 2 : 1;
}

bool kdac::tile::isOneRow(ScheduleAttr schedule) {
  return schedule.getForm() == "rows" && schedule.getChunk() == 1;
}

bool kdac::tile::loopsOverTiles(ScheduleAttr schedule) {
  StringRef form = schedule.getForm();
  return form == "chunk" || form == "attention" || form == "matmul";
}

int64_t kdac::tile::chainWarpgroups(ScheduleAttr schedule) {
  return schedule.getRoles() == "prepare" ? 0
                                          : schedule.getVTile() / kChainColumns;
}

int64_t kdac::tile::preparePairs(ScheduleAttr schedule) {
  if (schedule.getRoles() == "chain")
    return 0;
  return 2 * (schedule.getWarps() / 4 - chainWarpgroups(schedule) - 1);
}

bool kdac::tile::isOfChannels(LoadOp load, ScheduleAttr schedule) {
  auto type = load.getResult().getType();
  return type.getRank() == 1 && type.getDimSize(0) != schedule.getChunk();
}

int64_t kdac::tile::assistantPairs(ScheduleAttr schedule) {
  return isAssisted(schedule) ? schedule.getStages() : 0;
}

int64_t kdac::tile::prepareTurn(ScheduleAttr schedule) {
  int64_t pairs = preparePairs(schedule);
  if (isAssisted(schedule))
    return pairs / (kAssistedPeriod - 1) * kAssistedPeriod;
  return clusterBlocks(schedule) * pairs;
}

int64_t kdac::tile::imageBytes(int64_t keyDim, ScheduleAttr schedule) {
  int64_t chunk = schedule.getChunk();
  int64_t diagonals = schedule.getRefined() ? 2 * chunk * 4 : 0;
  return 3 * chunk * keyDim * 2 + 2 * chunk * chunk * 2 + keyDim * 4 +
         diagonals;
}

LogicalResult ScheduleAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                   StringRef target, StringRef form,
                                   int64_t chunk, int64_t leaf, int64_t vTile,
                                   int64_t warps, int64_t stages, Type operand,
                                   Type gram, StringRef roles, bool refined) {
  // schedule C1
  if (form != "chunk" && form != "step" && form != "rows" &&
      form != "attention" && form != "matmul")
    return emitError() << "expected form \"chunk\", \"step\", \"rows\", "
                          "\"attention\" or \"matmul\", but got \""
                       << form << "\"";
  // schedule C2
  auto isPowerOfTwo = [](int64_t x) { return x > 0 && (x & (x - 1)) == 0; };
  if (!isPowerOfTwo(chunk) || !isPowerOfTwo(leaf) || leaf > chunk)
    return emitError() << "expected powers of two with leaf <= chunk, but got "
                          "chunk "
                       << chunk << " and leaf " << leaf;
  // schedule C3
  if (vTile < 1 || warps < 1 || stages < 1 || stages > 8)
    return emitError() << "expected a positive v_tile and warps and 1 to 8 "
                          "stages, but got "
                       << vTile << ", " << warps << " and " << stages;
  // schedule C4
  for (Type type : {operand, gram})
    if (!type.isF32() && !type.isBF16() && !type.isF16() &&
        !isa<FloatTF32Type>(type))
      return emitError()
             << "expected operand and gram of bf16, f16, tf32 or f32, but got "
             << type;
  // schedule C5
  if (!llvm::is_contained({"fused", "split", "warps", "cluster", "assisted",
                           "prepare", "chain", "warpgroups"},
                          roles))
    return emitError() << "expected roles \"fused\", \"split\", \"warps\", "
                          "\"cluster\", \"assisted\", \"prepare\", \"chain\" "
                          "or \"warpgroups\", but got \""
                       << roles << "\"";
  // schedule C6
  if (roles == "cluster" && stages % kClusterBlocks != 0)
    return emitError() << "expected stages that " << kClusterBlocks
                       << " blocks of a cluster share evenly, but got "
                       << stages;
  if (roles == "assisted" &&
      (stages != 2 * kAssistedPrograms || vTile != 2 * kChainColumns))
    return emitError() << "expected " << 2 * kAssistedPrograms
                       << " stages, two for each program of an assistant, and "
                       << 2 * kChainColumns << " columns of V, but got "
                       << stages << " and " << vTile;
  // schedule C7
  bool hasRoles = roles != "fused" && roles != "split" && chunk > 1;
  if (refined && !(hasRoles && operand.isBF16()))
    return emitError() << "expected roles as warps and bf16 operands where "
                          "products are refined, but got roles \""
                       << roles << "\" and operand " << operand;
  return success();
}

LogicalResult ViewOp::verify() {
  // view C1
  if (!getRef().getType().getElementType().isInteger(8))
    return emitOpError() << "expected a ref of i8 to view, but got "
                         << getRef().getType();
  // view C2
  int64_t offset = getOffset();
  if (offset < 0 || offset % 16 != 0)
    return emitOpError()
           << "expected an offset that is a multiple of 16, but got " << offset;
  return success();
}

LogicalResult LongestOp::verify() {
  // longest C1
  Type element = getOffsets().getType().getElementType();
  if (!element.isInteger(32) && !element.isInteger(64))
    return emitOpError() << "expected offsets of i32 or i64, but got "
                         << element;
  return success();
}

LogicalResult CheckSlotsOp::verify() {
  // check_slots C1
  auto element = [](TypedValue<RefType> ref) {
    return ref.getType().getElementType();
  };
  if (!element(getStatus()).isInteger(64))
    return emitOpError() << "expected a status of i64, but got "
                         << getStatus().getType();
  // check_slots C2
  SmallVector<Type> indices = {element(getSlots()), element(getSources()),
                               element(getOffsets())};
  if (getSnapshots())
    indices.push_back(element(getSnapshots()));
  for (Type type : indices)
    if (!type.isInteger(32) && !type.isInteger(64))
      return emitOpError() << "expected indices of i32 or i64, but got "
                           << type;
  return success();
}

LogicalResult LoadScalarOp::verify() {
  // load_scalar C1
  Type element = getRef().getType().getElementType();
  bool isInteger = element.isInteger(32) || element.isInteger(64);
  Type expected = isInteger ? Type(IndexType::get(getContext()))
                            : Type(Float32Type::get(getContext()));
  if (getResult().getType() != expected || getOtherwise().getType() != expected)
    return emitOpError() << "expected result and default of type " << expected
                         << " for element type " << element << ", but got "
                         << getResult().getType() << " and "
                         << getOtherwise().getType();
  return success();
}

/// Constraints shared by tile.load and tile.store.
static LogicalResult verifyAccess(Operation *op, RankedTensorType tile,
                                  RefType ref, size_t valid, int64_t align,
                                  bool transposed) {
  // access C1
  if (tile.getElementType() != ref.getElementType())
    return op->emitOpError() << "expected a tile of " << ref.getElementType()
                             << ", but got " << tile;
  // access C2
  if (tile.getRank() < 1 || tile.getRank() > 2 ||
      valid != static_cast<size_t>(tile.getRank()))
    return op->emitOpError()
           << "expected rank 1 or 2 and one valid size per dimension, but got "
           << tile << " and " << valid;
  // access C3
  if (transposed && tile.getRank() != 2)
    return op->emitOpError()
           << "expected a tile of rank 2 to transpose, but got " << tile;
  // access C4
  if (align < 1 || align > 16 || (align & (align - 1)) != 0)
    return op->emitOpError()
           << "expected an alignment of 1, 2, 4, 8 or 16 bytes, but got "
           << align;
  return success();
}

LogicalResult LoadOp::verify() {
  // access C5
  bool picks = static_cast<bool>(getOrder());
  for (Value number : {getFirst(), getEach(), getCount()})
    if (static_cast<bool>(number) != picks)
      return emitOpError() << "expected order, first, each and count together";
  // access C6
  if (picks && (tensorType(getResult()).getRank() != 2 || getTransposed() ||
                !getOrder().getType().getElementType().isInteger(32)))
    return emitOpError() << "expected i32 numbers of rows that are not "
                            "transposed, but got "
                         << getOrder().getType() << " for "
                         << tensorType(getResult());
  // access C7
  if (getEntry() && tensorType(getResult()).getRank() != 1)
    return emitOpError() << "expected entries in a vector, but got "
                         << tensorType(getResult());
  return verifyAccess(*this, tensorType(getResult()), getRef().getType(),
                      getValid().size(), getAlign(), getTransposed());
}

LogicalResult StoreOp::verify() {
  return verifyAccess(*this, tensorType(getValue()), getRef().getType(),
                      getValid().size(), getAlign(), getTransposed());
}

LogicalResult BroadcastOp::verify() {
  // broadcast C1
  RankedTensorType in = tensorType(getInput()), out = tensorType(getResult());
  int64_t along = getAlong();
  if (in.getRank() != 1 || out.getRank() != 2 || along < 0 || along > 1 ||
      in.getDimSize(0) != out.getDimSize(along) ||
      in.getElementType() != out.getElementType())
    return emitOpError() << "expected a vector of the tile's size along "
                         << along << ", but got " << in << " and " << out;
  return success();
}

LogicalResult WindowOp::verify() {
  RankedTensorType in = tensorType(getInput()), out = tensorType(getResult());
  // window C1
  if (in.getRank() != 2 || out.getRank() != 2 ||
      in.getDimSize(1) != out.getDimSize(1))
    return emitOpError() << "expected tiles with as many columns, but got "
                         << in << " and " << out;
  // window C2
  int64_t first = getFirst();
  if (first < 0 || first + out.getDimSize(0) > in.getDimSize(0))
    return emitOpError() << "expected rows of " << in << ", but got "
                         << out.getDimSize(0) << " from row " << first << " on";
  return success();
}

LogicalResult RowOp::verify() {
  // row C1
  RankedTensorType in = tensorType(getInput());
  int64_t index = getIndex();
  if (in.getRank() < 1 || in.getRank() > 2 || index < 0 ||
      index >= in.getDimSize(0))
    return emitOpError() << "expected a row of the tile, but got row " << index
                         << " of " << in;
  // row C2
  Type expected = in.getElementType();
  if (in.getRank() == 2)
    expected = RankedTensorType::get(in.getShape().drop_front(), expected);
  if (getResult().getType() != expected)
    return emitOpError() << "expected result " << expected << ", but got "
                         << getResult().getType();
  return success();
}

LogicalResult ReduceOp::verify() {
  // reduce C1
  RankedTensorType in = tensorType(getInput());
  int64_t along = getAlong();
  if (in.getRank() < 1 || in.getRank() > 2 || along < 0 ||
      along >= in.getRank())
    return emitOpError() << "expected rank 1 or 2 and a dimension of the tile, "
                            "but got "
                         << in << " and " << along;
  // reduce C2
  Type expected = in.getElementType();
  if (in.getRank() == 2)
    expected = RankedTensorType::get({in.getDimSize(1 - along)}, expected);
  if (getResult().getType() != expected)
    return emitOpError() << "expected result " << expected << ", but got "
                         << getResult().getType();
  return success();
}

LogicalResult DotOp::verify() {
  RankedTensorType a = tensorType(getA()), b = tensorType(getB());
  RankedTensorType c = tensorType(getResult());
  // dot C1
  if (a.getRank() != 2 || b.getRank() != 2 || c.getRank() != 2)
    return emitOpError() << "expected tiles of rank 2, but got " << a << ", "
                         << b << " and " << c;
  // dot C2
  Type element = a.getElementType();
  if (b.getElementType() != element ||
      !(element.isBF16() || element.isF16() || element.isF32() ||
        isa<FloatTF32Type>(element)))
    return emitOpError() << "expected operands of one type out of bf16, f16, "
                            "tf32 and f32, but got "
                         << a.getElementType() << " and " << b.getElementType();
  // dot C3
  int64_t m = a.getDimSize(getTransA()), ka = a.getDimSize(!getTransA());
  int64_t kb = b.getDimSize(getTransB()), n = b.getDimSize(!getTransB());
  if (ka != kb || c.getDimSize(0) != m || c.getDimSize(1) != n)
    return emitOpError() << "expected (m x k) (k x n) -> (m x n), but got ("
                         << m << " x " << ka << ") (" << kb << " x " << n
                         << ") -> " << c;
  // dot C4
  if (getAcc() && getAcc().getType() != c)
    return emitOpError() << "expected an accumulator of type " << c
                         << ", but got " << getAcc().getType();
  return success();
}

LogicalResult DecayedGramOp::verify() {
  RankedTensorType y = tensorType(getRhs());
  // decayed_gram C1
  if (y.getRank() != 2 ||
      llvm::any_of(getLhs(), [&](Value x) { return x.getType() != y; }))
    return emitOpError() << "expected left and right sides of one rank-2 type, "
                            "but got a right side "
                         << y;
  // decayed_gram C2
  if (getLhs().empty() || getLhs().size() != getResults().size() ||
      getLhs().size() != getStrict().size())
    return emitOpError() << "expected one result and one strict flag per left "
                            "side, but got "
                         << getLhs().size() << ", " << getResults().size()
                         << " and " << getStrict().size();
  // decayed_gram C3
  int64_t rows = y.getDimSize(0);
  auto square = RankedTensorType::get({rows, rows}, y.getElementType());
  for (Value result : getResults())
    if (result.getType() != square)
      return emitOpError() << "expected results of type " << square
                           << ", but got " << result.getType();
  // decayed_gram C4
  int64_t leaf = getLeaf();
  if (leaf < 1 || leaf > rows || (leaf & (leaf - 1)) != 0 ||
      (rows & (rows - 1)) != 0)
    return emitOpError() << "expected powers of two with leaf <= rows, but got "
                            "leaf "
                         << leaf << " and " << rows << " rows";
  return success();
}

LogicalResult UnitTrilInverseOp::verify() {
  // unit_tril_inverse C1
  RankedTensorType type = tensorType(getInput());
  if (type.getRank() != 2 || type.getDimSize(0) != type.getDimSize(1))
    return emitOpError() << "expected a square tile, but got " << type;
  return success();
}
