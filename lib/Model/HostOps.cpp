#include "HostOps.h"

#include "Lanes.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>

namespace kdac::model {

HostOps::HostOps(const ModelConfig &config, const OpsLimits &limits)
    : config(config), limits(limits), pool(limits.threads) {
  openblas_set_num_threads(1);
}

Status HostOps::prepare(const PackReader &pack) {
  constexpr int64_t access = 4; // elements of 16 bytes
  if (Status s = checkWidths(config, access, "on the host"); !s.ok())
    return s;
  auto allocate = [&](AlignedBuffer &to, int64_t width) {
    StatusOr<AlignedBuffer> memory = AlignedBuffer::allocate(
        limits.tokens * paddedWidth(width) * 4, "rows of a layer");
    if (!memory.ok())
      return memory.status();
    to = std::move(*memory);
    return Status::success();
  };
  if (config.count(Mixer::Kda) > 0)
    for (bool isStep : {false, true})
      if (Status s = loadKernel(pack, isStep); !s.ok())
        return s;
  if (config.count(Mixer::Mla) > 0)
    if (Status s = loadAttention(pack); !s.ok())
      return s;
  rowSlots.resize(static_cast<size_t>(limits.tokens));
  rowPositions.resize(static_cast<size_t>(limits.tokens));
  auto load = [&](const PackVariant &v) { return HostKernel::load(pack, v); };
  if (Status s = rowCalls.prepare(pack, Place(), config, Element::F32, load);
      !s.ok())
    return s;
  if (config.experts == 0)
    return Status::success();
  int64_t entries = limits.tokens * config.topK;
  order.resize(static_cast<size_t>(entries));
  starts.resize(static_cast<size_t>(config.experts) + 1);
  if (Status s = allocate(gathered, config.expertInput); !s.ok())
    return s;
  if (Status s = allocate(gates, config.expertWidth); !s.ok())
    return s;
  return allocate(ups, config.expertWidth);
}

void HostOps::fail(Status status) {
  if (first.ok())
    first = std::move(status);
}

bool HostOps::fits(int64_t rows, int64_t pieces) {
  if (rows > limits.tokens || pieces > limits.pieces)
    fail(Status(ErrorCode::InvalidArgument,
                "a call of " + std::to_string(rows) + " rows and " +
                    std::to_string(pieces) +
                    " pieces is larger than these operations were made for, " +
                    std::to_string(limits.tokens) + " and " +
                    std::to_string(limits.pieces)));
  return first.ok();
}

void HostOps::parallel(int64_t count, const Body &body, int64_t scratchFloats) {
  if (!first.ok() || count <= 0)
    return;
  if (count == 1) { // waking threads takes longer than most single rows
    serial.resize(static_cast<size_t>(scratchFloats));
    return body(0, serial.data());
  }
  void *args[] = {const_cast<Body *>(&body)};
  HostEntry entry = [](void **args, int64_t begin, int64_t end, void *scratch) {
    const Body &body = *static_cast<const Body *>(args[0]);
    for (int64_t i = begin; i < end; ++i)
      body(i, static_cast<float *>(scratch));
  };
  if (!pool.run(entry, args, count, scratchFloats * 4))
    fail(Status(ErrorCode::Io, "no memory for " +
                                   std::to_string(scratchFloats * 4) +
                                   " bytes of scratch on each thread"));
}

void HostOps::embed(const int32_t *tokens, const Matrix &table, Rows y) {
  parallel(y.rows, [&](int64_t i, float *) {
    widenRows(table, tokens[i], 1, y.row(i));
  });
}

void HostOps::matmulBlock(Rows x, const Matrix &w, int64_t begin, int64_t count,
                          Rows y, float *scratch) const {
  const float *weights = static_cast<const float *>(w.data) + begin * w.in;
  if (w.type != MatrixType::F32) {
    widenRows(w, begin, count, scratch);
    weights = scratch;
  }
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(x.rows),
              static_cast<int>(count), static_cast<int>(w.in), 1.0f, x.row(0),
              static_cast<int>(x.stride), weights, static_cast<int>(w.in), 0.0f,
              y.row(0) + begin, static_cast<int>(y.stride));
}

