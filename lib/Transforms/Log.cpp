// The log of a step's tokens: rows of f32 in the workspace, from which a kernel
// of its own replays what was accepted, bit by bit as the step went on.
#include "KernelBuilder.h"

#include "llvm/Support/MathExtras.h"

#include <numeric>

using namespace mlir;

namespace kdac {

/// The row of a token and value head: k [K], w [V], with an erase pair a [K]
/// and c [V], then the decay's factors, [K] or one.
struct KernelBuilder::LogRow {
  Value ref;
  Value base; ///< element of the row
  int64_t k = 0, w, a, c, decay, size;
};

KernelBuilder::LogRow KernelBuilder::logRow(Value token) {
  LogRow row;
  int64_t key = problem.keyDim(), value = problem.valueDim();
  row.w = key;
  row.a = row.w + value;
  row.c = row.a + (problem.eraseA ? key : 0);
  row.decay = row.c + (problem.eraseA ? value : 0);
  int64_t rank = problem.decayRank();
  row.size = llvm::alignTo(row.decay + (rank == 3 ? key : rank ? 1 : 0), 4);
  if (!token)
    return row;
  Value memory = arg("workspace");
  auto type = tile::RefType::get(b.getContext(), b.getF32Type());
  row.ref = tile::ViewOp::create(b, type, memory, 0, Value());
  if (logGuard)
    row.ref = b.guarded(row.ref, logGuard);
  row.base =
      b.mulI(b.addI(b.mulI(token, arg("HV")), valueHead), b.index(row.size));
  return row;
}

std::string KernelBuilder::logBytes() const {
  LogRow row = const_cast<KernelBuilder *>(this)->logRow({});
  std::string bytes = "tokens * HV * " + std::to_string(row.size * 4);
  return problem.q.conv ? bytes + " + " + convolvedBytes() : bytes;
}

/// Bytes that a section's vectors are aligned to in every row.
static int64_t alignmentOf(int64_t section, int64_t size, int64_t width) {
  int64_t elements = std::gcd(std::gcd(section, size), width);
  return std::min<int64_t>(16, (elements & -elements) * 4);
}

void KernelBuilder::storeRow(const LogRow &row, Value vector, int64_t section,
                             bool isKey) {
  // Of the programs of a head the first keeps what they have in common.
  Value ref = row.ref;
  if (isKey)
    ref = b.guarded(ref, b.isEqual(firstColumn, b.index(0)));
  Value at = b.addI(row.base, b.index(section));
  if (!isKey)
    at = b.addI(at, firstColumn);
  Value count = isKey ? b.index(problem.keyDim()) : columns;
  int64_t width =
      isKey ? problem.keyDim() : std::gcd(problem.valueDim(), valueTile);
  if (!isa<RankedTensorType>(vector.getType())) {
    vector = b.splat(vector, {1});
    count = b.index(width = 1);
  }
  tile::StoreOp::create(b, vector, ref, at, b.index(1), ValueRange{count},
                        alignmentOf(section, row.size, width), false);
}

Value KernelBuilder::loadRow(const LogRow &row, int64_t section, bool isKey) {
  Value at = b.addI(row.base, b.index(section));
  if (!isKey)
    at = b.addI(at, firstColumn);
  int64_t width =
      isKey ? problem.keyDim() : std::gcd(problem.valueDim(), valueTile);
  return b.once(tile::LoadOp::create(
      b, b.tileType({isKey ? keyTile : valueTile}), row.ref, at, b.index(1),
      ValueRange{isKey ? b.index(problem.keyDim()) : columns},
      alignmentOf(section, row.size, width), false));
}

void KernelBuilder::storeLog(const Update &update, Value token) {
  LogRow row = logRow(token);
  storeRow(row, update.k, row.k, true);
  if (update.decay)
    storeRow(row, update.decay, row.decay, true);
  if (update.a)
    storeRow(row, update.a, row.a, true);
  storeRow(row, update.w, row.w, false);
  if (update.c)
    storeRow(row, update.c, row.c, false);
}

KernelBuilder::Update KernelBuilder::loadLog(Value token) {
  LogRow row = logRow(token);
  Update update;
  update.k = loadRow(row, row.k, true);
  if (problem.decayRank() == 3)
    update.decay = loadRow(row, row.decay, true);
  else if (problem.decayRank())
    update.decay = tile::LoadScalarOp::create(
        b, b.getF32Type(), row.ref, b.addI(row.base, b.index(row.decay)),
        b.f32(1));
  update.w = loadRow(row, row.w, false);
  if (problem.eraseA) {
    update.a = loadRow(row, row.a, true);
    update.c = loadRow(row, row.c, false);
  }
  return update;
}

Value KernelBuilder::decayed(const Update &update, Value state) {
  if (!update.decay)
    return state;
  return b.mul(state, b.rowFactor(update.decay, state));
}

/// Fused by name, so that step and commit round alike.
Value KernelBuilder::written(const Update &update, Value decayed) {
  Value next = b.fma(b.rowFactor(update.k, decayed),
                     b.colFactor(update.w, decayed), decayed);
  if (!update.a)
    return next;
  return b.fma(b.rowFactor(update.a, next), b.colFactor(update.c, next), next);
}

KernelBuilder::ConvolvedRows KernelBuilder::loggedInputs() {
  int64_t row = logRow({}).size * 4;
  return convolvedRows(b.mulI(b.mulI(tokenLimit, arg("HV")), b.index(row)));
}

void KernelBuilder::logInputs(ArrayRef<Channels> channels,
                              ArrayRef<Value> inputs, Value token) {
  ConvolvedRows rows = loggedInputs();
  // Of the programs that share a key head the first keeps its inputs.
  Value isFirst =
      b.isEqual(b.remI(valueHead, b.divI(arg("HV"), arg("H"))), b.index(0));
  Value keepsKey = b.both(logGuard, isFirst);
  for (const Channels &c : channels) {
    Value input = inputs[c.taps - 1];
    inputs = inputs.drop_front(c.taps);
    Value at =
        b.addI(b.addI(b.mulI(token, rows.stride), rows.start[c.name]), c.first);
    tile::StoreOp::create(
        b, b.round(input, problem.dtype()),
        b.guarded(rows.ref, c.name == "v" ? logGuard : keepsKey), at,
        b.index(1), ValueRange{c.count}, tile::bytesOf(problem.dtype()), false);
  }
}

Value KernelBuilder::committedTokens() {
  Value count = b.loadIndex(arg("accepted"), sequence, b.index(0));
  return b.minI(b.maxI(count, b.index(0)), length);
}

void buildCommit(KernelBuilder &kernel) {
  TileBuilder &b = kernel.b;
  Value count = kernel.committedTokens();
  Value initial = kernel.loadState();
  auto replay = [&](Value number, ValueRange state) -> SmallVector<Value> {
    Value token = b.addI(kernel.begin, number);
    KernelBuilder::Update update = kernel.loadLog(token);
    return {kernel.written(update, kernel.decayed(update, state[0]))};
  };
  kernel.storeState(b.carry(count, initial, replay)[0]);
  kernel.finish();
}

} // namespace kdac
