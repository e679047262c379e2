// The frame of a kernel: arguments, the program's sequence, head and slice,
// rows of tokens. Other parts of KernelBuilder: State.cpp, Gates.cpp,
// Layer.cpp, LayerRows.cpp, Log.cpp, Segments.cpp.
#include "KernelBuilder.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace kdac {

static Type elementType(Value tensor) {
  return cast<RankedTensorType>(tensor.getType()).getElementType();
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
  if (part != Part::Images) // those of a turn
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
  keyHead = keyHeadOf(valueHead);
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

Value KernelBuilder::keyHeadOf(Value head) {
  return b.divI(head, b.divI(arg("HV"), arg("H")));
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

void KernelBuilder::finish() {
  // It runs beside the kernel before it, and is not done before that is.
  if (part == Part::Rest)
    awaitLaunch();
  func::ReturnOp::create(b);
}

} // namespace kdac
