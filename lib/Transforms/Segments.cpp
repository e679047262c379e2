// Sequences cut into segments, for calls whose few programs have many chunks.
//
// What a segment does to a state is affine: S -> A S + Z. Five kernels of one
// call, with R segments in the middle of R + 2:
//   images what prepare passes to the chain, of every chunk, on all of the GPU,
//          each program in turn from all heads;
//   first  the first segment as it is;
//   middle two programs for each in the middle: one runs it from zero, which
//          leaves Z, one from the identity without values, which leaves A.
//          Neither has an output. It runs beside `first`, whose end it awaits
//          at its own, for what comes after it;
//   join   S_1, then S_(s+1) = A_s S_s + Z_s;
//   late   every segment but the first from its own initial state.
// Nothing is approximated. Every chunk but those of the two ends goes through
// three chains, on as many more multiprocessors, and is prepared once.
#include "KernelBuilder.h"
#include "kdac/Target/Targets.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace kdac {

/// A program that only prepares: four pairs of warps and those that transfer,
/// and room for more images than are made at once, which come and go meanwhile.
static constexpr int64_t kImageWarps = 12, kImageStages = 7;
/// Columns of V of a joining program: narrow ones are faster where all run at
/// once. Its warps.
static constexpr int64_t kJoinColumns = 16, kWideJoinColumns = 32;
static constexpr int64_t kJoinWarps = 8;
/// Joining takes time for every segment, and so does filling the rings.
static constexpr int64_t kMostSegments = 16, kLeastChunks = 8;
/// What the two further kernels and a segment cost, in chunks.
static constexpr int64_t kSegmentCost = 16;

//===-- Which segment
//-----------------------------------------------------===//

Value KernelBuilder::heads() { return b.mulI(arg("N"), arg("HV")); }

/// The sequence and head of program `id` and its slice of V, or of the
/// identity's columns. How many segments there are shows in how many programs.
std::pair<Value, Value> KernelBuilder::locateSegment(Value id) {
  int64_t slices = llvm::divideCeil(problem.valueDim(), valueTile);
  int64_t transfers = llvm::divideCeil(problem.keyDim(), valueTile);
  Value programs = tile::NumProgramsOp::create(b, b.getIndexType());
  Value one = b.index(1);
  if (part == Part::First || part == Part::Join) {
    // Those beyond the last state only count the segments.
    Value live = b.mulI(heads(), b.index(slices));
    segments = b.subI(programs, live);
    segment = b.index(0);
    isLive = b.isLess(id, live);
    id = b.minI(id, b.subI(live, one));
    return {b.divI(id, b.index(slices)), b.remI(id, b.index(slices))};
  }
  Value each = b.divI(programs, heads());
  Value sequenceHead = b.divI(id, each), rest = b.remI(id, each);
  if (part == Part::Images) {
    segments = each;
    segment = rest;
    return {sequenceHead, b.index(0)};
  }
  if (part == Part::Late) {
    segments = b.addI(b.divI(each, b.index(slices)), one);
    segment = b.addI(b.divI(rest, b.index(slices)), one);
    return {sequenceHead, b.remI(rest, b.index(slices))};
  }
  Value both = b.index(slices + transfers);
  segments = b.addI(b.divI(each, both), b.index(2));
  segment = b.addI(b.divI(rest, both), one);
  Value within = b.remI(rest, both);
  isTransfer = b.isLess(b.index(slices - 1), within);
  Value column = b.subI(within, b.index(slices));
  return {sequenceHead, b.select(isTransfer, column, within)};
}

/// A program that makes images has every `segments`-th chunk, each of another
/// head than the one before, as heads that decay fast take longer. The HV
/// programs with its chunks begin with one head each, and so have the rest.
Value KernelBuilder::turnsOf(Value chunks) {
  if (part != Part::Images)
    return chunks;
  Value rest = b.maxI(b.subI(chunks, segment), b.index(0));
  imageTurns = arith::CeilDivSIOp::create(b, rest, segments);
  pastSequence = chunks;
  return imageTurns;
}

/// From the last chunk to the first: with that the chains begin, and find it in
/// the L2. Prepare loads ahead, past the last turn what is past the sequence.
Value KernelBuilder::enterTurn(Value turn) {
  if (part != Part::Images)
    return turn;
  // One head further in every round of the pairs of warps: each meets all.
  Value round = b.divI(turn, b.index(tile::preparePairs(schedule)));
  Value moved = b.addI(firstHead, b.addI(turn, round));
  valueHead = b.remI(moved, arg("HV"));
  keyHead = keyHeadOf(valueHead);
  loadGateParameters();
  Value left = b.subI(b.subI(imageTurns, b.index(1)), turn);
  Value number = b.addI(segment, b.mulI(left, segments));
  return b.select(b.isLess(turn, imageTurns), number, pastSequence);
}

