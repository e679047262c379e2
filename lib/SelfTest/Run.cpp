#include "Bench.h"
#include "Runner.h"
#include "Supervisor.h"
#include "Timing.h"
#include "kdac/SelfTest/SelfTest.h"

#include <chrono>
#include <ctime>
#include <regex.h>

namespace kdac::selftest {

namespace {

/// One unit of supervised work.
struct Work {
  const PackReader *pack;
  const PackVariant *variant;
  bool isBench;
};

/// A POSIX extended regular expression; the empty one matches everything.
class Filter {
public:
  Filter() = default;
  Filter(const Filter &) = delete;
  ~Filter() {
    if (compiled)
      ::regfree(&expression);
  }
  bool compile(const std::string &text) {
    if (text.empty())
      return true;
    compiled =
        ::regcomp(&expression, text.c_str(), REG_EXTENDED | REG_NOSUB) == 0;
    return compiled;
  }
  bool matches(const std::string &name) const {
    return !compiled ||
           ::regexec(&expression, name.c_str(), 0, nullptr, 0) == 0;
  }

private:
  regex_t expression;
  bool compiled = false;
};

std::string today() {
  std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

uint64_t freshSeed() {
  auto ticks = std::chrono::system_clock::now().time_since_epoch().count();
  return static_cast<uint64_t>(ticks) % 1000000007;
}

/// Whether a variant is meant for the device asked for: its own images decide
/// whether it can run, in the worker.
bool isForDevice(const PackReader &pack, const PackVariant &v, bool host) {
  for (size_t index : v.launches[0].images)
    if ((pack.manifest().images[index].kind == ImageKind::HostSo) == host)
      return true;
  return false;
}

std::vector<Work> plan(const std::vector<PackReader> &packs, const Settings &o,
                       const Filter &filter, const Filter &benchFilter,
                       const std::vector<BenchShape> &shapes) {
  std::vector<Work> work;
  auto hasShape = [&](Form form) {
    for (const BenchShape &shape : shapes)
      if (shape.form == form)
        return true;
    return false;
  };
  // Correctness first: if the time runs out, it is timings that are missing.
  for (bool isBench : {false, true})
    for (const PackReader &pack : packs)
      for (const PackVariant &v : pack.manifest().variants) {
        std::string name = v.name();
        bool wanted =
            isBench ? benchFilter.matches(name) && hasShape(v.variant.form)
                    : o.cases;
        if (wanted && filter.matches(name) && isForDevice(pack, v, o.host))
          work.push_back({&pack, &v, isBench});
      }
  return work;
}

/// Everything a worker holds while it runs tasks.
class Worker {
public:
  Worker(const Session &session, std::unique_ptr<Executor> executor,
         const std::vector<BenchShape> &shapes, const std::vector<Work> &work)
      : session(session), executor(std::move(executor)), shapes(shapes),
        work(work), cases(this->session, *this->executor) {
    Machine machine = this->executor->machine();
    this->session.machine.gpu = machine.gpu;
    this->session.machine.driver = machine.driver;
    if (const Device *device = this->executor->device())
      bench = std::make_unique<BenchRunner>(this->session, *device);
  }

  Outcome run(size_t index) {
    const Work &w = work[index];
    if (!executor->supports(*w.pack, *w.variant)) {
      std::fprintf(session.log, "skip %s: no image for this device\n",
                   w.variant->name().c_str());
      return Outcome::NotRun;
    }
    if (!w.isBench)
      return cases.run(*w.pack, *w.variant);
    return bench ? bench->run(*w.pack, *w.variant, shapes)
                 : cases.bench(*w.pack, *w.variant, shapes);
  }

  void introduce() {
    std::fprintf(session.log, "%s, driver %s, seed %llu\n",
                 session.machine.gpu.c_str(), session.machine.driver.c_str(),
                 static_cast<unsigned long long>(session.seed));
    const Device *device = executor->device();
    if (!device || shapes.empty())
      return;
    StatusOr<double> bandwidth = copyBandwidth(*device);
    if (bandwidth.ok())
      std::fprintf(session.log, "device copy: %.0f GB/s read and written\n",
                   *bandwidth * 1e-3);
    else
      std::fprintf(session.log, "device copy: %s\n",
                   bandwidth.status().message().c_str());
  }

private:
  Session session;
  std::unique_ptr<Executor> executor;
  const std::vector<BenchShape> &shapes;
  const std::vector<Work> &work;
  CaseRunner cases;
  std::unique_ptr<BenchRunner> bench;
};

Status badUsage(const std::string &message) {
  return Status(ErrorCode::InvalidArgument, message);
}

} // namespace

std::string_view spell(Outcome outcome) {
  switch (outcome) {
  case Outcome::Passed:
    return "passed";
  case Outcome::Failed:
  case Outcome::Lost:
    return "failed";
  case Outcome::Crashed:
    return "crashed";
  case Outcome::Stalled:
    return "made no progress and was ended";
  case Outcome::Pending:
  case Outcome::NotRun:
    break;
  }
  return "was not run";
}

Counts countsOf(const std::vector<Result> &results) {
  Counts counts;
  for (const Result &result : results)
    if (result.outcome == Outcome::Passed)
      ++counts.passed;
    else if (result.outcome == Outcome::NotRun ||
             result.outcome == Outcome::Pending)
      ++counts.notRun;
    else
      ++counts.failed;
  return counts;
}

void report(const std::vector<Result> &results, const Settings &settings) {
  for (const Result &r : results) {
    if (r.outcome == Outcome::Passed)
      continue;
    bool ran = r.outcome != Outcome::NotRun && r.outcome != Outcome::Pending;
    std::fprintf(settings.log, "%s %s: %s%s\n", ran ? "FAIL" : "miss",
                 r.variant->name().c_str(),
                 std::string(spell(r.outcome)).c_str(),
                 r.isBench ? " (timing)" : "");
  }
  Counts counts = countsOf(results);
  std::fprintf(settings.log, "%zu passed, %zu failed, %zu not run\n",
               counts.passed, counts.failed, counts.notRun);
}

StatusOr<std::vector<Result>> run(const std::vector<PackReader> &packs,
                                  const Settings &settings) {
  if (!reference::findRecipe(settings.inputs))
    return Status(ErrorCode::InvalidArgument,
                  "inputs '" + settings.inputs +
                      "' are not known; use one of " +
                      reference::recipeNames());
  StatusOr<std::vector<BenchShape>> shapes = parseShapes(settings.bench);
  if (!shapes.ok())
    return shapes.status();
  Filter filter, benchFilter;
  if (!filter.compile(settings.filter) ||
      !benchFilter.compile(settings.benchFilter))
    return badUsage("a filter is not a valid regular expression");
  std::vector<Work> work = plan(packs, settings, filter, benchFilter, *shapes);
  if (work.empty())
    return badUsage("no variant of these packs is selected for " +
                    std::string(settings.host ? "the host" : "a GPU"));
  // Lines must survive a worker that dies.
  std::setvbuf(settings.log, nullptr, _IOLBF, 1 << 16);
  Session session;
  session.settings = settings;
  session.log = settings.log;
  session.machine.commit = settings.commit;
  session.machine.date = today();
  session.seed = settings.seed ? settings.seed : freshSeed();
  auto makeTask = [&](Heartbeat beat) -> StatusOr<Task> {
    StatusOr<std::unique_ptr<Executor>> executor = makeExecutor(settings);
    if (!executor.ok())
      return executor.status();
    session.beat = std::move(beat);
    auto worker =
        std::make_shared<Worker>(session, std::move(*executor), *shapes, work);
    worker->introduce();
    return Task([worker](size_t index) { return worker->run(index); });
  };
  auto runAll = settings.inProcess ? runInProcess : supervise;
  StatusOr<std::vector<Outcome>> outcomes =
      runAll(work.size(), makeTask, {settings.timeLimit, settings.stallLimit});
  if (!outcomes.ok())
    return outcomes.status();
  std::vector<Result> results;
  for (size_t i = 0; i < work.size(); ++i)
    results.push_back({work[i].variant, work[i].isBench, (*outcomes)[i]});
  return results;
}

} // namespace kdac::selftest
