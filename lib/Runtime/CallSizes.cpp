// Which sizes of a call its form's kernel takes.
#include "CallReader.h"
#include "kdac/Pack/SizeExpr.h"

#include <algorithm>
#include <initializer_list>
#include <optional>

namespace kdac {

namespace {

constexpr int64_t widest = 8; ///< bytes of an element

/// The product of sizes that are not negative; nothing where it exceeds 63
/// bits.
std::optional<int64_t> product(std::initializer_list<int64_t> factors) {
  int64_t result = 1;
  bool wraps = false;
  for (int64_t factor : factors) {
    if (factor == 0)
      return 0;
    wraps |= __builtin_mul_overflow(result, factor, &result);
  }
  return wraps ? std::nullopt : std::optional(result);
}

bool isStride(const Arg &arg) {
  constexpr std::string_view suffix = "_stride";
  return arg.kind == ArgKind::Size && arg.name.size() > suffix.size() &&
         arg.name.compare(arg.name.size() - suffix.size(), suffix.size(),
                          suffix) == 0;
}

Status tooLarge(const std::string &name, int64_t value) {
  return refuse("argument " + name + " = " + std::to_string(value) +
                " makes a tensor larger than 2^63 bytes");
}

Status checkHeads(const CallReader &reader) {
  int64_t heads = reader.size("H", 1), valueHeads = reader.size("HV", 1);
  if (valueHeads == 0 || reader.size("N") == 0)
    return Status::success();
  if (heads == 0 || valueHeads % heads != 0)
    return refuse("HV = " + std::to_string(valueHeads) +
                  " value heads are not a multiple of H = " +
                  std::to_string(heads) + " key heads");
  return Status::success();
}

Status checkExtents(const PackVariant &variant, const Launch &launch,
                    const CallReader &reader) {
  const Variant &v = variant.variant;
  int64_t sequences = reader.size("N"), heads = reader.size("HV");
  std::optional<int64_t> tokens = reader.size("T");
  if (reader.isNull("offsets"))
    tokens = product({sequences, *tokens});
  for (size_t i = 0; i < launch.args.size(); ++i) {
    const Arg &arg = launch.args[i].arg;
    if (!isStride(arg))
      continue;
    int64_t stride = reader.sizeAt(i);
    if (!tokens || !product({*tokens, stride, widest}))
      return tooLarge(arg.name, stride);
  }
  if (!v.slots && !product({sequences, heads, v.keyDim, v.valueDim, widest}))
    return refuse("N * HV states of K x V are larger than 2^63 bytes");
  // Rows of the output must not overlap; inputs may repeat.
  std::optional<int64_t> row = product({heads, v.valueDim});
  int64_t stride = reader.size("out_stride", INT64_MAX);
  if (tokens && *tokens > 1 && row && stride < *row)
    return refuse("argument out_stride = " + std::to_string(stride) +
                  " is less than the " + std::to_string(*row) +
                  " elements of one token");
  return Status::success();
}

/// Slots of a pool must not overlap, whichever of slots and heads is outside.
Status checkPool(const PackVariant &variant, const CallReader &reader) {
  const Variant &v = variant.variant;
  if (!v.slots)
    return Status::success();
  int64_t pool = reader.size("pool"), slot = reader.size("slot_pitch");
  int64_t head = reader.size("head_pitch"), heads = reader.size("HV");
  SizeBindings sizes = {{"P", pool},   {"S", slot},     {"Q", head},
                        {"HV", heads}, {"K", v.keyDim}, {"V", v.valueDim}};
  if (!evaluateSize("(P * S + HV * Q + K * V) * 8", sizes).ok())
    return refuse("a pool of " + std::to_string(pool) + " slots with pitches " +
                  std::to_string(slot) + " and " + std::to_string(head) +
                  " is larger than 2^63 bytes");
  int64_t state = v.keyDim * v.valueDim;
  bool apart = (pool < 2 || slot >= state) && (heads < 2 || head >= state);
  bool nested = pool < 2 || heads < 2 || slot >= (heads - 1) * head + state ||
                head >= (pool - 1) * slot + state;
  if (!apart || !nested)
    return refuse("arguments slot_pitch = " + std::to_string(slot) +
                  " and head_pitch = " + std::to_string(head) +
                  " make states of " + std::to_string(state) +
                  " elements overlap");
  if (reader.isNull("slots") && reader.size("N") > pool)
    return refuse("N = " + std::to_string(reader.size("N")) +
                  " sequences without slots need as many slots, but pool = " +
                  std::to_string(pool));
  return Status::success();
}

/// A cache's slots must not overlap.
Status checkCaches(const PackVariant &variant, const CallReader &reader) {
  const Variant &v = variant.variant;
  if (!v.conv)
    return Status::success();
  int64_t heads = reader.size("H"), valueHeads = reader.size("HV");
  int64_t entries = cacheEntries(v);
  int64_t slots = v.slots ? reader.size("pool") : reader.size("N");
  for (const char *name : {"q_cache", "k_cache", "v_cache"}) {
    int64_t pitch = reader.size(std::string(name) + "_pitch");
    bool isValue = *name == 'v';
    StatusOr<int64_t> slot =
        evaluateSize("H * D * E", {{"H", isValue ? valueHeads : heads},
                                   {"D", isValue ? v.valueDim : v.keyDim},
                                   {"E", entries}});
    if (!slot.ok() ||
        !evaluateSize("S * P * 8", {{"S", slots}, {"P", pitch}}).ok())
      return refuse(std::string(name) + " is larger than 2^63 bytes");
    if (!reader.isNull(name) && slots > 1 && pitch < *slot)
      return refuse("argument " + std::string(name) +
                    "_pitch = " + std::to_string(pitch) + " is less than the " +
                    std::to_string(*slot) + " elements of a slot");
  }
  return Status::success();
}

/// Of form rows' latent: what the kernel holds at once, and its page table.
Status checkPages(const Variant &v, const CallReader &reader) {
  int64_t width = reader.size("D"), rank = reader.size("rank");
  int64_t page = reader.size("page"), pages = reader.size("P");
  if (rank > width)
    return refuse("argument rank = " + std::to_string(rank) +
                  " is more than the D = " + std::to_string(width) +
                  " elements of a row");
  if (std::max(rank, width - rank) > v.width)
    return refuse("arguments rank = " + std::to_string(rank) +
                  " and D = " + std::to_string(width) +
                  " make a part of a row longer than the " +
                  std::to_string(v.width) + " elements that the kernel takes");
  if (reader.size("T") > 0 && page < 1)
    return refuse("argument page = " + std::to_string(page) +
                  " should be at least 1");
  if (!product({pages, page}) || !product({pages, reader.size("S"), 4}))
    return refuse("argument P = " + std::to_string(pages) +
                  " makes a table larger than 2^63 bytes");
  return Status::success();
}

Status checkRows(const PackVariant &variant, const Launch &launch,
                 const CallReader &reader) {
  const Variant &v = variant.variant;
  int64_t width = reader.size("D"), tokens = reader.size("T");
  bool isLatent = v.rows == RowOp::Latent;
  if (v.width && width > v.width && !isLatent)
    return refuse("argument D = " + std::to_string(width) +
                  " is more than the " + std::to_string(v.width) +
                  " elements that the kernel takes of a row");
  if (isLatent)
    if (Status s = checkPages(v, reader); !s.ok())
      return s;
  int64_t entries = reader.size("E", 1);
  if (tokens > 0 && v.rows == RowOp::Mix && entries < 1)
    return refuse("argument E = 0 tensors have no average");
  if (!product({entries, reader.size("x_pitch"), widest}))
    return tooLarge("x_pitch", reader.size("x_pitch"));
  int64_t rows = std::max(tokens, reader.size("R"));
  if (!product({tokens, reader.size("E"), widest}))
    return tooLarge("E", reader.size("E"));
  for (size_t i = 0; i < launch.args.size(); ++i) {
    const Arg &arg = launch.args[i].arg;
    if (!isStride(arg))
      continue;
    int64_t stride = reader.sizeAt(i);
    if (!product({rows, stride, widest}) || !product({rows, width, widest}))
      return tooLarge(arg.name, stride);
    bool isWritten = arg.name == "out_stride" || arg.name == "sum_stride";
    if (isWritten && tokens > 1 && stride < width &&
        !reader.isNull(arg.name.substr(0, arg.name.find('_'))))
      return refuse("argument " + arg.name + " = " + std::to_string(stride) +
                    " is less than the " + std::to_string(width) +
                    " elements of a row");
  }
  return Status::success();
}

Status checkAttention(const PackVariant &variant, const CallReader &reader) {
  const Variant &v = variant.variant;
  int64_t row = reader.size("D"), values = reader.size("R");
  if (values > v.valueDim || values > row ||
      row - values > v.keyDim - v.valueDim)
    return refuse("arguments D = " + std::to_string(row) +
                  " and R = " + std::to_string(values) +
                  " do not fit; the kernel takes values of up to " +
                  std::to_string(v.valueDim) + " elements and " +
                  std::to_string(v.keyDim - v.valueDim) + " more of a row");
  if (!product({reader.size("N"), reader.size("H"), row, widest}) ||
      !product({reader.size("P"), pageKeys, row, widest}) ||
      !product({reader.size("S"), reader.size("table_pitch"), pageKeys}))
    return refuse("the sizes make a tensor larger than 2^63 bytes");
  return Status::success();
}

/// Offsets are in device memory: any that 32 bits hold
/// must be within reach.
Status checkPrompt(const PackVariant &variant, const Launch &launch,
                   const CallReader &reader) {
  const Variant &v = variant.variant;
  constexpr int64_t most = INT32_MAX; // rows
  int64_t row = reader.size("D"), shared = reader.size("R");
  int64_t values = reader.size("E"), heads = reader.size("H");
  int64_t rest = v.keyDim - v.valueDim;
  if (shared > row || shared > rest || row - shared > v.valueDim ||
      values > v.valueDim)
    return refuse("arguments D = " + std::to_string(row) +
                  ", R = " + std::to_string(shared) +
                  " and E = " + std::to_string(values) +
                  " do not fit; the kernel takes keys of up to " +
                  std::to_string(v.valueDim) + " elements of a head and " +
                  std::to_string(rest) + " that heads share, and values of " +
                  std::to_string(v.valueDim));
  for (size_t i = 0; i < launch.args.size(); ++i)
    if (const Arg &arg = launch.args[i].arg;
        isStride(arg) && !product({reader.sizeAt(i), most, widest}))
      return tooLarge(arg.name, reader.sizeAt(i));
  std::optional<int64_t> outputs = product({heads, values});
  if (!outputs || !product({*outputs, most, widest}) ||
      !product({reader.size("N"), reader.size("T"), heads}))
    return refuse("the sizes make a tensor larger than 2^63 bytes");
  if (reader.size("T") > 1 && reader.size("out_stride") < *outputs)
    return refuse(
        "argument out_stride = " + std::to_string(reader.size("out_stride")) +
        " is less than the " + std::to_string(*outputs) +
        " elements of one row");
  for (const char *name : {"before", "after"})
    if (reader.isNull(name) != reader.isNull(std::string(name) + "_logs"))
      return refuse("arguments " + std::string(name) + " and " +
                    std::string(name) +
                    "_logs belong together; give both or neither");
  float scale = reader.scale("scale");
  if (!(scale > 0))
    return refuse("argument scale = " + std::to_string(scale) +
                  " should be positive");
  return Status::success();
}

/// What device memory names is within reach.
Status checkMatmul(const Launch &launch, const CallReader &reader) {
  int64_t entries = reader.size("T"), columns = reader.size("E");
  int64_t width = reader.size("D"), rows = reader.size("R");
  if (entries > INT32_MAX || rows > INT32_MAX)
    return refuse("arguments T = " + std::to_string(entries) + " and R = " +
                  std::to_string(rows) + " should be less than 2^31");
  if (reader.size("each") < 1 || reader.size("each") > INT32_MAX)
    return refuse("argument each = " + std::to_string(reader.size("each")) +
                  " should be at least 1 and less than 2^31");
  if (reader.isNull("tiles") != reader.isNull("starts"))
    return refuse("arguments tiles and starts belong together; give both or "
                  "neither");
  if (!product({reader.size("G"), columns, width, widest}) ||
      !product({reader.size("tile_count"), columns, matmulRows}))
    return refuse("the sizes make a tensor larger than 2^63 bytes");
  for (size_t i = 0; i < launch.args.size(); ++i) {
    const Arg &arg = launch.args[i].arg;
    if (!isStride(arg))
      continue;
    int64_t stride = reader.sizeAt(i);
    if (!product({std::max(entries, rows), stride, widest}))
      return tooLarge(arg.name, stride);
    if (arg.name != "x_stride" && entries > 1 && stride < columns &&
        !reader.isNull(arg.name.substr(0, arg.name.find('_'))))
      return refuse("argument " + arg.name + " = " + std::to_string(stride) +
                    " is less than the " + std::to_string(columns) +
                    " elements of a row");
  }
  return Status::success();
}

Status checkRecurrence(const PackVariant &variant, const Launch &launch,
                       const CallReader &reader) {
  if (Status status = checkHeads(reader); !status.ok())
    return status;
  if (Status status = checkPool(variant, reader); !status.ok())
    return status;
  if (Status status = checkCaches(variant, reader); !status.ok())
    return status;
  return checkExtents(variant, launch, reader);
}

} // namespace

Status checkSizes(const PackVariant &variant, const Launch &launch,
                  const CallReader &reader) {
  switch (variant.variant.form) {
  case Form::Chunk:
  case Form::Step:
    return checkRecurrence(variant, launch, reader);
  case Form::Rows:
    return checkRows(variant, launch, reader);
  case Form::Attention:
    return checkAttention(variant, reader);
  case Form::Prompt:
    return checkPrompt(variant, launch, reader);
  case Form::Matmul:
    return checkMatmul(launch, reader);
  }
  return Status::success();
}

} // namespace kdac
