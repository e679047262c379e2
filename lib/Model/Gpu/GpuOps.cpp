#include "GpuOps.h"

#include <algorithm>
#include <cstring>

namespace kdac::model {

static_assert(sizeof(gpu::PieceArgs) == sizeof(Piece));

GpuOps::GpuOps(std::shared_ptr<Gpu> gpu, const ModelConfig &config,
               const GpuLimits &limits)
    : gpu(std::move(gpu)), config(config), limits(limits) {}

GpuOps::~GpuOps() {
  Device::Scope scope(gpu->device());
  for (auto &[key, one] : recorded)
    if (one.graph)
      gpu->driver().graphExecDestroy(one.graph);
}

/// What the kernels rely on; Args.h and the .cuh files say where.
Status GpuOps::checkConfig() const {
  auto refuse = [&](const std::string &what) {
    return Status(ErrorCode::Unsupported, config.name + ": on a GPU " + what);
  };
  const ModelConfig &c = config;
  constexpr int64_t vector = 8; // elements of one load
  if (Status s = checkWidths(c, vector, "on a GPU"); !s.ok())
    return s;
  auto most = [&](const char *name, int64_t value, int64_t limit) {
    return value <= limit
               ? Status::success()
               : refuse(std::string(name) + " = " + std::to_string(value) +
                        " should be at most " + std::to_string(limit));
  };
  if (Status s = most("experts", c.experts, 1024); !s.ok())
    return s;
  if (Status s = most("experts of a token", c.topK, 32); !s.ok())
    return s;
  if (Status s = most("expert groups", c.groups, 32); !s.ok())
    return s;
  if (c.count(Mixer::Kda) > 0 && c.convWidth != 4)
    return refuse("short_conv_kernel_size = " + std::to_string(c.convWidth) +
                  " should be 4");
  return Status::success();
}

Status GpuOps::prepare(const PackReader &pack) {
  if (Status s = checkConfig(); !s.ok())
    return s;
  if (config.count(Mixer::Kda) > 0)
    for (bool isStep : {false, true})
      if (isStep || limits.type != Element::F32)
        if (Status s = loadKernel(pack, isStep); !s.ok())
          return s;
  if (hasAttention())
    if (Status s = loadAttention(pack); !s.ok())
      return s;
  if (limits.type == Element::BF16)
    if (Status s = loadMatmul(pack); !s.ok())
      return s;
  const Device &device = gpu->device();
  auto load = [&](const PackVariant &v) {
    return GpuKernel::load(device, pack, v);
  };
  if (Status s = rowCalls.prepare(pack, Place{&device.info()}, config,
                                  limits.type, load);
      !s.ok())
    return s;
  if (limits.type == Element::BF16 && limits.usesBlas) {
    Device::Scope scope(gpu->device());
    StatusOr<std::unique_ptr<CublasLt>> loaded = CublasLt::load();
    if (loaded.ok())
      blas = std::move(*loaded);
  }
  layOut(nullptr);
  return Status::success();
}

StatusOr<std::unique_ptr<GpuOps::KdaKernel>>
GpuOps::loadSelected(const PackReader &pack,
                     StatusOr<const PackVariant *> variant) {
  if (!variant.ok())
    return variant.status();
  StatusOr<GpuKernel> kernel = GpuKernel::load(gpu->device(), pack, **variant);
  if (!kernel.ok())
    return kernel.status();
  return std::make_unique<KdaKernel>(std::move(*kernel));
}

Status GpuOps::loadMatmul(const PackReader &pack) {
  Place place{&gpu->device().info()};
  for (auto *to : {&matmulKernel, &gatedKernel}) {
    bool isGated = to == &gatedKernel;
    if (isGated && config.experts == 0)
      continue;
    auto loaded = loadSelected(
        pack, selectMatmul(pack, place, config, limits.type, isGated));
    if (!loaded.ok())
      return loaded.status();
    *to = std::move(*loaded);
  }
  return Status::success();
}

int64_t GpuOps::tilesOf(int64_t entries) const {
  return entries / matmulRows + std::min(config.experts, entries);
}

void GpuOps::layOut(char *base) {
  int64_t used = 0;
  auto take = [&](int64_t bytes) {
    int64_t at = used;
    used += (bytes + 255) / 256 * 256;
    return base ? base + at : nullptr;
  };
  auto ints = [&](int64_t count) {
    return reinterpret_cast<int *>(take(count * 4));
  };
  int64_t pieces = limits.pieces, bytes = bytesOf(limits.type);
  // Pieces come first; what is short comes before what is long.
  layout.slots = pieces * static_cast<int64_t>(sizeof(Piece));
  layout.sources = layout.slots + pieces * 4;
  layout.offsets = layout.sources + pieces * 4;
  layout.outputs = layout.offsets + (pieces + 1) * 4;
  layout.rows = layout.outputs + pieces * 4;
  layout.keyOffsets = layout.rows + limits.tokens * 3 * 4;
  layout.bytes = layout.keyOffsets;
  if (hasAttention())
    layout.bytes +=
        4 * PromptPlan::mostOffsets(pieces, limits.context, keyBlock());
  scratch.call = take(layout.bytes);
  scratch.workspace = take(workspaceBytes);
  scratch.blas = take(blas ? CublasLt::workspaceBytes : 0);
  int64_t entries = limits.tokens * config.topK;
  scratch.hidden = take((entries + limits.tokens) * config.expertWidth * bytes);
  scratch.starts = ints(config.experts + 1);
  scratch.order = ints(entries);
  scratch.place = ints(entries);
  scratch.tiles = ints(2 * tilesOf(entries));
  scratch.parts = take(entries * config.expertInput * bytes);
  if (hasAttention()) {
    int64_t heads = config.heads;
    int64_t blocks = keyBlock() < limits.context ? limits.tokens : 0;
    scratch.query = take(pieces * heads * config.cacheDim() * bytes);
    scratch.singles = take(pieces * heads * config.latentRank * bytes);
    scratch.lengths = ints(pieces);
    scratch.averages =
        reinterpret_cast<float *>(take(blocks * heads * config.valueDim * 4));
    scratch.logs = reinterpret_cast<float *>(take(blocks * heads * 4));
    scratch.latents = take(keyBlock() * config.cacheDim() * bytes);
    scratch.expanded =
        take(keyBlock() * heads * (config.nopeDim + config.valueDim) * bytes);
  }
  scratch.bytes = used;
}

Status GpuOps::allocate() {
  memory = gpuMemory(gpu);
  StatusOr<void *> base = memory->allocate(scratch.bytes, "scratch");
  if (!base.ok())
    return base.status();
  layOut(static_cast<char *>(*base));
  StatusOr<PinnedBuffer> pinned =
      PinnedBuffer::allocate(gpu->device(), layout.bytes);
  if (!pinned.ok())
    return pinned.status();
  staging = std::make_unique<PinnedBuffer>(std::move(*pinned));
  return Status::success();
}

/// Of decoding calls it is empty.
void GpuOps::planPrompts() {
  prompts.make(pieces.data(), static_cast<int64_t>(pieces.size()), keyBlock());
  if (!hasAttention() || prompts.blocks.empty())
    return;
  size_t bytes = prompts.keyOffsets.size() * sizeof(int32_t);
  char *from = staging->data() + layout.keyOffsets;
  char *to = scratch.call + layout.keyOffsets;
  std::memcpy(from, prompts.keyOffsets.data(), bytes);
  promptOffsets = reinterpret_cast<const int32_t *>(to);
  keep(gpu->upload(to, from, static_cast<int64_t>(bytes)));
}

bool GpuOps::begin(CallData &call) {
  BatchView &b = call.batch;
  if (b.tokens > limits.tokens || b.count > limits.pieces ||
      call.outputCount > limits.pieces) {
    keep(Status(ErrorCode::InvalidArgument,
                "a call of " + std::to_string(b.tokens) + " rows and " +
                    std::to_string(b.count) +
                    " pieces is larger than these operations were made for, " +
                    std::to_string(limits.tokens) + " and " +
                    std::to_string(limits.pieces)));
    return true;
  }
  pieces.assign(b.pieces, b.pieces + b.count);
  // The copy of the last call must have left the staging buffer.
  keep(gpu->synchronize());
  char *from = staging->data(), *to = scratch.call;
  auto put = [&](auto &array, int64_t at, int64_t count) {
    auto bytes = static_cast<size_t>(count) * sizeof *array;
    std::memcpy(from + at, array, bytes);
    array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(to + at);
  };
  put(b.pieces, 0, b.count);
  put(b.slots, layout.slots, b.count);
  put(b.sources, layout.sources, b.count);
  put(b.offsets, layout.offsets, b.count + 1);
  put(call.outputs, layout.outputs, call.outputCount);
  put(call.tokens, layout.rows, b.tokens);
  int64_t positions = layout.rows + b.tokens * 2 * 4;
  int64_t slots = layout.rows + b.tokens * 4;
  listRows(pieces.data(), b.count, reinterpret_cast<int32_t *>(from + slots),
           reinterpret_cast<int32_t *>(from + positions));
  rowSlots = reinterpret_cast<const int32_t *>(to + slots);
  rowPositions = reinterpret_cast<const int32_t *>(to + positions);
  keep(gpu->upload(to, from, positions + b.tokens * 4));
  planPrompts();
  if (!b.isDecode || call.outputCount != b.count || !first.ok())
    return true;
  // The first call of a shape is not recorded: libraries load code during it.
  auto [entry, isNew] = recorded.try_emplace({b.count, call.session});
  if (isNew)
    return true;
  Device::Scope scope(gpu->device());
  recording = &entry->second;
  if (recording->graph)
    return false;
  keep(gpu->check(
      gpu->driver().streamBeginCapture(gpu->stream(), cuda::captureRelaxed),
      "cuStreamBeginCapture"));
  isCapturing = first.ok();
  return true;
}

void GpuOps::end() {
  Device::Scope scope(gpu->device());
  const cuda::Driver &d = gpu->driver();
  if (isCapturing) {
    cuda::Graph graph = nullptr;
    keep(gpu->check(d.streamEndCapture(gpu->stream(), &graph),
                    "cuStreamEndCapture"));
    if (first.ok())
      keep(gpu->check(d.graphInstantiate(&recording->graph, graph, 0),
                      "cuGraphInstantiate"));
    if (graph)
      d.graphDestroy(graph);
  }
  if (recording && first.ok())
    keep(gpu->check(d.graphLaunch(recording->graph, gpu->stream()),
                    "cuGraphLaunch"));
  isCapturing = false;
  recording = nullptr;
}

void GpuOps::embed(const int32_t *tokens, const Matrix &table, Rows y) {
  Rows rows = {const_cast<void *>(table.data), table.out, table.in, table.in,
               limits.type};
  gather(rows, tokens, y);
}

/// Rows of few products at a time stay in registers.
constexpr int64_t fewRowsMost = 8;

void GpuOps::fewRows(const Product *list, int64_t count) {
  constexpr const char *names[2][fewRowsMost] = {
      {"products1_f32", "products2_f32", "products3_f32", "products4_f32",
       "products5_f32", "products6_f32", "products7_f32", "products8_f32"},
      {"products1_bf16", "products2_bf16", "products3_bf16", "products4_bf16",
       "products5_bf16", "products6_bf16", "products7_bf16", "products8_bf16"}};
  constexpr int64_t usualColumns = 2304; // Products.cuh
  int64_t rows = list[0].x.rows, blocks = 0;
  bool isLong = limits.type == Element::BF16 && rows == 1 && count == 1 &&
                list[0].w->in > usualColumns;
  int64_t outputsOfBlock = isLong      ? gpu::longOutputs
                           : rows == 1 ? gpu::productWarps
                                       : 2 * gpu::productWarps;
  gpu::ProductList call = {};
  for (int64_t i = 0; i < count; ++i) {
    const Product &p = list[i];
    call.item[call.count++] = {p.w->data,
                               p.x.data,
                               p.y.data,
                               static_cast<int>(p.w->in),
                               static_cast<int>(p.w->out),
                               static_cast<int>(p.x.stride),
                               static_cast<int>(p.y.stride),
                               p.y.type == Element::F32,
                               static_cast<int>(blocks)};
    blocks += (p.w->out + outputsOfBlock - 1) / outputsOfBlock;
  }
  const char *name = names[limits.type == Element::BF16][rows - 1];
  launch(isLong ? "products_long_bf16" : name, {{blocks, 1, 1}}, call);
}

/// f32 takes few rows at a time: it is there to be exact.
void GpuOps::manyRows(const Product &p) {
  constexpr int64_t blasRows = 64; // fewer hardly fill its tiles
  if (blas && p.x.rows >= blasRows) {
    Device::Scope scope(gpu->device());
    if (first.ok())
      first = blas->matmul(p.x, *p.w, p.y, scratch.blas, gpu->stream());
    return;
  }
  if (matmulKernel && suitsMatmul(p)) {
    setMatmul(matmulKernel->call, p);
    return launchPacked(*matmulKernel);
  }
  for (int64_t row = 0; row < p.x.rows; row += fewRowsMost) {
    int64_t count = std::min(fewRowsMost, p.x.rows - row);
    Product part = {p.x.from(row).first(count), p.w,
                    p.y.from(row).first(count)};
    fewRows(&part, 1);
  }
}

void GpuOps::products(std::initializer_list<Product> list) {
  if (list.begin()->x.rows == 0)
    return;
  if (list.begin()->x.rows <= fewRowsMost)
    return fewRows(list.begin(), static_cast<int64_t>(list.size()));
  for (const Product &p : list)
    manyRows(p);
}

void GpuOps::matmul(Rows x, const Matrix &w, Rows y) { products({{x, &w, y}}); }

void GpuOps::addNorm(Rows y, Rows x, const Vector &w, double eps, Rows normed) {
  launchRows(RowOp::Norm, x.width, [&](NamedCall &call) {
    setNorm(call, y, x, w.device, eps, normed);
  });
}

void GpuOps::rmsNorm(Rows x, const Vector &w, double eps, Rows y) {
  addNorm(Rows(), x, w, eps, y);
}

void GpuOps::add(Rows y, Rows x) {
  launchRows(RowOp::Add, 0, [&](NamedCall &call) { setAdd(call, x, y, x); });
}

void GpuOps::gather(Rows x, const int32_t *index, Rows y) {
  launchRows(RowOp::Gather, 0,
             [&](NamedCall &call) { setGather(call, x, index, y); });
}

void GpuOps::copy(Rows x, Rows y) { gather(x, nullptr, y); }

void GpuOps::sigmoidGate(Rows gate, Rows x) {
  launchRows(RowOp::Sigmoid, 0,
             [&](NamedCall &call) { setProduct(call, config, gate, x, x); });
}

gpu::ActivationArgs GpuOps::activation() const {
  return {config.activation == Activation::Situ,
          static_cast<float>(config.situBeta),
          static_cast<float>(config.situLinearBeta)};
}

void GpuOps::activate(Rows gate, Rows up, Rows y) {
  launchRows(activationOf(config), 0,
             [&](NamedCall &call) { setProduct(call, config, gate, up, y); });
}

void GpuOps::argmax(Rows x, int32_t *best) {
  launch("argmax_rows", {{x.rows, 1, 1}, 1024}, x.data,
         static_cast<int>(x.stride), static_cast<int>(x.width), best);
}

void GpuOps::mix(Rows stream, int64_t pitch, int64_t entries,
                 const Vector &query, double eps, Rows y) {
  launchRows(RowOp::Mix, stream.width, [&](NamedCall &call) {
    setMix(call, stream, pitch, entries, query.device, eps, y);
  });
}

Status findBlas(const Gpu &gpu) {
  Device::Scope scope(gpu.device());
  return CublasLt::load().status();
}

StatusOr<int64_t> gpuScratchBytes(std::shared_ptr<Gpu> gpu,
                                  const ModelConfig &config,
                                  const PackReader &pack,
                                  const GpuLimits &limits) {
  GpuOps ops(std::move(gpu), config, limits);
  if (Status s = ops.prepare(pack); !s.ok())
    return s;
  return ops.scratchBytes();
}

StatusOr<std::unique_ptr<Ops>> makeGpuOps(std::shared_ptr<Gpu> gpu,
                                          const ModelConfig &config,
                                          const PackReader &pack,
                                          const GpuLimits &limits) {
  auto ops = std::make_unique<GpuOps>(std::move(gpu), config, limits);
  if (Status s = ops->prepare(pack); !s.ok())
    return s;
  if (Status s = ops->allocate(); !s.ok())
    return s;
  return std::unique_ptr<Ops>(std::move(ops));
}

} // namespace kdac::model
