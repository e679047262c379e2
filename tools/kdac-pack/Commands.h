// Promises: the commands of kdac-pack, each from options to an exit code. Does
// not: parse command lines.
#ifndef KDAC_TOOLS_KDAC_PACK_COMMANDS_H
#define KDAC_TOOLS_KDAC_PACK_COMMANDS_H

#include "Options.h"

#include "kdac/Pack/PackReader.h"

#include <nlohmann/json.hpp>

#include <map>

namespace kdac::packtool {

/// 0 good, 1 something failed, 2 refused.
int runList(const Options &options);
int runExplain(const Options &options);
int runVerify(const Options &options);
int runCheckOrBench(const Options &options);
int runEmbed(const Options &options);

/// Prints `kdac-pack: message` and returns 2.
int refuse(const std::string &message);

/// The variants of a pack that options.filter matches.
StatusOr<std::vector<const PackVariant *>> selected(const PackReader &pack,
                                                    const Options &options);

/// Lines of the ledger, by the digest of the code that ran.
using Ledger = std::map<std::string, std::vector<nlohmann::json>>;

/// The file of options.ledger; none if that is empty.
StatusOr<Ledger> readLedger(const std::string &path);

/// "never run on a GPU", "run on NVIDIA H200", or "-" for host code.
std::string ranOn(const Ledger &ledger, const PackVariant &variant);

/// Writes JSON and a newline to stdout.
void printJson(const nlohmann::ordered_json &value);

} // namespace kdac::packtool

#endif // KDAC_TOOLS_KDAC_PACK_COMMANDS_H
