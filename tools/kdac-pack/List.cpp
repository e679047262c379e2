// kdac-pack list and verify.
#include "../Table.h"
#include "Commands.h"

#include "kdac/Runtime/Trust.h"

using nlohmann::ordered_json;

namespace kdac::packtool {

/// What is known about the assembler, for people: "ptxas 13.0.88 (listed)".
static std::string assemblerOf(const PackVariant &v) {
  if (v.ptxasVersion.empty())
    return "-";
  return v.ptxasVersion +
         (findSuspectAssembler(v.ptxasVersion) ? " (listed)" : "");
}

/// Why listed assemblers are listed, for those that occur.
static void printListed(const std::vector<const PackVariant *> &variants) {
  for (const SuspectAssembler &row : suspectAssemblers())
    for (const PackVariant *v : variants)
      if (v->ptxasVersion == row.version) {
        std::printf("listed: ptxas %s is %s; its code is unverified until "
                    "kdac-pack check has passed on the GPU\n",
                    std::string(row.version).c_str(),
                    std::string(row.reason).c_str());
        break;
      }
}

int runList(const Options &options) {
  StatusOr<PackReader> pack = PackReader::open(options.pack);
  if (!pack.ok())
    return refuse(pack.status().message());
  auto variants = selected(*pack, options);
  if (!variants.ok())
    return refuse(variants.status().message());
  StatusOr<Ledger> ledger = readLedger(options.ledger);
  if (!ledger.ok())
    return refuse(ledger.status().message());
  std::vector<std::vector<std::string>> rows = {
      {"variant", "images", "registers", "shared", "ptxas", "on a GPU"}};
  ordered_json json = ordered_json::array();
  for (const PackVariant *v : *variants) {
    const Launch &launch = v->launches[0];
    std::string images = spellImages(pack->manifest(), launch);
    rows.push_back({v->name(), images,
                    launch.registers ? std::to_string(launch.registers) : "-",
                    std::to_string(launch.sharedBytes), assemblerOf(*v),
                    ranOn(*ledger, *v)});
    json.push_back(
        {{"name", v->name()},
         {"images", images},
         {"registers", launch.registers},
         {"shared_bytes", launch.sharedBytes},
         {"ptxas", v->ptxasVersion},
         {"ptxas_listed", findSuspectAssembler(v->ptxasVersion) != nullptr},
         {"on_a_gpu", ranOn(*ledger, *v)}});
  }
  if (options.json) {
    printJson(json);
    return 0;
  }
  std::fputs(formatTable(rows).c_str(), stdout);
  printListed(*variants);
  return 0;
}

int runVerify(const Options &options) {
  StatusOr<PackReader> pack = PackReader::open(options.pack);
  if (!pack.ok()) {
    ErrorCode code = pack.status().code();
    bool damaged = code == ErrorCode::Corrupt || code == ErrorCode::Unsupported;
    if (options.json)
      printJson({{"good", false}, {"reason", pack.status().message()}});
    refuse(pack.status().message());
    return damaged ? 1 : 2;
  }
  const Manifest &manifest = pack->manifest();
  uint64_t bytes = 0;
  for (const Image &image : manifest.images)
    bytes += image.size;
  if (options.json)
    printJson({{"good", true},
               {"variants", manifest.variants.size()},
               {"images", manifest.images.size()},
               {"image_bytes", bytes}});
  else
    std::printf("%s: good; %zu variants, %zu images of %llu bytes, every byte "
                "matches its digest\n",
                options.pack.c_str(), manifest.variants.size(),
                manifest.images.size(), static_cast<unsigned long long>(bytes));
  return 0;
}

} // namespace kdac::packtool
