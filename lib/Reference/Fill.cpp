// How a recipe's draws become the tensors of a case.
#include "PromptCase.h"
#include "kdac/Reference/Cache.h"
#include "kdac/Reference/Case.h"
#include "kdac/Reference/Parallel.h"
#include "kdac/Reference/Places.h"

#include <cmath>

namespace kdac::reference {

namespace {

/// The random stream of a tensor: stable under changes of the argument list.
uint64_t streamOf(std::string_view name) {
  uint64_t stream = 0;
  for (char letter : name)
    stream = stream * 257 + static_cast<unsigned char>(letter);
  return stream;
}

/// Draws the tensors of one case, element by element in any order.
class Filler {
public:
  Filler(const Case &c)
      : v(c.spec().variant), recipe(*findRecipe(c.spec().recipe)),
        seed(c.spec().seed) {
    purpose.gate = *v.gate;
    purpose.dtype = v.dtype;
    purpose.norms = v.norm != OutputNorm::None;
    purpose.gateNormalizer = c.spec().gateNormalizer;
    purpose.gateMask = c.spec().gateMask;
    purpose.gateFloor = c.spec().gateFloor;
    if (v.form == Form::Prompt)
      ownWidth = promptSize(c, "D") - promptSize(c, "R");
  }

  /// Row (token, head) of the tensor called `name`.
  void row(std::string_view name, int64_t token, int64_t head, double *x,
           int64_t width) const {
    Site site{seed, streamOf(name), token, head, 0};
    if (name == "q" || name == "k")
      return keyRow(site, x, width);
    if (name == "shared")
      return keyPart(site, x, width);
    if (name == "kv")
      return expandedRow(site, x, width);
    if (name == "a" || name == "b")
      return eraseRow(name == "a", site, x, width);
    for (int64_t channel = 0; channel < width; ++channel) {
      site.channel = channel;
      x[channel] = drawElement(recipe, v, purpose, name, site);
    }
  }

private:
  void direction(Site site, double *x, int64_t width, bool unit) const {
    double sum = 0.0;
    for (int64_t channel = 0; channel < width; ++channel) {
      site.channel = channel;
      x[channel] = recipe.direction(site);
      sum += x[channel] * x[channel];
    }
    for (int64_t channel = 0; unit && sum > 0.0 && channel < width; ++channel)
      x[channel] /= std::sqrt(sum);
  }

  void longRow(const Site &site, double *x, int64_t width, bool unit) const {
    direction(site, x, width, unit);
    double magnitude = recipe.magnitude(site, purpose);
    for (int64_t channel = 0; channel < width; ++channel)
      x[channel] *= magnitude;
  }

  /// Kernels without l2norm get rows that are normalised already.
  void keyRow(const Site &site, double *x, int64_t width) const {
    longRow(site, x, width, !*v.l2norm);
  }

  /// Part of a key that meets queries as it is, however long.
  void keyPart(const Site &site, double *x, int64_t width) const {
    longRow(site, x, width, /*unit=*/false);
  }

  /// A head's part of a key, then its value.
  void expandedRow(Site site, double *x, int64_t width) const {
    keyPart(site, x, ownWidth);
    for (site.channel = ownWidth; site.channel < width; ++site.channel)
      x[site.channel] = recipe.value(site, purpose);
  }

  /// a = -s n and b = w n for one unit vector n, s in (0, 1) and w in (1/2, 1)
  /// per channel: contractive, and different when a and b are exchanged.
  void eraseRow(bool isA, Site site, double *x, int64_t width) const {
    site.stream = streamOf("erase");
    direction(site, x, width, true);
    double strength = 1.0 / (1.0 + std::exp(-recipe.betaLogit(site)));
    site.stream = streamOf("erase weight");
    for (int64_t channel = 0; channel < width; ++channel) {
      site.channel = channel;
      x[channel] *= isA ? -strength : 0.5 + 0.5 * site.uniform();
    }
  }

  const Variant &v;
  const Recipe &recipe;
  uint64_t seed;
  int64_t ownWidth = 0; ///< of form prompt: of a head's part of a key
  Purpose purpose;
};

} // namespace

void Case::fillPlaces(Buffer &buffer) {
  PageTable table = pageTableOf(*this);
  for (int64_t i = 0; i < buffer.layout().width; ++i) {
    int64_t value = buffer.name() == "slots"       ? slotOfRow(*this, i)
                    : buffer.name() == "positions" ? positionOfRow(*this, i)
                                                   : table.pages[i];
    buffer.set(0, 0, i, static_cast<double>(value));
  }
}

void Case::fill() {
  Filler filler(*this);
  for (Buffer &buffer : tensors) {
    if (buffer.kind() == ArgKind::Output && !isCache(buffer.name()))
      continue;
    if (description.variant.rows == RowOp::Latent &&
        buffer.dtype() == DType::I32) {
      fillPlaces(buffer);
      continue;
    }
    if (buffer.name() == "table" || buffer.name() == "lengths")
      continue; // fillTable
    if (buffer.name() == "key_offsets")
      continue; // fillOffsets
    if (description.variant.form == Form::Matmul &&
        buffer.dtype() == DType::I32)
      continue; // fillGroups
    if (buffer.name() == "slots" || buffer.name() == "sources" ||
        buffer.name() == "snapshots" || buffer.name() == "accepted")
      continue;                     // fillIndices
    if (buffer.name() == "index") { // some of them outside
      Random random(description.seed, streamOf("index"));
      auto choices = static_cast<double>(sourceRows() + 4);
      for (int64_t t = 0; t < buffer.layout().width; ++t)
        buffer.set(
            0, 0, t,
            std::floor(random.uniform(static_cast<uint64_t>(t)) * choices) - 2);
      continue;
    }
    if (buffer.name() == "offsets") {
      for (size_t n = 0; n < bounds.size(); ++n)
        buffer.set(0, 0, static_cast<int64_t>(n),
                   static_cast<double>(bounds[n]));
      continue;
    }
    const Layout &layout = buffer.layout();
    parallelFor(layout.tokens, [&](int64_t token) {
      std::vector<double> row(static_cast<size_t>(layout.width));
      for (int64_t head = 0; head < layout.heads; ++head) {
        filler.row(buffer.name(), token, head, row.data(), layout.width);
        for (int64_t channel = 0; channel < layout.width; ++channel)
          buffer.set(token, head, channel, row[static_cast<size_t>(channel)]);
      }
    });
  }
}

} // namespace kdac::reference
