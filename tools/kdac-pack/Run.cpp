// kdac-pack check and bench: packs against the oracle on this machine.
#include "Commands.h"

#include "kdac/Runtime/Trust.h"

#include <cstdlib>
#include <fstream>
#include <unistd.h>

using nlohmann::ordered_json;

namespace kdac::packtool {

namespace {

/// host, or cuda:N with the number in `ordinal`.
bool parseDevice(const std::string &text, bool &host, int &ordinal) {
  host = text == "host";
  if (host)
    return true;
  bool digits = text.size() > 5 && text.size() < 9;
  for (size_t i = 5; i < text.size(); ++i)
    digits = digits && text[i] >= '0' && text[i] <= '9';
  if (text.compare(0, 5, "cuda:") != 0 || !digits)
    return false;
  ordinal = std::atoi(text.c_str() + 5);
  return true;
}

/// Ledger lines of this run go here when they are wanted as JSON.
std::string temporaryLedger() {
  char name[] = "/tmp/kdac-pack-XXXXXX";
  int fd = ::mkstemp(name);
  if (fd >= 0)
    ::close(fd);
  return name;
}

ordered_json resultsJson(const std::vector<selftest::Result> &results,
                         const std::string &ledger) {
  std::vector<ordered_json> lines;
  std::ifstream file(ledger);
  for (std::string line; std::getline(file, line);)
    lines.push_back(ordered_json::parse(line, nullptr, false));
  ordered_json list = ordered_json::array();
  for (const selftest::Result &r : results) {
    ordered_json cases = ordered_json::array();
    for (const ordered_json &line : lines)
      if (line.is_object() && line.contains("variant") &&
          line["variant"] == r.variant->name())
        cases.push_back(line);
    list.push_back({{"name", r.variant->name()},
                    {"outcome", spell(r.outcome)},
                    {"cases", std::move(cases)}});
  }
  selftest::Counts counts = selftest::countsOf(results);
  return {{"passed", counts.passed},
          {"failed", counts.failed},
          {"not_run", counts.notRun},
          {"variants", std::move(list)}};
}

void appendFile(const std::string &from, const std::string &to) {
  std::ifstream in(from, std::ios::binary);
  if (!to.empty() && in.peek() != std::ifstream::traits_type::eof())
    std::ofstream(to, std::ios::binary | std::ios::app) << in.rdbuf();
}

} // namespace

int runCheckOrBench(const Options &options) {
  selftest::Settings settings = options.settings;
  if (!parseDevice(options.device, settings.host, settings.device))
    return refuse("device '" + options.device +
                  "' is not supported; use host, cuda:0, cuda:1, ...");
  settings.filter = options.filter;
  settings.cases = options.command == Command::Check;
  if (settings.cases && !settings.emulated)
    settings.receipts = receiptsPath(options.pack);
  else if (!settings.cases && settings.bench.empty())
    settings.bench = "chunk:1:8192:96,step:64:1:96";
  settings.ledger = options.json ? temporaryLedger() : options.ledger;
  settings.log = options.json ? stderr : stdout;
  std::vector<PackReader> packs;
  StatusOr<PackReader> pack = PackReader::open(options.pack);
  if (!pack.ok())
    return refuse(pack.status().message());
  packs.push_back(std::move(*pack));
  StatusOr<std::vector<selftest::Result>> results =
      selftest::run(packs, settings);
  if (results.ok() && options.json) {
    printJson(resultsJson(*results, settings.ledger));
    appendFile(settings.ledger, options.ledger);
  }
  if (options.json)
    ::unlink(settings.ledger.c_str());
  if (!results.ok())
    return refuse(results.status().message());
  selftest::report(*results, settings);
  selftest::Counts counts = selftest::countsOf(*results);
  return counts.failed == 0 && counts.notRun == 0 ? 0 : 1;
}

} // namespace kdac::packtool
