// States that a step kernel writes through shared memory: a warp puts its
// columns there as they are to lie in memory, and one of its lanes has them
// copied. What the multiprocessor loads meanwhile, for the output or for the
// next program, does not queue up behind stores that wait for memory.
#include "GpuLowering.h"

using namespace mlir;

namespace kdac {

tile::PlaceAttr GpuLowering::bulkPlace(tile::StoreOp op) {
  auto places = op->getAttrOfType<ArrayAttr>(tile::kPlaceAttr);
  return places ? cast<tile::PlaceAttr>(places[0]) : tile::PlaceAttr();
}

void GpuLowering::storeInBulk(tile::StoreOp op) {
  auto type = cast<RankedTensorType>(op.getValue().getType());
  Type element = type.getElementType();
  int64_t offset = bulkPlace(op).getOffset(), bytes = bytesOf(element);
  int64_t rows = type.getDimSize(0);
  int64_t share = type.getNumElements() / warps; // elements of a warp
  ArrayRef<Group> groups = distributed(type.getShape()).groups;
  auto elements = llvm::map_to_vector(groups, [&](const Group &group) {
    return evaluate(roundedSource(op.getValue()), group);
  });
  OpBuilder::InsertionGuard guard(b);
  auto branch = scf::IfOp::create(b, presence(op.getRef()), /*withElse=*/false);
  b.setInsertionPointToStart(branch.thenBlock());
  for (auto [group, values] : llvm::zip(groups, elements))
    b.store(values, sharedAddress(offset, rows, element, group.col, group.row),
            element, group.width * bytes);
  b.proxyFence();
  b.warpSync();
  auto speaks = scf::IfOp::create(b, b.equal(lane, b.i32(0)), false);
  b.setInsertionPointToStart(speaks.thenBlock());
  Value first = b.mul(warp, share);
  Value from = b.bytes(sharedBase, b.mul(first, bytes), offset);
  Value to = b.pointer(
      scalars.lookup(op.getRef()),
      b.add(b.toI64(scalars.lookup(op.getBase())), b.toI64(first)), element);
  b.bulkStore(LLVM::PtrToIntOp::create(b, b.getI64Type(), to), b.address(from),
              share * bytes);
}

bool GpuLowering::storesInBulk() {
  return kernel
      .walk([](tile::StoreOp op) {
        return bulkPlace(op) ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

void GpuLowering::awaitBulkStores() {
  if (storesInBulk())
    b.waitBulkStores(0, /*read=*/true);
}

} // namespace kdac
