// Write strengths and log-decays of KernelBuilder: what dplr's maps make of the
// logits in memory, in base 2.
#include "KernelBuilder.h"

using namespace mlir;

namespace kdac {

static constexpr double kLog2E = 1.4426950408889634;

// A base-2 log-decay below this gives exactly 0 even times the largest f32
// (2^128 * 2^-300 < 2^-149), so clamping a token's decay here changes no f32
// result, and keeps differences of cumulative sums meaningful.
static constexpr double kLogDecayFloor = -300.0;

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

} // namespace kdac
