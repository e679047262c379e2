#include "kdac/Variant/Options.h"

#include <charconv>

namespace kdac {

namespace {

using Error = std::optional<std::string>;

Error refuse(std::string_view option, std::string_view value,
             std::string_view choices) {
  return std::string(option) + " '" + std::string(value) +
         "' is not supported; use " + std::string(choices);
}

/// Stores a parsed value, or refuses with the choices.
template <typename Field, typename Value>
Error store(Field &field, const std::optional<Value> &value,
            std::string_view option, std::string_view text,
            std::string_view choices) {
  if (!value)
    return refuse(option, text, choices);
  field = *value;
  return std::nullopt;
}

/// The whole of `text` as a number.
template <typename Number>
std::optional<Number> parseNumber(std::string_view text) {
  Number value{};
  const char *end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end)
    return std::nullopt;
  return value;
}

std::optional<bool> parseBool(std::string_view text) {
  if (text == "true" || text == "on")
    return true;
  if (text == "false" || text == "off")
    return false;
  return std::nullopt;
}

std::optional<DType> parseOffsets(std::string_view text) {
  std::optional<DType> dtype = parseDType(text);
  return dtype == DType::I32 || dtype == DType::I64 ? dtype : std::nullopt;
}

std::optional<DType> parseFloat(std::string_view text) {
  std::optional<DType> dtype = parseDType(text);
  bool isFloat =
      dtype == DType::BF16 || dtype == DType::F16 || dtype == DType::F32;
  return isFloat ? dtype : std::nullopt;
}

constexpr char forms[] = "chunk, step, rows, attention, prompt or matmul";
constexpr char rowOps[] =
    "none, norm, add, silu, situ, sigmoid, gather, combine, latent or mix";
constexpr char widths[] = "a whole number from 1 to 32768";
constexpr char floats[] = "bf16, f16 or f32";
constexpr char states[] = "f32 or bf16";
constexpr char layouts[] = "vk or kv";
constexpr char gates[] = "bounded, softplus, identity or none";
constexpr char betas[] = "sigmoid, 2sigmoid, identity or none";
constexpr char offsets[] = "i32 or i64";
constexpr char convs[] = "0, 2, 3 or 4";
constexpr char caches[] = "full or history";
constexpr char norms[] = "none, sigmoid or silu";
constexpr char epsilons[] = "a number between 0 and 1";
constexpr char slotTypes[] = "none, i32 or i64";
constexpr char precisions[] = "fast, default or high";
constexpr char dims[] = "a whole number from 1 to 256";
constexpr char bounds[] = "a negative number";
constexpr char switches[] = "true or false";

} // namespace

