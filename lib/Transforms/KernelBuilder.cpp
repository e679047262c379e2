#include "KernelBuilder.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace kdac {

static constexpr double kLog2E = 1.4426950408889634;

// A base-2 log-decay below this gives exactly 0 even times the largest f32
// (2^128 * 2^-300 < 2^-149), so clamping a token's decay here changes no f32
// result, and keeps differences of cumulative sums meaningful.
static constexpr double kLogDecayFloor = -300.0;

static Type elementType(Value tensor) {
  return cast<RankedTensorType>(tensor.getType()).getElementType();
}

/// Bytes that every line of `count` elements is known to be aligned to.
static int64_t lineAlignment(int64_t count, Type element) {
  int64_t bytes = count * (element.getIntOrFloatBitWidth() / 8);
  return std::min<int64_t>(16, bytes & -bytes);
}

KernelBuilder::KernelBuilder(func::FuncOp source, const Problem &problem,
                             tile::ScheduleAttr schedule)
    : problem(problem), schedule(schedule), base(source),
      b(source.getLoc(), base) {
  keyTile = llvm::alignTo(problem.keyDim(), 16);
  valueTile = schedule.getVTile();
  createFunction(source);
  locateProgram();
  loadGateParameters();
}

void KernelBuilder::createFunction(func::FuncOp source) {
  // Canonical order: see kernelArgs in include/kdac/Variant/Variant.h.
  SmallVector<std::string> names;
  SmallVector<Type> types;
  SmallVector<std::string> strided;
  auto ref = [&](StringRef name, Type element, bool hasTokens) {
    names.push_back(name.str());
    types.push_back(tile::RefType::get(b.getContext(), element));
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
  ref("h0", problem.stateType(), false);
  ref("offsets", offsets ? elementType(offsets) : b.getI32Type(), false);
  ref("out", problem.dtype(), true);
  ref("ht", problem.stateType(), false);
  if (schedule.getForm() == "chunk")
    ref("workspace", b.getI8Type(), false);
  for (StringRef size : {"N", "T", "H", "HV"}) {
    names.push_back(size.str());
    types.push_back(b.getIndexType());
  }
  for (const std::string &name : strided) {
    names.push_back(name);
    types.push_back(b.getIndexType());
  }
  names.push_back("scale");
  types.push_back(b.getF32Type());

  function = func::FuncOp::create(b, source.getName(),
                                  b.getFunctionType(types, {}));
  function->setAttr(tile::kKernelAttr, b.getUnitAttr());
  function->setAttr(tile::kScheduleAttr, schedule);
  function->setAttr("kdac.v_tile", b.getI64IntegerAttr(valueTile));
  function->setAttr("kdac.slices",
                    b.getI64IntegerAttr(llvm::divideCeil(problem.valueDim(),
                                                         valueTile)));
  b.setInsertionPointToStart(function.addEntryBlock());
  for (auto [i, name] : llvm::enumerate(names)) {
    args[name] = function.getArgument(i);
    function.setArgAttr(i, "kdac.name", b.getStringAttr(name));
  }
}

void KernelBuilder::locateProgram() {
  int64_t slices = llvm::divideCeil(problem.valueDim(), valueTile);
  Value id = tile::ProgramIdOp::create(b, b.getIndexType());
  Value slice = b.remI(id, b.index(slices));
  Value sequenceHead = b.divI(id, b.index(slices));
  valueHead = b.remI(sequenceHead, arg("HV"));
  sequence = b.divI(sequenceHead, arg("HV"));
  keyHead = b.divI(valueHead, b.divI(arg("HV"), arg("H")));
  firstColumn = b.mulI(slice, b.index(valueTile));
  columns = b.minI(b.index(valueTile),
                   b.subI(b.index(problem.valueDim()), firstColumn));

  // Offsets live in device memory, where the host cannot check them: clamping
  // to the buffer turns bad ones into wrong results, never into wild accesses.
  auto offset = [&](Value n) -> Value {
    return tile::LoadScalarOp::create(b, b.getIndexType(), arg("offsets"), n,
                                      b.mulI(n, arg("T")));
  };
  Value next = b.addI(sequence, b.index(1));
  Value packed = tile::PresentOp::create(b, arg("offsets"));
  Value limit = arith::SelectOp::create(b, packed, arg("T"),
                                        b.mulI(arg("N"), arg("T")));
  begin = b.minI(b.maxI(offset(sequence), b.index(0)), limit);
  Value end = b.minI(b.maxI(offset(next), begin), limit);
  length = b.subI(end, begin);
}

Value KernelBuilder::loadRows(StringRef name, Value first, Value offset,
                              int64_t rows, Value valid, int64_t tileWidth,
                              Value width, int64_t fullWidth) {
  Value ref = arg(name), stride = arg((name + "_stride").str());
  Type element = cast<tile::RefType>(ref.getType()).getElementType();
  int64_t align = lineAlignment(fullWidth, element);
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

Value KernelBuilder::loadValueRows(Value first, int64_t rows, Value valid) {
  int64_t width = problem.valueDim();
  Value offset = b.addI(b.mulI(valueHead, b.index(width)), firstColumn);
  return loadRows("v", first, offset, rows, valid, valueTile, columns, width);
}

Value KernelBuilder::loadPerHead(StringRef name, Value first, int64_t rows,
                                 Value valid) {
  Value ref = arg(name), stride = arg((name + "_stride").str());
  Value start = b.addI(b.mulI(first, stride), valueHead);
  if (rows == 0)
    return tile::LoadScalarOp::create(b, b.getF32Type(), ref, start, b.f32(0));
  Type element = cast<tile::RefType>(ref.getType()).getElementType();
  int64_t align = element.getIntOrFloatBitWidth() / 8;
  return b.toF32(tile::LoadOp::create(b, b.tileType({rows}, element), ref, start,
                                      stride, ValueRange{valid}, align, false));
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
  if (!mappedGate(problem))
    return;
  // exp(A_log), kept finite so that it never meets a zero as inf * 0.
  Value rateLog = tile::LoadScalarOp::create(b, b.getF32Type(), arg("A_log"),
                                             valueHead, b.f32(0));
  gateRate = b.exp2(b.min(b.mul(rateLog, kLog2E), 126.0));
  if (problem.decayRank() != 3) {
    gateBias = tile::LoadScalarOp::create(b, b.getF32Type(), arg("dt_bias"),
                                          valueHead, b.f32(0));
    return;
  }
  int64_t width = problem.keyDim();
  gateBias = tile::LoadOp::create(
      b, b.tileType({keyTile}), arg("dt_bias"),
      b.mulI(valueHead, b.index(width)), b.index(1), ValueRange{b.index(width)},
      lineAlignment(width, b.getF32Type()), false);
}

Value KernelBuilder::mapGate(Value logits) {
  dplr::LogDecayOp gate = mappedGate(problem);
  if (!gate)
    return b.max(b.mul(logits, kLog2E), kLogDecayFloor);
  Value rate = gateRate, bias = gateBias;
  if (auto type = dyn_cast<RankedTensorType>(logits.getType())) {
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
  Value decay = b.mul(b.mul(rate, b.softplus(x)), -kLog2E);
  return b.max(decay, kLogDecayFloor);
}

Value KernelBuilder::loadLogDecay(Value first, int64_t rows, Value valid) {
  if (!problem.decay)
    return {};
  Value logits;
  if (problem.decayRank() == 1) {
    logits = tile::LoadScalarOp::create(b, b.getF32Type(), arg("g"), valueHead,
                                        b.f32(0));
    if (rows)
      logits = b.splat(logits, {rows});
  } else if (problem.decayRank() == 2) {
    logits = loadPerHead("g", first, rows, valid);
  } else {
    logits = b.toF32(loadKeyRows("g", first, rows, valid));
  }
  Value decay = mapGate(logits);
  return rows ? b.maskRows(decay, valid) : decay;
}

void KernelBuilder::markCut(Value number) {
  if (schedule.getRoles() != "split")
    return;
  // Sequence n owns the images from begin / C + n on: as many as it has chunks,
  // without knowing any other sequence's length.
  Value first = b.addI(b.divI(begin, b.index(schedule.getChunk())), sequence);
  Value image = b.addI(b.mulI(b.addI(first, number), arg("HV")), valueHead);
  tile::CutOp::create(b, image);
}

void KernelBuilder::storeOut(Value out, Value first, Value valid) {
  int64_t width = problem.valueDim();
  Value stride = arg("out_stride");
  Value start = b.addI(b.mulI(first, stride),
                       b.addI(b.mulI(valueHead, b.index(width)), firstColumn));
  int64_t align = lineAlignment(width, problem.dtype());
  Value rounded = b.round(out, problem.dtype());
  bool oneToken = cast<RankedTensorType>(out.getType()).getRank() == 1;
  SmallVector<Value> sizes =
      oneToken ? SmallVector<Value>{columns} : SmallVector<Value>{valid, columns};
  tile::StoreOp::create(b, rounded, arg("out"), start,
                        oneToken ? b.index(1) : stride, sizes, align, false);
}

KernelBuilder::StateAccess KernelBuilder::stateAccess() {
  int64_t keyDim = problem.keyDim(), valueDim = problem.valueDim();
  bool vFirst = problem.recurrence
                    .getLayout() == dplr::Layout::VK;
  Value state = b.addI(b.mulI(sequence, arg("HV")), valueHead);
  Value start = b.mulI(state, b.index(keyDim * valueDim));
  int64_t line = vFirst ? keyDim : valueDim;
  Value slice = vFirst ? b.mulI(firstColumn, b.index(keyDim)) : firstColumn;
  return {b.addI(start, slice),
          b.index(line),
          {b.index(keyDim), columns},
          lineAlignment(line, problem.stateType()),
          vFirst};
}

Value KernelBuilder::loadState() {
  StateAccess at = stateAccess();
  auto type = b.tileType({keyTile, valueTile}, problem.stateType());
  return b.toF32(tile::LoadOp::create(b, type, arg("h0"), at.base, at.stride,
                                      at.valid, at.align, at.transposed));
}

void KernelBuilder::storeState(Value state) {
  StateAccess at = stateAccess();
  tile::StoreOp::create(b, b.round(state, problem.stateType()), arg("ht"),
                        at.base, at.stride, at.valid, at.align, at.transposed);
}

void KernelBuilder::finish() { func::ReturnOp::create(b); }

} // namespace kdac
