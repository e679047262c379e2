#include "kdac/Reference/Case.h"
#include "AttentionCase.h"
#include "CaseSpec.h"
#include "MatmulCase.h"
#include "PromptCase.h"
#include "RecurrenceCase.h"
#include "RowCase.h"
#include "kdac/Reference/Cache.h"
#include "kdac/Reference/Places.h"
#include "kdac/Reference/Pool.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace kdac::reference {

/// Where sequences begin, and where the last one ends.
static std::vector<int64_t> boundsOf(const CaseSpec &spec) {
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

/// The shape of an argument (kernelArgs' `shape`, as numbers).
static Layout layoutOf(const Case &c, const std::string &name) {
  switch (c.spec().variant.form) {
  case Form::Chunk:
  case Form::Step:
    return recurrenceLayout(c, name);
  case Form::Rows:
    return rowLayout(c, name);
  case Form::Attention:
    return attentionLayout(c, name);
  case Form::Prompt:
    return promptLayout(c, name);
  case Form::Matmul:
    return matmulLayout(c, name);
  }
  return {};
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
  switch (description.variant.form) {
  case Form::Chunk:
  case Form::Step:
    return recurrenceSize(*this, name);
  case Form::Rows:
    return rowSize(*this, name);
  case Form::Attention:
    return attentionSize(*this, name);
  case Form::Prompt:
    return promptSize(*this, name);
  case Form::Matmul:
    return matmulSize(*this, name);
  }
  return 0;
}

Rows Case::rows(std::string_view name) const {
  const Buffer *buffer = find(name);
  return buffer ? buffer->rows() : Rows();
}

int64_t Case::strideOf(const std::string &name) const {
  const Buffer *buffer = find(name.substr(0, name.rfind("_stride")));
  return buffer ? buffer->layout().stride : 0;
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

} // namespace kdac::reference
