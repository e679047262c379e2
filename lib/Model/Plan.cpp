#include "kdac/Model/Plan.h"

#include <cstdio>

namespace kdac::model {

namespace {

std::string formatted(const char *format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string mebibytes(int64_t bytes) {
  return formatted("%.10g MiB", static_cast<double>(bytes) / (1 << 20));
}

std::string gigabytes(int64_t bytes) {
  return formatted("%.2f GB", static_cast<double>(bytes) / 1e9);
}

} // namespace

double CachePlan::crossover() const {
  return kdaLayers == 0 ? 0.0
                        : static_cast<double>(statePerLayer + convPerLayer) /
                              static_cast<double>(latentPerToken);
}

StatusOr<CachePlan> planCaches(const ModelConfig &config, int64_t context,
                               int64_t batch, CacheTypes types) {
  CachePlan plan;
  plan.kdaLayers = config.count(Mixer::Kda);
  plan.mlaLayers = config.count(Mixer::Mla);
  plan.context = context;
  plan.batch = batch;
  if (plan.kdaLayers > 0) {
    plan.statePerLayer = config.kdaWidth() * config.kdaDim * 4;
    plan.convPerLayer = 3 * config.kdaWidth() * config.convWidth * types.conv;
  }
  plan.latentPerToken = config.cacheDim() * types.latent;
  // The exact sums are below these, so that no product of the plan can wrap.
  double bytes = static_cast<double>(batch) *
                 (static_cast<double>(plan.fixedPerRequest()) +
                  static_cast<double>(config.layers() * plan.latentPerToken) *
                      static_cast<double>(context));
  if (context < 0 || batch < 0 || bytes > 9e18)
    return Status(ErrorCode::InvalidArgument,
                  "a context of " + std::to_string(context) +
                      " tokens and a batch of " + std::to_string(batch) +
                      " do not fit 63 bits of bytes");
  return plan;
}

std::vector<std::vector<std::string>> planTable(const CachePlan &plan) {
  int64_t kda = plan.kdaLayers, mla = plan.mlaLayers;
  auto count = [](int64_t n) { return std::to_string(n); };
  std::vector<std::vector<std::string>> rows = {
      {"cache", "layers", "per layer", "per request", "whole batch"}};
  auto fixed = [&](const char *name, int64_t bytes) {
    rows.push_back({name, count(kda), mebibytes(bytes), mebibytes(kda * bytes),
                    gigabytes(plan.batch * kda * bytes)});
  };
  auto growing = [&](const char *name, int64_t layers) {
    int64_t bytes = plan.latentPerToken * plan.context;
    rows.push_back(
        {name, count(layers), count(plan.latentPerToken) + " B/token",
         gigabytes(layers * bytes), gigabytes(plan.batch * layers * bytes)});
  };
  fixed("KDA state", plan.statePerLayer);
  fixed("KDA convolutions", plan.convPerLayer);
  growing("MLA latent", mla);
  rows.push_back(
      {"hybrid", count(kda + mla), "",
       gigabytes(plan.fixedPerRequest() + plan.growthPerToken() * plan.context),
       gigabytes(plan.hybridBytes())});
  growing("all MLA", kda + mla);
  return rows;
}

} // namespace kdac::model
