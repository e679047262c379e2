#include "KernelFunction.h"
#include "Roles.h"
#include "kdac/Passes.h"
#include "kdac/Target/Targets.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace kdac {
#define GEN_PASS_DEF_TILESPLITROLESPASS
#include "kdac/Passes.h.inc"

namespace {

/// Enough programs of the preparing kernel to fill any GPU several times over;
/// each takes its share of a sequence's chunks.
constexpr int64_t kPreparePrograms = 4096;
constexpr int64_t kPrepareWarps = 8;
constexpr int64_t kPrepareBlocks = 3; ///< on one SM

bool isTile(Value value) { return isa<RankedTensorType>(value.getType()); }

/// A value of the image and where its bytes are.
struct Part {
  Value value;    ///< in the original loop
  int64_t offset; ///< bytes into an image
};

class Splitter {
public:
  Splitter(func::FuncOp kernel, tile::CutOp cut)
      : kernel(kernel), cut(cut), loop(cut->getParentOfType<scf::ForOp>()),
        schedule(
            kernel->getAttrOfType<tile::ScheduleAttr>(tile::kScheduleAttr)) {}

  /// What the kernel lacks, or null.
  const char *missing();
  void split();

private:
  void findParts();
  func::FuncOp clone(StringRef name, IRMapping &mapping);
  void makePrepare();
  int64_t chainStages();
  /// Registers and bytes allow kPrepareBlocks: one level of 16-bit factors no
  /// wider than 128. Others would spill.
  bool fitsThreeBlocks() {
    auto state = cast<RankedTensorType>(loop.getResult(0).getType());
    return schedule.getLeaf() > 1 && state.getDimSize(0) <= 128 &&
           tile::bytesOf(schedule.getOperand()) == 2;
  }
  void makeChain();
  /// Inside the loop: the element of `part` at which image `number` starts.
  Value start(TileBuilder &b, Value image, RankedTensorType type);
  Value view(TileBuilder &b, func::FuncOp function, const Part &part,
             const IRMapping &mapping);
  SmallVector<Value> wholeTile(TileBuilder &b, RankedTensorType type);
  Value workspaceOf(func::FuncOp function);
  tile::ScheduleAttr with(int64_t stages, int64_t warps) {
    tile::ScheduleAttr s = schedule;
    return tile::ScheduleAttr::get(s.getContext(), s.getTarget(), s.getForm(),
                                   s.getChunk(), s.getLeaf(), s.getVTile(),
                                   warps, stages, s.getOperand(), s.getGram(),
                                   s.getRoles(), s.getRefined());
  }

  func::FuncOp kernel;
  tile::CutOp cut;
  scf::ForOp loop;
  tile::ScheduleAttr schedule;
  llvm::DenseSet<Operation *> chain;
  SmallVector<Part> parts;
  int64_t imageBytes = 0;
};

} // namespace

const char *Splitter::missing() {
  if (!loop || loop->getNumResults() != 1 ||
      cut->getBlock() != loop.getBody() || !isTile(loop.getResult(0)))
    return "a loop around it that carries a state";
  if (!kernel->getAttrOfType<IntegerAttr>("kdac.slices"))
    return "kdac.slices";
  if (kernel.getOps<tile::ProgramIdOp>().empty())
    return "a tile.program_id";
  if (!workspaceOf(kernel))
    return "a workspace";
  for (const char *name : {"N", "HV"}) {
    BlockArgument size = argumentOf(kernel, name);
    if (!size || !size.getType().isIndex())
      return "sizes N and HV among its arguments";
  }
  return nullptr;
}

/// What the chain takes from prepare, looking through what it makes again.
void Splitter::findParts() {
  llvm::SetVector<Value> values;
  SmallVector<Value> pending;
  auto use = [&](Operation *op) {
    llvm::append_range(pending, op->getOperands());
  };
  for (Operation &op : *loop.getBody())
    if (chain.contains(&op) || isa<scf::YieldOp>(op))
      use(&op);
  while (!pending.empty()) {
    Value value = pending.pop_back_val();
    Operation *source = value.getDefiningOp();
    if (!source || !isTile(value) || source->getBlock() != loop.getBody() ||
        chain.contains(source))
      continue;
    if (isMadeAgain(source))
      use(source);
    else
      values.insert(value);
  }
  for (Value value : values) {
    auto type = cast<RankedTensorType>(value.getType());
    parts.push_back({value, imageBytes});
    int64_t bytes =
        type.getNumElements() * tile::bytesOf(type.getElementType());
    imageBytes += llvm::alignTo(bytes, 128);
  }
}

Value Splitter::workspaceOf(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments())
    if (auto ref = dyn_cast<tile::RefType>(argument.getType());
        ref && ref.getElementType().isInteger(8))
      return argument;
  return {};
}