/// Segments are whole chunks, as many in each; the last ones may be empty.
void KernelBuilder::narrowToSegment() {
  firstHead = valueHead;
  if (part == Part::Images)
    return;
  Value chunk = b.index(schedule.getChunk()), one = b.index(1);
  Value chunks = arith::CeilDivSIOp::create(b, length, chunk);
  Value each = arith::CeilDivSIOp::create(b, chunks, segments);
  Value used = arith::CeilDivSIOp::create(b, chunks, b.maxI(each, one));
  lastSegment = b.maxI(b.subI(used, one), b.index(0));
  segmentMemory = tile::ViewOp::create(
      b, tile::RefType::get(b.getContext(), b.getF32Type()), arg("workspace"),
      0, imagesAfter);
  if (part == Part::Join)
    return;
  Value tokens = b.mulI(each, chunk);
  Value first = b.minI(b.mulI(segment, tokens), length);
  Value end = b.minI(b.addI(first, tokens), length);
  begin = b.addI(begin, first);
  length = b.subI(end, first);
  if (part == Part::First)
    length = b.select(isLive, length, b.index(0));
}

/// Only the first segment has the sequence's initial state, and the last one
/// writes the final state. Where the first is the last, the second, which is
/// empty, passes its state on.
void KernelBuilder::guardSegment() {
  if (part == Part::First)
    guard("h0", isLive);
  if (part == Part::Middle) {
    Value no = arith::ConstantOp::create(b, b.getBoolAttr(false));
    Value yes = arith::ConstantOp::create(b, b.getBoolAttr(true));
    guard("h0", no);
    guard("out", no);
    guard("v", arith::XOrIOp::create(b, isTransfer, yes));
  }
  if (part == Part::Late)
    guard("ht", b.isEqual(segment, b.maxI(lastSegment, b.index(1))));
}

//===-- States in the workspace
//-------------------------------------------===//

/// Element of the workspace, as f32, behind all images.
Value KernelBuilder::behindImages() {
  int64_t chunk = schedule.getChunk();
  Value images = b.addI(
      arith::CeilDivSIOp::create(b, tokenLimit, b.index(chunk)), arg("N"));
  return b.mulI(b.mulI(images, arg("HV")), b.index(imageBytes / 4));
}

/// First element of the state before segment `number` >= 1 of this sequence and
/// head, V first.
Value KernelBuilder::segmentState(Value number) {
  Value head = b.addI(b.mulI(sequence, arg("HV")), valueHead);
  Value at = b.addI(b.mulI(b.subI(number, b.index(1)), heads()), head);
  return b.addI(behindImages(),
                b.mulI(at, b.index(problem.keyDim() * problem.valueDim())));
}

/// First element, of bf16, of A of segment `number` >= 1: row j is what becomes
/// of unit vector j; then those of what is left of A. All states come before.
Value KernelBuilder::segmentTransfer(Value number) {
  Value head = b.addI(b.mulI(sequence, arg("HV")), valueHead);
  Value at = b.addI(b.mulI(b.subI(number, b.index(1)), heads()), head);
  Value states = b.mulI(b.subI(segments, b.index(1)), heads());
  int64_t state = problem.keyDim() * problem.valueDim();
  int64_t square = problem.keyDim() * problem.keyDim();
  Value behindStates = b.addI(behindImages(), b.mulI(states, b.index(state)));
  return b.addI(b.mulI(behindStates, b.index(2)),
                b.mulI(at, b.index(2 * square)));
}

Value KernelBuilder::transferMemory() {
  return tile::ViewOp::create(
      b, tile::RefType::get(b.getContext(), b.getBF16Type()), arg("workspace"),
      0, imagesAfter);
}

KernelBuilder::StateAccess KernelBuilder::segmentAccess(Value base) {
  Value keyDim = b.index(problem.keyDim());
  return {b.addI(base, b.mulI(firstColumn, keyDim)),
          keyDim,
          {keyDim, columns},
          16,
          true};
}

/// Where the kernel first reads what the one before it wrote.
void KernelBuilder::awaitLaunch() {
  tile::AwaitLaunchOp::create(b);
  function->setAttr("kdac.overlaps", b.getUnitAttr());
}

/// A state and what is left of it, in bf16 each: 16 bits of its elements.
std::pair<Value, Value> KernelBuilder::splitState(Value x) {
  Value high = b.round(x, b.getBF16Type());
  return {high, b.round(b.sub(x, b.toF32(high)), b.getBF16Type())};
}

void KernelBuilder::storeSegment(Value x, Value memory, Value base,
                                 Value condition) {
  StateAccess at = segmentAccess(base);
  memory = b.guarded(memory, condition);
  tile::StoreOp::create(b, x, memory, at.base, at.stride, at.valid, at.align,
                        at.transposed);
}

