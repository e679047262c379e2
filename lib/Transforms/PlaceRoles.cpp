// Placement of kernels whose roles are warps: rings of images between them.
//
// One image holds what the chain takes from prepare for one chunk. The raw rows
// of q, k and g land in the panels that their products replace, so that an
// image is the only memory a chunk needs; v and the output share a second ring.
// Of g in 32 bits the place holds what prepare makes of it, in 16.
#include "PlaceRoles.h"
#include "Roles.h"
#include "kdac/Dialect/PrepareScratch.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace kdac {

namespace {

using tile::Home;

/// wgmma reads 16-bit operands from panels of 64 columns.
constexpr int64_t kPanelColumns = 64, kRowBytes = 128;
constexpr int64_t kAlignment = 1024; ///< of a panel: the swizzle repeats there
constexpr int64_t kValueStages = 3;  ///< v two chunks ahead, output behind
constexpr int64_t kBarrierBytes = 8;
constexpr int64_t kCopyBytes = 16; ///< of one asynchronous copy

class RolePlacer {
public:
  explicit RolePlacer(func::FuncOp kernel)
      : kernel(kernel), loop(*kernel.getOps<scf::ForOp>().begin()),
        schedule(
            kernel->getAttrOfType<tile::ScheduleAttr>(tile::kScheduleAttr)) {}

  void place();

private:
  static RankedTensorType type(Value value) {
    return cast<RankedTensorType>(value.getType());
  }
  int64_t panelBytes(Value value) const {
    return type(value).getDimSize(0) * kRowBytes;
  }
  void set(Value value, Home home, int64_t offset = 0, int64_t pitch = 0,
           int64_t stages = 1, int64_t stride = 0);
  void placeImages();
  Value rawRows(Value part);
  void placeValues();
  tile::LoadOp initialState();
  bool isOfPool(tile::LoadOp state);
  void placeState();
  void placeVectors();
  void placeScratch();
  void placeScalars();
  void placeRest();
  void placeRegisters();

  func::FuncOp kernel;
  scf::ForOp loop;
  tile::ScheduleAttr schedule;
  llvm::SetVector<Value> taken; ///< raw tiles that a part has replaced
  tile::LoadOp staged;          ///< the state's, if shared memory has it first
  int64_t bytes = 0;
};

} // namespace

void RolePlacer::set(Value value, Home home, int64_t offset, int64_t pitch,
                     int64_t stages, int64_t stride) {
  Operation *op = value.getDefiningOp();
  MLIRContext *context = op->getContext();
  auto old = op->getAttrOfType<ArrayAttr>(tile::kPlaceAttr);
  SmallVector<Attribute> places(
      op->getNumResults(),
      tile::PlaceAttr::get(context, Home::Inline, 0, 0, 1, 0));
  if (old)
    places.assign(old.begin(), old.end());
  places[cast<OpResult>(value).getResultNumber()] =
      tile::PlaceAttr::get(context, home, offset, pitch, stages, stride);
  op->setAttr(tile::kPlaceAttr, ArrayAttr::get(context, places));
}

/// The loaded tile whose bytes `part` takes: the first one that it is computed
/// from, of its shape, and that no other part has taken.
Value RolePlacer::rawRows(Value part) {
  llvm::SetVector<Value> seen;
  SmallVector<Value> pending = {part};
  for (size_t i = 0; i < pending.size(); ++i) {
    Operation *source = pending[i].getDefiningOp();
    if (!source || source->getBlock() != loop.getBody() ||
        !seen.insert(pending[i]))
      continue;
    if (isa<tile::LoadOp>(source) && !taken.contains(pending[i]) &&
        type(pending[i]).getShape() == type(part).getShape())
      return pending[i];
    llvm::append_range(pending, source->getOperands());
  }
  return {};
}

void RolePlacer::placeImages() {
  int64_t offset = 0;
  SmallVector<std::tuple<Value, int64_t, int64_t>> parts; // offset, pitch
  int64_t chunk = schedule.getChunk();
  SmallVector<Value> squares, vectors;
  for (Value part : passedOn(loop)) {
    if (type(part).getRank() == 1)
      vectors.push_back(part);
    else if (type(part).getDimSize(1) == chunk)
      squares.push_back(part);
    else {
      int64_t pitch = panelBytes(part);
      parts.push_back({part, offset, pitch});
      if (Value raw = rawRows(part)) {
        taken.insert(raw);
        parts.push_back({raw, offset, pitch});
      }
      offset += type(part).getDimSize(1) / kPanelColumns * pitch;
    }
  }
  // Square tiles stand side by side in the rows of one panel.
  int64_t column = 0;
  for (Value part : squares) {
    parts.push_back({part, offset + column, chunk * kRowBytes});
    column += chunk * tile::bytesOf(type(part).getElementType());
  }
  offset += squares.empty() ? 0 : chunk * kRowBytes;
  for (Value part : vectors) {
    parts.push_back({part, offset, 0});
    offset +=
        type(part).getDimSize(0) * tile::bytesOf(type(part).getElementType());
  }
  int64_t stride = llvm::alignTo(offset, kAlignment);
  int64_t keyDim = type(loop.getResult(0)).getDimSize(0);
  if (offset > tile::imageBytes(keyDim, schedule))
    llvm::report_fatal_error("an image is larger than its place in workspaces");
  // Raw rows that no part replaces stand behind what images pass on.
  for (auto load : loop.getOps<tile::LoadOp>()) {
    Value raw = load.getResult();
    auto role = load->getAttrOfType<StringAttr>(tile::kRoleAttr);
    if (type(raw).getRank() != 2 || role.getValue() != tile::kPrepareRole ||
        !taken.insert(raw))
      continue;
    stride = llvm::alignTo(stride, kAlignment);
    parts.push_back({raw, stride, panelBytes(raw)});
    stride += type(raw).getDimSize(1) / kPanelColumns * panelBytes(raw);
  }
  OpBuilder b(kernel);
  kernel->setAttr("tile.image",
                  b.getDenseI64ArrayAttr({bytes, offset, stride}));
  for (auto [value, at, pitch] : parts)
    set(value, pitch ? Home::Panels : Home::Shared, bytes + at, pitch,
        schedule.getStages(), stride);
  bytes += schedule.getStages() * stride;
}