Value Splitter::view(TileBuilder &b, func::FuncOp function, const Part &part,
                     const IRMapping &mapping) {
  Type element = getElementTypeOrSelf(part.value.getType());
  Value after = cut.getAfter() ? mapping.lookup(cut.getAfter()) : Value();
  return tile::ViewOp::create(b, tile::RefType::get(b.getContext(), element),
                              workspaceOf(function), part.offset, after);
}

Value Splitter::start(TileBuilder &b, Value image, RankedTensorType type) {
  int64_t elements = imageBytes / tile::bytesOf(type.getElementType());
  return b.mulI(image, b.index(elements));
}

SmallVector<Value> Splitter::wholeTile(TileBuilder &b, RankedTensorType type) {
  return llvm::map_to_vector(type.getShape(),
                             [&](int64_t size) { return b.index(size); });
}

static Value strideOf(TileBuilder &b, RankedTensorType type) {
  return b.index(type.getRank() == 2 ? type.getDimSize(1) : 1);
}

func::FuncOp Splitter::clone(StringRef name, IRMapping &mapping) {
  OpBuilder builder(kernel);
  auto copy = cast<func::FuncOp>(builder.clone(*kernel, mapping));
  copy.setName(name);
  return copy;
}

static void eraseWithUsers(Operation *op) {
  for (Operation *user : llvm::to_vector(op->getUsers()))
    eraseWithUsers(user);
  op->erase();
}

/// Programs are (sequence, head, turn); turn t of P takes chunks t, t + P, ...
void Splitter::makePrepare() {
  IRMapping mapping;
  func::FuncOp prepare = clone((kernel.getName() + "_prepare").str(), mapping);
  auto oldLoop = cast<scf::ForOp>(mapping.lookup(loop.getOperation()));
  auto id = *prepare.getOps<tile::ProgramIdOp>().begin();

  // The original program numbers count slices of V; a turn replaces the slice.
  TileBuilder b(id);
  b.setInsertionPointAfter(id);
  Value programs = tile::NumProgramsOp::create(b, b.getIndexType());
  Value heads = b.mulI(argumentOf(prepare, "N"), argumentOf(prepare, "HV"));
  Value turns = b.divI(programs, heads);
  Value turn = b.remI(id, turns);
  int64_t slices = kernel->getAttrOfType<IntegerAttr>("kdac.slices").getInt();
  Value head = b.divI(id, turns);
  Value firstSlice = b.mulI(head, b.index(slices));
  llvm::SmallPtrSet<Operation *, 2> keep = {turn.getDefiningOp(),
                                            head.getDefiningOp()};
  id.getResult().replaceAllUsesExcept(firstSlice, keep);

  b.setInsertionPoint(oldLoop);
  Value rest = b.subI(oldLoop.getUpperBound(), turn);
  Value count = arith::CeilDivSIOp::create(b, b.maxI(rest, b.index(0)), turns);
  SmallVector<Value> views;
  for (const Part &part : parts)
    views.push_back(view(b, prepare, part, mapping));
  auto newLoop = scf::ForOp::create(b, b.index(0), count, b.index(1));
  b.setInsertionPointToStart(newLoop.getBody());
  IRMapping body;
  body.map(oldLoop.getInductionVar(),
           b.addI(turn, b.mulI(newLoop.getInductionVar(), turns)));
  Value image; // first in the body: the cut stands before all other work
  for (auto [original, op] :
       llvm::zip(loop.getBody()->without_terminator(),
                 oldLoop.getBody()->without_terminator())) {
    if (&original == cut.getOperation())
      image = body.lookupOrDefault(cast<tile::CutOp>(op).getImage());
    else if (!chain.contains(&original))
      b.clone(op, body);
  }
  for (auto [part, ref] : llvm::zip(parts, views)) {
    auto type = cast<RankedTensorType>(part.value.getType());
    Value value = body.lookup(mapping.lookup(part.value));
    // As soon as it is there: the triangular inverse keeps one warp busy, and
    // what others can do before it need not wait.
    b.setInsertionPointAfter(value.getDefiningOp());
    tile::StoreOp::create(b, value, ref, start(b, image, type),
                          strideOf(b, type), wholeTile(b, type), 16, false);
  }
  eraseWithUsers(oldLoop);
  std::string turnsExpr =
      "min(ceildiv(T, " + std::to_string(schedule.getChunk()) + "), ceildiv(" +
      std::to_string(kPreparePrograms) + ", max(1, N * HV)))";
  // Many programs of this kernel share an SM and hide each other's loads; bytes
  // for loading ahead would cost one of them.
  prepare->setAttr(tile::kScheduleAttr, with(1, kPrepareWarps));
  if (fitsThreeBlocks())
    prepare->setAttr("kdac.min_blocks", b.getI64IntegerAttr(kPrepareBlocks));
  prepare->setAttr("kdac.grid",
                   b.getStringAttr("N * HV * max(1, " + turnsExpr + ")"));
}