const std::vector<VariantOption> &variantOptions() {
  // Unknown recurrences are left to resolve(), which lists the rows.
  static const std::vector<VariantOption> table = {
      {"recurrence", "a name of `kdac list`", "row of the family",
       [](Variant &v, std::string_view t) -> Error {
         v.recurrence = t;
         return std::nullopt;
       }},
      {"form", forms,
       "chunk for prefill, step for decode, rows, attention, prompt and matmul "
       "for what is no recurrence",
       [](Variant &v, std::string_view t) {
         return store(v.form, parseForm(t), "form", t, forms);
       }},
      {"key-dim", dims, "width K of q and k",
       [](Variant &v, std::string_view t) {
         return store(v.keyDim, parseNumber<int64_t>(t), "key-dim", t, dims);
       }},
      {"value-dim", dims, "width V of v and out",
       [](Variant &v, std::string_view t) {
         return store(v.valueDim, parseNumber<int64_t>(t), "value-dim", t,
                      dims);
       }},
      {"dtype", floats, "of q, k, v, beta and out",
       [](Variant &v, std::string_view t) {
         return store(v.dtype, parseFloat(t), "dtype", t, floats);
       }},
      {"state-dtype", states, "of initial and final state in memory",
       [](Variant &v, std::string_view t) {
         return store(v.stateDtype, parseFloat(t), "state-dtype", t, states);
       }},
      {"state-layout", layouts, "[N, HV, V, K] or [N, HV, K, V]",
       [](Variant &v, std::string_view t) {
         return store(v.stateLayout, parseStateLayout(t), "state-layout", t,
                      layouts);
       }},
      {"gate", gates, "how gate logits become a log-decay",
       [](Variant &v, std::string_view t) {
         return store(v.gate, parseGate(t), "gate", t, gates);
       }},
      {"lower-bound", bounds, "of the bounded gate",
       [](Variant &v, std::string_view t) {
         return store(v.lowerBound, parseNumber<double>(t), "lower-bound", t,
                      bounds);
       }},
      {"gate-dtype", floats, "of the gate operand",
       [](Variant &v, std::string_view t) {
         return store(v.gateDtype, parseFloat(t), "gate-dtype", t, floats);
       }},
      {"beta", betas, "how the beta operand becomes a write strength",
       [](Variant &v, std::string_view t) {
         return store(v.beta, parseBeta(t), "beta", t, betas);
       }},
      {"l2norm", switches, "normalise q and k in the kernel",
       [](Variant &v, std::string_view t) {
         return store(v.l2norm, parseBool(t), "l2norm", t, switches);
       }},
      {"offsets", offsets, "integers of packed offsets",
       [](Variant &v, std::string_view t) {
         return store(v.offsetDtype, parseOffsets(t), "offsets", t, offsets);
       }},
      {"slots", slotTypes, "states in a pool, found through indices",
       [](Variant &v, std::string_view t) -> Error {
         v.slots = parseOffsets(t);
         if (v.slots || t == "none")
           return std::nullopt;
         return refuse("slots", t, slotTypes);
       }},
      {"snapshots", switches, "step form with slots: keep every token's state",
       [](Variant &v, std::string_view t) {
         return store(v.snapshots, parseBool(t), "snapshots", t, switches);
       }},
      {"log", switches,
       "step form with slots: keep tokens, commit those that are accepted",
       [](Variant &v, std::string_view t) {
         return store(v.log, parseBool(t), "log", t, switches);
       }},
      {"conv", convs, "width of a convolution before q, k and v",
       [](Variant &v, std::string_view t) {
         return store(v.conv, parseNumber<int64_t>(t), "conv", t, convs);
       }},
      {"cache-layout", caches, "[.., D, W] or [.., W - 1, D]",
       [](Variant &v, std::string_view t) {
         return store(v.cacheLayout, parseCacheLayout(t), "cache-layout", t,
                      caches);
       }},
      {"norm", norms, "gate of an RMS norm of the output",
       [](Variant &v, std::string_view t) {
         return store(v.norm, parseOutputNorm(t), "norm", t, norms);
       }},
      {"norm-eps", epsilons, "of that norm, on the mean of squares",
       [](Variant &v, std::string_view t) {
         return store(v.normEps, parseNumber<double>(t), "norm-eps", t,
                      epsilons);
       }},
      {"rows", rowOps,
       "form rows: the operation; form matmul: none, silu or situ",
       [](Variant &v, std::string_view t) {
         return store(v.rows, parseRowOp(t), "rows", t, rowOps);
       }},
      {"width", widths, "rows norm, latent and mix: the longest row",
       [](Variant &v, std::string_view t) {
         return store(v.width, parseNumber<int64_t>(t), "width", t, widths);
       }},
      {"precision", precisions, "of products",
       [](Variant &v, std::string_view t) {
         return store(v.precision, parsePrecision(t), "precision", t,
                      precisions);
       }},
  };
  return table;
}

const VariantOption *findVariantOption(std::string_view name) {
  for (const VariantOption &option : variantOptions())
    if (option.name == name)
      return &option;
  return nullptr;
}

} // namespace kdac