/// The chain's own loads and stores: v comes in, the output goes out in the
/// same bytes.
void RolePlacer::placeValues() {
  int64_t stride = 0;
  for (Operation &op : loop.getBody()->without_terminator()) {
    Value value;
    if (auto load = dyn_cast<tile::LoadOp>(op);
        load && type(load.getResult()).getRank() == 2 &&
        !taken.contains(load.getResult()))
      value = load.getResult();
    if (auto store = dyn_cast<tile::StoreOp>(op))
      value = store.getValue();
    if (!value)
      continue;
    int64_t pitch = panelBytes(value);
    stride = type(value).getDimSize(1) / kPanelColumns * pitch;
    set(value, Home::Panels, bytes, pitch, kValueStages, stride);
  }
  if (tile::chainWarpgroups(schedule) > 0)
    bytes += kValueStages * stride;
}

tile::LoadOp RolePlacer::initialState() {
  tile::LoadOp load;
  for (auto candidate : kernel.getOps<tile::LoadOp>())
    if (candidate->isBeforeInBlock(loop) &&
        type(candidate.getResult()).getRank() == 2)
      load = candidate;
  return load;
}

/// A pool's state is found through indices that are checked: more scalars than
/// transfer warps have registers for beside the state's copies, or beside what
/// a follower needs.
bool RolePlacer::isOfPool(tile::LoadOp state) {
  return state && state.getRef().getDefiningOp<tile::GuardOp>();
}

/// Where images are prepared, the initial state comes behind the first rows, to
/// bytes of the rings that are filled after them: those of the last images and
/// of v. Rows (of columns where it is transposed) are 16 or 32 bytes further
/// apart than they are long, so that the chain's reads of accumulators meet no
/// bank twice. The chain itself loads other elements than f32, rows of unknown
/// alignment, states of pools, and what a program beside an assistant begins
/// with: those are of many chunks, one a multiprocessor.
void RolePlacer::placeState() {
  tile::LoadOp load = initialState();
  if (!load || isOfPool(load) ||
      !type(load.getResult()).getElementType().isF32() ||
      load.getAlign() < kCopyBytes || tile::preparePairs(schedule) == 0 ||
      tile::chainWarpgroups(schedule) == 0 || tile::isAssisted(schedule))
    return;
  bool transposed = load.getTransposed();
  ArrayRef<int64_t> shape = type(load.getResult()).getShape();
  int64_t pitch = shape[transposed ? 0 : 1] * 4 + (transposed ? 32 : 16);
  int64_t offset =
      llvm::alignDown(bytes - shape[transposed ? 1 : 0] * pitch, kCopyBytes);
  auto image = kernel->getAttrOfType<DenseI64ArrayAttr>("tile.image");
  // Chunks whose rows have been asked for by then, the last of them beside the
  // first v.
  int64_t before = schedule.getStages() - kValueStages + 1;
  if (offset < image[0] + before * image[2])
    return;
  set(load.getResult(), Home::Staged, offset, pitch);
  staged = load;
}

/// Vectors of a head's channels, such as the gate's bias: those that the whole
/// kernel reads, a follower's are not kept, and those of a turn, of which each
/// pair has its own.
void RolePlacer::placeVectors() {
  auto place = [&](tile::LoadOp load, int64_t copies) {
    set(load.getResult(), Home::Shared, bytes);
    bytes += copies * type(load.getResult()).getDimSize(0) * 4;
  };
  for (auto load : kernel.getOps<tile::LoadOp>())
    if (type(load.getResult()).getRank() == 1)
      place(load,
            tile::isAssisted(schedule) ? tile::programCopies(schedule) : 1);
  for (auto load : loop.getOps<tile::LoadOp>())
    if (tile::isOfChannels(load, schedule))
      place(load, tile::preparePairs(schedule));
}

