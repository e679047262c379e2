#include "CaseSpec.h"
#include "AttentionCase.h"
#include "MatmulCase.h"
#include "PromptCase.h"
#include "RowCase.h"
#include "kdac/Reference/Cache.h"
#include "kdac/Reference/Pool.h"

#include <algorithm>

namespace kdac::reference {

static std::string number(int64_t x) { return std::to_string(x); }

bool isAbsent(const CaseSpec &spec, const std::string &name) {
  if (spec.variant.form == Form::Rows)
    return (name == "branch" && !spec.hasInitial &&
            spec.variant.rows == RowOp::Norm) ||
           (name == "sum" && !spec.hasFinal) ||
           (name == "index" && !spec.hasSlots &&
            spec.variant.rows == RowOp::Gather);
  if (spec.variant.form == Form::Matmul)
    return (name == "order" && !spec.hasSlots) ||
           (name == "sums" && !spec.hasFinal) ||
           ((name == "tiles" || name == "starts") && spec.lengths.empty());
  if (spec.variant.form == Form::Prompt)
    return (name.rfind("before", 0) == 0 && !spec.hasInitial) ||
           (name.rfind("after", 0) == 0 && !spec.hasFinal);
  return (name == "h0" && !spec.hasInitial) ||
         (name == "ht" && !spec.hasFinal) ||
         (name == "ht" && spec.variant.slots && spec.inPlace) ||
         (isCache(name) && !spec.hasCaches) ||
         (name == "slots" && !spec.hasSlots) ||
         (name == "sources" && !spec.hasSources) ||
         (name == "snapshots" && !spec.hasSnapshots) ||
         (name == "accepted" && !spec.commits) ||
         (name == "status" && !spec.checked) ||
         (name == "A_log" && !spec.hasALog) ||
         (name == "dt_bias" && !spec.hasDtBias) ||
         (name == "offsets" && spec.lengths.empty());
}

int64_t columnsOf(const CaseSpec &spec) {
  constexpr int64_t usual = 256;
  if (attends(spec.variant))
    return spec.columns ? spec.columns : spec.variant.keyDim;
  int64_t multiple = 16 / dtypeSize(spec.variant.dtype);
  return spec.columns         ? spec.columns
         : spec.variant.width ? longestRow(spec.variant) / multiple * multiple
                              : usual;
}

static std::optional<std::string> validateForm(const CaseSpec &spec) {
  switch (spec.variant.form) {
  case Form::Chunk:
  case Form::Step:
    return std::nullopt;
  case Form::Rows:
    return validateRows(spec);
  case Form::Attention:
    return validateAttention(spec);
  case Form::Prompt:
    return validatePrompt(spec);
  case Form::Matmul:
    return validateMatmul(spec);
  }
  return std::nullopt;
}

std::optional<std::string> validate(const CaseSpec &spec) {
  int64_t valueHeads = spec.valueHeads ? spec.valueHeads : spec.heads;
  if (spec.heads < 1 || valueHeads < 1 || valueHeads % spec.heads != 0)
    return "value heads HV = " + number(valueHeads) +
           " must be a positive multiple of key heads H = " +
           number(spec.heads);
  if (spec.sequences < 1 || spec.tokens < 0)
    return "a batch needs at least one sequence and no negative length, but "
           "got N = " +
           number(spec.sequences) + " and T = " + number(spec.tokens);
  for (int64_t length : spec.lengths)
    if (length < 0)
      return "sequence length " + number(length) + " is negative";
  if (spec.trailing < 0 || (spec.trailing && spec.lengths.empty()))
    return "trailing tokens need packed lengths and cannot be negative, but "
           "got " +
           number(spec.trailing);
  if (spec.tokenGap < 0 || spec.tokenGap % 8 != 0)
    return "token gap " + number(spec.tokenGap) +
           " must be a non-negative multiple of 8 elements";
  if (spec.headGap < 0 || spec.headGap % 8 != 0 || spec.slotGap < 0)
    return "head gap " + number(spec.headGap) + " and slot gap " +
           number(spec.slotGap) +
           " must not be negative, the first a multiple of 8 elements";
  if (auto problem = validateForm(spec))
    return problem;
  if (!findRecipe(spec.recipe))
    return "unknown recipe '" + spec.recipe + "'; use one of " + recipeNames();
  return std::nullopt;
}

std::string describeAbsent(const CaseSpec &spec) {
  std::string text;
  if (spec.variant.form == Form::Attention)
    return isAbsent(spec, "slots") ? " no-slots" : "";
  if (spec.variant.form == Form::Prompt)
    return std::string(spec.hasInitial ? "" : " no-before") +
           (spec.hasFinal ? "" : " no-after");
  if (spec.variant.form == Form::Matmul) {
    for (const char *name : {"tiles", "order", "sums"})
      if (isAbsent(spec, name))
        text += std::string(" no-") + name;
    return text;
  }
  if (spec.variant.form == Form::Rows) {
    for (const char *name : {"branch", "sum", "index"})
      if (isAbsent(spec, name))
        text += std::string(" no-") + name;
    return text;
  }
  for (auto [absent, what] : {std::pair(!spec.hasInitial, " no-h0"),
                              std::pair(!spec.hasFinal, " no-ht"),
                              std::pair(!spec.hasALog, " no-A_log"),
                              std::pair(!spec.hasDtBias, " no-dt_bias")})
    if (absent)
      text += what;
  return text;
}

std::string describe(const CaseSpec &spec) {
  std::string text = variantName(spec.variant);
  if (spec.lengths.empty()) {
    text += " N" + number(spec.sequences) + " T" + number(spec.tokens);
  } else {
    text += " lengths";
    size_t shown = std::min<size_t>(spec.lengths.size(), 12);
    for (size_t i = 0; i < shown; ++i)
      text += (i ? "," : " ") + number(spec.lengths[i]);
    if (shown < spec.lengths.size())
      text +=
          ",... (" + number(static_cast<int64_t>(spec.lengths.size())) + ")";
  }
  if (spec.variant.form == Form::Rows)
    text += " D" + number(columnsOf(spec));
  else if (spec.variant.form == Form::Matmul)
    text += " D" + number(columnsOf(spec)) + " E" + number(spec.outputs) +
            " each " + number(spec.heads) +
            (spec.hasBadIndices ? " bad-indices" : "");
  else if (attends(spec.variant))
    text += " H" + number(spec.heads) + " D" + number(columnsOf(spec)) +
            (spec.hasBadIndices ? " bad-indices" : "");
  else
    text += " H" + number(spec.heads) + " HV" +
            number(spec.valueHeads ? spec.valueHeads : spec.heads);
  for (size_t i = 0; i < spec.pasts.size(); ++i)
    text += (i ? "," : " pasts ") + number(spec.pasts[i]);
  if (spec.later)
    text += " later " + number(spec.later);
  text += " " + spec.recipe + " seed " + std::to_string(spec.seed) +
          describeAbsent(spec);
  if (spec.trailing)
    text += " trailing " + number(spec.trailing);
  if (spec.tokenGap)
    text += " gap " + number(spec.tokenGap);
  if (spec.variant.slots)
    text += describePool(spec);
  if (!spec.hasCaches)
    text += " no-caches";
  if (spec.cacheGap)
    text += " cache gap " + number(spec.cacheGap);
  return text;
}

} // namespace kdac::reference
