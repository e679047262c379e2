// Promises: the table of input distributions, easy ones and hard ones.
// Does not: allocate, or know tensor layouts.
#ifndef KDAC_REFERENCE_RECIPE_H
#define KDAC_REFERENCE_RECIPE_H

#include "kdac/Reference/Random.h"
#include "kdac/Variant/Variant.h"

#include <string>
#include <string_view>
#include <vector>

namespace kdac::reference {

/// Where one number goes, and the random numbers of that place. `seed` and
/// `stream` (the tensor) and the coordinates determine every draw.
struct Site {
  uint64_t seed = 0;
  uint64_t stream = 0;
  int64_t token = 0, head = 0, channel = 0;

  double normal() const { return random().normal(index()); }
  double uniform() const { return random().uniform(index()); }
  /// The same for all tokens.
  double sharedNormal() const { return at(0).normal(); }
  Site at(int64_t otherToken) const;

private:
  Random random() const { return Random(seed, stream); }
  uint64_t index() const;
};

/// What the numbers are drawn for.
struct Purpose {
  Gate gate = Gate::None;
  DType dtype = DType::BF16;   ///< of v and out
  bool norms = false;          ///< a norm squares the output
  double gateNormalizer = 1.0; ///< divides an identity log-decay (FLA's gln)
  double gateMask = 0.0;       ///< share of log-decays set to 0 (FLA's mask_p)
  double gateFloor = -1e30;    ///< identity log-decays are clamped to this
};

/// How an input distribution changes the error to expect; see Tolerance.h.
enum class Difficulty {
  Plain,      ///< the state forgets, errors average out
  Undecayed,  ///< an erase without decay: errors stay in the state
  Extreme,    ///< cumulative log-decays of 1e3 and more lose absolute precision
  Correlated, ///< the inverse amplifies rounding (kda-operator.md 3.5)
};

/// One row: how each operand is drawn.
struct Recipe {
  std::string_view name;
  std::string_view summary;
  Difficulty difficulty;
  Difficulty undecayed;              ///< of a delta rule without decay
  double (*direction)(const Site &); ///< q, k, a, b before normalisation
  /// Of the q and k row after it.
  double (*magnitude)(const Site &, const Purpose &);
  double (*value)(const Site &, const Purpose &);
  double (*gate)(const Site &, const Purpose &); ///< logit, or log-decay
  double (*aLog)(const Site &);
  double (*dtBias)(const Site &);
  double (*betaLogit)(const Site &);
  double (*state)(const Site &, const Purpose &); ///< h0
};

/// All rows.
const std::vector<Recipe> &recipes();

/// The row called `name`, or null.
const Recipe *findRecipe(std::string_view name);

/// Element `site` of the tensor called `name`, which is none of q, k, a and b:
/// those are drawn by rows.
double drawElement(const Recipe &recipe, const Variant &variant,
                   const Purpose &purpose, std::string_view name,
                   const Site &site);

/// How hard `recipe` is for a resolved variant.
Difficulty difficultyOf(const Variant &variant, const Recipe &recipe);

/// "random, fla, ...", for messages.
std::string recipeNames();

} // namespace kdac::reference

#endif // KDAC_REFERENCE_RECIPE_H
