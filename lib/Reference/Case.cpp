#include "kdac/Reference/Case.h"
#include "AttentionCase.h"
#include "MatmulCase.h"
#include "PromptCase.h"
#include "kdac/Reference/Cache.h"
#include "kdac/Reference/Places.h"
#include "kdac/Reference/Pool.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace kdac::reference {

namespace {

/// The same of form rows.
Layout rowLayoutOf(const Case &c, const std::string &name) {
  RowOp op = c.spec().variant.rows;
  int64_t width = c.columns(), stride = width + c.spec().tokenGap;
  if (name == "weight" || name == "query") {
    int64_t columns = op == RowOp::Latent ? c.rank() : width;
    return {1, 1, columns, columns};
  }
  if (name == "slots" || name == "positions")
    return {1, 1, c.tokens(), c.tokens()};
  if (name == "table") {
    int64_t pages = static_cast<int64_t>(pageTableOf(c).pages.size());
    return {1, 1, pages, pages};
  }
  if (name == "out" && op == RowOp::Latent)
    return {pageTableOf(c).rows, 1, width, stride};
  if (name == "x" && op == RowOp::Mix)
    return {c.entries() * c.rowsOfEntry(), 1, width, stride};
  int64_t entries = c.entries();
  if (name == "index")
    return {1, 1, c.tokens() * entries, c.tokens() * entries};
  if (name == "scales")
    return {c.tokens(), 1, entries, entries};
  bool isSource = picksRows(op) && name == "x";
  return {isSource ? c.sourceRows() : c.tokens(), 1, width, stride};
}

/// The shape of an argument (kernelArgs' `shape`, as numbers).
Layout layoutOf(const Case &c, const std::string &name) {
  const Variant &v = c.spec().variant;
  int64_t h = c.heads(), hv = c.valueHeads(), keyDim = v.keyDim;
  if (v.form == Form::Rows)
    return rowLayoutOf(c, name);
  if (v.form == Form::Attention)
    return attentionLayout(c, name);
  if (v.form == Form::Prompt)
    return promptLayout(c, name);
  if (v.form == Form::Matmul)
    return matmulLayout(c, name);
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

std::vector<int64_t> boundsOf(const CaseSpec &spec) {
  std::vector<int64_t> lengths = spec.lengths;
  if (spec.variant.form == Form::Attention) // a token of each sequence
    lengths.assign(keyLengths(spec).size(), 1);
  if (lengths.empty())
    lengths.assign(static_cast<size_t>(spec.sequences), spec.tokens);
  std::vector<int64_t> bounds = {0};
  for (int64_t length : lengths)
    bounds.push_back(bounds.back() + length);
  return bounds;
}

std::string number(int64_t x) { return std::to_string(x); }

std::optional<std::string> validateAttention(const CaseSpec &spec) {
  const Variant &v = spec.variant;
  int64_t multiple = 16 / dtypeSize(v.dtype);
  if (spec.columns < 0 || spec.columns % multiple != 0 ||
      spec.columns > v.keyDim)
    return "D = " + number(spec.columns) + " must be a multiple of " +
           number(multiple) + " elements up to " + number(v.keyDim);
  if (spec.trailing || spec.tokenGap)
    return "form attention has no trailing tokens and no gaps";
  return std::nullopt;
}

/// True of attention of either kind.
bool attends(const Variant &v) {
  return v.form == Form::Attention || v.form == Form::Prompt;
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

} // namespace

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
  const Variant &v = spec.variant;
  bool isRows = v.form == Form::Rows;
  int64_t multiple = isRows ? 16 / dtypeSize(v.dtype) : 1;
  if (isRows && (!spec.lengths.empty() || spec.sequences != 1))
    return "form rows has no sequences; use N = 1 and no lengths";
  if (isRows && (spec.columns < 0 || spec.columns % multiple != 0 ||
                 (v.width && spec.columns > longestRow(v))))
    return "D = " + number(spec.columns) + " must be a multiple of " +
           number(multiple) + " elements" +
           (v.width ? " up to " + number(longestRow(v)) : "");
  if (v.form == Form::Attention)
    if (auto problem = validateAttention(spec))
      return problem;
  if (v.form == Form::Prompt)
    if (auto problem = validatePrompt(spec))
      return problem;
  if (v.form == Form::Matmul)
    if (auto problem = validateMatmul(spec))
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

Case makeCase(CaseSpec spec) {
  Case c;
  if (!spec.valueHeads)
    spec.valueHeads = spec.heads;
  spec.columns = columnsOf(spec);
  c.description = std::move(spec);
  c.bounds = boundsOf(c.description);
  c.bufferTokens = c.bounds.back() + c.description.trailing;
  double scale =
      attends(c.description.variant)
          ? 3.0 // queries have length 1
          : 1.0 / std::sqrt(static_cast<double>(c.description.variant.keyDim));
  c.scaleValue = static_cast<float>(c.description.scale.value_or(scale));
  c.args = kernelArgs(c.description.variant);
  if (c.description.variant.slots)
    c.choosePool();
  c.addBuffers();
  c.fill();
  if (c.description.variant.form == Form::Attention)
    fillTable(c);
  if (c.description.variant.form == Form::Prompt)
    fillOffsets(c);
  if (c.description.variant.form == Form::Matmul)
    fillGroups(c);
  if (c.description.variant.slots)
    c.fillIndices();
  c.keepCaches();
  return c;
}

void Case::addBuffers() {
  for (const Arg &arg : args)
    if ((arg.kind == ArgKind::Input || arg.kind == ArgKind::Output) &&
        !isAbsent(description, arg.name))
      tensors.emplace_back(arg.name, arg.kind, arg.dtype,
                           layoutOf(*this, arg.name));
}

int64_t Case::programs(int64_t vTile) const {
  int64_t slices = (description.variant.valueDim + vTile - 1) / vTile;
  return sequences() * valueHeads() * slices;
}

const Buffer *Case::find(std::string_view name) const {
  for (const Buffer &buffer : tensors)
    if (buffer.name() == name)
      return &buffer;
  return nullptr;
}

Buffer *Case::find(std::string_view name) {
  return const_cast<Buffer *>(std::as_const(*this).find(name));
}

const Buffer *Case::cacheBefore(std::string_view name) const {
  for (const std::shared_ptr<Buffer> &cache : cachesBefore)
    if (cache->name() == name)
      return cache.get();
  return nullptr;
}

/// Caches are changed in place: the run starts from these.
void Case::keepCaches() {
  for (const Buffer &buffer : tensors) {
    if (!isCache(buffer.name()))
      continue;
    cachesBefore.push_back(std::make_shared<Buffer>(
        buffer.name(), ArgKind::Input, buffer.dtype(), buffer.layout()));
    std::memcpy(cachesBefore.back()->whole(), buffer.whole(),
                static_cast<size_t>(buffer.wholeBytes()));
  }
}

void Case::poisonOutputs() {
  for (Buffer &buffer : tensors)
    if (const Buffer *cache = cacheBefore(buffer.name()))
      std::memcpy(buffer.whole(), cache->whole(),
                  static_cast<size_t>(cache->wholeBytes()));
    else if (buffer.kind() == ArgKind::Output)
      buffer.poison();
  restorePool();
}

int64_t Case::rank() const { return usualRank(description.variant, columns()); }

int64_t Case::entries() const {
  return hasEntries(description.variant.rows) ? usualEntries : 1;
}

void **Case::argv(const std::vector<void *> *addresses) {
  values.assign(args.size(), 0);
  pointers.resize(args.size());
  size_t nextBuffer = 0, indexOfPool = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    const Arg &arg = args[i];
    pointers[i] = &values[i];
    auto put = [&](auto value) {
      std::memcpy(&values[i], &value, sizeof value);
    };
    if (arg.kind == ArgKind::Scale) {
      put(arg.name == "scale" ? scaleValue : usualScale(arg.name));
    } else if (arg.kind == ArgKind::Size) {
      put(sizeOf(arg.name));
    } else if (arg.kind == ArgKind::Workspace) {
      put(workspace);
    } else if (nextBuffer < tensors.size() &&
               tensors[nextBuffer].name() == arg.name) {
      bool isLater = arg.name == "accepted" && !committing;
      if (!isLater)
        put(addresses ? (*addresses)[nextBuffer] : tensors[nextBuffer].data());
      ++nextBuffer;
    } else if (arg.name == "ht" && description.hasFinal && poolAfter()) {
      put(values[indexOfPool]); // in place
    }
    if (arg.name == "h0")
      indexOfPool = i;
  }
  return pointers.data();
}

void Case::provideWorkspace(int64_t bytes) {
  constexpr size_t line = 64;
  workspaceMemory.assign(static_cast<size_t>(bytes) + line, std::byte{0xff});
  auto address = reinterpret_cast<uintptr_t>(workspaceMemory.data());
  useWorkspace(reinterpret_cast<void *>((address + line - 1) / line * line));
}

int64_t Case::sizeOf(const std::string &name) const {
  if (description.variant.form == Form::Attention)
    return attentionSize(*this, name);
  if (description.variant.form == Form::Prompt)
    return promptSize(*this, name);
  if (description.variant.form == Form::Matmul)
    return matmulSize(*this, name);
  if (name == "N")
    return sequences();
  if (name == "T") // all tokens when packed, else those of one sequence
    return description.lengths.empty() ? description.tokens : bufferTokens;
  if (name == "H")
    return heads();
  if (name == "HV")
    return valueHeads();
  if (name == "D")
    return columns();
  if (name == "R" && picksRows(description.variant.rows))
    return sourceRows();
  if (name == "E")
    return entries();
  if (name == "x_pitch")
    return rowsOfEntry() * layoutOf(*this, "x").stride;
  if (description.variant.rows == RowOp::Latent) {
    PageTable table = pageTableOf(*this);
    for (auto [size, value] : {std::pair("rank", rank()),
                               {"R", table.rows},
                               {"S", table.slots},
                               {"P", table.pagesOfSlot},
                               {"page", table.page}})
      if (name == size)
        return value;
  }
  if (name == "pool")
    return poolCount;
  if (name == "head_pitch")
    return layoutOf(*this, "h0").stride;
  if (name == "slot_pitch")
    return poolRow(1, 0) * layoutOf(*this, "h0").stride;
  if (name.size() > 6 && name.rfind("_pitch") == name.size() - 6)
    return layoutOf(*this, name.substr(0, name.size() - 6)).stride;
  std::string tensor = name.substr(0, name.rfind("_stride"));
  const Buffer *buffer = find(tensor);
  return buffer ? buffer->layout().stride : 0;
}

RowOperands rowOperandsOf(const Case &c) {
  auto rows = [&](const char *name) {
    const Buffer *buffer = c.find(name);
    return buffer ? buffer->rows() : Rows();
  };
  RowOperands o;
  o.op = c.spec().variant.rows;
  o.tokens = c.tokens();
  o.width = c.columns();
  o.x = rows("x");
  o.branch = rows("branch");
  o.weight = rows("weight");
  o.gate = rows("gate");
  o.up = rows("up");
  if (const Buffer *index = c.find("index"))
    for (int64_t i = 0; i < index->layout().width; ++i)
      o.index.push_back(static_cast<int64_t>(index->get(0, 0, i)));
  o.scales = rows("scales");
  o.query = rows("query");
  o.entries = c.entries();
  o.sources = o.op == RowOp::Mix ? c.rowsOfEntry() : c.sourceRows();
  if (o.op == RowOp::Latent) {
    o.rank = c.rank();
    o.place = placesOf(c);
    o.places = pageTableOf(c).rows;
  }
  o.eps = usualScale("eps");
  o.beta = usualScale("beta");
  o.linear = usualScale("linear");
  return o;
}

Results oracleOf(const Case &c, int threads) {
  switch (c.spec().variant.form) {
  case Form::Rows:
    return runRows(rowOperandsOf(c));
  case Form::Attention:
    return runAttention(attentionOperandsOf(c), threads);
  case Form::Prompt:
    return runPrompt(promptOperandsOf(c), threads);
  case Form::Matmul:
    return runMatmul(matmulOperandsOf(c), threads);
  case Form::Chunk:
  case Form::Step:
    break;
  }
  return run(operandsOf(c), threads);
}

Operands operandsOf(const Case &c) {
  const Variant &v = c.spec().variant;
  const Recurrence &row = v.row();
  auto rows = [&](const char *name) {
    const Buffer *buffer = c.find(name);
    return buffer ? buffer->rows() : Rows();
  };
  Operands op;
  op.heads = c.heads();
  op.valueHeads = c.valueHeads();
  op.keyDim = v.keyDim;
  op.valueDim = v.valueDim;
  op.offsets = c.offsets();
  op.q = *v.l2norm ? l2norm(rows("q"), v.keyDim) : rows("q");
  op.k = *v.l2norm ? l2norm(rows("k"), v.keyDim) : rows("k");
  op.v = rows("v");
  op.perChannel = row.decay == Decay::Channel;
  if (row.decay != Decay::None)
    op.decay = logDecay({*v.gate, rows("A_log"), rows("dt_bias"), v.lowerBound},
                        rows("g"), op.perChannel ? v.keyDim : 1);
  if (row.decay == Decay::HeadConstant)
    op.decay = [constant = op.decay](int64_t, int64_t head, double *x) {
      constant(0, head, x);
    };
  if (*v.beta != Beta::None)
    op.beta = writeStrength(*v.beta, rows("beta"));
  op.delta = row.erase == Erase::Delta;
  op.a = rows("a");
  op.b = rows("b");
  op.initial = rows("h0");
  if (v.slots)
    addPool(c, op);
  addLayer(c, op);
  op.layout = v.stateLayout;
  op.scale = c.scale();
  return op;
}

} // namespace kdac::reference
