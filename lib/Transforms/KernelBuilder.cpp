#include "KernelBuilder.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace kdac {

static constexpr double kLog2E = 1.4426950408889634;

// A base-2 log-decay below this gives exactly 0 even times the largest f32
// (2^128 * 2^-300 < 2^-149), so clamping a token's decay here changes no f32
// result, and keeps differences of cumulative sums meaningful.
static constexpr double kLogDecayFloor = -300.0;

/// Of the one block that checks slot indices, pair by pair.
static constexpr int64_t kCheckWarps = 16;

static Type elementType(Value tensor) {
  return cast<RankedTensorType>(tensor.getType()).getElementType();
}

/// Bytes that every line of `count` elements is known to be aligned to.
static int64_t lineAlignment(int64_t count, Type element) {
  int64_t bytes = count * (element.getIntOrFloatBitWidth() / 8);
  return std::min<int64_t>(16, bytes & -bytes);
}

/// In canonical order (kernelArgs in include/kdac/Variant/Variant.h), of the
/// types that the problem's tensors have.
static SmallVector<KernelArgument> argumentsOf(func::FuncOp source,
                                               const Problem &problem) {
  Builder b(source.getContext());
  SmallVector<KernelArgument> all;
  SmallVector<std::string> strided;
  auto ref = [&](StringRef name, Type element, bool hasTokens) {
    all.push_back({name.str(), tile::RefType::get(b.getContext(), element)});
    if (hasTokens)
      strided.push_back((name + "_stride").str());
  };
  ref("q", elementType(problem.q.source), true);
  ref("k", elementType(problem.k.source), true);
  ref("v", elementType(problem.v.source), true);
  if (problem.decay)
    ref("g", elementType(problem.decay.source), problem.decayRank() > 1);
  if (problem.beta)
    ref("beta", elementType(problem.beta.source), true);
  auto gate = dyn_cast_or_null<dplr::LogDecayOp>(problem.decay.map);
  if (gate && gate.getMap() != dplr::GateMap::Identity) {
    ref("A_log", b.getF32Type(), false);
    ref("dt_bias", b.getF32Type(), false);
  }
  if (problem.eraseA) {
    ref("a", elementType(problem.eraseA.source), true);
    ref("b", elementType(problem.eraseB.source), true);
  }
  Value offsets = problem.recurrence.getOffsets();
  for (auto [name, operand] :
       {std::pair("q", &problem.q), std::pair("k", &problem.k),
        std::pair("v", &problem.v)})
    if (operand->conv)
      ref((name + StringRef("_conv")).str(),
          elementType(operand->conv.getWeight()), false);
  for (auto [name, operand] :
       {std::pair("q", &problem.q), std::pair("k", &problem.k),
        std::pair("v", &problem.v)})
    if (operand->conv)
      ref((name + StringRef("_cache")).str(),
          elementType(operand->conv.getCache()), false);
  if (problem.norm) {
    ref("z", elementType(problem.norm.getGate()), true);
    ref("norm_weight", b.getF32Type(), false);
  }
  ref("h0", problem.stateType(), false);
  dplr::RecurrenceOp op = problem.recurrence;
  for (auto [name, indices] : {std::pair("slots", op.getSlots()),
                               std::pair("sources", op.getSources()),
                               std::pair("snapshots", op.getSnapshots()),
                               std::pair("accepted", op.getAccepted())})
    if (indices)
      ref(name, elementType(indices), false);
  ref("offsets", offsets ? elementType(offsets) : b.getI32Type(), false);
  ref("out", problem.dtype(), true);
  ref("ht", problem.stateType(), false);
  auto form = source->getAttrOfType<dplr::FormAttr>("dplr.form");
  if (form.getValue() != dplr::Form::Step || op.getAccepted())
    ref("workspace", b.getI8Type(), false);
  SmallVector<StringRef> sizes = {"N", "T", "H", "HV"};
  if (op.getSlots()) {
    ref("status", b.getI64Type(), false);
    sizes.append({"pool", "slot_pitch", "head_pitch"});
  }
  if (problem.q.conv)
    sizes.append({"q_cache_pitch", "k_cache_pitch", "v_cache_pitch"});
  for (StringRef size : sizes)
    all.push_back({size.str(), b.getIndexType()});
  for (const std::string &name : strided)
    all.push_back({name, b.getIndexType()});
  all.push_back({"scale", b.getF32Type()});
  return all;
}

