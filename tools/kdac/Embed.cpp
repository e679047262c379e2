// kdac embed: a pack as C source and header.
#include "Commands.h"

#include "kdac/Pack/Embed.h"

using namespace llvm;

namespace kdac {

int runEmbed(const Options &options) {
  StatusOr<PackReader> pack = PackReader::open(options.spec);
  if (!pack.ok())
    return refuse(pack.status().message());
  std::string name =
      options.name.empty() ? embedName(options.spec) : options.name;
  StatusOr<EmbeddedSources> sources = embedPack(*pack, name);
  if (!sources.ok())
    return refuse(sources.status().message());
  std::string stem =
      (options.output.empty() ? "." : options.output) + "/" + name;
  if (Error error = writeFile(stem + ".h", sources->header))
    return refuse(toString(std::move(error)));
  if (Error error = writeFile(stem + ".c", sources->source))
    return refuse(toString(std::move(error)));
  return 0;
}

} // namespace kdac
