#include "BenchCall.h"
#include "BenchAttention.h"
#include "BenchMatmul.h"
#include "BenchPrompt.h"

#include "kdac/Reference/Cache.h"
#include "kdac/Reference/Float.h"
#include "kdac/Reference/Places.h"
#include "kdac/Reference/RowOps.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace kdac::selftest {

namespace {

using reference::Buffer;
using reference::Layout;
using reference::Rows;

/// Pieces at least this big are copied alone, smaller ones with the whole
/// tensor.
constexpr int64_t minPieceBytes = 16384;

/// The numbers of a call and the shape of each of its arguments.
struct Sizes {
  static constexpr int64_t page = 64; ///< rows of one
  const Variant &v;
  const BenchShape &shape;

  int64_t elements(const Arg &arg) const {
    if (v.form == Form::Attention)
      return attentionElements(v, shape, arg.name);
    if (v.form == Form::Prompt)
      return promptElements(v, shape, arg.name);
    if (v.form == Form::Matmul)
      return matmulElements(v, shape, arg.name);
    int64_t hv = shape.valueHeads, state = hv * v.keyDim * v.valueDim;
    int64_t width = rowElements(arg);
    if (v.form == Form::Rows) // of x as many rows as are picked or mixed
      return arg.name == "x"     ? sourceRows() * width
             : arg.name == "out" ? placeRows() * width
             : arg.shape.compare(0, 7, "[tokens") == 0
                 ? shape.allTokens() * width
                 : width;
    if (arg.name == "h0")
      return shape.sequences * state;
    if (arg.name == "ht")
      return slots() * state;
    if (arg.name == "snapshots")
      return shape.allTokens();
    if (arg.name == "offsets")
      return shape.lengths.empty() ? 0 : shape.sequences + 1;
    if (arg.name == "slots" || arg.name == "accepted")
      return shape.sequences;
    if (arg.name == "sources" || arg.name == "status")
      return 0;
    if (reference::isCache(arg.name))
      return slots() * width;
    return arg.shape.rfind("[tokens", 0) == 0 ? shape.allTokens() * width
                                              : width;
  }
  /// Of a pool: those that the sequences start from, then the snapshots'.
  int64_t slots() const {
    return shape.sequences + (v.snapshots ? shape.allTokens() : 0);
  }
  /// Bytes that any kernel must move of an argument of `size` bytes: of pools
  /// what the sequences read and what they write.
  double moved(const Arg &arg, double size) const {
    bool isCache = reference::isCache(arg.name);
    if (arg.name == "ht" && v.log)
      return 0;
    if (!isCache && (arg.name != "ht" || !v.snapshots))
      return size;
    double written = v.snapshots ? slots() - shape.sequences : shape.sequences;
    return size / slots() * (written + (isCache ? shape.sequences : 0));
  }
  int64_t entries() const {
    return hasEntries(v.rows) ? reference::usualEntries : 1;
  }
  /// Of latent: one slot, whose pages are in order.
  int64_t pages() const { return (shape.allTokens() + page - 1) / page; }
  int64_t placeRows() const {
    return v.rows == RowOp::Latent ? pages() * page : shape.allTokens();
  }
  int64_t sourceRows() const { return shape.allTokens() * entries(); }
  int64_t rank() const { return reference::usualRank(v, shape.heads); }
  /// Elements of one token, or of a whole parameter.
  int64_t rowElements(const Arg &arg) const {
    if (v.form == Form::Rows) // H is D
      return arg.name == "index" || arg.name == "scales"      ? entries()
             : arg.name == "slots" || arg.name == "positions" ? 1
             : arg.name == "table"                            ? pages()
             : arg.shape == "[rank]"                          ? rank()
                                                              : shape.heads;
    bool isKeyHead = arg.shape.find("HV") == std::string::npos;
    int64_t heads = isKeyHead ? shape.heads : shape.valueHeads;
    if (arg.name == "norm_weight")
      return v.valueDim;
    bool isConv = arg.name.substr(1) == "_conv";
    if (isConv || reference::isCache(arg.name))
      return heads * (arg.name[0] == 'v' ? v.valueDim : v.keyDim) *
             (isConv ? v.conv : cacheEntries(v));
    if (arg.shape.find(", K]") != std::string::npos)
      return heads * v.keyDim;
    return arg.shape.find(", V]") != std::string::npos ? heads * v.valueDim
                                                       : heads;
  }
  int64_t size(const std::string &name, const std::vector<Arg> &args) const {
    if (v.form == Form::Attention)
      return attentionSize(v, shape, name);
    if (v.form == Form::Prompt)
      return promptSize(v, shape, name);
    if (v.form == Form::Matmul)
      return matmulSize(v, shape, name);
    if (name == "N")
      return shape.sequences;
    if (name == "T")
      return shape.lengths.empty() ? shape.tokens : shape.allTokens();
    if (name == "H" || name == "D")
      return shape.heads;
    if (name == "R")
      return v.rows == RowOp::Latent ? placeRows() : sourceRows();
    if (name == "S")
      return 1;
    if (name == "P")
      return pages();
    if (name == "page")
      return page;
    if (name == "rank")
      return rank();
    if (name == "x_pitch")
      return shape.allTokens() * shape.heads;
    if (name == "E")
      return entries();
    if (name == "HV")
      return shape.valueHeads;
    int64_t matrix = v.keyDim * v.valueDim;
    if (name == "pool")
      return slots();
    if (name == "slot_pitch")
      return shape.valueHeads * matrix;
    if (name == "head_pitch")
      return matrix;
    for (const Arg &tensor : args)
      if (name == tensor.name + "_stride" || name == tensor.name + "_pitch")
        return rowElements(tensor);
    return 0;
  }
};

std::vector<int64_t> boundsOf(const BenchShape &shape) {
  std::vector<int64_t> bounds = {0};
  for (int64_t n = 0; n < shape.sequences; ++n)
    bounds.push_back(bounds.back() +
                     (shape.lengths.empty() ? shape.tokens : shape.lengths[n]));
  return bounds;
}

/// Each sequence owns its number as a slot, each token one behind those as a
/// snapshot's. States go to a pool of their own.
std::vector<int64_t> countFrom(int64_t first, int64_t count) {
  std::vector<int64_t> slots(static_cast<size_t>(count));
  std::iota(slots.begin(), slots.end(), first);
  return slots;
}

Status uploadIntegers(DeviceBuffer &buffer, DType dtype,
                      const std::vector<int64_t> &bounds) {
  std::vector<std::byte> bytes(buffer.bytes());
  for (size_t i = 0; i < bounds.size(); ++i)
    reference::store(bytes.data(), dtype, static_cast<int64_t>(i),
                     static_cast<double>(bounds[i]));
  return buffer.upload(bytes.data(), bytes.size());
}

/// Rows of a pattern tensor in which head i is head heads[i] of the original.
Rows sampled(const Pattern &pattern, int64_t rowElements, int64_t width,
             std::vector<int64_t> heads) {
  return [&pattern, rowElements, width,
          heads = std::move(heads)](int64_t token, int64_t head, double *row) {
    int64_t first = token * rowElements + heads[head] * width;
    for (int64_t i = 0; i < width; ++i)
      row[i] = pattern.at(first + i);
  };
}

/// Rows of a pattern tensor, one a token.
Rows whole(const Pattern &pattern, int64_t width) {
  return [&pattern, width](int64_t token, int64_t, double *row) {
    for (int64_t i = 0; i < width; ++i)
      row[i] = pattern.at(token * width + i);
  };
}

/// The convolution in front of q, k or v, of the sampled heads.
Rows convolved(const Variant &v, const std::string &name,
               std::map<std::string, Rows> &rows, std::vector<int64_t> heads,
               int64_t allHeads, std::vector<int64_t> offsets) {
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

} // namespace

StatusOr<std::unique_ptr<BenchCall>> BenchCall::make(const Device &device,
                                                     const Variant &variant,
                                                     const BenchShape &shape,
                                                     Patterns &patterns,
                                                     cuda::Stream stream) {
  auto call = std::make_unique<BenchCall>();
  std::vector<Arg> args = kernelArgs(variant);
  call->slots.resize(args.size());
  for (size_t i = 0; i < args.size(); ++i)
    if (Status s = call->add(device, variant, shape, args, i, patterns, stream);
        !s.ok())
      return s;
  for (uint64_t &slot : call->slots)
    call->argv.push_back(&slot);
  return call;
}

Status BenchCall::bringWorkspace(const Device &device,
                                 const PackVariant &variant) {
  StatusOr<int64_t> bytes = workspaceBytes(variant, arguments());
  if (!bytes.ok() || *bytes == 0)
    return bytes.ok() ? Status::success() : bytes.status();
  StatusOr<DeviceBuffer> buffer =
      DeviceBuffer::allocate(device, static_cast<size_t>(*bytes));
  if (!buffer.ok())
    return buffer.status().with("workspace");
  slots[workspaceSlot] = buffer->address();
  if (variant.variant.log) // a result, unlike scratch
    total += static_cast<double>(buffer->bytes());
  tensors.emplace("workspace", std::move(*buffer));
  return Status::success();
}

void BenchCall::commit(bool isSecond) {
  slots[acceptedSlot] = isSecond ? find("accepted")->address() : 0;
}

const DeviceBuffer *BenchCall::find(const std::string &name) const {
  auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : &found->second;
}

Status BenchCall::add(const Device &device, const Variant &variant,
                      const BenchShape &shape, const std::vector<Arg> &args,
                      size_t i, Patterns &patterns, cuda::Stream stream) {
  Sizes sizes{variant, shape};
  const Arg &arg = args[i];
  if (arg.kind == ArgKind::Size) {
    slots[i] = static_cast<uint64_t>(sizes.size(arg.name, args));
    return Status::success();
  }
  if (arg.kind == ArgKind::Scale) {
    bool attends =
        variant.form == Form::Attention || variant.form == Form::Prompt;
    float scale = attends ? attentionScale
                  : arg.name == "scale"
                      ? 1 / std::sqrt(static_cast<float>(variant.keyDim))
                      : reference::usualScale(arg.name);
    std::memcpy(&slots[i], &scale, sizeof scale);
    return Status::success();
  }
  if (arg.kind == ArgKind::Workspace) {
    workspaceSlot = i;
    return Status::success();
  }
  int64_t elements = sizes.elements(arg);
  if (elements == 0)
    return Status::success(); // absent offsets: a null pointer
  size_t size = static_cast<size_t>(elements * dtypeSize(arg.dtype));
  StatusOr<DeviceBuffer> buffer = DeviceBuffer::allocate(device, size);
  if (!buffer.ok())
    return buffer.status().with(arg.name);
  Status status =
      arg.kind == ArgKind::Output && !reference::isCache(arg.name)
          ? buffer->fill(0xff, stream)
      : variant.form == Form::Attention && arg.dtype == DType::I32
          ? uploadIntegers(*buffer, arg.dtype,
                           attentionIntegers(variant, shape, arg.name))
      : variant.form == Form::Matmul && arg.dtype == DType::I32
          ? uploadIntegers(*buffer, arg.dtype,
                           matmulIntegers(variant, shape, arg.name))
      : arg.name == "offsets" || arg.name == "key_offsets"
          ? uploadIntegers(*buffer, arg.dtype, boundsOf(shape))
      : variant.rows == RowOp::Latent && arg.name == "slots"
          ? uploadIntegers(*buffer, arg.dtype,
                           std::vector<int64_t>(static_cast<size_t>(elements)))
      : arg.name == "slots" || arg.name == "snapshots" || arg.name == "index" ||
              arg.name == "positions" || arg.name == "table"
          ? uploadIntegers(
                *buffer, arg.dtype,
                countFrom(arg.name == "snapshots" ? shape.sequences : 0,
                          elements))
      : arg.name == "accepted"
          ? uploadIntegers(*buffer, arg.dtype,
                           std::vector<int64_t>(static_cast<size_t>(elements),
                                                shape.allTokens()))
          : patterns.of(variant, arg).fill(*buffer, elements, stream, device);
  if (arg.name == "accepted")
    acceptedSlot = i; // null until commit
  else
    slots[i] = buffer->address();
  total += sizes.moved(arg, static_cast<double>(size));
  tensors.emplace(arg.name, std::move(*buffer));
  return status;
}

std::vector<int64_t> sampledHeads(const BenchShape &shape) {
  if (shape.valueHeads == 1)
    return {0};
  return {0, shape.valueHeads - 1};
}

reference::Operands sampledOperands(const Variant &v, const BenchShape &shape,
                                    Patterns &patterns) {
  Sizes sizes{v, shape};
  std::vector<int64_t> valueHeads = sampledHeads(shape), keyHeads;
  for (int64_t head : valueHeads)
    keyHeads.push_back(head / (shape.valueHeads / shape.heads));
  std::map<std::string, Rows> rows;
  for (const Arg &arg : kernelArgs(v)) {
    bool isCache = reference::isCache(arg.name);
    if ((arg.kind != ArgKind::Input && !isCache) || arg.dtype == DType::I32 ||
        arg.dtype == DType::I64)
      continue;
    if (isCache || arg.name == "norm_weight") { // not by heads
      rows[arg.name] = whole(patterns.of(v, arg), sizes.rowElements(arg));
      continue;
    }
    bool isKeyHead = arg.shape.find("HV") == std::string::npos;
    int64_t heads = isKeyHead ? shape.heads : shape.valueHeads;
    int64_t row = arg.name == "h0" ? heads * v.keyDim * v.valueDim
                                   : sizes.rowElements(arg);
    rows[arg.name] = sampled(patterns.of(v, arg), row, row / heads,
                             isKeyHead ? keyHeads : valueHeads);
  }
  const Recurrence &family = v.row();
  reference::Operands op;
  op.heads = op.valueHeads = static_cast<int64_t>(valueHeads.size());
  op.keyDim = v.keyDim;
  op.valueDim = v.valueDim;
  op.offsets = boundsOf(shape);
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
  op.scale = 1 / std::sqrt(static_cast<float>(v.keyDim));
  return op;
}

reference::RowOperands rowOperands(const Variant &v, const BenchShape &shape,
                                   Patterns &patterns) {
  reference::RowOperands o;
  o.op = v.rows;
  Sizes sizes{v, shape};
  o.tokens = shape.allTokens();
  o.sources = v.rows == RowOp::Mix ? o.tokens : sizes.sourceRows();
  if (v.rows == RowOp::Latent) {
    o.rank = sizes.rank();
    o.places = sizes.placeRows();
    o.place = countFrom(0, o.tokens);
  }
  o.entries = sizes.entries();
  o.width = shape.heads;
  for (const Arg &arg : kernelArgs(v)) {
    if (arg.kind != ArgKind::Input || arg.dtype == DType::I32)
      continue;
    for (auto [name, rows] :
         {std::pair("x", &o.x), std::pair("branch", &o.branch),
          std::pair("weight", &o.weight), std::pair("gate", &o.gate),
          std::pair("up", &o.up), std::pair("query", &o.query)})
      if (arg.name == name)
        *rows = whole(patterns.of(v, arg), sizes.rowElements(arg));
    if (arg.name == "scales")
      o.scales = whole(patterns.of(v, arg), o.entries);
  }
  o.eps = reference::usualScale("eps");
  o.beta = reference::usualScale("beta");
  o.linear = reference::usualScale("linear");
  return o;
}

StatusOr<Buffer> sampledOutput(const DeviceBuffer &from,
                               const std::string &name, DType dtype,
                               int64_t rows, int64_t heads, int64_t width,
                               const std::vector<int64_t> &samples,
                               int64_t firstRow) {
  auto count = static_cast<int64_t>(samples.size());
  Buffer result(name, ArgKind::Output, dtype,
                Layout{rows, count, width, count * width});
  auto size = static_cast<size_t>(width * dtypeSize(dtype));
  bool inPieces = static_cast<int64_t>(size) >= minPieceBytes;
  std::vector<std::byte> whole(inPieces ? 0 : from.bytes());
  if (Status s = from.download(whole.data(), whole.size()); !s.ok())
    return s;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < count; ++i) {
      std::byte *to = static_cast<std::byte *>(result.data()) +
                      static_cast<size_t>(row * count + i) * size;
      size_t at =
          static_cast<size_t>((firstRow + row) * heads + samples[i]) * size;
      if (!inPieces)
        std::memcpy(to, whole.data() + at, size);
      else if (Status s = from.download(to, size, at); !s.ok())
        return s;
    }
  return result;
}

} // namespace kdac::selftest