KernelBuilder::KernelBuilder(func::FuncOp source, const Problem &problem,
                             tile::ScheduleAttr schedule, Part part)
    : KernelFunction(source, "", argumentsOf(source, problem), schedule),
      problem(problem), part(part) {
  keyTile = llvm::alignTo(problem.keyDim(), 16);
  valueTile = schedule.getVTile();
  if (source->hasAttr(tile::kInOrderAttr))
    function->setAttr(tile::kInOrderAttr, b.getUnitAttr());
  function->setAttr("kdac.slices", b.getI64IntegerAttr(llvm::divideCeil(
                                       problem.valueDim(), valueTile)));
  given = args;
  if (part == Part::Images || part == Part::Middle || part == Part::Join ||
      tile::isAssisted(schedule))
    tile::StartNextOp::create(b);
  if (schedule.getForm() == "rows")
    return; // their kernels say what a program is: locateRows
  locateProgram();
  if (part == Part::Join)
    return;
  locateSlots();
  guardSegment();
  loadGateParameters();
}

void KernelBuilder::locateProgram() {
  int64_t slices = llvm::divideCeil(problem.valueDim(), valueTile);
  Value id = tile::ProgramIdOp::create(b, b.getIndexType());
  if (tile::isAssisted(schedule))
    id = clampProgram(id);
  Value slice = b.remI(id, b.index(slices));
  Value sequenceHead = b.divI(id, b.index(slices));
  if (isSegment())
    std::tie(sequenceHead, slice) = locateSegment(id);
  if (part == Part::Rest)
    sequenceHead = b.addI(sequenceHead, programsBefore(slices));
  valueHead = b.remI(sequenceHead, arg("HV"));
  sequence = b.divI(sequenceHead, arg("HV"));
  if (tile::hasWarpRoles(schedule) && !function->hasAttr(tile::kInOrderAttr))
    sequence = tile::LongestOp::create(b, arg("offsets"), sequence, arg("N"));
  keyHead = b.divI(valueHead, b.divI(arg("HV"), arg("H")));
  firstColumn = b.mulI(slice, b.index(valueTile));
  Value width = b.index(problem.valueDim());
  if (isTransfer)
    width = b.select(isTransfer, b.index(problem.keyDim()), width);
  bool isEven = problem.valueDim() % valueTile == 0;
  columns = isEven && schedule.getForm() == "step"
                ? b.index(valueTile)
                : b.minI(b.index(valueTile), b.subI(width, firstColumn));
  locateSequence();
}

/// Clusters are whole: what is beyond the last program is one of no tokens that
/// keeps its state to itself.
Value KernelBuilder::clampProgram(Value id) {
  Value last = b.subI(b.mulI(arg("N"), arg("HV")), b.index(1));
  isReal = arith::CmpIOp::create(b, arith::CmpIPredicate::sle, id, last);
  return b.minI(id, last);
}

/// Heads of sequences ahead of this kernel's: it has the last ones.
Value KernelBuilder::programsBefore(int64_t slices) {
  Value own =
      b.divI(tile::NumProgramsOp::create(b, b.getIndexType()), b.index(slices));
  return b.subI(b.mulI(arg("N"), arg("HV")), own);
}

void KernelBuilder::locateSequence() {
  // Offsets live in device memory, where the host cannot check them: clamping
  // to the buffer turns bad ones into wrong results, never into wild accesses.
  auto offset = [&](Value n) -> Value {
    return b.loadIndex(arg("offsets"), n, b.mulI(n, arg("T")));
  };
  Value next = b.addI(sequence, b.index(1));
  Value packed = tile::PresentOp::create(b, arg("offsets"));
  tokenLimit = b.select(packed, arg("T"), b.mulI(arg("N"), arg("T")));
  begin = b.minI(b.maxI(offset(sequence), b.index(0)), tokenLimit);
  sequenceBegin = begin;
  Value end = b.minI(b.maxI(offset(next), begin), tokenLimit);
  length = b.subI(end, begin);
  if (isReal) {
    length = b.select(isReal, length, b.index(0));
    guard("ht", isReal);
  }
  if (schedule.getForm() == "chunk")
    readConvolved();
  if (isSegment())
    narrowToSegment();
}

