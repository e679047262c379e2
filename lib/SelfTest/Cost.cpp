#include "kdac/SelfTest/Cost.h"
#include "BenchMatmul.h"

#include "kdac/Reference/RowOps.h"
#include "kdac/Reference/Tolerance.h"

#include <algorithm>

namespace kdac::selftest {

namespace {

/// One factor of a shape in a formula: of a pool's slots a call touches one a
/// sequence, and the width of a convolution is a number.
std::string factorOf(const std::string &text, const Variant &variant) {
  if (text == "pool")
    return "N";
  if (text == "E")
    return std::to_string(reference::usualEntries);
  if (text == "sources") // those that a call reads
    return hasEntries(variant.rows)
               ? std::to_string(reference::usualEntries) + " * tokens"
               : "tokens";
  // Of latent: as many entries of the table as rows, a place for each.
  if (text == "P" || text == "places")
    return "tokens";
  if (text == "S")
    return "1";
  if (text == "rank")
    return "D";
  if (text == "W")
    return std::to_string(variant.conv);
  if (text == "W - 1")
    return std::to_string(variant.conv - 1);
  return text.find('+') == std::string::npos ? text : "(" + text + ")";
}

/// "[tokens, HV, K]" as "tokens * HV * K".
std::string productOf(const std::string &shape, const Variant &variant) {
  std::string text;
  for (const std::string &dimension : dimensionsOf(shape))
    text += (text.empty() ? "" : " * ") + factorOf(dimension, variant);
  return text;
}

std::string bytesFormula(const Variant &variant, bool packed) {
  // One term a shape, in order of first use: 4 * tokens * H * K for q and k.
  std::vector<std::pair<std::string, int64_t>> terms;
  for (const Arg &arg : kernelArgs(variant)) {
    bool isTensor = arg.kind == ArgKind::Input || arg.kind == ArgKind::Output;
    if (!isTensor || (arg.name == "offsets" && !packed))
      continue;
    std::string product = productOf(arg.shape, variant);
    auto known = std::find_if(terms.begin(), terms.end(), [&](const auto &t) {
      return t.first == product;
    });
    if (known == terms.end())
      known = terms.insert(terms.end(), {product, 0});
    known->second += dtypeSize(arg.dtype);
  }
  std::string text;
  for (const auto &[product, bytes] : terms)
    text +=
        (text.empty() ? "" : " + ") + std::to_string(bytes) + " * " + product;
  return text;
}

/// Of one token and value head.
std::string tokenFlops(const Variant &variant) {
  const Recurrence &row = variant.row();
  bool decays = row.decay != Decay::None;
  if (variant.form == Form::Chunk)
    return row.erase == Erase::None
               ? "(4 * K * V + 128 * (K + V))"  // A_qk, A_qk W, Q S, S'
               : "(6 * K * V + 256 * (K + V))"; // A_kk, T U and K S as well
  // The read and the write, one erase, the decay: each touches the state.
  int64_t perElement = 4 +
                       (row.erase == Erase::None    ? 0
                        : row.erase == Erase::Delta ? 2
                                                    : 4) +
                       (decays ? 1 : 0);
  return std::to_string(perElement) + " * K * V";
}

double flopRate(const Variant &variant, const Gpu &gpu) {
  if (variant.form == Form::Step || variant.form == Form::Rows)
    return gpu.scalarFlops;
  switch (reference::productsOf(variant)) {
  case reference::Products::BF16:
  case reference::Products::Refined:
    return gpu.tensorFlops;
  case reference::Products::TF32:
    return gpu.tensorFlops / 2;
  case reference::Products::F32:
    break;
  }
  return gpu.scalarFlops;
}

std::string limiterOf(const Estimate &e, const Gpu &gpu) {
  if (e.instances < gpu.multiprocessors)
    return "parallelism: " + std::to_string(e.instances) + " instances for " +
           std::to_string(gpu.multiprocessors) + " multiprocessors";
  bool memory = e.memoryMicroseconds >= e.computeMicroseconds;
  return memory ? "memory: its bytes take longer than its FLOPs"
                : "compute: its FLOPs take longer than its bytes";
}

} // namespace

/// Of one element of a row.
static int64_t elementFlops(RowOp op) {
  switch (op) {
  case RowOp::Norm:
    return 5; // sum, square, its sum, two factors
  case RowOp::Add:
    return 1;
  case RowOp::Silu:
    return 5;
  case RowOp::Sigmoid:
    return 4;
  case RowOp::Situ:
    return 18;
  case RowOp::Combine: // an entry
    return 2;
  case RowOp::Latent:
    return 4;
  case RowOp::Mix: // an entry: two sums, two factors
    return 6;
  case RowOp::None:
  case RowOp::Gather:
    break;
  }
  return 0;
}

CostFormulas costOf(const Variant &variant, bool packed) {
  if (variant.form == Form::Attention) {
    std::string bytes = std::to_string(dtypeSize(variant.dtype));
    return {bytes + " * N * H * (K + V) + " + bytes + " * tokens * K",
            "2 * tokens * H * (K + V)"};
  }
  if (variant.form == Form::Prompt) {
    std::string bytes = std::to_string(dtypeSize(variant.dtype));
    return {bytes + " * tokens * H * (K + 3 * V) + " + bytes +
                " * tokens * minus(K, V)",
            "pairs * H * (K + V)"};
  }
  if (variant.form == Form::Matmul) {
    std::string bytes = std::to_string(dtypeSize(variant.dtype));
    std::string products = variant.rows == RowOp::None ? "1" : "2";
    return {bytes + " * (R * D + " + products + " * G * E * D + tokens * E)",
            "2 * " + products + " * tokens * D * E"};
  }
  if (variant.form == Form::Rows)
    return {bytesFormula(variant, packed),
            "tokens * D * " +
                std::to_string(
                    elementFlops(variant.rows) *
                    (hasEntries(variant.rows) ? reference::usualEntries : 1))};
  return {bytesFormula(variant, packed),
          "tokens * HV * " + tokenFlops(variant)};
}

/// Twice the pairs of a row and a key that it sees, of sequences without a
/// past.
static int64_t pairsOf(const BenchShape &shape) {
  if (shape.lengths.empty())
    return shape.sequences * shape.tokens * (shape.tokens + 1);
  int64_t pairs = 0;
  for (int64_t length : shape.lengths)
    pairs += length * (length + 1);
  return pairs;
}

SizeBindings bindingsOf(const Variant &variant, const BenchShape &shape) {
  bool isPrompt = variant.form == Form::Prompt;
  if (variant.form == Form::Matmul) {
    SizeBindings sizes = {{"tokens", shape.allTokens()}, {"checked", 0}};
    BenchMatmul form(variant, shape);
    for (const char *name : {"T", "D", "E", "R", "G", "tile_count"})
      sizes.emplace_back(name, form.size(name));
    return sizes;
  }
  return {{"tokens", shape.allTokens()},
          {"N", shape.sequences},
          {"T", isPrompt                ? shape.longest()
                : shape.lengths.empty() ? shape.tokens
                                        : shape.allTokens()},
          {"H", shape.heads},
          {"HV", shape.valueHeads},
          {"K", variant.keyDim},
          {"V", variant.valueDim},
          {"D", variant.form == Form::Rows ? shape.heads : 0},
          {"pairs", pairsOf(shape)},
          {"checked", 0},
          {"committed", 0}};
}

/// Values of names in the size expressions of a pack.
static StatusOr<SizeBindings>
bindingsOf(const PackVariant &packed, const BenchShape &shape, const Gpu &gpu) {
  SizeBindings sizes = bindingsOf(packed.variant, shape);
  sizes.emplace_back("sms", gpu.multiprocessors);
  sizes.emplace_back("clusters", gpu.clusters);
  if (Status s = bindSizes(packed.sizes, sizes); !s.ok())
    return s;
  return sizes;
}

/// Not 0 if the launch belongs to a call of these sizes.
static StatusOr<int64_t> isPicked(const Launch &launch,
                                  const SizeBindings &sizes) {
  return evaluateSize(launch.when.empty() ? "1" : launch.when, sizes);
}

StatusOr<Picked> pickedBy(const PackVariant &packed, const BenchShape &shape,
                          const Gpu &gpu) {
  StatusOr<SizeBindings> sizes = bindingsOf(packed, shape, gpu);
  if (!sizes.ok())
    return sizes.status();
  Picked picked;
  picked.sizes.assign(sizes->end() - static_cast<long>(packed.sizes.size()),
                      sizes->end());
  for (const Launch &launch : packed.launches) {
    StatusOr<int64_t> isOne = isPicked(launch, *sizes);
    if (!isOne.ok())
      return isOne.status();
    if (*isOne == 0) {
      picked.blocks.push_back(std::nullopt);
      continue;
    }
    StatusOr<int64_t> grid = evaluateSize(launch.grid, *sizes);
    if (!grid.ok())
      return grid.status();
    picked.blocks.push_back(*grid);
  }
  return picked;
}

StatusOr<int64_t> workspaceOf(const PackVariant &packed,
                              const BenchShape &shape, const Gpu &gpu) {
  StatusOr<SizeBindings> sizes = bindingsOf(packed, shape, gpu);
  if (!sizes.ok())
    return sizes.status();
  for (const Launch &launch : packed.launches) {
    StatusOr<int64_t> picked = isPicked(launch, *sizes);
    if (!picked.ok())
      return picked;
    if (launch.usesWorkspace && *picked)
      return evaluateSize(packed.workspace, *sizes);
  }
  return int64_t(0);
}

StatusOr<Estimate> estimate(const PackVariant &packed, const BenchShape &shape,
                            const Gpu &gpu) {
  const Variant &v = packed.variant;
  const CostFormulas formulas = costOf(v, !shape.lengths.empty());
  StatusOr<SizeBindings> sizes = bindingsOf(packed, shape, gpu);
  if (!sizes.ok())
    return sizes.status();
  Estimate e;
  for (auto [formula, number] : {std::pair(&formulas.bytes, &e.bytes),
                                 std::pair(&formulas.flops, &e.flops)}) {
    StatusOr<int64_t> value = evaluateSize(*formula, *sizes);
    if (!value.ok())
      return value.status();
    *number = *value;
  }
  e.instances = INT64_MAX;
  int64_t atOnce = 0;
  StatusOr<Picked> picked = pickedBy(packed, shape, gpu);
  if (!picked.ok())
    return picked.status();
  for (size_t i = 0; i < packed.launches.size(); ++i) {
    const Launch &launch = packed.launches[i];
    if (!picked->blocks[i])
      continue;
    // One that needs nothing of the launch before it runs beside that.
    atOnce = *picked->blocks[i] +
             (launch.overlaps && !launch.usesWorkspace ? atOnce : 0);
    if (atOnce > 0)
      e.instances = std::min(e.instances, atOnce);
  }
  e.memoryMicroseconds = static_cast<double>(e.bytes) / gpu.bytes;
  e.computeMicroseconds = static_cast<double>(e.flops) / flopRate(v, gpu);
  e.limiter = limiterOf(e, gpu);
  return e;
}

} // namespace kdac::selftest
