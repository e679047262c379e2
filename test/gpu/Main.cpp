// kdac-gpu-test: runs packs on a machine that has neither LLVM nor a compiler.
#include "Bench.h"
#include "Options.h"
#include "Runner.h"
#include "Supervisor.h"
#include "Timing.h"

#include <chrono>
#include <cstdio>
#include <ctime>
#include <regex.h>

using namespace kdac;
using namespace kdac::gputest;

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

int usage(const std::string &message) {
  std::fprintf(stderr, "kdac-gpu-test: %s\n", message.c_str());
  return 2;
}

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

std::vector<Work> plan(const std::vector<PackReader> &packs, const Options &o,
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
      std::printf("skip %s: no image for this device\n",
                  w.variant->name().c_str());
      return Outcome::NotRun;
    }
    if (!w.isBench)
      return cases.run(*w.pack, *w.variant);
    return bench ? bench->run(*w.pack, *w.variant, shapes)
                 : cases.bench(*w.pack, *w.variant, shapes);
  }

  void introduce() {
    std::printf("%s, driver %s, seed %llu\n", session.machine.gpu.c_str(),
                session.machine.driver.c_str(),
                static_cast<unsigned long long>(session.seed));
    const Device *device = executor->device();
    if (!device || shapes.empty())
      return;
    StatusOr<double> bandwidth = copyBandwidth(*device);
    if (bandwidth.ok())
      std::printf("device copy: %.0f GB/s read and written\n",
                  *bandwidth * 1e-3);
    else
      std::printf("device copy: %s\n", bandwidth.status().message().c_str());
  }

private:
  Session session;
  std::unique_ptr<Executor> executor;
  const std::vector<BenchShape> &shapes;
  const std::vector<Work> &work;
  CaseRunner cases;
  std::unique_ptr<BenchRunner> bench;
};

/// Prints what did not pass, then the closing line. True if all is well.
bool report(const std::vector<Work> &work,
            const std::vector<Outcome> &outcomes) {
  size_t passed = 0, failed = 0, notRun = 0;
  for (size_t i = 0; i < work.size(); ++i) {
    const char *what = nullptr;
    switch (outcomes[i]) {
    case Outcome::Passed:
      ++passed;
      continue;
    case Outcome::Failed:
    case Outcome::Lost:
      what = "failed";
      break;
    case Outcome::Crashed:
      what = "crashed";
      break;
    case Outcome::Stalled:
      what = "made no progress and was ended";
      break;
    case Outcome::Pending:
    case Outcome::NotRun:
      what = "was not run";
      break;
    }
    bool ran =
        outcomes[i] != Outcome::NotRun && outcomes[i] != Outcome::Pending;
    ++(ran ? failed : notRun);
    std::printf("%s %s: %s%s\n", ran ? "FAIL" : "miss",
                work[i].variant->name().c_str(), what,
                work[i].isBench ? " (timing)" : "");
  }
  std::printf("%zu passed, %zu failed, %zu not run\n", passed, failed, notRun);
  return failed == 0 && notRun == 0;
}

} // namespace

int main(int argc, char **argv) {
  Options options;
  int code = 0;
  if (!parseOptions(argc, argv, options, code))
    return code;
  // Lines must survive a worker that dies.
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);

  std::vector<PackReader> packs;
  for (const std::string &path : options.packs) {
    StatusOr<PackReader> pack = PackReader::open(path);
    if (!pack.ok())
      return usage(pack.status().message());
    packs.push_back(std::move(*pack));
  }
  StatusOr<std::vector<BenchShape>> shapes = parseShapes(options.bench);
  if (!shapes.ok())
    return usage(shapes.status().message());
  Filter filter, benchFilter;
  if (!filter.compile(options.filter) ||
      !benchFilter.compile(options.benchFilter))
    return usage("a filter is not a valid regular expression");
  std::vector<Work> work = plan(packs, options, filter, benchFilter, *shapes);
  if (work.empty())
    return usage("no variant of these packs is selected for " +
                 std::string(options.host ? "the host" : "a GPU"));

  Session session;
  session.options = options;
  session.machine.commit = options.commit;
  session.machine.date = today();
  session.seed = options.seed ? options.seed : freshSeed();
  auto makeTask = [&](Heartbeat beat) -> Task {
    StatusOr<std::unique_ptr<Executor>> executor = makeExecutor(options);
    if (!executor.ok()) {
      std::fprintf(stderr, "kdac-gpu-test: %s\n",
                   executor.status().message().c_str());
      return nullptr;
    }
    session.beat = std::move(beat);
    auto worker =
        std::make_shared<Worker>(session, std::move(*executor), *shapes, work);
    worker->introduce();
    return [worker](size_t index) { return worker->run(index); };
  };
  auto runAll = options.inProcess ? runInProcess : supervise;
  std::vector<Outcome> outcomes =
      runAll(work.size(), makeTask, {options.timeLimit, options.stallLimit});
  if (outcomes.empty())
    return usage("no task could be started on this device");
  return report(work, outcomes) ? 0 : 1;
}