Value KernelBuilder::loadRows(StringRef name, Value first, Value offset,
                              int64_t rows, Value valid, int64_t tileWidth,
                              Value width, int64_t fullWidth) {
  Value ref = arg(name), stride = arg((name + "_stride").str());
  Type element = cast<tile::RefType>(ref.getType()).getElementType();
  int64_t align = lineAlignment(fullWidth, element);
  if (Value inside = starts.lookup(name))
    offset = b.addI(offset, inside);
  Value start = b.addI(b.mulI(first, stride), offset);
  if (rows == 0)
    return tile::LoadOp::create(b, b.tileType({tileWidth}, element), ref, start,
                                b.index(1), ValueRange{width}, align, false);
  return tile::LoadOp::create(b, b.tileType({rows, tileWidth}, element), ref,
                              start, stride, ValueRange{valid, width}, align,
                              false);
}

Value KernelBuilder::loadKeyRows(StringRef name, Value first, int64_t rows,
                                 Value valid) {
  int64_t width = problem.keyDim();
  Value head = name == "g" ? valueHead : keyHead;
  return loadRows(name, first, b.mulI(head, b.index(width)), rows, valid,
                  keyTile, b.index(width), width);
}

Value KernelBuilder::loadValueRows(Value first, int64_t rows, Value valid,
                                   StringRef name) {
  int64_t width = problem.valueDim();
  Value offset = b.addI(b.mulI(valueHead, b.index(width)), firstColumn);
  return loadRows(name, first, offset, rows, valid, valueTile, columns, width);
}

Value KernelBuilder::loadPerHead(StringRef name, Value first, int64_t rows,
                                 Value valid) {
  Value ref = arg(name), stride = arg((name + "_stride").str());
  Value start = b.addI(b.mulI(first, stride), valueHead);
  if (rows == 0)
    return b.loadF32(ref, start);
  Type element = cast<tile::RefType>(ref.getType()).getElementType();
  int64_t align = element.getIntOrFloatBitWidth() / 8;
  return b.toF32(tile::LoadOp::create(b, b.tileType({rows}, element), ref,
                                      start, stride, ValueRange{valid}, align,
                                      false));
}

Value KernelBuilder::loadBeta(Value first, int64_t rows, Value valid) {
  if (!problem.beta)
    return {};
  Value beta = loadPerHead("beta", first, rows, valid);
  auto map = dyn_cast_or_null<dplr::WriteStrengthOp>(problem.beta.map);
  if (!map || map.getMap() == dplr::BetaMap::Identity)
    return beta;
  Value sigmoid = b.sigmoid(beta);
  return map.getMap() == dplr::BetaMap::TwoSigmoid ? b.mul(sigmoid, 2.0)
                                                   : sigmoid;
}

/// The mapped gate of the problem, or null for a precomputed log-decay.
static dplr::LogDecayOp mappedGate(const Problem &problem) {
  auto gate = dyn_cast_or_null<dplr::LogDecayOp>(problem.decay.map);
  return gate && gate.getMap() != dplr::GateMap::Identity ? gate : nullptr;
}

void KernelBuilder::loadGateParameters() {
  if (problem.decayRank() == 1)
    constantGate = b.loadF32(arg("g"), valueHead);
  if (!mappedGate(problem))
    return;
  // exp(A_log), kept finite so that it never meets a zero as inf * 0. A GPU's
  // step loads it beside the logits, so that no logit's load waits for it.
  Value rateLog;
  if (schedule.getForm() == "step" && schedule.getTarget() != "host") {
    int64_t width = problem.decayRank() == 3 ? keyTile : 1;
    rateLog =
        tile::LoadOp::create(b, b.tileType({width}), arg("A_log"), valueHead,
                             b.index(0), ValueRange{b.index(width)}, 4, false);
  } else {
    rateLog = b.loadF32(arg("A_log"), valueHead);
  }
  gateRate = b.exp2(b.min(b.mul(rateLog, kLog2E), 126.0));
  if (problem.decayRank() != 3) {
    gateBias = b.loadF32(arg("dt_bias"), valueHead);
    return;
  }
  int64_t width = problem.keyDim();
  gateBias = tile::LoadOp::create(b, b.tileType({keyTile}), arg("dt_bias"),
                                  b.mulI(valueHead, b.index(width)), b.index(1),
                                  ValueRange{b.index(width)},
                                  lineAlignment(width, b.getF32Type()), false);
}

