// States of KernelBuilder: the slot that each comes from and goes to, its loads
// and stores, and the kernel that checks slots before a call.
#include "KernelBuilder.h"

using namespace mlir;

namespace kdac {

/// Of the one block that checks slot indices, pair by pair.
static constexpr int64_t kCheckWarps = 16;

Value KernelBuilder::isSlot(Value index) {
  return b.isWithin(index, arg("pool"));
}

/// Where the state comes from and goes to. Indices live in device memory, where
/// the host cannot check them: one that is no slot makes arguments absent, so
/// that nothing is read or written through it.
void KernelBuilder::locateSlots() {
  source = slot = sequence;
  dplr::RecurrenceOp op = problem.recurrence;
  if (!op.getSlots())
    return;
  auto load = [&](StringRef name, Value offset, Value otherwise) -> Value {
    return b.loadIndex(arg(name), offset, otherwise);
  };
  slot = load("slots", sequence, sequence);
  source = op.getSources() ? load("sources", sequence, slot) : slot;
  Value status = load("status", b.index(0), b.index(-1));
  valid = b.isLess(status, b.index(0));
  isOwned = b.both(valid, isSlot(slot));
  hasSource = b.both(isOwned, isSlot(source));
  guardArguments(isOwned);
}

/// The argument, absent where `condition` does not hold.
void KernelBuilder::guard(StringRef name, Value condition) {
  if (Value ref = arg(name))
    args[name] = b.guarded(ref, condition);
}

/// A skipped sequence reads zeros everywhere, which makes its output zero.
void KernelBuilder::guardArguments(Value live) {
  SmallVector<StringRef> read = {"q", "k", "v", "beta", "a", "b", "z"};
  bool isRows = schedule.getForm() == "rows";
  if (isRows)
    read.clear(); // there are no rows of a skipped sequence
  read.append({"q_cache", "k_cache", "v_cache"});
  for (StringRef name : read)
    guard(name, live);
  if (isRows)
    return;
  if (problem.decayRank() > 1)
    guard("g", live);
  guard("h0", hasSource);
  guard("out", valid);
  guard("ht", live);
  if (keepsLog())
    logGuard = live;
}

KernelBuilder::StateAccess KernelBuilder::stateAccess(Value slot) {
  int64_t keyDim = problem.keyDim(), valueDim = problem.valueDim();
  bool vFirst = problem.recurrence.getLayout() == dplr::Layout::VK;
  Value start;
  if (arg("pool"))
    start = b.addI(b.mulI(slot, arg("slot_pitch")),
                   b.mulI(valueHead, arg("head_pitch")));
  else
    start = b.mulI(b.addI(b.mulI(slot, arg("HV")), valueHead),
                   b.index(keyDim * valueDim));
  int64_t line = vFirst ? keyDim : valueDim;
  Value slice = vFirst ? b.mulI(firstColumn, b.index(keyDim)) : firstColumn;
  return {b.addI(start, slice),
          b.index(line),
          {b.index(keyDim), columns},
          lineAlignment(line, problem.stateType()),
          vFirst};
}

Value KernelBuilder::loadState() {
  if (part == Part::First || part == Part::Late)
    awaitLaunch();
  if (part == Part::First) // what follows needs images, which are there now
    tile::StartNextOp::create(b);
  bool kept = part == Part::Late; // in the workspace, by an earlier kernel
  StateAccess at =
      kept ? segmentAccess(segmentState(segment)) : stateAccess(source);
  auto type = b.tileType({keyTile, valueTile},
                         kept ? b.getF32Type() : problem.stateType());
  Value state = b.toF32(
      tile::LoadOp::create(b, type, kept ? segmentMemory : arg("h0"), at.base,
                           at.stride, at.valid, at.align, at.transposed));
  return part == Part::Middle ? startsAs(state) : state;
}

// How far ahead a state is asked for: about a third of what the blocks on a
// large GPU hold at one time, so that memory is busy while they compute.
static constexpr int64_t kPrefetchBytes = 4 << 20;

// Of a state that is loaded late this much is asked for at once: memory would
// be idle until the loads of a layer's vectors are found. More holds those up,
// and more than as much again behind them what other programs wait for.
static constexpr int64_t kEarlyBytes = 16 << 10;

/// The program's own state, which is staged: loaded behind the first vectors.
void KernelBuilder::prefetchOwnState() {
  // A narrow one is loaded before them.
  if (!problem.stateType().isF32())
    return;
  int64_t all = problem.keyDim() * problem.valueDim();
  int64_t early = std::min<int64_t>(all, kEarlyBytes / sizeof(float));
  Value base = stateAccess(source).base;
  tile::PrefetchOp::create(b, arg("h0"), base, early, /*now=*/true);
  // Behind a convolution; what a norm alone loads first is no wait.
  if (problem.q.conv && early < all)
    tile::PrefetchOp::create(b, arg("h0"), b.addI(base, b.index(early)),
                             std::min(early, all - early), /*now=*/false);
}

/// The state of a program some way ahead, V first only: there a slice is
/// contiguous.
void KernelBuilder::prefetchState() {
  bool vFirst = problem.recurrence.getLayout() == dplr::Layout::VK;
  bool isSliced = problem.valueDim() % valueTile == 0;
  if (schedule.getTarget() == "host")
    return;
  if (schedule.getStages() > 1)
    return prefetchOwnState();
  if (!vFirst || !isSliced)
    return;
  int64_t slice = problem.keyDim() * valueTile;
  int64_t ahead = kPrefetchBytes /
                  (slice * problem.stateType().getIntOrFloatBitWidth() / 8);
  Value id =
      b.addI(tile::ProgramIdOp::create(b, b.getIndexType()), b.index(ahead));
  Value programs = tile::NumProgramsOp::create(b, b.getIndexType());
  Value exists = b.isLess(id, programs);
  Value base = b.mulI(id, b.index(slice));
  if (arg("pool")) {
    int64_t slices = problem.valueDim() / valueTile;
    Value state = b.divI(id, b.index(slices));
    Value next = b.divI(state, arg("HV"));
    Value indices = b.guarded(arg("slots"), exists);
    Value from = b.loadIndex(indices, next, next);
    if (Value sources = arg("sources")) {
      sources = b.guarded(sources, exists);
      from = b.loadIndex(sources, next, from);
    }
    exists = b.both(exists, isSlot(from));
    Value head = b.remI(state, arg("HV"));
    Value column = b.mulI(b.remI(id, b.index(slices)), b.index(slice));
    base = b.addI(b.addI(b.mulI(from, arg("slot_pitch")),
                         b.mulI(head, arg("head_pitch"))),
                  column);
  }
  Value ref = b.guarded(given["h0"], exists);
  tile::PrefetchOp::create(b, ref, base, slice, /*now=*/false);
}

void KernelBuilder::storeState(Value state, Value ref, Value slot) {
  StateAccess at = stateAccess(slot);
  tile::StoreOp::create(b, b.round(state, problem.stateType()), ref, at.base,
                        at.stride, at.valid, at.align, at.transposed);
}

void KernelBuilder::storeState(Value state) {
  if (part == Part::First)
    return storeNext(state, isLive);
  if (part == Part::Middle)
    return storeMiddle(state);
  storeState(state, unlessSnapshots(arg("ht")), slot);
}

void KernelBuilder::storeStateAfter(Value state, Value tokens) {
  Value isEnd = b.isEqual(tokens, length);
  storeState(state, b.guarded(unlessSnapshots(arg("ht")), isEnd), slot);
}

/// `ref` where a call has no snapshots.
Value KernelBuilder::unlessSnapshots(Value ref) {
  Value snapshots = arg("snapshots");
  if (!snapshots)
    return ref;
  Value given = tile::PresentOp::create(b, snapshots);
  Value yes = arith::ConstantOp::create(b, b.getBoolAttr(true));
  return b.guarded(ref, arith::XOrIOp::create(b, given, yes));
}

/// The slot that the state after `token` goes to, or -1.
Value KernelBuilder::snapshotOf(Value token) {
  return b.loadIndex(arg("snapshots"), token, b.index(-1));
}

void KernelBuilder::storeSnapshot(Value state, Value token) {
  if (!arg("snapshots"))
    return;
  Value index = snapshotOf(token);
  storeState(state, b.guarded(arg("ht"), isSlot(index)), index);
}

func::FuncOp buildSlotCheck(const KernelBuilder &kernel) {
  func::FuncOp function = kernel.function;
  OpBuilder builder(function->getContext());
  // Launches run in the module's order.
  builder.setInsertionPointToStart(
      function->getParentOfType<ModuleOp>().getBody());
  ImplicitLocOpBuilder b(function.getLoc(), builder);
  auto check = func::FuncOp::create(b, (function.getName() + "_check").str(),
                                    function.getFunctionType());
  check->setAttr(tile::kKernelAttr, b.getUnitAttr());
  check->setAttr("kdac.v_tile", function->getAttr("kdac.v_tile"));
  check->setAttr("kdac.grid", b.getStringAttr("checked"));
  check->setAttr(tile::kBesideAttr, b.getUnitAttr());
  tile::ScheduleAttr s = kernel.schedule;
  int64_t warps = s.getTarget() == "host" ? 1 : kCheckWarps;
  check->setAttr(tile::kScheduleAttr,
                 tile::ScheduleAttr::get(b.getContext(), s.getTarget(), "step",
                                         1, 1, s.getVTile(), warps, 1,
                                         s.getOperand(), s.getGram(), "fused",
                                         /*refined=*/false));
  b.setInsertionPointToStart(check.addEntryBlock());
  auto at = [&](StringRef name) -> Value {
    BlockArgument same = argumentOf(function, name);
    return same ? check.getArgument(same.getArgNumber()) : Value();
  };
  tile::CheckSlotsOp::create(b, at("status"), at("slots"), at("sources"),
                             at("snapshots"), at("offsets"), at("N"), at("T"),
                             at("pool"));
  func::ReturnOp::create(b);
  return check;
}

} // namespace kdac
