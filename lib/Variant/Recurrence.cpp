#include "kdac/Variant/Recurrence.h"

namespace kdac {

const std::vector<Recurrence> &recurrences() {
  // clang-format off
  static const std::vector<Recurrence> table = {
    {"kda", "S = (I - beta k k^T) Diag(alpha) S + beta k v^T, alpha per channel",
     Decay::Channel, Erase::Delta, Gate::Bounded, Beta::Sigmoid, true},
    {"gated_delta", "S = alpha (I - beta k k^T) S + beta k v^T, alpha per head",
     Decay::Head, Erase::Delta, Gate::Softplus, Beta::Sigmoid, true},
    {"delta", "S = (I - beta k k^T) S + beta k v^T",
     Decay::None, Erase::Delta, Gate::None, Beta::Sigmoid, true},
    {"gla", "S = Diag(alpha) S + k v^T, alpha per channel",
     Decay::Channel, Erase::None, Gate::Identity, Beta::None, false},
    {"simple_gla", "S = alpha S + k v^T, alpha per head and token",
     Decay::Head, Erase::None, Gate::Identity, Beta::None, false},
    {"retention", "S = gamma S + k v^T, gamma constant per head",
     Decay::HeadConstant, Erase::None, Gate::Identity, Beta::None, false},
    {"linear", "S = S + k v^T",
     Decay::None, Erase::None, Gate::None, Beta::None, false},
    {"dplr", "S = (Diag(alpha) + a b^T) S + k v^T, alpha per channel",
     Decay::Channel, Erase::Pair, Gate::Identity, Beta::None, false},
  };
  // clang-format on
  return table;
}

const Recurrence *findRecurrence(std::string_view name) {
  for (const Recurrence &row : recurrences())
    if (row.name == name)
      return &row;
  return nullptr;
}

} // namespace kdac
