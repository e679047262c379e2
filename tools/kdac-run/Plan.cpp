#include "kdac/Model/Plan.h"
#include "../Table.h"
#include "Commands.h"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <cstdlib>
#include <sys/stat.h>

namespace kdac::runtool {

namespace {

using namespace model;

bool isFolder(const std::string &path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool isFile(const std::string &path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

StatusOr<ModelConfig> planConfig(const std::string &model) {
  if (isFolder(model))
    return readConfig(model + "/config.json");
  return isFile(model) ? readConfig(model) : presetConfig(model);
}

void printJson(const CachePlan &plan) {
  nlohmann::json json = {{"kda_layers", plan.kdaLayers},
                         {"mla_layers", plan.mlaLayers},
                         {"state_bytes_per_layer", plan.statePerLayer},
                         {"conv_bytes_per_layer", plan.convPerLayer},
                         {"latent_bytes_per_token", plan.latentPerToken},
                         {"fixed_bytes_per_request", plan.fixedPerRequest()},
                         {"bytes_per_token", plan.growthPerToken()},
                         {"context", plan.context},
                         {"batch", plan.batch},
                         {"hybrid_bytes", plan.hybridBytes()},
                         {"all_mla_bytes", plan.allMlaBytes()},
                         {"crossover_tokens", plan.crossover()}};
  std::printf("%s\n", json.dump().c_str());
}

void printText(const ModelConfig &config, const CachePlan &plan) {
  std::printf("%s: %lld KDA and %lld MLA layers, %lld tokens, batch %lld; bf16 "
              "caches, f32 states\n",
              config.name.c_str(), (long long)plan.kdaLayers,
              (long long)plan.mlaLayers, (long long)plan.context,
              (long long)plan.batch);
  std::fputs(formatTable(planTable(plan)).c_str(), stdout);
  std::printf("a request: %lld B + %lld B per token\n",
              (long long)plan.fixedPerRequest(),
              (long long)plan.growthPerToken());
  if (plan.kdaLayers > 0)
    std::printf("crossover with all MLA: %.0f tokens\n", plan.crossover());
}

} // namespace

int runPlan(const Options &options) {
  char *end = nullptr;
  long long batch =
      options.batch.empty() ? 1 : std::strtoll(options.batch.c_str(), &end, 10);
  if ((end && *end) || batch < 1)
    return refuse("--batch '" + options.batch +
                  "' should be a number of requests with --plan");
  if (options.model.empty())
    return refuse("--plan needs --model: kimi-linear-48b, kimi-k3 or a "
                  "config.json");
  StatusOr<ModelConfig> config = planConfig(options.model);
  if (!config.ok())
    return refuse(config.status().message());
  int64_t context = options.context;
  if (context == 0)
    context = config->maxTokens > 0 ? config->maxTokens : 4096;
  StatusOr<CachePlan> plan = planCaches(*config, context, batch);
  if (!plan.ok())
    return refuse(plan.status().message());
  if (options.isJson)
    printJson(*plan);
  else
    printText(*config, *plan);
  return 0;
}

} // namespace kdac::runtool
