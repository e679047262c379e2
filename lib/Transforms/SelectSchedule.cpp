#include "AttentionForm.h"
#include "MatmulForm.h"
#include "Problem.h"
#include "PromptForm.h"
#include "RowsForm.h"
#include "kdac/Passes.h"
#include "kdac/Target/Targets.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace kdac {
#define GEN_PASS_DEF_DPLRSELECTSCHEDULEPASS
#include "kdac/Passes.h.inc"

namespace {

/// Rows of a matrix fragment.
constexpr int64_t kLeastGpuChunk = 16;

constexpr double kLog2E = 1.4426950408889634;

/// log2 of the largest |k| that a leaf's scaled factors must leave room for: 1
/// when normalised, else 2^64, which keeps products of keys inside f32.
double keyExponent(const Problem &problem) {
  return problem.keysNormalised() ? 0.0 : 64.0;
}

/// The largest leaf whose exponents (leaf - 1) * |bound| * log2(e) stay in
/// range (docs/NUMERICS.md): with the keys' own at most 2^120 of f32's 2^128,
/// so that right factors do not overflow; alone at most 2^110, so that a left
/// factor flushed to zero below 2^-126 costs at most 2^-16 of a right one. 1
/// when nothing bounds the decay.
int64_t chooseLeaf(const Problem &problem, int64_t chunk) {
  if (problem.decayRank() < 3)
    return 1;
  std::optional<double> bound = problem.decayBound();
  if (!bound)
    return 1;
  double perToken = -*bound * kLog2E;
  double limit = std::min(110.0, 120.0 - keyExponent(problem));
  int64_t leaf = chunk;
  while (leaf > 1 && (leaf - 1) * perToken > limit)
    leaf /= 2;
  return leaf;
}

/// Product operands: tensor cores take bf16 where the inputs have no more
/// mantissa themselves, else tf32, whose range is f32's. Roles as warps are
/// made for 16-bit operands and refine what rounds most instead.
Type chooseOperand(const Problem &problem, bool host) {
  MLIRContext *context = problem.dtype().getContext();
  if (host)
    return Float32Type::get(context);
  dplr::RecurrenceOp op = problem.recurrence;
  if (op.getPrecision() == dplr::Precision::Fast)
    return BFloat16Type::get(context);
  if (op.getPrecision() == dplr::Precision::High || !problem.dtype().isBF16())
    return FloatTF32Type::get(context);
  return BFloat16Type::get(context);
}

/// Scaled factors of a Gram product. Where all exponents are at most 0 and rows
/// have at most length 1, f16 holds them with three more bits than bf16.
Type chooseGram(const Problem &problem, int64_t leaf, Type operand) {
  bool inUnitBall = problem.keysNormalised() &&
                    isa_and_nonnull<dplr::L2NormOp>(problem.q.map);
  if (problem.decayRank() == 3 && operand.isBF16() && leaf == 1 && inUnitBall &&
      problem.recurrence.getPrecision() != dplr::Precision::Fast)
    return Float16Type::get(operand.getContext());
  return operand;
}

/// Bytes of shared memory a chunk kernel needs, as tile-place lays it out: raw
/// q, k, v; G; the scaled factors of a Gram product; the operand copies of the
/// state, U and W; the C x C matrices. A little high on purpose.
int64_t sharedEstimate(const Problem &problem, int64_t chunk, int64_t vTile,
                       int64_t stages, int64_t operandBytes) {
  int64_t key = llvm::alignTo(problem.keyDim(), 16) + 8;
  int64_t value = vTile + 8;
  auto bytes = [](Type type) { return type.getIntOrFloatBitWidth() / 8; };
  int64_t raw = chunk * (2 * key + value) * bytes(problem.dtype());
  int64_t cumulative = 0;
  if (problem.decayRank() == 3) {
    cumulative = chunk * key * 4;
    raw += chunk * key * bytes(getElementTypeOrSelf(problem.decay.source));
  }
  int64_t factors = 3 * chunk * key * operandBytes;
  int64_t chain = (key + 2 * chunk) * value * operandBytes;
  int64_t squares = 2 * chunk * (chunk + 8) * (4 + operandBytes);
  return stages * raw + cumulative + factors + chain + squares;
}

struct Choice {
  int64_t chunk, vTile, warps, stages = 1;
};

/// 32 state registers a thread leave room for what ptxas loads ahead.
int64_t chooseWarps(int64_t keyTile, int64_t vTile) {
  int64_t warps = 4;
  while (warps < 8 && keyTile * vTile > 32 * 32 * warps)
    warps *= 2;
  return warps;
}

/// State registers a thread may hold. Beside the sums of several Gram levels,
/// or the unpacked operands of tf32 products, ptxas finds no room for more than
/// 32 without spilling.
int64_t stateRegisters(const Problem &problem, int64_t leaf,
                       int64_t operandBytes) {
  bool oneLevel = problem.decayRank() == 3 && leaf > 1;
  return oneLevel && operandBytes == 2 ? 64 : 32;
}

Choice chooseGpuChunk(const Problem &problem, const Target &target,
                      int64_t operandBytes) {
  int64_t keyTile = llvm::alignTo(problem.keyDim(), 16);
  int64_t fullValue = llvm::alignTo(problem.valueDim(), 16);
  // Whole heads first: preparing a chunk twice costs more than it saves.
  for (int64_t chunk : {32, 16})
    for (int64_t vTile : {128, 64, 32, 16})
      for (int64_t stages : {2, 1}) {
        vTile = std::min(vTile, fullValue);
        bool fits = sharedEstimate(problem, chunk, vTile, stages,
                                   operandBytes) <= target.sharedBytesPerBlock;
        int64_t registers =
            stateRegisters(problem, chooseLeaf(problem, chunk), operandBytes);
        if (fits && keyTile * vTile <= registers * 32 * 8)
          return {chunk, vTile, chooseWarps(keyTile, vTile), stages};
      }
  return {16, 16, chooseWarps(keyTile, 16)};
}

/// Every column of the state lies within one warp, whose lanes share its rows.
/// V first, lanes read K; K first, a warp takes 16 columns, 64 contiguous
/// bytes.
Choice chooseGpuStep(const Problem &problem) {
  int64_t fullValue = llvm::alignTo(problem.valueDim(), 16);
  if (problem.needsWholeHeads()) {
    int64_t elements = llvm::alignTo(problem.keyDim(), 16) * fullValue;
    // Warps that columns divide into.
    int64_t warps = llvm::PowerOf2Ceil(elements / 2048);
    return {1, fullValue, std::clamp<int64_t>(warps, 1, 16), 2};
  }
  dplr::RecurrenceOp op = problem.recurrence;
  if (op.getLayout() == dplr::Layout::VK) {
    // About 64 state elements a thread keep enough bytes in flight, of narrow
    // ones in larger blocks.
    bool isNarrow = !problem.stateType().isF32();
    int64_t vTile = std::min<int64_t>(fullValue, isNarrow ? 64 : 32);
    int64_t elements = llvm::alignTo(problem.keyDim(), 16) * vTile;
    int64_t warps = llvm::PowerOf2Ceil(llvm::divideCeil(elements, 2048));
    return {1, vTile, std::min<int64_t>(warps, isNarrow ? 8 : 4)};
  }
  int64_t vTile = std::min<int64_t>(fullValue, 64);
  return {1, vTile, vTile / 16};
}

/// Roles as warps of one kernel: a chain on wgmma, prepare on blocks of 16 rows
/// with one anchor each, raw rows in the bytes of 16-bit products. Null, or
/// what stands against it.
const char *refuseWarps(const Problem &problem, const Target &target) {
  if (!target.hasWarpgroupProducts)
    return "the target has no warpgroup products";
  dplr::RecurrenceOp op = problem.recurrence;
  bool hasChannels = problem.decayRank() == 3;
  if (op.getDelta() != static_cast<bool>(problem.beta))
    return "they need an erase and a write strength, or neither";
  bool normalisesKeys = problem.keysNormalised();
  bool normalisesQueries = isa_and_nonnull<dplr::L2NormOp>(problem.q.map);
  if (hasChannels && normalisesKeys != normalisesQueries)
    return "they need q and k both normalised in the kernel, or neither";
  if (!problem.dtype().isBF16())
    return "they need bf16 inputs";
  if (problem.keyDim() != 64 && problem.keyDim() != 128)
    return "they need a key dim of 64 or 128";
  if (problem.valueDim() % tile::kChainColumns != 0)
    return "they need a value dim that is a multiple of 64";
  return nullptr;
}

/// Five warpgroups: registers for a sixth would have to come from the chain.
/// What the chain does not need prepares.
Choice chooseWarpRoles(int64_t vTile) {
  return {2 * tile::kRoleBlock, vTile, 4 * 5, 6};
}

/// What stands against overrides of such a schedule, or null.
const char *refuseWarpOverrides(const Problem &problem, int64_t chunk,
                                int64_t vTile, int64_t warps) {
  Choice choice = chooseWarpRoles(tile::kChainColumns);
  if (chunk && chunk != choice.chunk)
    return "their chunks have 32 tokens";
  if (warps && warps != choice.warps)
    return "their blocks have 20 warps";
  bool fits = vTile == tile::kChainColumns || vTile == 2 * tile::kChainColumns;
  if (vTile && (!fits || problem.valueDim() % vTile != 0))
    return "they need a v-tile of 64 or 128 that divides the value dim";
  return nullptr;
}

/// Two neighbouring slices of V share what they prepare of channels' decays:
/// of one decay per head that is too little to share.
const char *refuseCluster(const Problem &problem, int64_t vTile) {
  if (problem.decayRank() != 3)
    return "they need a decay per channel, whose preparation is worth sharing";
  if (problem.valueDim() % (2 * tile::kChainColumns) != 0)
    return "they need a value dim that is a multiple of 128";
  if (vTile && vTile != tile::kChainColumns)
    return "their blocks have a v-tile of 64";
  return nullptr;
}

bool areWarps(StringRef roles) {
  return roles == "warps" || roles == "cluster";
}

/// A block anchored before its first row, where a bound keeps 16 tokens in
/// range; f16 holds 2^12 log-decays. Else 1: no exponent is above 0.
int64_t chooseRoleLeaf(const Problem &problem) {
  if (problem.decayRank() < 3)
    return tile::kRoleBlock;
  std::optional<double> bound = problem.decayBound();
  bool fits = bound && -*bound * kLog2E * tile::kRoleBlock <= 120.0;
  return fits ? tile::kRoleBlock : 1;
}

/// GPU kernels read whole 16-byte pieces and fill matrix fragments.
LogicalResult checkGpuDims(func::FuncOp function, const Problem &problem,
                           StringRef target) {
  for (auto [dim, what] : {std::pair(problem.keyDim(), "key dim K"),
                           std::pair(problem.valueDim(), "value dim V")})
    if (dim % 32 != 0 || dim > 256)
      return function.emitOpError()
             << what << " = " << dim << " is not supported on " << target
             << "; multiples of 32 up to 256 are, and the host takes any";
  return success();
}

/// The kernels beside the recurrence's. A chunk form's have enough rows of a
/// tile that what a program makes before it costs little.
void chooseBeside(func::FuncOp function, const Problem &problem,
                  const Target &target) {
  bool host = target.kind == TargetKind::Host;
  MLIRContext *context = function.getContext();
  Type f32 = Float32Type::get(context);
  auto rows = [&](int64_t count, int64_t columns, int64_t warps = 8) {
    return tile::ScheduleAttr::get(context, target.name, "rows", count, 1,
                                   columns, host ? 1 : warps, 1, f32, f32,
                                   "fused", /*refined=*/false);
  };
  auto form = function->getAttrOfType<dplr::FormAttr>("dplr.form");
  if (form.getValue() == dplr::Form::Step) {
    if (problem.q.conv)
      function->setAttr(tile::kKeyCachesAttr, rows(1, 128, 4));
    return;
  }
  if (problem.q.conv)
    function->setAttr(tile::kConvolutionAttr, rows(128, 128));
  if (problem.norm)
    function->setAttr(tile::kOutputNormAttr,
                      rows(64, llvm::alignTo(problem.valueDim(), 16)));
}

/// What no schedule of the target can do.
LogicalResult checkProblem(func::FuncOp function, const Problem &problem,
                           const Target &row, bool isChunk) {
  if (isChunk && problem.eraseA)
    return problem.recurrence.emitOpError()
           << "has no chunk form for a general erase pair yet; use form step";
  if (row.kind == TargetKind::Host)
    return success();
  if (failed(checkGpuDims(function, problem, row.name)))
    return failure();
  // A whole state in the registers of one block, beside what its parts need.
  // The chunk form has kernels of their own for those.
  int64_t elements = problem.keyDim() * problem.valueDim();
  int64_t room = problem.q.conv ? 16384 : 32768;
  if (!isChunk && problem.needsWholeHeads() && elements > room)
    return problem.recurrence.emitOpError()
           << "with its convolution or norm expected a state of at most "
           << room << " elements on " << row.name << ", but got " << elements;
  return success();
}

struct SelectSchedule : impl::DplrSelectSchedulePassBase<SelectSchedule> {
  using DplrSelectSchedulePassBase::DplrSelectSchedulePassBase;