/// As the initial state of the next segment, as far as it is known.
void KernelBuilder::storeNext(Value state, Value condition) {
  storeSegment(state, segmentMemory, segmentState(b.addI(segment, b.index(1))),
               condition);
}

/// Z or A. What comes next waits for this kernel alone, and so this one for
/// `first`, which runs beside it.
void KernelBuilder::storeMiddle(Value state) {
  Value yes = arith::ConstantOp::create(b, b.getBoolAttr(true));
  storeNext(state, arith::XOrIOp::create(b, isTransfer, yes));
  auto [high, low] = splitState(state);
  Value base = segmentTransfer(segment);
  int64_t square = problem.keyDim() * problem.keyDim();
  storeSegment(high, transferMemory(), base, isTransfer);
  storeSegment(low, transferMemory(), b.addI(base, b.index(square)),
               isTransfer);
  awaitLaunch();
}

/// The identity's columns where this program carries it, else `state`.
Value KernelBuilder::startsAs(Value state) {
  auto shape = cast<RankedTensorType>(state.getType()).getShape();
  auto type = b.tileType(shape, b.getIndexType());
  // Where it is not carried, no row has such a number.
  Value offset = b.select(isTransfer, firstColumn, b.index(keyTile));
  Value rows = tile::IotaOp::create(b, type, 0);
  Value columns = arith::AddIOp::create(b, tile::IotaOp::create(b, type, 1),
                                        b.splat(offset, shape));
  Value isOne = b.isEqual(rows, columns);
  return b.select(isOne, b.constantLike(state, 1.0), state);
}

//===-- Join
//--------------------------------------------------------------===//

/// States are carried transposed, [v, K], as they lie in memory. Factors are
/// split in two bf16 each, 16 bits, whose products are exact in f32 but for
/// that of the two rests, which is left out.
void KernelBuilder::joinSegments() {
  int64_t keyDim = problem.keyDim();
  auto loadTile = [&](Value memory, Value base, int64_t rows,
                      Value valid) -> Value {
    Type element = cast<tile::RefType>(memory.getType()).getElementType();
    return tile::LoadOp::create(b, b.tileType({rows, keyDim}, element), memory,
                                base, b.index(keyDim),
                                ValueRange{valid, b.index(keyDim)}, 16, false);
  };
  auto stateAt = [&](Value number) {
    return b.addI(segmentState(number), b.mulI(firstColumn, b.index(keyDim)));
  };
  Value first = b.index(1);
  Value last = b.select(isLive, b.maxI(lastSegment, first), first);
  awaitLaunch();
  Value initial = loadTile(segmentMemory, stateAt(first), valueTile, columns);
  Value transfers = transferMemory();
  auto join = [&](Value number, ValueRange state) -> SmallVector<Value> {
    Value after = stateAt(b.addI(number, b.index(1)));
    Value base = segmentTransfer(number), rows = b.index(keyDim);
    Value a = loadTile(transfers, base, keyDim, rows);
    Value aRest = loadTile(transfers, b.addI(base, b.index(keyDim * keyDim)),
                           keyDim, rows);
    Value zeroState = loadTile(segmentMemory, after, valueTile, columns);
    auto [s, sRest] = splitState(state[0]);
    Value next = b.dot(s, aRest, zeroState);
    next = b.dot(sRest, a, next);
    next = b.dot(s, a, next);
    tile::StoreOp::create(b, next, segmentMemory, after, b.index(keyDim),
                          ValueRange{columns, b.index(keyDim)}, 16, false);
    return {next};
  };
  b.carry(first, last, first, initial, join);
  finish();
}

//===-- The kernels
//-------------------------------------------------------===//

namespace {

/// How a call is cut, in size expressions.
struct Cut {
  SmallVector<std::string> sizes; ///< "name = expression"
  std::string workspace;
  int64_t columns;   ///< of a middle program: it stores all of them
  int64_t slices;    ///< middle programs of a state
  int64_t transfers; ///< and of a transfer
  int64_t halves;    ///< first and late programs of a state, half as wide

  Cut(const Problem &problem, tile::ScheduleAttr schedule, int64_t count);
};

} // namespace

static std::string text(int64_t number) { return std::to_string(number); }

