#include "kdac/Runtime/Select.h"
#include "kdac/Runtime/Kernel.h"
#include "kdac/Variant/Options.h"

#include <algorithm>
#include <tuple>

namespace kdac {

namespace {

/// An error lists this many variants; packs can have hundreds.
constexpr size_t listedVariants = 12;

using Reasons = std::vector<std::string>;

Status refuse(ErrorCode code, const std::string &message) {
  return Status(code, message);
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

/// One option as people spell it, for comparing and for telling.
struct Spelled {
  std::string_view option;
  std::string (*of)(const Variant &);
};

const Spelled compared[] = {
    {"recurrence", [](const Variant &v) { return v.recurrence; }},
    {"form", [](const Variant &v) { return std::string(spell(v.form)); }},
    {"key-dim", [](const Variant &v) { return std::to_string(v.keyDim); }},
    {"value-dim", [](const Variant &v) { return std::to_string(v.valueDim); }},
    {"dtype", [](const Variant &v) { return std::string(spell(v.dtype)); }},
    {"state-dtype",
     [](const Variant &v) { return std::string(spell(v.stateDtype)); }},
    {"state-layout",
     [](const Variant &v) { return std::string(spell(v.stateLayout)); }},
    {"gate", [](const Variant &v) { return std::string(spell(*v.gate)); }},
    {"lower-bound",
     [](const Variant &v) {
       return *v.gate == Gate::Bounded ? number(v.lowerBound) : "none";
     }},
    {"gate-dtype",
     [](const Variant &v) { return std::string(spell(*v.gateDtype)); }},
    {"beta", [](const Variant &v) { return std::string(spell(*v.beta)); }},
    {"l2norm",
     [](const Variant &v) {
       return std::string(*v.l2norm ? "true" : "false");
     }},
    {"offsets",
     [](const Variant &v) { return std::string(spell(v.offsetDtype)); }},
    {"precision",
     [](const Variant &v) { return std::string(spell(v.precision)); }},
    {"slots",
     [](const Variant &v) {
       return std::string(v.slots ? spell(*v.slots) : "none");
     }},
    {"snapshots",
     [](const Variant &v) {
       return std::string(v.snapshots ? "true" : "false");
     }},
    {"log",
     [](const Variant &v) { return std::string(v.log ? "true" : "false"); }},
    {"rows", [](const Variant &v) { return std::string(spell(v.rows)); }},
    {"width", [](const Variant &v) { return std::to_string(v.width); }},
    {"conv", [](const Variant &v) { return std::to_string(v.conv); }},
    {"cache-layout",
     [](const Variant &v) {
       return std::string(v.conv ? spell(v.cacheLayout) : "none");
     }},
    {"norm", [](const Variant &v) { return std::string(spell(v.norm)); }},
    {"norm-eps",
     [](const Variant &v) {
       return v.norm == OutputNorm::None ? "none" : number(v.normEps);
     }},
};

/// A request, understood.
struct Wanted {
  Variant variant;
  bool anyOffsets = true, anyPrecision = true;

  bool ignores(std::string_view option) const {
    return (option == "offsets" && anyOffsets) ||
           (option == "precision" && anyPrecision);
  }
};

StatusOr<Wanted> understand(const Request &request) {
  Wanted wanted;
  for (const auto &[name, value] : request.options) {
    const VariantOption *option = findVariantOption(name);
    if (!option)
      return refuse(ErrorCode::InvalidArgument,
                    "unknown option '" + name + "'");
    if (auto problem = option->set(wanted.variant, value))
      return refuse(ErrorCode::InvalidArgument, *problem);
    wanted.anyOffsets &= name != "offsets";
    wanted.anyPrecision &= name != "precision";
  }
  if (auto problem = resolve(wanted.variant))
    return refuse(ErrorCode::InvalidArgument, *problem);
  return wanted;
}

void addStrideReasons(const PackVariant &variant,
                      const std::vector<TokenStride> &strides,
                      Reasons &reasons) {
  for (const TokenStride &stride : strides) {
    const LaunchArg *found = nullptr;
    for (const LaunchArg &a : variant.launches[0].args)
      if (a.arg.name == stride.tensor + "_stride")
        found = &a;
    if (!found)
      reasons.push_back("has no tensor '" + stride.tensor +
                        "' with a token stride");
    else if (stride.elements < 0 || stride.elements % found->alignment != 0)
      reasons.push_back("needs a stride of " + stride.tensor +
                        " that is a multiple of " +
                        std::to_string(found->alignment) + " elements, not " +
                        std::to_string(stride.elements));
  }
}

std::string offeredImages(const Manifest &manifest, const Launch &launch) {
  std::string text;
  for (size_t index : launch.images) {
    const Image &image = manifest.images[index];
    text += (text.empty() ? "" : ", ") + std::string(spell(image.kind)) + " " +
            image.arch;
  }
  return text;
}

void addPlaceReason(const Manifest &manifest, const PackVariant &variant,
                    const Place &place, Reasons &reasons) {
  if (place.fit(manifest, variant.launches[0]) == 0)
    reasons.push_back("is for " + offeredImages(manifest, variant.launches[0]) +
                      ", not for " + place.name());
}

Reasons reasonsAgainst(const Manifest &manifest, const PackVariant &variant,
                       const Place &place, const Request &request,
                       const Wanted &wanted) {
  Reasons reasons;
  for (const Spelled &s : compared) {
    std::string has = s.of(variant.variant), asked = s.of(wanted.variant);
    if (has != asked && !wanted.ignores(s.option))
      reasons.push_back("has " + std::string(s.option) + " " + has + ", not " +
                        asked);
  }
  if (reasons.empty())
    addStrideReasons(variant, request.strides, reasons);
  addPlaceReason(manifest, variant, place, reasons);
  return reasons;
}

std::string join(const Reasons &reasons) {
  std::string text;
  for (const std::string &reason : reasons)
    text += (text.empty() ? "" : ", ") + reason;
  return text;
}

/// Better first: how well the code fits, then the defaults of what the caller
/// left open.
auto preference(const Manifest &manifest, const PackVariant &v,
                const Place &place) {
  return std::tuple(place.fit(manifest, v.launches[0]),
                    v.variant.precision == Precision::Default,
                    v.variant.offsetDtype == DType::I32);
}

struct Rejected {
  const PackVariant *variant;
  Reasons reasons;
};

std::string listed(std::vector<Rejected> rejected) {
  // Nearest first; a manifest keeps its variants in order of their names.
  std::sort(rejected.begin(), rejected.end(),
            [](const Rejected &a, const Rejected &b) {
              return std::pair(a.reasons.size(), a.variant) <
                     std::pair(b.reasons.size(), b.variant);
            });
  std::string text;
  for (size_t i = 0; i < std::min(rejected.size(), listedVariants); ++i)
    text += (i ? "; " : "") + rejected[i].variant->name() + " " +
            join(rejected[i].reasons);
  if (rejected.size() > listedVariants)
    text +=
        "; and " + std::to_string(rejected.size() - listedVariants) + " others";
  return text;
}

/// The most preferred of the variants that fit, and why the others do not.
struct Choice {
  const Manifest &manifest;
  const Place &place;
  const PackVariant *best = nullptr;
  std::vector<Rejected> rejected = {};

  void add(const PackVariant &v, Reasons reasons) {
    if (!reasons.empty())
      rejected.push_back({&v, std::move(reasons)});
    else if (!best || preference(manifest, v, place) >
                          preference(manifest, *best, place))
      best = &v;
  }
};

} // namespace

std::string Place::name() const {
  if (!gpu)
    return "this processor";
  return gpu->name + " (sm_" + std::to_string(gpu->computeMajor) +
         std::to_string(gpu->computeMinor) + ")";
}

bool Place::runs(const Image &image) const {
  if (image.kind == ImageKind::HostSo)
    return !gpu && runsOnHost(image.arch);
  return gpu && runsOn(*gpu, image.arch, image.kind == ImageKind::Ptx);
}

int Place::fit(const Manifest &manifest, const Launch &launch) const {
  int best = 0;
  for (size_t index : launch.images) {
    const Image &image = manifest.images[index];
    if (!runs(image))
      continue;
    int version = 0;
    for (char c : image.arch)
      if (c >= '0' && c <= '9' && version < 100000)
        version = version * 10 + (c - '0');
    best =
        std::max(best, version + (image.kind == ImageKind::Cubin ? 10000 : 1));
  }
  return best;
}

StatusOr<const PackVariant *> selectVariant(const PackReader &pack,
                                            const Place &place,
                                            const Request &request) {
  StatusOr<Wanted> wanted = understand(request);
  if (!wanted.ok())
    return wanted.status();
  const Manifest &manifest = pack.manifest();
  Choice choice{manifest, place};
  Form form = wanted->variant.form;
  for (const PackVariant &v : manifest.variants) {
    bool areRecurrent = isRecurrent(form) && isRecurrent(v.variant.form);
    if (!areRecurrent && form != v.variant.form)
      continue; // no near miss, whatever the options
    Reasons reasons = reasonsAgainst(manifest, v, place, request, *wanted);
    choice.add(v, std::move(reasons));
  }
  if (choice.best)
    return choice.best;
  return refuse(ErrorCode::Unsupported,
                "no variant of the pack fits " + variantStem(wanted->variant) +
                    " on " + place.name() + ": " +
                    (!choice.rejected.empty()
                         ? listed(std::move(choice.rejected))
                     : manifest.variants.empty() ? "it is empty"
                     : form == Form::Rows      ? "it has no operations on rows"
                     : form == Form::Attention ? "it has no attention"
                     : form == Form::Prompt ? "it has no attention of prompts"
                     : form == Form::Matmul ? "it has no products of groups"
                                            : "it has no recurrences"));
}

StatusOr<const PackVariant *>
selectNamed(const PackReader &pack, const Place &place, std::string_view name) {
  const Manifest &manifest = pack.manifest();
  Choice choice{manifest, place};
  for (const PackVariant &v : manifest.variants) {
    if (v.name() != name && variantStem(v.variant) != name)
      continue;
    Reasons reasons;
    addPlaceReason(manifest, v, place, reasons);
    choice.add(v, std::move(reasons));
  }
  if (choice.best)
    return choice.best;
  if (choice.rejected.empty())
    return refuse(ErrorCode::NotFound,
                  "the pack has no variant '" + std::string(name) + "'");
  return refuse(ErrorCode::Unsupported, listed(std::move(choice.rejected)));
}

} // namespace kdac
