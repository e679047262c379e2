// Which variants can exist, and what is chosen where nothing was said.
#include "kdac/Variant/Variant.h"

namespace kdac {

namespace {

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

} // namespace kdac