Cut::Cut(const Problem &problem, tile::ScheduleAttr schedule, int64_t count)
    : columns(problem.keyDim() % schedule.getVTile() ? tile::kChainColumns
                                                     : schedule.getVTile()),
      slices(problem.valueDim() / columns),
      transfers(problem.keyDim() / columns),
      halves(problem.valueDim() / tile::kChainColumns) {
  int64_t keyDim = problem.keyDim(), chunk = schedule.getChunk();
  int64_t sms = findTarget(schedule.getTarget())->multiprocessors;
  // As many segments as have programs at once: those of the middle beside the
  // first, late without it. Rounded down, by ceildiv(x + 1, y) - 1.
  std::string early = "2 + minus(ceildiv(minus(at_once, " + text(halves) +
                      ") + 1, " + text(slices + transfers) + "), 1)";
  std::string late = "1 + minus(ceildiv(at_once + 1, " + text(halves) + "), 1)";
  std::string useful = "min(" + text(kMostSegments) +
                       ", max(3, ceildiv(chunks, " + text(kLeastChunks) + ")))";
  std::string chosen =
      "max(2, min(" + useful + ", min(" + early + ", " + late + ")))";
  sizes = {"chunks = ceildiv(tokens, " + text(chunk) + " * max(1, N))",
           "at_once = minus(ceildiv(" + text(sms + 1) + ", max(1, N * HV)), 1)",
           "segments = " + (count ? text(std::max<int64_t>(count, 2)) : chosen),
           "segmented = less(" + text(kSegmentCost) +
               " * segments + 2 * chunks, chunks * segments)"};
  workspace = "(ceildiv(tokens, " + text(chunk) + ") + N) * HV * " +
              text(tile::imageBytes(keyDim, schedule)) +
              " + N * HV * segments * " +
              text(keyDim * (keyDim + problem.valueDim()) * 4);
}

std::string buildSegments(func::FuncOp source, const Problem &problem,
                          tile::ScheduleAttr schedule, int64_t count) {
  Cut cut(problem, schedule, count);
  int64_t imageBytes = tile::imageBytes(problem.keyDim(), schedule);
  Builder b(source.getContext());
  auto with = [&](StringRef roles, int64_t vTile, int64_t warps,
                  int64_t stages) {
    return tile::ScheduleAttr::get(
        b.getContext(), schedule.getTarget(), schedule.getForm(),
        schedule.getChunk(), schedule.getLeaf(), vTile, warps, stages,
        schedule.getOperand(), schedule.getGram(), roles,
        schedule.getRefined() && roles != "fused");
  };
  auto chain = [&](int64_t vTile) {
    return with("chain", vTile, 4 * (vTile / tile::kChainColumns + 1),
                schedule.getStages());
  };
  auto build = [&](Part part, StringRef suffix, tile::ScheduleAttr schedule,
                   const std::string &grid) {
    KernelBuilder kernel(source, problem, schedule, part);
    kernel.imageBytes = imageBytes;
    if (part == Part::Join)
      kernel.joinSegments();
    else
      buildChunkForm(kernel);
    func::FuncOp f = kernel.function;
    f.setName((source.getName() + suffix).str());
    f->setAttr("kdac.grid", b.getStringAttr(grid));
    f->setAttr("kdac.when", b.getStringAttr("segmented"));
    if (part == Part::Images) // which ptxas cannot know
      f->setAttr("kdac.min_blocks", b.getI64IntegerAttr(1));
    // Convolved rows stand before the images, whatever schedule is picked.
    std::string workspace = cut.workspace;
    if (problem.q.conv)
      workspace =
          kernel.convolvedBytes() + " + segmented * (" + workspace + ")";
    f->setAttr("kdac.workspace", b.getStringAttr(workspace));
    f->setAttr("kdac.sizes",
               b.getStrArrayAttr(llvm::to_vector_of<StringRef>(cut.sizes)));
  };
  build(Part::Images, "_images",
        with("prepare", schedule.getVTile(), kImageWarps, kImageStages),
        "N * HV * max(1, at_once)");
  // Programs without a state say how many segments there are.
  build(Part::First, "_first", chain(tile::kChainColumns),
        "N * HV * " + text(cut.halves) + " + segments");
  build(Part::Middle, "_middle", chain(cut.columns),
        "N * HV * " + text(cut.slices + cut.transfers) +
            " * minus(segments, 2)");
  auto join = [&](StringRef suffix, int64_t columns, std::string fits) {
    build(Part::Join, suffix, with("fused", columns, kJoinWarps, 2),
          fits + " * less(0, N * HV * minus(segments, 2)) * (N * HV * " +
              text(llvm::divideCeil(problem.valueDim(), columns)) +
              " + segments)");
  };
  int64_t joins = llvm::divideCeil(problem.valueDim(), kJoinColumns);
  join("_join", kJoinColumns, "less(" + text(joins - 1) + ", at_once)");
  join("_join_wide", kWideJoinColumns, "less(at_once, " + text(joins) + ")");
  build(Part::Late, "_late", chain(tile::kChainColumns),
        "N * HV * " + text(cut.halves) + " * minus(segments, 1)");
  return "segmented";
}

} // namespace kdac