Value KernelBuilder::mapGate(Value logits) {
  dplr::LogDecayOp gate = mappedGate(problem);
  if (!gate)
    return b.max(b.mul(logits, kLog2E), kLogDecayFloor);
  Value rate = gateRate, bias = gateBias;
  if (auto type = dyn_cast<RankedTensorType>(logits.getType())) {
    if (!isa<RankedTensorType>(rate.getType()))
      rate = b.splat(rate, type.getShape());
    if (problem.decayRank() != 3)
      bias = b.splat(bias, type.getShape());
    else if (type.getRank() == 2)
      bias = b.colFactor(bias, logits);
  }
  Value x = b.add(logits, bias);
  if (gate.getMap() == dplr::GateMap::Bounded) {
    double bound = gate.getBound()->convertToDouble() * kLog2E;
    Value decay = b.mul(b.sigmoid(b.mul(rate, x)), bound);
    return bound >= kLogDecayFloor ? decay : b.max(decay, kLogDecayFloor);
  }
  // Roles as warps round log-decays to f16 before they sum them.
  bool brief = tile::hasWarpRoles(schedule) && problem.decayRank() == 3;
  Value decay = b.mul(b.mul(rate, b.softplus(x, brief)), -kLog2E);
  return b.max(decay, kLogDecayFloor);
}

Value KernelBuilder::loadGate(Value first, int64_t rows, Value valid) {
  if (!problem.decay)
    return {};
  if (problem.decayRank() == 3)
    return b.toF32(loadKeyRows("g", first, rows, valid));
  if (problem.decayRank() == 2)
    return loadPerHead("g", first, rows, valid);
  return rows ? b.splat(constantGate, {rows}) : constantGate;
}

Value KernelBuilder::logDecay(Value gate, int64_t rows, Value valid) {
  if (!gate)
    return {};
  Value decay = mapGate(gate);
  if (!rows)
    return decay;
  if (!tile::hasWarpRoles(schedule) || problem.decayRank() < 3)
    return b.maskRows(decay, valid);
  // A decay is finite, and a factor of its row merges with its others.
  Value ones = b.filled({rows}, 1);
  return b.mul(decay, b.rowFactor(b.maskRows(ones, valid), decay));
}

void KernelBuilder::markCut(Value number) {
  bool isWhole = !isSegment();
  if (isWhole && schedule.getRoles() != "split")
    return;
  // Sequence n owns the images from begin / C + n on: as many as it has chunks,
  // without knowing any other sequence's length.
  Value chunk = b.index(schedule.getChunk());
  Value first = b.addI(b.divI(sequenceBegin, chunk), sequence);
  if (!isWhole)
    first = b.addI(first, b.divI(b.subI(begin, sequenceBegin), chunk));
  Value image = b.addI(b.mulI(b.addI(first, number), arg("HV")), valueHead);
  tile::CutOp::create(b, image, imagesAfter);
}

void KernelBuilder::storeOut(Value out, Value first, Value valid) {
  int64_t width = problem.valueDim();
  Value stride = arg("out_stride");
  Value start = b.addI(b.mulI(first, stride),
                       b.addI(b.mulI(valueHead, b.index(width)), firstColumn));
  int64_t align = lineAlignment(width, problem.dtype());
  Value rounded = b.round(out, problem.dtype());
  bool oneToken = cast<RankedTensorType>(out.getType()).getRank() == 1;
  SmallVector<Value> sizes = oneToken ? SmallVector<Value>{columns}
                                      : SmallVector<Value>{valid, columns};
  tile::StoreOp::create(b, rounded, arg("out"), start,
                        oneToken ? b.index(1) : stride, sizes, align, false);
}

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
// be idle until the loads of a layer's vectors are found. More holds those up.
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
                             all - early, /*now=*/false);
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

void KernelBuilder::finish() {
  // It runs beside the kernel before it, and is not done before that is.
  if (part == Part::Rest)
    awaitLaunch();
  func::ReturnOp::create(b);
}

} // namespace kdac
