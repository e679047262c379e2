#include "BenchRecurrence.h"

#include "kdac/Reference/Cache.h"

#include <cmath>
#include <map>

namespace kdac::selftest {

using reference::Rows;

static bool isOfKeyHeads(const Arg &tensor) {
  return tensor.shape.find("HV") == std::string::npos;
}

/// Of a pool: those that the sequences start from, then the snapshots'.
int64_t BenchRecurrence::slots() const {
  return shape.sequences + (v.snapshots ? shape.allTokens() : 0);
}

/// Elements of one token, or of a whole parameter.
int64_t BenchRecurrence::rowElements(const Arg &tensor) const {
  int64_t heads = isOfKeyHeads(tensor) ? shape.heads : shape.valueHeads;
  if (tensor.name == "norm_weight")
    return v.valueDim;
  bool isConv = tensor.name.substr(1) == "_conv";
  if (isConv || reference::isCache(tensor.name))
    return heads * (tensor.name[0] == 'v' ? v.valueDim : v.keyDim) *
           (isConv ? v.conv : cacheEntries(v));
  if (tensor.shape.find(", K]") != std::string::npos)
    return heads * v.keyDim;
  return tensor.shape.find(", V]") != std::string::npos ? heads * v.valueDim
                                                        : heads;
}

int64_t BenchRecurrence::elements(const Arg &tensor) const {
  const std::string &name = tensor.name;
  int64_t state = shape.valueHeads * v.keyDim * v.valueDim;
  if (name == "h0")
    return shape.sequences * state;
  if (name == "ht")
    return slots() * state;
  if (name == "snapshots")
    return shape.allTokens();
  if (name == "offsets")
    return shape.lengths.empty() ? 0 : shape.sequences + 1;
  if (name == "slots" || name == "accepted")
    return shape.sequences;
  if (name == "sources" || name == "status")
    return 0;
  int64_t width = rowElements(tensor);
  if (reference::isCache(name))
    return slots() * width;
  return tensor.shape.rfind("[tokens", 0) == 0 ? shape.allTokens() * width
                                               : width;
}

/// Of pools what the sequences read and what they write.
double BenchRecurrence::moved(const Arg &tensor, double bytes) const {
  bool isCache = reference::isCache(tensor.name);
  if (tensor.name == "ht" && v.log)
    return 0;
  if (!isCache && (tensor.name != "ht" || !v.snapshots))
    return bytes;
  double written = v.snapshots ? slots() - shape.sequences : shape.sequences;
  return bytes / slots() * (written + (isCache ? shape.sequences : 0));
}

int64_t BenchRecurrence::size(const std::string &name) const {
  int64_t matrix = v.keyDim * v.valueDim;
  for (auto [size, value] :
       {std::pair("N", shape.sequences),
        {"T", shape.lengths.empty() ? shape.tokens : shape.allTokens()},
        {"H", shape.heads},
        {"HV", shape.valueHeads},
        {"pool", slots()},
        {"slot_pitch", shape.valueHeads * matrix},
        {"head_pitch", matrix}})
    if (name == size)
      return value;
  for (const Arg &tensor : kernelArgs(v))
    if (name == tensor.name + "_stride" || name == tensor.name + "_pitch")
      return rowElements(tensor);
  return 0;
}

float BenchRecurrence::scale(const std::string &) const {
  return 1 / std::sqrt(static_cast<float>(v.keyDim));
}

std::vector<int64_t> BenchRecurrence::integers(const Arg &tensor) const {
  if (tensor.name == "offsets")
    return shape.bounds();
  int64_t count = elements(tensor);
  if (tensor.name == "accepted") // all
    return std::vector<int64_t>(static_cast<size_t>(count), shape.allTokens());
  return countFrom(tensor.name == "snapshots" ? shape.sequences : 0, count);
}

/// The convolution in front of q, k or v, of the sampled heads.
static Rows convolved(const Variant &v, const std::string &name,
                      std::map<std::string, Rows> &rows,
                      std::vector<int64_t> heads, int64_t allHeads,
                      std::vector<int64_t> offsets) {
  int64_t width = name == "v" ? v.valueDim : v.keyDim;
  int64_t entries = cacheEntries(v), channels = allHeads * width;
  reference::ShortConv conv;
  conv.input = rows[name];
  conv.weight = rows[name + "_conv"];
  conv.width = width;
  conv.taps = v.conv;
  conv.offsets = std::move(offsets);
  conv.before = [&v, cache = rows[name + "_cache"], heads = std::move(heads),
                 width, entries,
                 channels](int64_t n, int64_t head, int64_t back, double *row) {
    std::vector<double> slot(static_cast<size_t>(channels * entries));
    cache(n, 0, slot.data());
    for (int64_t c = 0; c < width; ++c)
      row[c] = slot[reference::cacheIndex(v, channels, heads[head] * width + c,
                                          entries - back)];
  };
  return reference::shortConv(std::move(conv));
}

reference::Operands
BenchRecurrence::operands(Patterns &patterns,
                          const std::vector<int64_t> &valueHeads) const {
  std::vector<int64_t> keyHeads;
  for (int64_t head : valueHeads)
    keyHeads.push_back(head / (shape.valueHeads / shape.heads));
  std::map<std::string, Rows> rows;
  for (const Arg &arg : kernelArgs(v)) {
    bool isCache = reference::isCache(arg.name);
    if ((arg.kind != ArgKind::Input && !isCache) || arg.dtype == DType::I32 ||
        arg.dtype == DType::I64)
      continue;
    int64_t row = rowElements(arg);
    if (isCache || arg.name == "norm_weight") { // not by heads
      rows[arg.name] = rowsOf(patterns.of(v, arg), row, row);
      continue;
    }
    int64_t heads = isOfKeyHeads(arg) ? shape.heads : shape.valueHeads;
    if (arg.name == "h0")
      row = heads * v.keyDim * v.valueDim;
    rows[arg.name] = rowsOf(patterns.of(v, arg), row / heads, row,
                            isOfKeyHeads(arg) ? keyHeads : valueHeads);
  }
  const Recurrence &family = v.row();
  reference::Operands op;
  op.heads = op.valueHeads = static_cast<int64_t>(valueHeads.size());
  op.keyDim = v.keyDim;
  op.valueDim = v.valueDim;
  op.offsets = shape.bounds();
  for (const char *name : {"q", "k", "v"})
    if (v.conv) {
      bool isValue = *name == 'v';
      rows[name] =
          convolved(v, name, rows, isValue ? valueHeads : keyHeads,
                    isValue ? shape.valueHeads : shape.heads, op.offsets);
    }
  if (v.norm != OutputNorm::None)
    op.norm = {v.norm, rows["z"], rows["norm_weight"], v.normEps};
  op.q = *v.l2norm ? reference::l2norm(rows["q"], v.keyDim) : rows["q"];
  op.k = *v.l2norm ? reference::l2norm(rows["k"], v.keyDim) : rows["k"];
  op.v = rows["v"];
  op.perChannel = family.decay == Decay::Channel;
  if (family.decay == Decay::HeadConstant)
    rows["g"] = [constant = rows["g"]](int64_t, int64_t head, double *x) {
      constant(0, head, x);
    };
  if (family.decay != Decay::None)
    op.decay = reference::logDecay(
        {*v.gate, rows["A_log"], rows["dt_bias"], v.lowerBound}, rows["g"],
        op.perChannel ? v.keyDim : 1);
  if (*v.beta != Beta::None)
    op.beta = reference::writeStrength(*v.beta, rows["beta"]);
  op.delta = family.erase == Erase::Delta;
  op.a = rows["a"];
  op.b = rows["b"];
  op.initial = rows["h0"];
  op.layout = v.stateLayout;
  op.keepAll = v.snapshots;
  op.scale = scale("scale");
  return op;
}

} // namespace kdac::selftest
