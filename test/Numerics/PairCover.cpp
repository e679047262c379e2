#include "PairCover.h"

#include "kdac/Reference/Random.h"

#include <set>
#include <tuple>

namespace kdac::reference {

namespace {

using Pair = std::tuple<size_t, int, size_t, int>;
using Pairs = std::set<Pair>;

template <typename Visit> void forEachPair(const Levels &row, Visit visit) {
  for (size_t i = 0; i < row.size(); ++i)
    for (size_t j = i + 1; j < row.size(); ++j)
      visit(Pair(i, row[i], j, row[j]));
}

/// Draws normalised rows.
class Drawer {
public:
  Drawer(const std::vector<int> &levelCounts,
         const std::function<void(Levels &)> &normalise, uint64_t seed)
      : levelCounts(levelCounts), normalise(normalise), random(seed, 1) {}

  /// A random row, with one pair fixed before normalisation if given.
  Levels draw(const Pair *pair = nullptr) {
    Levels row;
    for (int count : levelCounts)
      row.push_back(static_cast<int>(random.uniform(counter++) * count));
    if (pair) {
      row[std::get<0>(*pair)] = std::get<1>(*pair);
      row[std::get<2>(*pair)] = std::get<3>(*pair);
    }
    normalise(row);
    return row;
  }

private:
  const std::vector<int> &levelCounts;
  const std::function<void(Levels &)> &normalise;
  Random random;
  uint64_t counter = 0;
};

size_t countIn(const Levels &row, const Pairs &open) {
  size_t count = 0;
  forEachPair(row, [&](const Pair &pair) { count += open.count(pair); });
  return count;
}

} // namespace

std::vector<Levels> coverPairs(const std::vector<int> &levelCounts,
                               const std::function<void(Levels &)> &normalise,
                               uint64_t seed) {
  constexpr int samples = 20000, candidates = 60;
  Drawer drawer(levelCounts, normalise, seed);
  Pairs open;
  for (int i = 0; i < samples; ++i)
    forEachPair(drawer.draw(), [&](const Pair &pair) { open.insert(pair); });
  std::vector<Levels> rows;
  while (!open.empty()) {
    Levels best;
    size_t bestCount = 0;
    for (int i = 0; i < candidates || bestCount == 0; ++i) {
      Pair wanted = *open.begin();
      Levels row = drawer.draw(&wanted);
      if (size_t count = countIn(row, open); count > bestCount) {
        best = row;
        bestCount = count;
      }
    }
    forEachPair(best, [&](const Pair &pair) { open.erase(pair); });
    rows.push_back(best);
  }
  return rows;
}

} // namespace kdac::reference
