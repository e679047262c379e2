// The ABI: what is passed to a kernel of each form, in which order.
#include "kdac/Variant/Variant.h"

#include <utility>

namespace kdac {

/// See kernelArgs.
static std::vector<Arg> rowArgs(const Variant &v) {
  std::vector<Arg> args;
  auto rows = [&](const char *name, ArgKind kind = ArgKind::Input,
                  bool optional = false) {
    bool isInput = kind == ArgKind::Input;
    const char *shape = picksRows(v.rows) && isInput          ? "[sources, D]"
                        : v.rows == RowOp::Mix && isInput     ? "[E, tokens, D]"
                        : v.rows == RowOp::Latent && !isInput ? "[places, D]"
                                                              : "[tokens, D]";
    args.push_back({name, kind, v.dtype, optional, shape});
  };
  auto parameter = [&](const char *name, DType dtype, const char *shape) {
    args.push_back({name, ArgKind::Input, dtype, false, shape});
  };
  std::vector<const char *> scales;
  std::vector<std::string> sizes = {"T", "D"};
  switch (v.rows) {
  case RowOp::None:
    return args;
  case RowOp::Norm:
    rows("x");
    rows("branch", ArgKind::Input, true);
    parameter("weight", DType::F32, "[D]");
    rows("sum", ArgKind::Output, true);
    scales = {"eps"};
    break;
  case RowOp::Add:
    rows("x");
    rows("branch");
    break;
  case RowOp::Situ:
    scales = {"beta", "linear"};
    [[fallthrough]];
  case RowOp::Silu:
  case RowOp::Sigmoid:
    rows("gate");
    rows("up");
    break;
  case RowOp::Gather:
    rows("x");
    args.push_back({"index", ArgKind::Input, DType::I32, true, "[tokens]"});
    sizes = {"T", "D", "R"};
    break;
  case RowOp::Combine:
    rows("x");
    parameter("index", DType::I32, "[tokens, E]");
    parameter("scales", DType::F32, "[tokens, E]");
    sizes = {"T", "D", "R", "E"};
    break;
  case RowOp::Latent:
    rows("x");
    parameter("weight", DType::F32, "[rank]");
    parameter("slots", DType::I32, "[tokens]");
    parameter("positions", DType::I32, "[tokens]");
    parameter("table", DType::I32, "[S, P]");
    sizes = {"T", "D", "rank", "R", "S", "P", "page"};
    scales = {"eps"};
    break;
  case RowOp::Mix:
    rows("x");
    parameter("query", DType::F32, "[D]");
    sizes = {"T", "D", "E", "x_pitch"};
    scales = {"eps"};
    break;
  }
  rows("out", ArgKind::Output);
  std::vector<std::string> strided;
  for (const Arg &arg : args)
    if (arg.shape.find(", D]") != std::string::npos)
      strided.push_back(arg.name + "_stride");
  sizes.insert(sizes.end(), strided.begin(), strided.end());
  for (const std::string &size : sizes)
    args.push_back({size, ArgKind::Size, DType::I64, false, ""});
  for (const char *scale : scales)
    args.push_back({scale, ArgKind::Scale, DType::F32, false, ""});
  return args;
}

/// See kernelArgs.
static std::vector<Arg> attentionArgs(const Variant &v) {
  std::vector<Arg> args = {
      {"q", ArgKind::Input, v.dtype, false, "[N, H, D]"},
      {"pages", ArgKind::Input, v.dtype, false, "[P, 64, D]"},
      {"table", ArgKind::Input, DType::I32, false, "[S, table_pitch]"},
      {"slots", ArgKind::Input, DType::I32, true, "[N]"},
      {"lengths", ArgKind::Input, DType::I32, false, "[N]"},
      {"out", ArgKind::Output, v.dtype, false, "[N, H, R]"},
      {"workspace", ArgKind::Workspace, DType::I8, true, "bytes"}};
  for (const char *size : {"N", "H", "D", "R", "P", "S", "table_pitch"})
    args.push_back({size, ArgKind::Size, DType::I64, false, ""});
  args.push_back({"scale", ArgKind::Scale, DType::F32, false, ""});
  return args;
}

/// See kernelArgs.
static std::vector<Arg> promptArgs(const Variant &v) {
  constexpr auto input = ArgKind::Input, output = ArgKind::Output;
  std::vector<Arg> args = {
      {"q", input, v.dtype, false, "[tokens, H, D]"},
      {"kv", input, v.dtype, false, "[keys, H, D - R + E]"},
      {"shared", input, v.dtype, false, "[keys, R]"},
      {"offsets", input, DType::I32, false, "[N + 1]"},
      {"key_offsets", input, DType::I32, false, "[N + 1]"},
      {"before", input, DType::F32, true, "[tokens, H, E]"},
      {"before_logs", input, DType::F32, true, "[tokens, H]"},
      {"out", output, v.dtype, false, "[tokens, H, E]"},
      {"after", output, DType::F32, true, "[tokens, H, E]"},
      {"after_logs", output, DType::F32, true, "[tokens, H]"}};
  for (const char *size : {"N", "H", "D", "R", "E", "T", "later", "q_stride",
                           "kv_stride", "shared_stride", "out_stride"})
    args.push_back({size, ArgKind::Size, DType::I64, false, ""});
  args.push_back({"scale", ArgKind::Scale, DType::F32, false, ""});
  return args;
}

/// See kernelArgs.
static std::vector<Arg> matmulArgs(const Variant &v) {
  constexpr auto input = ArgKind::Input, output = ArgKind::Output;
  std::vector<Arg> args = {{"x", input, v.dtype, false, "[R, D]"},
                           {"weights", input, v.dtype, false, "[G, E, D]"}};
  if (v.rows != RowOp::None)
    args.push_back({"up", input, v.dtype, false, "[G, E, D]"});
  args.insert(args.end(),
              {{"tiles", input, DType::I32, true, "[tile_count, 2]"},
               {"starts", input, DType::I32, true, "[G + 1]"},
               {"order", input, DType::I32, true, "[tokens]"},
               {"out", output, v.dtype, true, "[tokens, E]"},
               {"sums", output, DType::F32, true, "[tokens, E]"}});
  for (const char *size : {"T", "D", "E", "R", "G", "tile_count", "each",
                           "x_stride", "out_stride", "sums_stride"})
    args.push_back({size, ArgKind::Size, DType::I64, false, ""});
  if (v.rows == RowOp::Situ)
    for (const char *scale : {"beta", "linear"})
      args.push_back({scale, ArgKind::Scale, DType::F32, false, ""});
  return args;
}

namespace {

/// The arguments of a recurrence, one after the other.
struct Recurrent {
  std::vector<Arg> args;
  std::vector<std::string> strided; ///< tensors with a row for every token

