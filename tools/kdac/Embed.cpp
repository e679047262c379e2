// kdac embed: a pack as C source and header, with an object file or in the form
// of Triton's ahead-of-time compiler.
#include "Commands.h"

#include "kdac/Pack/Embed.h"
#include "kdac/Pack/Triton.h"
#include "kdac/Target/DataObject.h"

using namespace llvm;

namespace kdac {

static Error failure(const Status &status) {
  return createStringError(status.message());
}

/// NAME.h and NAME.c, and NAME.o if options.object names a machine.
static Expected<std::vector<NamedFile>> filesOf(const PackReader &pack,
                                                const std::string &name,
                                                const std::string &machine) {
  StatusOr<EmbeddedSources> sources =
      embedPack(pack, name,
                machine.empty() ? EmbedBytes::InSource : EmbedBytes::InObject);
  if (!sources.ok())
    return failure(sources.status());
  std::vector<NamedFile> files = {{name + ".h", std::move(sources->header)},
                                  {name + ".c", std::move(sources->source)}};
  if (machine.empty())
    return files;
  Expected<std::string> object =
      emitDataObject(embedSymbol(name), pack.file(), machine);
  if (!object)
    return object.takeError();
  files.push_back({name + ".o", std::move(*object)});
  return files;
}

static Expected<std::vector<NamedFile>> filesOf(const PackReader &pack,
                                                const std::string &name,
                                                const Options &options) {
  if (!options.tritonAot)
    return filesOf(pack, name, options.object);
  StatusOr<std::vector<NamedFile>> files = tritonAot(pack, name);
  if (!files.ok())
    return failure(files.status());
  return *files;
}

int runEmbed(const Options &options) {
  StatusOr<PackReader> pack = PackReader::open(options.spec);
  if (!pack.ok())
    return refuse(pack.status().message());
  std::string name =
      options.name.empty() ? embedName(options.spec) : options.name;
  Expected<std::vector<NamedFile>> files = filesOf(*pack, name, options);
  if (!files)
    return refuse(toString(files.takeError()));
  std::string folder = options.output.empty() ? "." : options.output;
  for (const NamedFile &file : *files)
    if (Error error = writeFile(folder + "/" + file.path, file.bytes))
      return refuse(toString(std::move(error)));
  return 0;
}

} // namespace kdac
