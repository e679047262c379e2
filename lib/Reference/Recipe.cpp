#include "kdac/Reference/Recipe.h"

#include <algorithm>
#include <cmath>

namespace kdac::reference {

uint64_t Site::index() const {
  return mix(static_cast<uint64_t>(token) * 0x100000001b3ull +
             static_cast<uint64_t>(head)) +
         static_cast<uint64_t>(channel);
}

Site Site::at(int64_t otherToken) const {
  Site other = *this;
  other.token = otherToken;
  return other;
}

namespace {

double logSigmoid(double x) {
  return std::fmin(x, 0.0) - std::log1p(std::exp(-std::fabs(x)));
}

double one(const Site &, const Purpose &) { return 1.0; }
double zero(const Site &) { return 0.0; }
double normal(const Site &s) { return s.normal(); }
double tenthNormal(const Site &s) { return 0.1 * s.normal(); }
double uniform(const Site &s) { return s.uniform(); }
double normalValue(const Site &s, const Purpose &) { return s.normal(); }
double uniformValue(const Site &s, const Purpose &) { return s.uniform(); }

/// log U(1, 16): the usual initialisation of A_log.
double initialALog(const Site &s) { return std::log(1.0 + 15.0 * s.uniform()); }

double randomGate(const Site &s, const Purpose &p) {
  return p.gate == Gate::Identity ? logSigmoid(s.normal()) : s.normal();
}

double flaGate(const Site &s, const Purpose &p) {
  if (p.gate != Gate::Identity)
    return s.normal();
  Site mask = s;
  mask.stream = ~s.stream;
  if (mask.uniform() < p.gateMask)
    return 0.0;
  return std::fmax(logSigmoid(s.normal()) / p.gateNormalizer, p.gateFloor);
}

/// FLA's packed tests: a share without decay, the same share of -1000 (which
/// drives softplus to 0).
double flaPackedGate(const Site &s, const Purpose &p) {
  Site wall = s;
  wall.stream = ~s.stream + 1;
  if (wall.uniform() < p.gateMask)
    return p.gate == Gate::Identity ? std::fmax(-1000.0, p.gateFloor) : -1000.0;
  return flaGate(s, p);
}

/// Even heads: all tokens share one direction. Odd heads: nearly so.
double collinear(const Site &s) {
  double shared = s.sharedNormal();
  return s.head % 2 == 0 ? shared : shared + 0.05 * s.normal();
}

/// A decay of about e^-0.01 a token in every map, so that nothing is forgotten.
double slowGate(const Site &s, const Purpose &p) {
  return p.gate == Gate::Identity ? -0.01 * s.uniform() : -8.0 + s.normal();
}

double strongBeta(const Site &s) { return 2.0 + 0.5 * s.normal(); }

/// The decay is exactly 1 in every map.
double zeroGate(const Site &, const Purpose &p) {
  return p.gate == Gate::Identity ? 0.0 : -1000.0;
}

/// The decay is exactly the bound where there is one, else -5 or far below.
double boundGate(const Site &, const Purpose &p) {
  return p.gate == Gate::Identity ? -5.0 : 1000.0;
}

/// Each element by chance: no decay, all of it, tens of nats, or a little
/// (pitfalls NUM-1, NUM-4, NUM-5).
double extremeGate(const Site &s, const Purpose &p) {
  Site pick = s;
  pick.stream = ~s.stream;
  int kind = static_cast<int>(pick.uniform() * 4.0);
  bool identity = p.gate == Gate::Identity;
  if (kind == 0)
    return identity ? 0.0 : -1000.0;
  if (kind == 1)
    return identity ? -1000.0 : 1000.0;
  if (kind == 2)
    return identity ? -10.0 - 60.0 * s.uniform() : 10.0 + 60.0 * s.uniform();
  return identity ? -0.1 * s.uniform() : -3.0 + s.normal();
}

/// Zero, far below epsilon's reach, comparable with epsilon, ordinary.
double tinyMagnitude(const Site &s, const Purpose &) {
  constexpr double sizes[] = {0.0, 1e-20, 1e-3, 1.0};
  return sizes[s.token % 4];
}

/// A row whose products with others leave f16's range. One only: an erase
/// leaves a state of one direction behind it, and all that comes later has its
/// errors over the cosine with that.
constexpr int64_t longRow = 9;

double longMagnitude(const Site &s, const Purpose &p) {
  bool isShort = p.dtype == DType::F16 || p.norms;
  return s.token != longRow ? 1.0 : isShort ? 4.0 : 1e6;
}

/// q and k of the long row make an angle of about 50 degrees: their product is
/// nearly all of the output, whose errors are over its cosine.
double longDirection(const Site &s) {
  return s.token != longRow ? s.normal() : std::fabs(s.normal());
}

/// Near the top of the range in which outputs and products still fit.
double largeValue(const Site &s, const Purpose &p) {
  return (p.dtype == DType::F16 ? 1e3 : 1e15) * s.normal();
}

/// Far from 1 where bf16 and f32 can hold it. A norm squares outputs.
double hugeValue(const Site &s, const Purpose &p) {
  bool isShort = p.dtype == DType::F16 || p.norms;
  return isShort ? largeValue(s, p) : 1e30 * s.normal();
}
double faintValue(const Site &s, const Purpose &p) {
  return (p.dtype == DType::F16 ? 1.0 : 1e-30) * s.normal();
}

double smallState(const Site &s, const Purpose &) { return 0.3 * s.normal(); }
double largeState(const Site &s, const Purpose &p) {
  return 0.3 * largeValue(s, p);
}
double hugeState(const Site &s, const Purpose &p) {
  return 0.3 * hugeValue(s, p);
}
double faintState(const Site &s, const Purpose &p) {
  return 0.3 * faintValue(s, p);
}

/// exp(90) is infinite in f32: the bounded gate must still be 0, the bound or,
/// where the argument is exactly 0, half of it (pitfalls NUM-12).
double saturatedALog(const Site &) { return 90.0; }

double saturatedGate(const Site &s, const Purpose &p) {
  if (p.gate == Gate::Identity)
    return randomGate(s, p);
  double u = s.uniform();
  return u < 0.25    ? 0.0
         : u < 0.625 ? -1000.0
                     : 4.0 * s.at(s.token + 1).normal();
}

} // namespace

const std::vector<Recipe> &recipes() {
  using D = Difficulty;
  // clang-format off
  static const std::vector<Recipe> table = {
    {"random", "q, k, v, logits ~ N(0, 1), A_log = log U(1, 16), dt_bias ~ 0.1 N, h0 ~ 0.3 N",
     D::Plain, D::Undecayed, normal, one, normalValue, randomGate, initialALog, tenthNormal, normal, smallState},
    {"fla", "q, k, v ~ U(0, 1), log-decay = logsigmoid(N), dt_bias ~ N, h0 ~ N: FLA's tests",
     D::Plain, D::Correlated, uniform, one, uniformValue, flaGate, initialALog, normal, normal, normalValue},
    {"fla_packed", "q, k, v, h0 ~ N, beta logit ~ U(0, 1), shares of no decay and of -1000: FLA's packed tests",
     D::Extreme, D::Undecayed, normal, one, normalValue, flaPackedGate, initialALog, normal, uniform, normalValue},
    {"correlated", "identical or nearly collinear keys, beta near 1, slow decay",
     D::Correlated, D::Correlated, collinear, one, normalValue, slowGate, zero, zero, strongBeta, smallState},
    {"gate_zero", "no decay at all",
     D::Undecayed, D::Undecayed, normal, one, normalValue, zeroGate, zero, zero, normal, smallState},
    {"gate_bound", "every decay at the lower bound, or as strong as the map gives",
     D::Extreme, D::Undecayed, normal, one, normalValue, boundGate, zero, zero, normal, smallState},
    {"gate_extreme", "per element no decay, e^-1000, tens of nats, or a little",
     D::Extreme, D::Undecayed, normal, one, normalValue, extremeGate, zero, zero, normal, smallState},
    {"tiny_qk", "rows of q and k that are zero, 1e-20, 1e-3 or ordinary in length",
     D::Plain, D::Undecayed, normal, tinyMagnitude, normalValue, randomGate, initialALog, tenthNormal, normal, smallState},
    {"long_qk", "row 9 of q and k a million times as long as others (f16, before a norm: 4)",
     D::Plain, D::Undecayed, longDirection, longMagnitude, normalValue, randomGate, initialALog, tenthNormal, normal, smallState},
    {"large_v", "v and h0 of 1e15 (f16: 1e3)",
     D::Plain, D::Undecayed, normal, one, largeValue, randomGate, initialALog, tenthNormal, normal, largeState},
    {"huge_v", "v and h0 of 1e30 (f16 1e3, before a norm 1e15)",
     D::Plain, D::Undecayed, normal, one, hugeValue, randomGate, initialALog, tenthNormal, normal, hugeState},
    {"faint_v", "v and h0 of 1e-30 (f16: 1)",
     D::Plain, D::Undecayed, normal, one, faintValue, randomGate, initialALog, tenthNormal, normal, faintState},
    {"saturated_A", "A_log = 90 with arguments of exactly 0 among others",
     D::Extreme, D::Undecayed, normal, one, normalValue, saturatedGate, saturatedALog, zero, normal, smallState},
  };
  // clang-format on
  return table;
}

const Recipe *findRecipe(std::string_view name) {
  for (const Recipe &row : recipes())
    if (row.name == name)
      return &row;
  return nullptr;
}

double drawElement(const Recipe &recipe, const Variant &v,
                   const Purpose &purpose, std::string_view name,
                   const Site &site) {
  if (v.form == Form::Matmul && name != "x") // sums of a few units
    return 0.05 * site.normal();
  if (name == "v" || name == "v_cache" || name == "x" || name == "up" ||
      name == "pages" || name == "before")
    return recipe.value(site, purpose);
  if (name == "g" || name == "gate")
    return recipe.gate(site, purpose);
  if (name == "norm_weight" || name == "weight")
    return 1.0 + 0.25 * site.normal();
  if (name == "query") { // scores of a few units, 3.2 in rows of 4096
    double longest = static_cast<double>(std::max<int64_t>(v.width, 4096));
    return 3.2 / std::sqrt(longest) * site.normal();
  }
  if (name == "scales")
    return 0.5 * site.uniform();
  if (name == "before_logs")
    return 3.0 + 2.0 * site.normal();
  if (name == "z" || name == "branch" || name.substr(1) == "_conv" ||
      name.substr(1) == "_cache")
    return site.normal();
  if (name == "A_log")
    return recipe.aLog(site);
  if (name == "dt_bias")
    return recipe.dtBias(site);
  if (name == "h0")
    return recipe.state(site, purpose);
  double logit = recipe.betaLogit(site); // beta
  return *v.beta == Beta::Identity ? 1.0 / (1.0 + std::exp(-logit)) : logit;
}

Difficulty difficultyOf(const Variant &variant, const Recipe &recipe) {
  const Recurrence &row = variant.row();
  if (row.decay == Decay::None && row.erase == Erase::Delta)
    return recipe.undecayed;
  // 64 tokens at -16 nats are a cumulative base-2 log-decay of 1500.
  bool deep = *variant.gate == Gate::Bounded && variant.lowerBound < -16.0;
  bool plain = recipe.difficulty == Difficulty::Plain;
  return deep && plain ? Difficulty::Extreme : recipe.difficulty;
}

std::string recipeNames() {
  std::string names;
  for (const Recipe &row : recipes())
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

} // namespace kdac::reference
