// How tiles are spread over threads.
#include "GpuLowering.h"

#include "llvm/Support/MathExtras.h"

#include <numeric>

using namespace mlir;

namespace kdac {

/// Fragments of mma.sync accumulators: warps tile rows first. Where warps
/// outnumber tiles the surplus repeats others' work and writes equal values.
Layout GpuLowering::fragments(int64_t rows, int64_t cols) {
  Layout layout;
  int64_t rowTiles = rows / 16, colTiles = cols / 8;
  int64_t rowWarps = std::gcd(rowTiles, warps), colWarps = warps / rowWarps;
  int64_t rowsEach = rowTiles / rowWarps;
  int64_t colsEach = (colTiles + colWarps - 1) / colWarps;
  colsEach += colsEach % 2; // pairs of column tiles share an ldmatrix
  bool even = colTiles == colsEach * colWarps;
  Value quad = b.div(lane, 4), pair = b.mul(b.rem(lane, 4), 2);
  Value rowBase = b.add(b.mul(b.div(warp, colWarps), rowsEach * 16), quad);
  Value firstCol = b.mul(b.rem(warp, colWarps), colsEach);
  for (int64_t i = 0; i < rowsEach; ++i)
    for (int64_t j = 0; j < colsEach; ++j) {
      Coord col{b.add(b.mul(firstCol, 8), pair), 8 * j};
      Value isRepeat;
      if (!even && schedule.getForm() == "attention")
        isRepeat = arith::CmpIOp::create(b, arith::CmpIPredicate::sge,
                                         b.add(firstCol, j), b.i32(colTiles));
      if (!even)
        col = {b.add(b.mul(b.rem(b.add(firstCol, j), colTiles), 8), pair), 0};
      for (int64_t half : {0, 1}) {
        Group group;
        group.row = {rowBase, i * 16 + half * 8};
        group.col = col;
        group.width = 2;
        group.slot = layout.slots;
        group.columnSlot = 2 * i + half;
        group.isRepeat = isRepeat;
        layout.groups.push_back(group);
        layout.slots += 2;
      }
    }
  return layout;
}

int64_t GpuLowering::warpsOfRow(int64_t rows) const {
  return warps / std::gcd(rows / 16, warps);
}

/// A number for each row of fragments, in every thread that has elements of it.
Layout GpuLowering::fragmentRows(int64_t rows) {
  Layout layout;
  int64_t rowsEach = rows / 16 * warpsOfRow(rows) / warps;
  Value base = b.add(b.mul(b.div(warp, warpsOfRow(rows)), rowsEach * 16),
                     b.div(lane, 4));
  for (; layout.slots < 2 * rowsEach; ++layout.slots) {
    Group group;
    group.col = {base, layout.slots * 8};
    group.slot = group.columnSlot = layout.slots;
    layout.groups.push_back(group);
  }
  return layout;
}

/// The state [K, V] of the step form: 16-byte pieces of memory lines per
/// thread, every column within one warp so that sums over K are lane shuffles.
Layout GpuLowering::stateLanes(int64_t rows, int64_t cols) {
  Layout layout;
  int64_t width = 16 / bytesOf(stateElement);
  int64_t colsPerWarp = std::max<int64_t>(1, cols / warps);
  if (!stateIsVFirst)
    colsPerWarp = llvm::alignTo(colsPerWarp, width);
  int64_t rowLanes, colLanes;
  if (stateIsVFirst) {
    rowLanes = 8;
    while (rowLanes > 1 && rows % (rowLanes * width) != 0)
      rowLanes /= 2;
    colLanes = 32 / rowLanes;
  } else {
    colLanes = 1;
    while (colLanes * 2 * width <= colsPerWarp)
      colLanes *= 2;
    rowLanes = 32 / colLanes;
  }
  // Lanes along the contiguous dimension come first.
  Value rowLane = stateIsVFirst ? b.rem(lane, rowLanes) : b.div(lane, colLanes);
  Value colLane = stateIsVFirst ? b.div(lane, rowLanes) : b.rem(lane, colLanes);
  for (int64_t bit = 1; bit < rowLanes; bit *= 2)
    layout.rowLanes.push_back(stateIsVFirst ? bit : bit * colLanes);
  layout.firstRowLane =
      arith::CmpIOp::create(b, arith::CmpIPredicate::eq, rowLane, b.i32(0));
  int64_t rowStep = rowLanes * (stateIsVFirst ? width : 1);
  int64_t colStep = colLanes * (stateIsVFirst ? 1 : width);
  int64_t colReps = std::max<int64_t>(1, (colsPerWarp + colStep - 1) / colStep);
  Value rowBase = stateIsVFirst ? b.mul(rowLane, width) : rowLane;
  Value firstCol = b.add(b.mul(warp, colsPerWarp),
                         stateIsVFirst ? colLane : b.mul(colLane, width));
  for (int64_t j = 0; j < colReps; ++j) {
    Group column;
    column.width = stateIsVFirst ? 1 : width;
    column.columnSlot = layout.columnSlots;
    bool wraps = colsPerWarp % colStep != 0 || colsPerWarp * warps != cols;
    column.col = wraps ? Coord{b.rem(b.add(firstCol, j * colStep), cols), 0}
                       : Coord{firstCol, j * colStep};
    layout.columns.push_back(column);
    layout.columnSlots += column.width;
    for (int64_t i = 0; i < rows / rowStep; ++i) {
      Group group = column;
      group.width = width;
      group.along = stateIsVFirst ? 0 : 1;
      group.row = {rowBase, i * rowStep};
      group.slot = layout.slots;
      layout.groups.push_back(group);
      layout.slots += width;
    }
  }
  return layout;
}

/// A row: threads in turn, as many elements each as 16 bytes hold of the
/// narrowest type in the kernel.
Layout GpuLowering::vectorLanes(int64_t size) {
  int64_t bytes = 4;
  kernel.walk([&](tile::LoadOp load) {
    bytes = std::min(bytes, bytesOf(load.getType().getElementType()));
  });
  int64_t width = 16 / bytes;
  Layout layout;
  Value col = b.mul(thread, width);
  for (int64_t first = 0; first < size; first += threads * width) {
    Group group;
    group.col = {col, first};
    group.width = width;
    group.slot = group.columnSlot = layout.slots;
    layout.groups.push_back(group);
    layout.slots += width;
  }
  return layout;
}

const Layout &GpuLowering::distributed(ArrayRef<int64_t> shape) {
  for (auto &[known, layout] : layouts)
    if (ArrayRef<int64_t>(known) == shape)
      return *layout;
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(layoutAnchor);
  Layout made = isOneRow()                     ? vectorLanes(shape[0])
                : shape.size() == 1            ? fragmentRows(shape[0])
                : schedule.getForm() == "step" ? stateLanes(shape[0], shape[1])
                                               : fragments(shape[0], shape[1]);
  layouts.push_back(
      {SmallVector<int64_t>(shape), std::make_unique<Layout>(std::move(made))});
  return *layouts.back().second;
}

Layout GpuLowering::linear(ArrayRef<int64_t> shape, int64_t width) {
  Layout layout;
  bool isVector = shape.size() == 1;
  int64_t rows = isVector ? 1 : shape[0], perRow = shape.back() / width;
  int64_t total = rows * perRow;
  bool regular = !isVector && threads % perRow == 0;
  layout.rowStep = regular && total % threads == 0 ? threads / perRow : 0;
  Value row = regular ? b.div(thread, perRow) : Value();
  Value col = regular ? b.mul(b.rem(thread, perRow), width) : Value();
  for (int64_t first = 0; first < total; first += threads) {
    Group group;
    group.width = width;
    Value number = b.add(thread, first);
    if (regular) {
      group.row = {row, first / perRow};
      group.col = {col, 0};
    } else {
      group.row = {isVector ? Value() : b.div(number, perRow), 0};
      group.col = {isVector ? b.mul(number, width)
                            : b.mul(b.rem(number, perRow), width),
                   0};
    }
    layout.groups.push_back(group);
    if (total % threads != 0)
      layout.guards.push_back(b.less(number, b.i32(total)));
  }
  return layout;
}

bool GpuLowering::forRuns(ArrayRef<int64_t> shape, int64_t width,
                          llvm::function_ref<void(const Group &)> body) {
  constexpr int64_t kRun = 8;
  if (shape.size() != 2)
    return false;
  int64_t perRow = shape[1] / width, lines = threads / perRow;
  if (threads % perRow != 0 || shape[0] % (lines * kRun) != 0)
    return false;
  auto loop = scf::ForOp::create(b, b.i32(0), b.i32(shape[0] / (lines * kRun)),
                                 b.i32(1));
  loop->setAttr("llvm.loop_annotation", b.rolled());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value line =
      b.add(b.mul(loop.getInductionVar(), lines), b.div(thread, perRow));
  Group group;
  group.row = {b.mul(line, kRun), 0};
  group.col = {b.mul(b.rem(thread, perRow), width), 0};
  group.width = width;
  memo.clear();
  holdStores();
  for (int64_t i = 0; i < kRun; ++i) {
    body(group);
    group.row.offset += 1;
  }
  memo.clear();
  releaseStores();
  return true;
}

void GpuLowering::forGroups(const Layout &layout,
                            llvm::function_ref<void(const Group &)> body) {
  constexpr int64_t kElements =
      16; // of one iteration, independent of each other
  ArrayRef<Group> groups = layout.groups;
  int64_t count = groups.size();
  int64_t together = std::max<int64_t>(1, kElements / groups.front().width);
  bool isRare = schedule.getForm() == "rows" && !knownWhole;
  if (isRare) // fewer registers than the code of whole tiles
    together = 1;
  if (layout.rowStep == 0 || count <= together || count % together != 0) {
    bool guarded = !layout.guards.empty();
    if (!guarded)
      holdStores();
    for (auto [i, group] : llvm::enumerate(groups)) {
      OpBuilder::InsertionGuard guard(b);
      if (guarded) {
        auto branch = scf::IfOp::create(b, layout.guards[i], false);
        b.setInsertionPointToStart(branch.thenBlock());
      }
      memo.clear();
      body(group);
    }
    memo.clear();
    releaseStores();
    return;
  }
  auto loop =
      scf::ForOp::create(b, b.i32(0), b.i32(count / together), b.i32(1));
  loop->setAttr("llvm.loop_annotation", b.rolled());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Group group = groups.front();
  group.row.base = b.add(
      group.row.base, b.mul(loop.getInductionVar(), together * layout.rowStep));
  if (isRare)
    b.memoryFence();
  holdStores();
  for (int64_t i = 0; i < together; ++i) {
    memo.clear();
    body(group);
    group.row.offset += layout.rowStep;
  }
  memo.clear();
  releaseStores();
}

} // namespace kdac