  /// Warps where the kernel can have them, else split wherever there is
  /// something to prepare: chunks in parallel, and a chain short enough for few
  /// heads (docs/PERFORMANCE.md).
  FailureOr<StringRef> chooseRoles(func::FuncOp function,
                                   const Problem &problem, const Target &row,
                                   bool isChunk) {
    bool host = row.kind == TargetKind::Host;
    const char *against =
        isChunk ? refuseWarps(problem, row) : "only the chunk form has them";
    if (roles == "cluster" && !against)
      against = refuseCluster(problem, vTile);
    if (!against)
      against = refuseWarpOverrides(problem, chunk, vTile, warps);
    bool isFree = chunk == 0 && warps == 0;
    bool canSplit = isChunk && !host;
    StringRef chosen = !against && isFree ? "warps"
                       : canSplit         ? "split"
                                          : "fused";
    if (!roles.empty())
      chosen = roles;
    if (areWarps(chosen) && against)
      return problem.recurrence.emitOpError()
             << "cannot have roles " << chosen << ": " << against
             << "; roles split and fused have no such needs";
    if (!order.empty() && !areWarps(chosen))
      return problem.recurrence.emitOpError()
             << "has no order of sequences to choose with roles " << chosen
             << ", which take them as they are given; roles warps and cluster "
                "have";
    if (chosen == "split" && !canSplit)
      return function.emitOpError()
             << "has no split roles "
             << (host ? "on the host" : "in the step form")
             << "; use roles fused";
    return chosen;
  }

