// kdac-pack explain: all that is known about a variant without running it.
#include "Commands.h"

#include "kdac/Reference/Recipe.h"
#include "kdac/Reference/Tolerance.h"
#include "kdac/Runtime/Trust.h"
#include "kdac/SelfTest/Cost.h"

using nlohmann::ordered_json;

namespace kdac::packtool {

namespace {

using selftest::BenchShape;

constexpr char defaultShapes[] = "chunk:1:8192:96,step:64:1:96";

/// What is explained, and for what.
struct Question {
  const PackReader &pack;
  const Ledger &ledger;
  const Receipts &receipts;
  const Gpu &gpu;
  BenchShape shape;
};

std::string fixed(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

bool isHost(const PackVariant &v) { return v.variant.target == "host"; }

ordered_json argumentsOf(const Launch &launch) {
  ordered_json list = ordered_json::array();
  for (const LaunchArg &a : launch.args) {
    const char *kind = a.arg.kind == ArgKind::Input    ? "input"
                       : a.arg.kind == ArgKind::Output ? "output"
                       : a.arg.kind == ArgKind::Size   ? "size"
                       : a.arg.kind == ArgKind::Scale  ? "scale"
                                                       : "workspace";
    list.push_back({{"name", a.arg.name},
                    {"kind", kind},
                    {"dtype", spell(a.arg.dtype)},
                    {"shape", a.arg.shape},
                    {"optional", a.arg.optional},
                    {"multiple_of", a.alignment}});
  }
  return list;
}

ordered_json imagesOf(const Question &q, const PackVariant &v) {
  ordered_json list = ordered_json::array();
  for (size_t index : v.launches[0].images) {
    const Image &image = q.pack.manifest().images[index];
    Trust trust = trustOf(v, image, q.gpu.name, q.receipts);
    ordered_json entry = {{"kind", spell(image.kind)},
                          {"arch", image.arch},
                          {"bytes", image.size},
                          {"sha256", image.sha256}};
    if (image.kind == ImageKind::Cubin) {
      entry["verified"] = trust.verified;
      entry["why"] = trust.why;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

StatusOr<ordered_json> costJson(const Question &q, const PackVariant &v) {
  StatusOr<selftest::Estimate> e = selftest::estimate(v, q.shape, q.gpu);
  if (!e.ok())
    return e.status();
  selftest::CostFormulas formulas =
      selftest::costOf(v.variant, !q.shape.lengths.empty());
  ordered_json cost = {
      {"shape", q.shape.spelled()},
      {"instances", e->instances},
      {"bytes", {{"formula", formulas.bytes}, {"value", e->bytes}}},
      {"flops", {{"formula", formulas.flops}, {"value", e->flops}}}};
  if (!v.workspace.empty()) {
    StatusOr<int64_t> bytes = selftest::workspaceOf(v, q.shape, q.gpu);
    if (!bytes.ok())
      return bytes.status();
    cost["workspace_bytes"] = {{"formula", v.workspace}, {"value", *bytes}};
  }
  if (isHost(v))
    return cost; // floors are of GPUs
  cost["gpu"] = q.gpu.name;
  cost["memory_us"] = e->memoryMicroseconds;
  cost["compute_us"] = e->computeMicroseconds;
  cost["floor_us"] = e->floorMicroseconds();
  cost["limiter"] = e->limiter;
  return cost;
}

/// The ledger's lines about this code: how many, and each timing.
ordered_json ledgerJson(const Question &q, const PackVariant &v) {
  auto found = q.ledger.find(v.launches[0].ptxSha256);
  ordered_json timed = ordered_json::array();
  size_t lines = 0;
  if (!v.launches[0].ptxSha256.empty() && found != q.ledger.end())
    for (const nlohmann::json &line : found->second) {
      ++lines;
      std::string inputs;
      if (line.contains("case") && line["case"].contains("inputs"))
        inputs = line["case"]["inputs"].dump();
      if (inputs.find("periodic") == std::string::npos)
        continue;
      ordered_json entry;
      for (const char *key : {"gpu", "case", "us", "floor_us", "err", "peer"})
        if (line.contains(key))
          entry[key] = line[key];
      timed.push_back(std::move(entry));
    }
  return {{"summary", ranOn(q.ledger, v)}, {"lines", lines}, {"timed", timed}};
}

/// Sizes of a variant as formula and value.
ordered_json sizesOf(const PackVariant &v, const selftest::Picked &picked) {
  ordered_json list = ordered_json::array();
  for (size_t i = 0; i < v.sizes.size(); ++i)
    list.push_back(
        {v.sizes[i].first, v.sizes[i].second, picked.sizes[i].second});
  return list;
}

ordered_json launchesOf(const PackVariant &v, const selftest::Picked &picked) {
  ordered_json list = ordered_json::array();
  for (size_t i = 0; i < v.launches.size(); ++i) {
    const Launch &launch = v.launches[i];
    std::optional<int64_t> blocks = picked.blocks[i];
    list.push_back({{"entry", launch.entry},
                    {"grid", launch.grid},
                    {"when", launch.when},
                    {"runs", blocks.has_value()},
                    {"blocks", blocks.value_or(0)},
                    {"abi", spell(launch.abi)},
                    {"block_threads", launch.blockThreads},
                    {"shared_bytes", launch.sharedBytes},
                    {"scratch_bytes", launch.scratchBytes},
                    {"registers", launch.registers},
                    {"spill_bytes", launch.spillBytes}});
  }
  return list;
}

/// Bounds on the relative Frobenius errors of a large call on random inputs.
ordered_json toleranceJson(const PackVariant &v) {
  reference::Tolerance bound = reference::toleranceOf(
      v.variant,
      reference::difficultyOf(v.variant, *reference::findRecipe("random")));
  return {{"out", bound.out}, {"state", bound.state}};
}

StatusOr<ordered_json> explain(const Question &q, const PackVariant &v) {
  const Launch &launch = v.launches[0];
  StatusOr<ordered_json> cost = costJson(q, v);
  if (!cost.ok())
    return cost.status().with(v.name());
  StatusOr<selftest::Picked> picked = selftest::pickedBy(v, q.shape, q.gpu);
  if (!picked.ok())
    return picked.status().with(v.name());
  return ordered_json{{"name", v.name()},
                      {"equation", equationOf(v.variant)},
                      {"schedule", v.schedule},
                      {"llvm", v.llvmVersion},
                      {"ptxas", v.ptxasVersion},
                      {"ptx_sha256", launch.ptxSha256},
                      {"images", imagesOf(q, v)},
                      {"sizes", sizesOf(v, *picked)},
                      {"launches", launchesOf(v, *picked)},
                      {"tolerance", toleranceJson(v)},
                      {"arguments", argumentsOf(launch)},
                      {"cost", *cost},
                      {"ledger", ledgerJson(q, v)}};
}

std::string text(const ordered_json &value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void line(const char *label, const std::string &value) {
  std::printf("  %-10s %s\n", label, value.c_str());
}

void printArguments(const ordered_json &arguments) {
  std::printf("  arguments\n");
  for (const ordered_json &a : arguments) {
    std::string description =
        text(a["name"]) + ": " + text(a["kind"]) + " " + text(a["dtype"]);
    if (a["shape"] != "")
      description += " " + text(a["shape"]);
    if (a["multiple_of"] != 1)
      description += a["kind"] == "size"
                         ? " multiple of " + text(a["multiple_of"])
                         : " aligned to " + text(a["multiple_of"]);
    if (a["optional"].get<bool>())
      description += ", may be null";
    std::printf("    %s\n", description.c_str());
  }
}

void printCost(const ordered_json &cost) {
  line("shape",
       text(cost["shape"]) + ": " + text(cost["instances"]) + " instances");
  for (const char *what : {"bytes", "flops"})
    line(what[0] == 'b' ? "bytes" : "FLOPs",
         text(cost[what]["formula"]) + " = " + text(cost[what]["value"]));
  if (cost.contains("workspace_bytes"))
    line("workspace", text(cost["workspace_bytes"]["formula"]) + " = " +
                          text(cost["workspace_bytes"]["value"]) +
                          " bytes, not counted in the floor");
  if (!cost.contains("floor_us"))
    return;
  line("floor", fixed(cost["floor_us"].get<double>()) + " us on " +
                    text(cost["gpu"]) + " (memory " +
                    fixed(cost["memory_us"].get<double>()) + ", compute " +
                    fixed(cost["compute_us"].get<double>()) + ")");
  line("limiter", text(cost["limiter"]));
}

void print(const ordered_json &v) {
  std::printf("%s\n", text(v["name"]).c_str());
  line("equation", text(v["equation"]));
  for (const ordered_json &image : v["images"]) {
    line("image", text(image["kind"]) + " " + text(image["arch"]) + ", " +
                      text(image["bytes"]) + " bytes, sha256 " +
                      text(image["sha256"]).substr(0, 16));
    if (image.contains("verified"))
      line(image["verified"].get<bool>() ? "verified" : "UNVERIFIED",
           text(image["why"]));
  }
  line("made by", "LLVM " + text(v["llvm"]) +
                      (v["ptxas"] == "" ? "" : ", ptxas " + text(v["ptxas"])));
  line("schedule", text(v["schedule"]));
  for (const ordered_json &size : v["sizes"])
    line("size", text(size[0]) + " = " + text(size[1]) + " = " + text(size[2]));
  for (const ordered_json &launch : v["launches"]) {
    line("launch", text(launch["entry"]) + ", grid " + text(launch["grid"]) +
                       ", block " + text(launch["block_threads"]) + ", ABI " +
                       text(launch["abi"]));
    if (launch["when"] != "")
      line("when", text(launch["when"]));
    line("here", launch["runs"].get<bool>() ? text(launch["blocks"]) + " blocks"
                                            : "not run, as the condition is 0");
    line("resources", text(launch["registers"]) + " registers, " +
                          text(launch["spill_bytes"]) + " bytes spilled, " +
                          text(launch["shared_bytes"]) + " bytes shared, " +
                          text(launch["scratch_bytes"]) + " bytes of scratch");
  }
  line("error", "at most " + text(v["tolerance"]["out"]) + " of out, " +
                    text(v["tolerance"]["state"]) +
                    " of the state, on random inputs");
  printArguments(v["arguments"]);
  printCost(v["cost"]);
  line("ledger", text(v["ledger"]["summary"]) + ", " +
                     text(v["ledger"]["lines"]) + " lines");
  for (const ordered_json &timed : v["ledger"]["timed"]) {
    const ordered_json &c = timed["case"];
    line("  timed", text(timed["us"]) + " us on " + text(timed["gpu"]) +
                        " at N " + text(c["N"]) + ", T " + text(c["T"]) +
                        ", HV " + text(c["HV"]) + ", floor " +
                        text(timed["floor_us"]));
  }
}

/// The shape to explain a form with: the user's, or the default of the form.
StatusOr<std::vector<BenchShape>> shapesOf(const Options &options) {
  return selftest::parseShapes(options.shape.empty() ? defaultShapes
                                                     : options.shape);
}

} // namespace

int runExplain(const Options &options) {
  StatusOr<PackReader> pack = PackReader::open(options.pack);
  if (!pack.ok())
    return refuse(pack.status().message());
  auto variants = selected(*pack, options);
  StatusOr<Ledger> ledger = readLedger(options.ledger);
  StatusOr<std::vector<BenchShape>> shapes = shapesOf(options);
  StatusOr<Receipts> receipts = Receipts::read(receiptsPath(options.pack));
  for (const Status &s :
       {variants.status(), ledger.status(), shapes.status(), receipts.status()})
    if (!s.ok())
      return refuse(s.message());
  const Gpu *gpu = options.gpu.empty() ? &gpus().front() : findGpu(options.gpu);
  if (!gpu)
    return refuse("unknown GPU '" + options.gpu + "'; use part of one of " +
                  gpuNames());
  ordered_json all = ordered_json::array();
  for (const PackVariant *v : *variants)
    for (const BenchShape &shape : *shapes) {
      if (shape.form != v->variant.form)
        continue;
      StatusOr<ordered_json> one =
          explain({*pack, *ledger, *receipts, *gpu, shape}, *v);
      if (!one.ok())
        return refuse(one.status().message());
      if (!options.json)
        print(*one);
      all.push_back(std::move(*one));
    }
  if (all.empty())
    return refuse("shape '" + options.shape +
                  "' is of another form than the "
                  "selected variants");
  if (options.json)
    printJson(all);
  return 0;
}

} // namespace kdac::packtool
