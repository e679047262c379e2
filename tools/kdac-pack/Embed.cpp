// kdac-pack embed: a pack as C source and header.
#include "Commands.h"

#include "kdac/Pack/Embed.h"

#include <cerrno>
#include <cstring>
#include <fstream>

namespace kdac::packtool {

static Status writeFile(const std::string &path, const std::string &text) {
  std::string temporary = path + ".tmp";
  std::ofstream(temporary, std::ios::binary) << text;
  std::ifstream written(temporary, std::ios::binary | std::ios::ate);
  bool good = written && static_cast<size_t>(written.tellg()) == text.size() &&
              std::rename(temporary.c_str(), path.c_str()) == 0;
  if (good)
    return Status::success();
  Status status(ErrorCode::Io,
                "cannot write '" + path + "': " + std::strerror(errno));
  std::remove(temporary.c_str());
  return status;
}

int runEmbed(const Options &options) {
  StatusOr<PackReader> pack = PackReader::open(options.pack);
  if (!pack.ok())
    return refuse(pack.status().message());
  std::string name =
      options.name.empty() ? embedName(options.pack) : options.name;
  StatusOr<EmbeddedSources> sources = embedPack(*pack, name);
  if (!sources.ok())
    return refuse(sources.status().message());
  std::string stem = options.outputDir + "/" + name;
  Status header = writeFile(stem + ".h", sources->header);
  Status source =
      header.ok() ? writeFile(stem + ".c", sources->source) : header;
  return source.ok() ? 0 : refuse(source.message());
}

} // namespace kdac::packtool