  /// What was asked for, else the best.
  Choice chooseTiles(const Problem &problem, const Target &row, bool isChunk,
                     StringRef role, Type operand) {
    bool host = row.kind == TargetKind::Host;
    int64_t fullValue = llvm::alignTo(problem.valueDim(), 16);
    bool isWide = role == "warps" && problem.valueDim() % 128 == 0;
    int64_t widest = isWide ? 128 : 64;
    Choice choice;
    if (areWarps(role))
      choice = chooseWarpRoles(vTile ? vTile : widest);
    else if (host)
      choice = {isChunk ? 32 : 1, fullValue, 1};
    else if (isChunk)
      choice = chooseGpuChunk(problem, row, operand.isBF16() ? 2 : 4);
    else
      choice = chooseGpuStep(problem);
    if (chunk && isChunk)
      choice.chunk = chunk;
    if (vTile && (isChunk || !problem.needsWholeHeads()))
      choice.vTile = vTile;
    if (warps && !host)
      choice.warps = warps;
    return choice;
  }

  FailureOr<tile::ScheduleAttr> choose(func::FuncOp function,
                                       const Problem &problem,
                                       const Target &row, bool isChunk) {
    if (failed(checkProblem(function, problem, row, isChunk)))
      return failure();
    FailureOr<StringRef> role = chooseRoles(function, problem, row, isChunk);
    if (failed(role))
      return failure();
    bool hasWarps = areWarps(*role);
    Type operand = hasWarps
                       ? Type(BFloat16Type::get(&getContext()))
                       : chooseOperand(problem, row.kind == TargetKind::Host);
    Choice choice = chooseTiles(problem, row, isChunk, *role, operand);
    bool isGpuChunk = isChunk && row.kind != TargetKind::Host;
    if (isGpuChunk && choice.chunk < kLeastGpuChunk)
      return function.emitOpError()
             << "has no chunks of " << choice.chunk << " on " << row.name
             << "; 16 and more work, and the host takes any";
    int64_t leaf = hasWarps  ? chooseRoleLeaf(problem)
                   : isChunk ? chooseLeaf(problem, choice.chunk)
                             : 1;
    Type gram = hasWarps ? operand : chooseGram(problem, leaf, operand);
    bool refined =
        hasWarps && problem.recurrence.getPrecision() != dplr::Precision::Fast;
    StringRef form = isChunk ? "chunk" : "step";
    if (failed(tile::ScheduleAttr::verify(
            [&] { return function.emitOpError(); }, row.name, form,
            choice.chunk, leaf, choice.vTile, choice.warps, choice.stages,
            operand, gram, *role, refined)))
      return failure();
    return tile::ScheduleAttr::get(
        &getContext(), row.name, form, choice.chunk, leaf, choice.vTile,
        choice.warps, choice.stages, operand, gram, *role, refined);
  }

