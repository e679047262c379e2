#include "RecurrenceCase.h"
#include "kdac/Reference/Cache.h"
#include "kdac/Reference/Pool.h"

namespace kdac::reference {

Layout recurrenceLayout(const Case &c, const std::string &name) {
  const Variant &v = c.spec().variant;
  int64_t h = c.heads(), hv = c.valueHeads(), keyDim = v.keyDim;
  bool perHead = v.row().decay != Decay::Channel;
  auto sequence = [&](int64_t heads, int64_t width) {
    return Layout{c.tokens(), heads, width, heads * width + c.spec().tokenGap};
  };
  if (name == "q" || name == "k" || name == "a" || name == "b")
    return sequence(h, keyDim);
  if (name == "q_conv" || name == "k_conv")
    return {1, h, keyDim * v.conv, h * keyDim * v.conv};
  if (name == "v_conv")
    return {1, hv, v.valueDim * v.conv, hv * v.valueDim * v.conv};
  if (isCache(name)) {
    int64_t channels = name[0] == 'v' ? hv * v.valueDim : h * keyDim;
    int64_t slot = channels * cacheEntries(v);
    return {v.slots ? c.poolSlots() : c.sequences(), 1, slot,
            slot + c.spec().cacheGap};
  }
  if (name == "norm_weight")
    return {1, 1, v.valueDim, v.valueDim};
  if (name == "v" || name == "out" || name == "z")
    return sequence(hv, v.valueDim);
  if (name == "beta")
    return sequence(hv, 1);
  if (name == "g" && v.row().decay != Decay::HeadConstant)
    return sequence(hv, perHead ? 1 : keyDim);
  if (name == "dt_bias" && !perHead)
    return {1, hv, keyDim, hv * keyDim};
  if ((name == "h0" || name == "ht") && v.slots)
    return {c.poolSlots() * (hv + c.spec().slotGap), 1, keyDim * v.valueDim,
            keyDim * v.valueDim + c.spec().headGap};
  if (name == "slots" || name == "sources" || name == "accepted")
    return {1, 1, c.sequences(), c.sequences()};
  if (name == "snapshots")
    return {1, 1, c.tokens(), c.tokens()};
  if (name == "status")
    return {1, 1, 1, 1};
  if (name == "h0" || name == "ht")
    return {c.sequences(), hv, keyDim * v.valueDim, hv * keyDim * v.valueDim};
  if (name == "offsets")
    return {1, 1, c.sequences() + 1, c.sequences() + 1};
  return {1, hv, 1, hv}; // A_log, g per head, dt_bias per head
}

int64_t recurrenceSize(const Case &c, const std::string &name) {
  const CaseSpec &spec = c.spec();
  if (name == "N")
    return c.sequences();
  if (name == "T") // all tokens when packed, else those of one sequence
    return spec.lengths.empty() ? spec.tokens : c.tokens();
  if (name == "H")
    return c.heads();
  if (name == "HV")
    return c.valueHeads();
  if (name == "pool")
    return c.poolSlots();
  if (name == "head_pitch")
    return recurrenceLayout(c, "h0").stride;
  if (name == "slot_pitch")
    return c.poolRow(1, 0) * recurrenceLayout(c, "h0").stride;
  if (name.size() > 6 && name.rfind("_pitch") == name.size() - 6)
    return recurrenceLayout(c, name.substr(0, name.size() - 6)).stride;
  return c.strideOf(name);
}

Operands operandsOf(const Case &c) {
  const Variant &v = c.spec().variant;
  const Recurrence &row = v.row();
  Operands op;
  op.heads = c.heads();
  op.valueHeads = c.valueHeads();
  op.keyDim = v.keyDim;
  op.valueDim = v.valueDim;
  op.offsets = c.offsets();
  op.q = *v.l2norm ? l2norm(c.rows("q"), v.keyDim) : c.rows("q");
  op.k = *v.l2norm ? l2norm(c.rows("k"), v.keyDim) : c.rows("k");
  op.v = c.rows("v");
  op.perChannel = row.decay == Decay::Channel;
  if (row.decay != Decay::None)
    op.decay =
        logDecay({*v.gate, c.rows("A_log"), c.rows("dt_bias"), v.lowerBound},
                 c.rows("g"), op.perChannel ? v.keyDim : 1);
  if (row.decay == Decay::HeadConstant)
    op.decay = [constant = op.decay](int64_t, int64_t head, double *x) {
      constant(0, head, x);
    };
  if (*v.beta != Beta::None)
    op.beta = writeStrength(*v.beta, c.rows("beta"));
  op.delta = row.erase == Erase::Delta;
  op.a = c.rows("a");
  op.b = c.rows("b");
  op.initial = c.rows("h0");
  if (v.slots)
    addPool(c, op);
  addLayer(c, op);
  op.layout = v.stateLayout;
  op.scale = c.scale();
  return op;
}

} // namespace kdac::reference
