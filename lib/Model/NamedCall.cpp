#include "NamedCall.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace kdac::model {

namespace {

/// Index of the argument, or -1.
int64_t indexOf(const PackVariant &variant, std::string_view name) {
  const std::vector<LaunchArg> &args = variant.launches.front().args;
  for (size_t i = 0; i < args.size(); ++i)
    if (args[i].arg.name == name)
      return static_cast<int64_t>(i);
  return -1;
}

std::string shortest(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

} // namespace

NamedCall::NamedCall(const PackVariant &v)
    : variant(v), values(v.launches.front().args.size(), 0) {
  for (uint64_t &value : values)
    argv.push_back(&value);
}

void NamedCall::pointer(std::string_view name, const void *value) {
  if (int64_t i = indexOf(variant, name); i >= 0)
    std::memcpy(argv[static_cast<size_t>(i)], &value, sizeof value);
}

void NamedCall::size(std::string_view name, int64_t value) {
  if (int64_t i = indexOf(variant, name); i >= 0)
    std::memcpy(argv[static_cast<size_t>(i)], &value, sizeof value);
}

void NamedCall::scale(std::string_view name, float value) {
  if (int64_t i = indexOf(variant, name); i >= 0)
    std::memcpy(argv[static_cast<size_t>(i)], &value, sizeof value);
}

void NamedCall::rows(const std::string &name, Rows value) {
  pointer(name, value.data);
  size(name + "_stride", value.stride);
}

StatusOr<int64_t> NamedCall::workspaceBytes() const {
  return kdac::workspaceBytes(variant, argv.data());
}

Request kdaRequest(const ModelConfig &config, bool isStep, Element type) {
  std::string dim = std::to_string(config.kdaDim);
  Request request;
  request.options = {{"form", isStep ? "step" : "chunk"},
                     {"key-dim", dim},
                     {"value-dim", dim},
                     {"dtype", std::string(spell(dtypeOf(type)))},
                     {"gate", config.gateLowerBound ? "bounded" : "softplus"},
                     {"slots", "i32"}};
  if (config.gateLowerBound)
    request.options.push_back(
        {"lower-bound", shortest(*config.gateLowerBound)});
  request.options.push_back({"conv", std::to_string(config.convWidth)});
  request.options.push_back({"norm", "sigmoid"});
  request.options.push_back({"norm-eps", shortest(config.normEps)});
  return request;
}

StatusOr<int64_t> kdaWorkspaceBytes(NamedCall &call, const ModelConfig &config,
                                    int64_t pieces, int64_t tokens) {
  call.size("T", tokens);
  call.size("H", config.kdaHeads);
  call.size("HV", config.kdaHeads);
  call.pointer("offsets", &call);
  // Fewer pieces may take more: their sequences are cut into segments. Fewer
  // tokens never do.
  int64_t most = 0;
  for (int64_t count = 1; count <= std::max<int64_t>(pieces, 1); ++count) {
    call.size("N", count);
    StatusOr<int64_t> bytes = call.workspaceBytes();
    if (!bytes.ok())
      return bytes;
    most = std::max(most, *bytes);
  }
  return most;
}

void setRecurrence(NamedCall &call, const ModelConfig &config,
                   const BatchView &batch, const KdaParameters &parameters,
                   const Rows (&qkv)[3], Rows decay, Rows beta,
                   const KdaCache &cache, Rows out, const void *workspace) {
  const char *names[] = {"q", "k", "v"};
  for (int i = 0; i < 3; ++i)
    call.rows(names[i], qkv[i]);
  call.rows("g", decay);
  call.rows("beta", beta);
  call.pointer("A_log", parameters.aLog);
  call.pointer("dt_bias", parameters.dtBias);
  call.pointer("h0", cache.state);
  call.pointer("ht", cache.state);
  call.pointer("slots", batch.slots);
  call.pointer("sources", batch.sources);
  call.pointer("offsets", batch.offsets);
  call.rows("out", out);
  call.pointer("workspace", workspace);
  call.size("N", batch.count);
  call.size("T", batch.tokens);
  call.size("H", config.kdaHeads);
  call.size("HV", config.kdaHeads);
  int64_t matrix = config.kdaDim * config.kdaDim;
  call.size("pool", cache.slots);
  call.size("head_pitch", matrix);
  call.size("slot_pitch", config.kdaHeads * matrix);
  call.scale("scale", 1 / std::sqrt(static_cast<float>(config.kdaDim)));
}

void setNeighbours(NamedCall &call, const ModelConfig &config,
                   const KdaParameters &parameters, const KdaCache &cache,
                   Rows z) {
  call.pointer("q_conv", parameters.qConv);
  call.pointer("k_conv", parameters.kConv);
  call.pointer("v_conv", parameters.vConv);
  call.pointer("q_cache", cache.q);
  call.pointer("k_cache", cache.k);
  call.pointer("v_cache", cache.v);
  for (const char *name : {"q_cache_pitch", "k_cache_pitch", "v_cache_pitch"})
    call.size(name, config.kdaWidth() * config.convWidth);
  call.rows("z", z);
  call.pointer("norm_weight", parameters.oNorm);
}

} // namespace kdac::model