  /// Half as wide, twice as many programs, where those fit the GPU at once. The
  /// two halves share what they prepare where that is most of the work, unless
  /// the roles are given.
  void addAlternatives(func::FuncOp function, const Problem &problem,
                       tile::ScheduleAttr s) {
    if (s.getRoles() != "warps" || vTile != 0)
      return;
    if (segments != 1)
      function->setAttr(tile::kSegmentsAttr,
                        OpBuilder(function).getI64IntegerAttr(segments));
    auto with = [&](int64_t width, int64_t warps, StringRef roles) {
      return tile::ScheduleAttr::get(&getContext(), s.getTarget(), s.getForm(),
                                     s.getChunk(), s.getLeaf(), width, warps,
                                     s.getStages(), s.getOperand(), s.getGram(),
                                     roles, s.getRefined());
    };
    int64_t half = s.getVTile() / 2;
    bool shares = roles.empty() && problem.decayRank() == 3;
    if (shares && s.getVTile() == problem.valueDim() &&
        half == tile::kChainColumns)
      function->setAttr(tile::kAssistedAttr,
                        with(s.getVTile(), s.getWarps(), "assisted"));
    if (half % tile::kChainColumns == 0)
      function->setAttr(tile::kFewProgramsAttr,
                        with(half, chooseWarpRoles(half).warps,
                             shares ? "cluster" : "warps"));
  }

