#include "kdac/Variant/Variant.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

namespace kdac {

namespace {

template <typename Enum, size_t N>
using Spellings = std::array<std::pair<Enum, std::string_view>, N>;

constexpr Spellings<Form, 6> forms{{{Form::Chunk, "chunk"},
                                    {Form::Step, "step"},
                                    {Form::Rows, "rows"},
                                    {Form::Attention, "attention"},
                                    {Form::Prompt, "prompt"},
                                    {Form::Matmul, "matmul"}}};
constexpr Spellings<RowOp, 10> rowOps{{{RowOp::None, "none"},
                                       {RowOp::Norm, "norm"},
                                       {RowOp::Add, "add"},
                                       {RowOp::Silu, "silu"},
                                       {RowOp::Situ, "situ"},
                                       {RowOp::Sigmoid, "sigmoid"},
                                       {RowOp::Gather, "gather"},
                                       {RowOp::Combine, "combine"},
                                       {RowOp::Latent, "latent"},
                                       {RowOp::Mix, "mix"}}};
constexpr Spellings<DType, 6> dtypes{{{DType::BF16, "bf16"},
                                      {DType::F16, "f16"},
                                      {DType::F32, "f32"},
                                      {DType::I32, "i32"},
                                      {DType::I64, "i64"},
                                      {DType::I8, "i8"}}};
constexpr Spellings<StateLayout, 2> layouts{
    {{StateLayout::VK, "vk"}, {StateLayout::KV, "kv"}}};
constexpr Spellings<Precision, 3> precisions{{{Precision::Fast, "fast"},
                                              {Precision::Default, "default"},
                                              {Precision::High, "high"}}};
constexpr Spellings<CacheLayout, 2> cacheLayouts{
    {{CacheLayout::Full, "full"}, {CacheLayout::History, "history"}}};
constexpr Spellings<OutputNorm, 3> outputNorms{
    {{OutputNorm::None, "none"},
     {OutputNorm::Sigmoid, "sigmoid"},
     {OutputNorm::Silu, "silu"}}};
constexpr Spellings<Gate, 4> gates{{{Gate::None, "none"},
                                    {Gate::Identity, "identity"},
                                    {Gate::Softplus, "softplus"},
                                    {Gate::Bounded, "bounded"}}};
constexpr Spellings<Beta, 4> betas{{{Beta::None, "none"},
                                    {Beta::Identity, "identity"},
                                    {Beta::Sigmoid, "sigmoid"},
                                    {Beta::TwoSigmoid, "2sigmoid"}}};
constexpr Spellings<Decay, 4> decays{{{Decay::None, "none"},
                                      {Decay::HeadConstant, "head-constant"},
                                      {Decay::Head, "head"},
                                      {Decay::Channel, "channel"}}};

template <typename Enum, size_t N>
std::string_view spellIn(const Spellings<Enum, N> &table, Enum value) {
  for (const auto &[candidate, text] : table)
    if (candidate == value)
      return text;
  return "?";
}

template <typename Enum, size_t N>
std::optional<Enum> parseIn(const Spellings<Enum, N> &table,
                            std::string_view text) {
  for (const auto &[value, candidate] : table)
    if (candidate == text)
      return value;
  return std::nullopt;
}

std::string quoted(std::string_view text) {
  return "'" + std::string(text) + "'";
}

std::optional<std::string> checkDims(const Variant &v) {
  for (auto [dim, what] :
       {std::pair(v.keyDim, "key dim K"), std::pair(v.valueDim, "value dim V")})
    if (dim < 1 || dim > 256)
      return std::string(what) + " = " + std::to_string(dim) +
             " is not supported; 1 to 256 works on the host, multiples of 32 "
             "up to 256 on GPUs";
  return std::nullopt;
}

bool isFloat(DType dtype) {
  return dtype == DType::BF16 || dtype == DType::F16 || dtype == DType::F32;
}

std::optional<std::string> checkTypes(const Variant &v) {
  if (!isFloat(v.dtype))
    return "dtype " + quoted(spell(v.dtype)) +
           " is not supported; use bf16, f16 or f32";
  if (v.stateDtype != DType::F32 && v.stateDtype != DType::BF16)
    return "state dtype " + quoted(spell(v.stateDtype)) +
           " is not supported; use f32 or bf16";
  if (v.offsetDtype != DType::I32 && v.offsetDtype != DType::I64)
    return "offset dtype " + quoted(spell(v.offsetDtype)) +
           " is not supported; use i32 or i64";
  if (!isFloat(*v.gateDtype))
    return "gate dtype " + quoted(spell(*v.gateDtype)) +
           " is not supported; use bf16, f16 or f32";
  return std::nullopt;
}

std::optional<std::string> checkPool(const Variant &v) {
  if (v.slots && *v.slots != DType::I32 && *v.slots != DType::I64)
    return "slots of type " + quoted(spell(*v.slots)) +
           " are not supported; use i32 or i64";
  if (v.snapshots && !v.slots)
    return "snapshots need slots to be written to; use slots i32 or i64";
  if (v.log && (!v.slots || v.form != Form::Step))
    return "a log needs form step and slots to commit to; use form step and "
           "slots i32 or i64";
  if (v.log && v.snapshots)
    return "a log and snapshots are two ways back; use one of them";
  if (v.snapshots && v.form != Form::Step)
    return "snapshots are not supported in form chunk; use form step";
  return std::nullopt;
}

std::optional<std::string> checkLayer(const Variant &v) {
  if (v.conv != 0 && (v.conv < 2 || v.conv > 4))
    return "conv = " + std::to_string(v.conv) +
           " is not supported; use 0 for none, or a width of 2 to 4";
  if (!(v.normEps > 0 && v.normEps < 1))
    return "norm eps " + std::to_string(v.normEps) +
           " is not supported; use a number between 0 and 1";
  return std::nullopt;
}

std::optional<std::string> checkMaps(const Variant &v, const Recurrence &row) {
  if ((row.decay == Decay::None) != (*v.gate == Gate::None))
    return "recurrence " + quoted(row.name) +
           (row.decay == Decay::None
                ? " has no decay; use gate none"
                : " needs a gate; use bounded, softplus or identity");
  if (row.decay == Decay::HeadConstant && *v.gate != Gate::Identity)
    return "recurrence " + quoted(row.name) +
           " has a constant decay; use gate identity";
  if (row.decay == Decay::Head && *v.gate == Gate::Bounded)
    return "recurrence " + quoted(row.name) +
           " has no bounded gate; use softplus or identity";
  if ((row.beta == Beta::None) != (*v.beta == Beta::None))
    return "recurrence " + quoted(row.name) +
           (row.beta == Beta::None ? " has no write strength; use beta none"
                                   : " needs a write strength; use beta "
                                     "identity, sigmoid or 2sigmoid");
  if (*v.gate == Gate::Bounded && !(v.lowerBound < 0 && v.lowerBound >= -1e4))
    return "lower bound " + std::to_string(v.lowerBound) +
           " is not supported; use a negative number of at least -10000";
  return std::nullopt;
}

} // namespace

std::string_view spell(Form value) { return spellIn(forms, value); }
std::string_view spell(DType value) { return spellIn(dtypes, value); }
std::string_view spell(StateLayout value) { return spellIn(layouts, value); }
std::string_view spell(Precision value) { return spellIn(precisions, value); }
std::string_view spell(CacheLayout value) {
  return spellIn(cacheLayouts, value);
}
std::string_view spell(OutputNorm value) { return spellIn(outputNorms, value); }
std::string_view spell(RowOp value) { return spellIn(rowOps, value); }
std::string_view spell(Gate value) { return spellIn(gates, value); }
std::string_view spell(Beta value) { return spellIn(betas, value); }
std::string_view spell(Decay value) { return spellIn(decays, value); }
std::optional<Form> parseForm(std::string_view t) { return parseIn(forms, t); }
std::optional<DType> parseDType(std::string_view t) {
  return parseIn(dtypes, t);
}
std::optional<StateLayout> parseStateLayout(std::string_view t) {
  return parseIn(layouts, t);
}
std::optional<CacheLayout> parseCacheLayout(std::string_view t) {
  return parseIn(cacheLayouts, t);
}
std::optional<OutputNorm> parseOutputNorm(std::string_view t) {
  return parseIn(outputNorms, t);
}
std::optional<RowOp> parseRowOp(std::string_view t) {
  return parseIn(rowOps, t);
}
std::optional<Precision> parsePrecision(std::string_view t) {
  return parseIn(precisions, t);
}
std::optional<Gate> parseGate(std::string_view t) { return parseIn(gates, t); }
std::optional<Beta> parseBeta(std::string_view t) { return parseIn(betas, t); }

std::string_view equationOf(const Variant &v) {
  if (v.form == Form::Attention)
    return "out = softmax(scale q C^T) C[:R], C the cached rows of a sequence";
  if (v.form == Form::Prompt)
    return "out = softmax(scale q k^T + causal mask) v";
  if (v.form == Form::Matmul)
    return v.rows == RowOp::None
               ? "out = x weights[group]^T, rows sorted by group"
               : "out = gated(x weights[group]^T, x up[group]^T), rows sorted "
                 "by group";
  switch (v.rows) {
  case RowOp::None:
    return v.row().summary;
  case RowOp::Norm:
    return "s = x + branch, y = s / sqrt(mean(s^2) + eps) weight";
  case RowOp::Add:
    return "y = x + branch";
  case RowOp::Silu:
    return "y = gate sigmoid(gate) up";
  case RowOp::Situ:
    return "y = beta tanh(gate / beta) sigmoid(gate) linear tanh(up / linear)";
  case RowOp::Sigmoid:
    return "y = sigmoid(gate) up";
  case RowOp::Gather:
    return "y_t = x_index[t]";
  case RowOp::Combine:
    return "y_t = sum_j scales[t, j] x_index[t, j]";
  case RowOp::Latent:
    return "y_place[t] = x_t, its first rank columns / sqrt(mean(c^2) + eps) "
           "weight";
  case RowOp::Mix:
    return "y = sum_j softmax_j(query x_j / sqrt(mean(x_j^2) + eps)) x_j";
  }
  return "?";
}

bool isRecurrent(Form form) {
  return form == Form::Chunk || form == Form::Step;
}

bool picksRows(RowOp op) { return op == RowOp::Gather || op == RowOp::Combine; }

bool holdsRow(RowOp op) {
  return op == RowOp::Norm || op == RowOp::Latent || op == RowOp::Mix;
}

bool hasEntries(RowOp op) { return op == RowOp::Combine || op == RowOp::Mix; }

int64_t cacheEntries(const Variant &v) {
  return v.cacheLayout == CacheLayout::Full ? v.conv : v.conv - 1;
}

int64_t dtypeSize(DType dtype) {
  switch (dtype) {
  case DType::BF16:
  case DType::F16:
    return 2;
  case DType::F32:
  case DType::I32:
    return 4;
  case DType::I64:
    return 8;
  case DType::I8:
    return 1;
  }
  return 0;
}

/// What a variant of another form has in common with `v`: one name for one
/// kernel.
static Variant withoutRecurrence(const Variant &v) {
  Variant bare;
  bare.form = v.form;
  bare.dtype = bare.stateDtype = v.dtype; // the second: of a norm's sum
  bare.keyDim = v.keyDim;
  bare.valueDim = v.valueDim;
  bare.target = v.target;
  bare.recurrence = "linear";
  bare.gate = Gate::None;
  bare.gateDtype = v.dtype;
  bare.beta = Beta::None;
  bare.l2norm = false;
  return bare;
}

/// A variant of form rows, with nothing of a recurrence.
static std::optional<std::string> resolveRows(Variant &v) {
  constexpr int64_t widest = 32768;
  if (v.rows == RowOp::None)
    return "form rows needs an operation; use rows norm, add, silu, situ, "
           "sigmoid, gather, combine, latent or mix";
  if (!isFloat(v.dtype))
    return "dtype " + quoted(spell(v.dtype)) +
           " is not supported; use bf16, f16 or f32";
  bool isBounded = holdsRow(v.rows);
  if (isBounded && (v.width < 1 || v.width > widest))
    return "width = " + std::to_string(v.width) +
           " is not supported with rows " + std::string(spell(v.rows)) +
           "; use 1 to " + std::to_string(widest);
  Variant rows = withoutRecurrence(v);
  rows.rows = v.rows;
  rows.width = isBounded ? v.width : 0;
  rows.keyDim = rows.valueDim = 1;
  v = rows;
  return std::nullopt;
}

/// The same of forms attention and prompt.
static std::optional<std::string> resolveAttention(Variant &v) {
  std::string form(spell(v.form));
  bool isPrompt = v.form == Form::Prompt;
  int64_t values = v.valueDim, rest = v.keyDim - values;
  auto suits = [](int64_t width, int64_t most) {
    return width >= 64 && width <= most && width % 64 == 0;
  };
  if (!suits(values, 1024) || !suits(rest, 256))
    return "value-dim = " + std::to_string(values) +
           " and key-dim = " + std::to_string(v.keyDim) +
           " are not supported in form " + form +
           "; use a value-dim of 64 to 1024 and a key-dim that is 64 to 256 "
           "more, both multiples of 64";
  if (!isFloat(v.dtype))
    return "dtype " + quoted(spell(v.dtype)) +
           " is not supported; use bf16, f16 or f32";
  if (v.rows != RowOp::None || v.width != 0)
    return "rows and width belong to form rows; leave them out with form " +
           form;
  v = withoutRecurrence(v);
  if (isPrompt)
    v.stateDtype = DType::F32; // of what goes from call to call
  return std::nullopt;
}

/// The same of form matmul.
static std::optional<std::string> resolveMatmul(Variant &v) {
  if (v.rows != RowOp::None && v.rows != RowOp::Silu && v.rows != RowOp::Situ)
    return "rows " + std::string(spell(v.rows)) +
           " is not supported in form matmul; use none, silu or situ";
  if (!isFloat(v.dtype))
    return "dtype " + quoted(spell(v.dtype)) +
           " is not supported; use bf16, f16 or f32";
  if (v.dtype == DType::F32 && v.target != "host")
    return "dtype f32 is not supported in form matmul on GPUs, whose products "
           "round it; use bf16 or f16, or target host";
  if (v.width != 0)
    return "width belongs to form rows; leave it out with form matmul";
  Variant matmul = withoutRecurrence(v);
  matmul.rows = v.rows;
  matmul.keyDim = matmul.valueDim = 1;
  matmul.stateDtype = DType::F32; // of sums
  v = matmul;
  return std::nullopt;
}

std::optional<std::string> resolve(Variant &v) {
  if (v.form == Form::Matmul)
    return resolveMatmul(v);
  if (v.form == Form::Rows)
    return resolveRows(v);
  if (v.form == Form::Attention || v.form == Form::Prompt)
    return resolveAttention(v);
  if (v.rows != RowOp::None || v.width != 0)
    return "rows and width belong to form rows; leave them out with form " +
           std::string(spell(v.form));
  const Recurrence *row = findRecurrence(v.recurrence);
  if (!row) {
    std::string names;
    for (const Recurrence &r : recurrences())
      names += (names.empty() ? "" : ", ") + std::string(r.name);
    return "unknown recurrence " + quoted(v.recurrence) + "; use one of " +
           names;
  }
  if (!v.gate)
    v.gate = row->gate;
  if (!v.beta)
    v.beta = row->beta;
  if (!v.l2norm)
    v.l2norm = row->l2norm;
  // Without a gate there is nothing of that type: one name for one kernel.
  if (!v.gateDtype || *v.gate == Gate::None)
    v.gateDtype = *v.gate == Gate::Identity ? DType::F32 : v.dtype;
  if (auto error = checkDims(v))
    return error;
  if (auto error = checkTypes(v))
    return error;
  if (auto error = checkPool(v))
    return error;
  if (auto error = checkLayer(v))
    return error;
  return checkMaps(v, *row);
}

/// Nothing for the usual epsilon, else "eps1em06" for 1e-06.
static std::string epsToken(double eps) {
  if (eps == Variant().normEps)
    return "";
  char text[32];
  std::snprintf(text, sizeof text, "eps%g", eps);
  std::string token = text;
  std::replace(token.begin(), token.end(), '.', 'p');
  std::replace(token.begin(), token.end(), '-', 'm');
  return token;
}

std::string variantStem(const Variant &v) {
  if (v.form == Form::Attention || v.form == Form::Prompt)
    return std::string(spell(v.form)) + ".k" + std::to_string(v.keyDim) + "v" +
           std::to_string(v.valueDim) + "." + std::string(spell(v.dtype));
  if (v.form == Form::Matmul)
    return "matmul." +
           (v.rows != RowOp::None ? std::string(spell(v.rows)) + "." : "") +
           std::string(spell(v.dtype));
  if (v.form == Form::Rows)
    return "rows." + std::string(spell(v.rows)) +
           (v.width ? ".w" + std::to_string(v.width) : "") + "." +
           std::string(spell(v.dtype));
  const Recurrence &row = v.row();
  std::string name =
      v.recurrence + "." + std::string(spell(v.form)) + ".k" +
      std::to_string(v.keyDim) + "v" + std::to_string(v.valueDim) + "." +
      std::string(spell(v.dtype)) + "." + std::string(spell(v.stateDtype)) +
      std::string(spell(v.stateLayout)) + "." + std::string(spell(*v.gate));
  auto add = [&](bool differs, const std::string &token) {
    if (differs)
      name += "." + token;
  };
  if (*v.gate == Gate::Bounded && v.lowerBound != -5.0) {
    std::string bound = std::to_string(-v.lowerBound);
    std::replace(bound.begin(), bound.end(), '.', 'p');
    add(true, "lb" + bound);
  }
  DType defaultGate = *v.gate == Gate::Identity ? DType::F32 : v.dtype;
  add(*v.gateDtype != defaultGate, "g" + std::string(spell(*v.gateDtype)));
  add(*v.beta != row.beta, "beta-" + std::string(spell(*v.beta)));
  add(*v.l2norm != row.l2norm, *v.l2norm ? "l2norm" : "raw");
  add(v.offsetDtype != DType::I32, "o" + std::string(spell(v.offsetDtype)));
  if (v.slots)
    add(true, "pool-" + std::string(spell(*v.slots)));
  add(v.snapshots, "snapshots");
  add(v.log, "log");
  if (v.conv)
    add(true, "conv" + std::to_string(v.conv) +
                  (v.cacheLayout == CacheLayout::History ? "h" : ""));
  if (v.norm != OutputNorm::None)
    add(true, "norm-" + std::string(spell(v.norm)) + epsToken(v.normEps));
  add(v.precision != Precision::Default, std::string(spell(v.precision)));
  return name;
}

std::string variantName(const Variant &v) {
  return variantStem(v) + "." + v.target;
}

std::string entryName(const Variant &v) {
  std::string name = "kdac_" + variantName(v);
  std::replace(name.begin(), name.end(), '.', '_');
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string checkEntryName(const Variant &v) { return entryName(v) + "_check"; }

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

std::vector<Arg> kernelArgs(const Variant &v) {
  if (v.form == Form::Matmul)
    return matmulArgs(v);
  if (v.form == Form::Prompt)
    return promptArgs(v);
  if (v.form == Form::Rows)
    return rowArgs(v);
  if (v.form == Form::Attention)
    return attentionArgs(v);
  const Recurrence &row = v.row();
  std::vector<Arg> args;
  std::vector<std::string> strided;
  auto tensor = [&](std::string name, ArgKind kind, DType dtype,
                    std::string shape, bool optional, bool hasTokens) {
    if (hasTokens)
      strided.push_back(name);
    args.push_back({std::move(name), kind, dtype, optional, std::move(shape)});
  };
  auto input = [&](std::string name, DType dtype, std::string shape,
                   bool optional = false, bool hasTokens = true) {
    tensor(std::move(name), ArgKind::Input, dtype, std::move(shape), optional,
           hasTokens);
  };
  bool mapped = *v.gate == Gate::Softplus || *v.gate == Gate::Bounded;
  std::string state = v.slots ? "[pool, HV, " : "[N, HV, ";
  state += v.stateLayout == StateLayout::VK ? "V, K]" : "K, V]";
  input("q", v.dtype, "[tokens, H, K]");
  input("k", v.dtype, "[tokens, H, K]");
  input("v", v.dtype, "[tokens, HV, V]");
  if (row.decay == Decay::HeadConstant)
    input("g", *v.gateDtype, "[HV]", false, false);
  else if (row.decay != Decay::None)
    input("g", *v.gateDtype,
          row.decay == Decay::Head ? "[tokens, HV]" : "[tokens, HV, K]");
  if (*v.beta != Beta::None)
    input("beta", v.dtype, "[tokens, HV]");
  if (mapped) {
    input("A_log", DType::F32, "[HV]", true, false);
    input("dt_bias", DType::F32, row.decay == Decay::Head ? "[HV]" : "[HV, K]",
          true, false);
  }
  if (row.erase == Erase::Pair) {
    input("a", v.dtype, "[tokens, H, K]");
    input("b", v.dtype, "[tokens, H, K]");
  }
  if (v.conv) {
    for (const char *name : {"q", "k", "v"})
      input(std::string(name) + "_conv", v.dtype,
            *name == 'v' ? "[HV, V, W]" : "[H, K, W]", false, false);
    for (const char *name : {"q", "k", "v"}) {
      std::string width = *name == 'v' ? "HV, V" : "H, K";
      tensor(std::string(name) + "_cache", ArgKind::Output, v.dtype,
             v.cacheLayout == CacheLayout::Full
                 ? "[pool, " + width + ", W]"
                 : "[pool, W - 1, " + width + "]",
             true, false);
    }
  }
  if (v.norm != OutputNorm::None) {
    input("z", v.dtype, "[tokens, HV, V]");
    input("norm_weight", DType::F32, "[V]", false, false);
  }
  input("h0", v.stateDtype, state, true, false);
  if (v.slots) {
    input("slots", *v.slots, "[N]", true, false);
    input("sources", *v.slots, "[N]", true, false);
  }
  if (v.snapshots)
    input("snapshots", *v.slots, "[tokens]", true, false);
  if (v.log)
    input("accepted", *v.slots, "[N]", true, false);
  input("offsets", v.offsetDtype, "[N + 1]", true, false);
  tensor("out", ArgKind::Output, v.dtype, "[tokens, HV, V]", false, true);
  tensor("ht", ArgKind::Output, v.stateDtype, state, true, false);
  if (v.form == Form::Chunk || v.log)
    args.push_back({"workspace", ArgKind::Workspace, DType::I8, true, "bytes"});
  if (v.slots)
    tensor("status", ArgKind::Output, DType::I64, "[1]", true, false);
  std::vector<const char *> sizes = {"N", "T", "H", "HV"};
  if (v.slots)
    sizes.insert(sizes.end(), {"pool", "slot_pitch", "head_pitch"});
  if (v.conv)
    sizes.insert(sizes.end(),
                 {"q_cache_pitch", "k_cache_pitch", "v_cache_pitch"});
  for (const char *size : sizes)
    args.push_back({size, ArgKind::Size, DType::I64, false, ""});
  for (const std::string &name : strided)
    args.push_back({name + "_stride", ArgKind::Size, DType::I64, false, ""});
  args.push_back({"scale", ArgKind::Scale, DType::F32, false, ""});
  return args;
}

} // namespace kdac
