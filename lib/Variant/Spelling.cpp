// How choices are spelled: one table for each enum.
#include "kdac/Variant/Variant.h"

#include <array>
#include <utility>

namespace kdac {

namespace {

template <typename Enum, size_t N>
using Spellings = std::array<std::pair<Enum, std::string_view>, N>;

constexpr Spellings<Form, 6> forms{{{Form::Chunk, "chunk"},
                                    {Form::Step, "step"},
                                    {Form::Rows, "rows"},
                                    {Form::Attention, "attention"},
                                    {Form::Prompt, "prompt"},
                                    {Form::Matmul, "matmul"}}};
constexpr Spellings<RowOp, 10> rowOps{{{RowOp::None, "none"},
                                       {RowOp::Norm, "norm"},
                                       {RowOp::Add, "add"},
                                       {RowOp::Silu, "silu"},
                                       {RowOp::Situ, "situ"},
                                       {RowOp::Sigmoid, "sigmoid"},
                                       {RowOp::Gather, "gather"},
                                       {RowOp::Combine, "combine"},
                                       {RowOp::Latent, "latent"},
                                       {RowOp::Mix, "mix"}}};
constexpr Spellings<DType, 6> dtypes{{{DType::BF16, "bf16"},
                                      {DType::F16, "f16"},
                                      {DType::F32, "f32"},
                                      {DType::I32, "i32"},
                                      {DType::I64, "i64"},
                                      {DType::I8, "i8"}}};
constexpr Spellings<StateLayout, 2> layouts{
    {{StateLayout::VK, "vk"}, {StateLayout::KV, "kv"}}};
constexpr Spellings<Precision, 3> precisions{{{Precision::Fast, "fast"},
                                              {Precision::Default, "default"},
                                              {Precision::High, "high"}}};
constexpr Spellings<CacheLayout, 2> cacheLayouts{
    {{CacheLayout::Full, "full"}, {CacheLayout::History, "history"}}};
constexpr Spellings<OutputNorm, 3> outputNorms{
    {{OutputNorm::None, "none"},
     {OutputNorm::Sigmoid, "sigmoid"},
     {OutputNorm::Silu, "silu"}}};
constexpr Spellings<Gate, 4> gates{{{Gate::None, "none"},
                                    {Gate::Identity, "identity"},
                                    {Gate::Softplus, "softplus"},
                                    {Gate::Bounded, "bounded"}}};
constexpr Spellings<Beta, 4> betas{{{Beta::None, "none"},
                                    {Beta::Identity, "identity"},
                                    {Beta::Sigmoid, "sigmoid"},
                                    {Beta::TwoSigmoid, "2sigmoid"}}};
constexpr Spellings<Decay, 4> decays{{{Decay::None, "none"},
                                      {Decay::HeadConstant, "head-constant"},
                                      {Decay::Head, "head"},
                                      {Decay::Channel, "channel"}}};

template <typename Enum, size_t N>
std::string_view spellIn(const Spellings<Enum, N> &table, Enum value) {
  for (const auto &[candidate, text] : table)
    if (candidate == value)
      return text;
  return "?";
}

template <typename Enum, size_t N>
std::optional<Enum> parseIn(const Spellings<Enum, N> &table,
                            std::string_view text) {
  for (const auto &[value, candidate] : table)
    if (candidate == text)
      return value;
  return std::nullopt;
}

} // namespace

std::string_view spell(Form value) { return spellIn(forms, value); }
std::string_view spell(DType value) { return spellIn(dtypes, value); }
std::string_view spell(StateLayout value) { return spellIn(layouts, value); }
std::string_view spell(Precision value) { return spellIn(precisions, value); }
std::string_view spell(CacheLayout value) {
  return spellIn(cacheLayouts, value);
}
std::string_view spell(OutputNorm value) { return spellIn(outputNorms, value); }
std::string_view spell(RowOp value) { return spellIn(rowOps, value); }
std::string_view spell(Gate value) { return spellIn(gates, value); }
std::string_view spell(Beta value) { return spellIn(betas, value); }
std::string_view spell(Decay value) { return spellIn(decays, value); }
std::optional<Form> parseForm(std::string_view t) { return parseIn(forms, t); }
std::optional<DType> parseDType(std::string_view t) {
  return parseIn(dtypes, t);
}
std::optional<StateLayout> parseStateLayout(std::string_view t) {
  return parseIn(layouts, t);
}
std::optional<CacheLayout> parseCacheLayout(std::string_view t) {
  return parseIn(cacheLayouts, t);
}
std::optional<OutputNorm> parseOutputNorm(std::string_view t) {
  return parseIn(outputNorms, t);
}
std::optional<RowOp> parseRowOp(std::string_view t) {
  return parseIn(rowOps, t);
}
std::optional<Precision> parsePrecision(std::string_view t) {
  return parseIn(precisions, t);
}
std::optional<Gate> parseGate(std::string_view t) { return parseIn(gates, t); }
std::optional<Beta> parseBeta(std::string_view t) { return parseIn(betas, t); }

} // namespace kdac