void RolePlacer::placeScratch() {
  OpBuilder b(kernel);
  int64_t keyDim = type(loop.getResult(0)).getDimSize(0);
  int64_t scratch = llvm::alignTo(
      tile::PrepareScratch(keyDim, schedule.getChunk(), schedule.getLeaf())
          .bytes,
      16);
  kernel->setAttr("tile.scratch", b.getDenseI64ArrayAttr({bytes, scratch}));
  bytes += std::max<int64_t>(1, tile::preparePairs(schedule)) * scratch;
  kernel->setAttr("tile.barriers", b.getI64IntegerAttr(bytes));
  // Rows loaded, image prepared, in a cluster also awaited, of an assistant
  // taken; v loaded, output made; those of the initial state last.
  int64_t stages = schedule.getStages();
  int64_t count = std::max(stages, tile::prepareTurn(schedule)) + stages;
  if (tile::clusterBlocks(schedule) > 1)
    count += stages;
  if (tile::isAssisted(schedule))
    count += stages;
  if (staged)
    count += 2; // the state is there, and gone
  bytes += (count + 2 * kValueStages) * kBarrierBytes;
}

/// Scalars made before the chunk loop and used by roles, in it or after it or
/// for the state: every role reads them from shared memory when it needs them.
/// What all roles kept in registers would have to fit those of the smallest.
void RolePlacer::placeScalars() {
  OpBuilder b(kernel);
  bytes = llvm::alignTo(bytes, 8);
  int64_t first = bytes;
  int64_t half = 0; // the unused one behind a 32-bit scalar
  for (Operation &op : kernel.getBody().front()) {
    if (&op == loop.getOperation())
      break;
    bool isUsed = llvm::any_of(op.getUsers(), [&](Operation *user) {
      return user == loop || user == staged || loop->isAncestor(user) ||
             loop->isBeforeInBlock(user);
    });
    if (op.getNumResults() != 1 || op.hasTrait<OpTrait::ConstantLike>() ||
        isa<RankedTensorType>(op.getResult(0).getType()) || !isUsed)
      continue;
    bool isShort = op.getResult(0).getType().isF32();
    if (isShort && half) {
      op.setAttr("tile.scalar", b.getI64IntegerAttr(half));
      half = 0;
      continue;
    }
    op.setAttr("tile.scalar", b.getI64IntegerAttr(bytes));
    half = isShort ? bytes + 4 : half;
    bytes += 8;
  }
  int64_t each = bytes - first, copies = tile::programCopies(schedule);
  if (!tile::isAssisted(schedule) && isOfPool(initialState()))
    copies = 1; // none of a follower
  if (copies > 1)
    kernel->setAttr("tile.scalar_bytes", b.getI64IntegerAttr(each));
  bytes += (copies - 1) * each;
}

/// The chain's products and the carried state live in registers; all else is
/// recomputed where it is consumed.
void RolePlacer::placeRest() {
  kernel.walk([&](Operation *op) {
    if (isa<scf::ForOp, func::FuncOp>(op) ||
        op->hasTrait<OpTrait::ConstantLike>())
      return;
    for (Value result : op->getResults()) {
      if (!isa<RankedTensorType>(result.getType()) ||
          op->hasAttr(tile::kPlaceAttr))
        return;
      bool isState = isa<tile::LoadOp>(op) && type(result).getRank() == 2;
      auto role = op->getAttrOfType<StringAttr>(tile::kRoleAttr);
      bool isChain = role && role.getValue() == tile::kChainRole;
      bool inRegisters = (isa<tile::DotOp>(op) && isChain) || isState;
      set(result, inRegisters ? Home::Registers : Home::Inline);
    }
  });
}

/// Registers of a thread of the chain, of prepare and of transfer, and of all
/// at launch, when an SM's 64 Ki registers are shared out evenly in steps of 8.
/// What the first two give up or the third never had the chain may take; where
/// the chain is alone, or not there, an even share is enough.
void RolePlacer::placeRegisters() {
  int64_t warpgroups = schedule.getWarps() / 4;
  int64_t launch = 65536 / 128 / warpgroups / 8 * 8;
  SmallVector<int64_t> budget = {152, 72, 32, launch};
  bool areAll =
      tile::chainWarpgroups(schedule) > 0 && tile::preparePairs(schedule) > 0;
  if (!areAll)
    budget.assign(4, launch);
  else if (schedule.getVTile() == tile::kChainColumns)
    budget = {160, 88, 56, launch};
  kernel->setAttr("tile.registers",
                  DenseI64ArrayAttr::get(kernel.getContext(), budget));
}

void RolePlacer::place() {
  placeRegisters();
  placeImages();
  placeValues();
  placeState();
  placeVectors();
  placeScratch();
  placeScalars();
  placeRest();
  OpBuilder b(kernel);
  kernel->setAttr("kdac.shared_bytes", b.getI64IntegerAttr(bytes));
  kernel->setAttr("kdac.block_threads",
                  b.getI64IntegerAttr(32 * schedule.getWarps()));
}

void placeRoles(func::FuncOp kernel) { RolePlacer(kernel).place(); }

} // namespace kdac