  LogicalResult selectRecurrence(func::FuncOp function, const Target &row,
                                 bool isChunk) {
    FailureOr<Problem> problem = Problem::match(function);
    if (failed(problem))
      return failure();
    FailureOr<tile::ScheduleAttr> schedule =
        choose(function, *problem, row, isChunk);
    if (failed(schedule))
      return failure();
    function->setAttr(tile::kScheduleAttr, *schedule);
    if (order == "given")
      function->setAttr(tile::kInOrderAttr, UnitAttr::get(&getContext()));
    chooseBeside(function, *problem, row);
    addAlternatives(function, *problem, *schedule);
    return success();
  }

  LogicalResult select(func::FuncOp function, const Target &row) {
    auto form = function->getAttrOfType<dplr::FormAttr>("dplr.form");
    if (!form)
      return function.emitOpError() << "expected a dplr.form of chunk or step";
    switch (form.getValue()) {
    case dplr::Form::Chunk:
    case dplr::Form::Step:
      return selectRecurrence(function, row,
                              form.getValue() == dplr::Form::Chunk);
    case dplr::Form::Rows:
      return selectRows(function, row);
    case dplr::Form::Attention:
      return selectAttention(function, row, chunk);
    case dplr::Form::Prompt:
      return selectPrompt(function, row, chunk);
    case dplr::Form::Matmul:
      return selectMatmul(function, row, vTile);
    }
    llvm_unreachable("covered switch");
  }

  void runOnOperation() override {
    const Target *row = findTarget(target);
    if (!row) {
      getOperation().emitError() << "unknown target '" << target
                                 << "', expected one of " << targetNames();
      return signalPassFailure();
    }
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function->hasAttr("dplr.form") && failed(select(function, *row)))
        return signalPassFailure();
  }
};

} // namespace
} // namespace kdac