  void tensor(std::string name, ArgKind kind, DType dtype, std::string shape,
              bool optional = false, bool hasTokens = true) {
    if (hasTokens)
      strided.push_back(name);
    args.push_back({std::move(name), kind, dtype, optional, std::move(shape)});
  }
  void input(std::string name, DType dtype, std::string shape,
             bool optional = false, bool hasTokens = true) {
    tensor(std::move(name), ArgKind::Input, dtype, std::move(shape), optional,
           hasTokens);
  }
  void size(std::string name) {
    args.push_back({std::move(name), ArgKind::Size, DType::I64, false, ""});
  }
};

void addMaps(Recurrent &list, const Variant &v) {
  const Recurrence &row = v.row();
  bool mapped = *v.gate == Gate::Softplus || *v.gate == Gate::Bounded;
  if (row.decay == Decay::HeadConstant)
    list.input("g", *v.gateDtype, "[HV]", false, false);
  else if (row.decay != Decay::None)
    list.input("g", *v.gateDtype,
               row.decay == Decay::Head ? "[tokens, HV]" : "[tokens, HV, K]");
  if (*v.beta != Beta::None)
    list.input("beta", v.dtype, "[tokens, HV]");
  if (mapped) {
    list.input("A_log", DType::F32, "[HV]", true, false);
    list.input("dt_bias", DType::F32,
               row.decay == Decay::Head ? "[HV]" : "[HV, K]", true, false);
  }
  if (row.erase == Erase::Pair) {
    list.input("a", v.dtype, "[tokens, H, K]");
    list.input("b", v.dtype, "[tokens, H, K]");
  }
}

void addLayer(Recurrent &list, const Variant &v) {
  if (v.conv) {
    for (const char *name : {"q", "k", "v"})
      list.input(std::string(name) + "_conv", v.dtype,
                 *name == 'v' ? "[HV, V, W]" : "[H, K, W]", false, false);
    for (const char *name : {"q", "k", "v"}) {
      std::string width = *name == 'v' ? "HV, V" : "H, K";
      list.tensor(std::string(name) + "_cache", ArgKind::Output, v.dtype,
                  v.cacheLayout == CacheLayout::Full
                      ? "[pool, " + width + ", W]"
                      : "[pool, W - 1, " + width + "]",
                  true, false);
    }
  }
  if (v.norm != OutputNorm::None) {
    list.input("z", v.dtype, "[tokens, HV, V]");
    list.input("norm_weight", DType::F32, "[V]", false, false);
  }
}

void addIndices(Recurrent &list, const Variant &v) {
  if (v.slots) {
    list.input("slots", *v.slots, "[N]", true, false);
    list.input("sources", *v.slots, "[N]", true, false);
  }
  if (v.snapshots)
    list.input("snapshots", *v.slots, "[tokens]", true, false);
  if (v.log)
    list.input("accepted", *v.slots, "[N]", true, false);
  list.input("offsets", v.offsetDtype, "[N + 1]", true, false);
}

void addSizes(Recurrent &list, const Variant &v) {
  for (const char *size : {"N", "T", "H", "HV"})
    list.size(size);
  if (v.slots)
    for (const char *size : {"pool", "slot_pitch", "head_pitch"})
      list.size(size);
  if (v.conv)
    for (const char *name : {"q", "k", "v"})
      list.size(std::string(name) + "_cache_pitch");
  for (const std::string &name : list.strided)
    list.size(name + "_stride");
}

} // namespace

/// See kernelArgs.
static std::vector<Arg> recurrenceArgs(const Variant &v) {
  std::string state = v.slots ? "[pool, HV, " : "[N, HV, ";
  state += v.stateLayout == StateLayout::VK ? "V, K]" : "K, V]";
  Recurrent list;
  list.input("q", v.dtype, "[tokens, H, K]");
  list.input("k", v.dtype, "[tokens, H, K]");
  list.input("v", v.dtype, "[tokens, HV, V]");
  addMaps(list, v);
  addLayer(list, v);
  list.input("h0", v.stateDtype, state, true, false);
  addIndices(list, v);
  list.tensor("out", ArgKind::Output, v.dtype, "[tokens, HV, V]");
  list.tensor("ht", ArgKind::Output, v.stateDtype, state, true, false);
  if (v.form == Form::Chunk || v.log)
    list.tensor("workspace", ArgKind::Workspace, DType::I8, "bytes", true,
                false);
  if (v.slots)
    list.tensor("status", ArgKind::Output, DType::I64, "[1]", true, false);
  addSizes(list, v);
  list.args.push_back({"scale", ArgKind::Scale, DType::F32, false, ""});
  return list.args;
}

std::vector<Arg> kernelArgs(const Variant &v) {
  switch (v.form) {
  case Form::Chunk:
  case Form::Step:
    return recurrenceArgs(v);
  case Form::Rows:
    return rowArgs(v);
  case Form::Attention:
    return attentionArgs(v);
  case Form::Prompt:
    return promptArgs(v);
  case Form::Matmul:
    return matmulArgs(v);
  }
  return {};
}

} // namespace kdac