void Splitter::makeChain() {
  std::string name = kernel.getName().str();
  IRMapping mapping;
  func::FuncOp copy = clone(name + "_chain", mapping);
  auto copyLoop = cast<scf::ForOp>(mapping.lookup(loop.getOperation()));
  auto copyCut = cast<tile::CutOp>(mapping.lookup(cut.getOperation()));
  TileBuilder b(copyLoop);
  SmallVector<Value> views;
  for (const Part &part : parts)
    views.push_back(view(b, copy, part, mapping));
  b.setInsertionPoint(copyCut);
  for (auto [part, ref] : llvm::zip(parts, views)) {
    auto type = cast<RankedTensorType>(part.value.getType());
    // Loads run ahead of the loop: past its last chunk there is no image.
    Value left = b.subI(copyLoop.getUpperBound(), copyLoop.getInductionVar());
    Value exists = b.minI(b.maxI(left, b.index(0)), b.index(1));
    SmallVector<Value> valid = wholeTile(b, type);
    valid.front() = b.mulI(exists, valid.front());
    Value loaded =
        tile::LoadOp::create(b, type, ref, start(b, copyCut.getImage(), type),
                             strideOf(b, type), valid, 16, false);
    mapping.lookup(part.value).replaceAllUsesWith(loaded);
  }
  copyCut->erase();
  copy->setAttr(tile::kScheduleAttr, with(chainStages(), schedule.getWarps()));
}

/// Few programs share an SM, so nothing else hides a load that is late: as many
/// buffers as fit beside the operand copies of the state, U and W.
int64_t Splitter::chainStages() {
  auto state = cast<RankedTensorType>(loop.getResult(0).getType());
  int64_t bytes = tile::bytesOf(schedule.getOperand());
  int64_t columns = state.getDimSize(1) + 8, chunk = schedule.getChunk();
  int64_t operands = (state.getDimSize(0) + 2 * chunk) * columns * bytes;
  // Rows are padded, and v comes with every image.
  int64_t stage = imageBytes + imageBytes / 8 + chunk * columns * 4;
  int64_t limit = findTarget(schedule.getTarget())->sharedBytesPerBlock;
  for (int64_t stages : {3, 2})
    if (operands + stages * stage <= limit)
      return stages;
  return 1;
}

void Splitter::split() {
  chain = chainOf(kernel, loop);
  findParts();
  makePrepare();
  makeChain();
  std::string name = kernel.getName().str();
  OpBuilder b(kernel);
  // Images of the call: begin / C + n + chunk < tokens / C + N.
  std::string workspace = "(ceildiv(tokens, " +
                          std::to_string(schedule.getChunk()) +
                          ") + N) * HV * " + std::to_string(imageBytes);
  if (auto before = kernel->getAttrOfType<StringAttr>("kdac.workspace"))
    workspace = before.str() + " + " + workspace;
  for (StringRef role : {"_prepare", "_chain"})
    if (auto function =
            kernel->getParentOfType<ModuleOp>().lookupSymbol<func::FuncOp>(
                (name + role).str()))
      function->setAttr("kdac.workspace", b.getStringAttr(workspace));
  kernel->erase();
}

namespace {

struct TileSplitRoles : impl::TileSplitRolesPassBase<TileSplitRoles> {
  void runOnOperation() override {
    SmallVector<tile::CutOp> cuts;
    getOperation().walk([&](tile::CutOp cut) {
      auto kernel = cut->getParentOfType<func::FuncOp>();
      auto schedule =
          kernel
              ? kernel->getAttrOfType<tile::ScheduleAttr>(tile::kScheduleAttr)
              : tile::ScheduleAttr();
      if (schedule && schedule.getRoles() == "split")
        cuts.push_back(cut);
    });
    for (tile::CutOp cut : cuts) {
      Splitter splitter(cut->getParentOfType<func::FuncOp>(), cut);
      if (const char *missing = splitter.missing()) {
        cut.emitOpError() << "cannot split a kernel without " << missing
                          << " in stage tile-split-roles";
        return signalPassFailure();
      }
      splitter.split();
    }
    for (auto kernel : getOperation().getOps<func::FuncOp>())
      if (auto schedule =
              kernel->getAttrOfType<tile::ScheduleAttr>(tile::kScheduleAttr);
          schedule && tile::hasWarpRoles(schedule) &&
          !kernel.getOps<scf::ForOp>().empty())
        markRoles(kernel);
  }
};

} // namespace
} // namespace kdac
