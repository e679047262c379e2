// Placement under roles = "warpgroups": what products read from memory lies in
// panels, left sides in front of the loops alone, tiles of a loop in rings. The
// loops that go through a sequence's keys one after the other have the same
// rings, since their turns overlap. All else is in the registers of the
// warpgroup that multiplies it.
#include "PlaceTurns.h"
#include "kdac/Dialect/Tile.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace kdac {

using tile::Home;

static RankedTensorType tileType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

static void set(Operation *op, Home home, int64_t offset = 0, int64_t pitch = 0,
                int64_t stages = 1, int64_t stride = 0) {
  Attribute place = tile::PlaceAttr::get(op->getContext(), home, offset, pitch,
                                         stages, stride);
  op->setAttr(tile::kPlaceAttr, ArrayAttr::get(op->getContext(), place));
}

/// Puts the tiles of `loads` side by side from `bytes` on, `stages` of each;
/// returns where they end.
static int64_t placePanels(ArrayRef<tile::LoadOp> loads, int64_t bytes,
                           int64_t stages) {
  constexpr int64_t panelColumns = 64, rowBytes = 128;
  for (tile::LoadOp load : loads) {
    RankedTensorType type = load.getResult().getType();
    int64_t pitch = type.getDimSize(0) * rowBytes;
    int64_t all = type.getDimSize(1) / panelColumns * pitch;
    set(load, Home::Panels, bytes, pitch, stages, stages > 1 ? all : 0);
    bytes += stages * all;
  }
  return bytes;
}

static bool isOperand(tile::LoadOp load) {
  return llvm::any_of(load.getResult().getUsers(), llvm::IsaPred<tile::DotOp>);
}

static SmallVector<tile::LoadOp> operandsIn(Block &block) {
  SmallVector<tile::LoadOp> loads;
  for (auto load : block.getOps<tile::LoadOp>())
    if (isOperand(load))
      loads.push_back(load);
  return loads;
}

/// A number a row and what products make stay with their threads.
static void placeRest(Operation *op) {
  if (op->getNumResults() != 1 || op->hasTrait<OpTrait::ConstantLike>() ||
      !isa<RankedTensorType>(op->getResult(0).getType()) ||
      op->hasAttr(tile::kPlaceAttr))
    return;
  bool isInLoop = isa<scf::ForOp>(op->getParentOp());
  bool isKept = isa<tile::DotOp, tile::ReduceOp>(op) ||
                (isInLoop && tileType(op->getResult(0)).getRank() == 1);
  set(op, isKept ? Home::Registers : Home::Inline);
}

void placeTurns(func::FuncOp kernel) {
  auto schedule =
      kernel->getAttrOfType<tile::ScheduleAttr>(tile::kScheduleAttr);
  int64_t ring = placePanels(operandsIn(kernel.getBody().front()), 0, 1);
  int64_t bytes = ring;
  kernel.walk([&](scf::ForOp loop) {
    bytes = std::max(bytes, placePanels(operandsIn(*loop.getBody()), ring,
                                        schedule.getStages()));
  });
  kernel.walk([](Operation *op) {
    if (!isa<scf::ForOp, func::FuncOp>(op))
      placeRest(op);
  });
  OpBuilder b(kernel);
  kernel->setAttr("kdac.shared_bytes", b.getI64IntegerAttr(bytes));
  kernel->setAttr("kdac.block_threads",
                  b.getI64IntegerAttr(32 * schedule.getWarps()));
}

} // namespace kdac
