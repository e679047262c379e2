// What a variant is called and what it computes.
#include "kdac/Variant/Variant.h"

#include <algorithm>
#include <cstdio>

namespace kdac {

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

} // namespace kdac