/// A few rows are bound by reading the weights: a dot product reads them once,
/// as they are stored. More rows share a widened block of a quarter megabyte.
void HostOps::matmul(Rows x, const Matrix &w, Rows y) {
  constexpr int64_t fewRows = 4, blockFloats = 65536;
  bool isFew = x.rows <= fewRows;
  int64_t block = std::clamp<int64_t>(blockFloats / w.in, 16, 512);
  int64_t blocks = (w.out + block - 1) / block;
  parallel(
      blocks,
      [&](int64_t b, float *scratch) {
        int64_t begin = b * block, count = std::min(block, w.out - begin);
        if (!isFew)
          return matmulBlock(x, w, begin, count, y, scratch);
        for (int64_t o = begin; o < begin + count; ++o)
          for (int64_t i = 0; i < x.rows; ++i)
            y.row(i)[o] = rowDot(w, o, x.row(i));
      },
      isFew ? 0 : block * w.in);
}

void HostOps::launchRows(RowOp op, int64_t width,
                         const std::function<void(NamedCall &)> &set) {
  if (!first.ok())
    return;
  Status s = rowCalls.run(op, width, set,
                          [&](HostKernel &kernel, CallArguments arguments) {
                            return kernel.launch(pool, arguments);
                          });
  if (!s.ok())
    fail(s);
}

void HostOps::addNorm(Rows y, Rows x, const Vector &w, double eps,
                      Rows normed) {
  launchRows(RowOp::Norm, x.width, [&](NamedCall &call) {
    setNorm(call, y, x, w.data(), eps, normed);
  });
}

void HostOps::rmsNorm(Rows x, const Vector &w, double eps, Rows y) {
  addNorm(Rows(), x, w, eps, y);
}

void HostOps::add(Rows y, Rows x) {
  launchRows(RowOp::Add, 0, [&](NamedCall &call) { setAdd(call, x, y, x); });
}

void HostOps::copy(Rows x, Rows y) { gather(x, nullptr, y); }

void HostOps::gather(Rows x, const int32_t *index, Rows y) {
  launchRows(RowOp::Gather, 0,
             [&](NamedCall &call) { setGather(call, x, index, y); });
}

void HostOps::sigmoidGate(Rows gate, Rows x) {
  launchRows(RowOp::Sigmoid, 0,
             [&](NamedCall &call) { setProduct(call, config, gate, x, x); });
}

void HostOps::activate(Rows gate, Rows up, Rows y) {
  launchRows(activationOf(config), 0,
             [&](NamedCall &call) { setProduct(call, config, gate, up, y); });
}

void HostOps::argmax(Rows x, int32_t *best) {
  parallel(x.rows, [&](int64_t i, float *) {
    const float *row = x.row(i);
    int64_t at = 0;
    float largest = -INFINITY;
    for (int64_t c = 0; c < x.width; ++c)
      if (row[c] > largest) {
        largest = row[c];
        at = c;
      }
    best[i] = static_cast<int32_t>(at);
  });
}

void HostOps::mix(Rows stream, int64_t pitch, int64_t entries,
                  const Vector &query, double eps, Rows y) {
  launchRows(RowOp::Mix, stream.width, [&](NamedCall &call) {
    setMix(call, stream, pitch, entries, query.data(), eps, y);
  });
}

StatusOr<std::unique_ptr<Ops>> makeHostOps(const ModelConfig &config,
                                           const PackReader &pack,
                                           const OpsLimits &limits) {
  auto ops = std::make_unique<HostOps>(config, limits);
  if (Status s = ops->prepare(pack); !s.ok())
    return s;
  return std::unique_ptr<Ops>(std::move(ops));
}

} // namespace kdac::model
