#include "kdac/Reference/Places.h"
#include "kdac/Reference/Case.h"

#include <algorithm>
#include <numeric>

namespace kdac::reference {

/// Of the tables of cases.
constexpr int64_t tableSlots = 3, tablePage = 4, firstPosition = 2;
constexpr int64_t farAway = 1000000000; ///< outside of everything

int64_t PageTable::placeOf(int64_t slot, int64_t position) const {
  if (slot < 0 || slot >= slots || position < 0 ||
      position >= pagesOfSlot * page)
    return -1;
  int64_t number =
      pages[static_cast<size_t>(slot * pagesOfSlot + position / page)];
  int64_t place = number * page + position % page;
  return number >= 0 && place < rows ? place : -1;
}

int64_t usualRank(const Variant &variant, int64_t columns) {
  int64_t access = 16 / dtypeSize(variant.dtype);
  return std::min(columns - columns / 9 / access * access,
                  variant.width / access * access);
}

/// Pages in an order that is not theirs, no entry and a wild one among them.
PageTable pageTableOf(const Case &c) {
  PageTable table;
  table.slots = tableSlots;
  table.page = tablePage;
  table.pagesOfSlot = (c.tokens() / tableSlots + firstPosition) / tablePage + 2;
  int64_t count = table.slots * table.pagesOfSlot;
  table.rows = count * table.page;
  table.pages.resize(static_cast<size_t>(count));
  std::iota(table.pages.rbegin(), table.pages.rend(), 0);
  for (int64_t i = 0; i < count; ++i)
    if (i % 7 == 3 || i % 11 == 5)
      table.pages[static_cast<size_t>(i)] = i % 7 == 3 ? -1 : farAway;
  return table;
}

int64_t slotOfRow(const Case &, int64_t row) {
  return row % 10 == 4   ? -1
         : row % 10 == 7 ? tableSlots
         : row % 50 == 8 ? farAway
                         : row % tableSlots;
}

int64_t positionOfRow(const Case &c, int64_t row) {
  int64_t usual = row / tableSlots + firstPosition;
  PageTable table = pageTableOf(c);
  return row % 20 == 5    ? -1
         : row % 20 == 11 ? table.pagesOfSlot * table.page
         : row % 50 == 19 ? farAway
                          : usual;
}

std::vector<int64_t> placesOf(const Case &c) {
  PageTable table = pageTableOf(c);
  std::vector<int64_t> places;
  for (int64_t t = 0; t < c.tokens(); ++t)
    places.push_back(table.placeOf(slotOfRow(c, t), positionOfRow(c, t)));
  return places;
}

PlacedRows placedRows(const Case &c, const std::vector<double> &expected) {
  const Buffer &out = *c.find("out");
  int64_t width = out.layout().width;
  std::vector<int64_t> places = placesOf(c);
  places.erase(std::remove(places.begin(), places.end(), -1), places.end());
  auto count = static_cast<int64_t>(places.size());
  PlacedRows rows = {Buffer("out", ArgKind::Output, out.dtype(),
                            Layout{count, 1, width, width}),
                     {}};
  for (int64_t i = 0; i < count; ++i)
    for (int64_t column = 0; column < width; ++column) {
      int64_t place = places[static_cast<size_t>(i)];
      if (!out.isPoison(place, 0, column)) // else it stays as it is made
        rows.actual.set(i, 0, column, out.get(place, 0, column));
      rows.expected.push_back(
          expected[static_cast<size_t>(place * width + column)]);
    }
  return rows;
}

std::string placeFailure(const Case &c) {
  const Buffer &out = *c.find("out");
  std::vector<int64_t> places = placesOf(c);
  std::sort(places.begin(), places.end());
  for (int64_t row = 0; row < out.layout().tokens; ++row) {
    if (std::binary_search(places.begin(), places.end(), row))
      continue;
    for (int64_t column = 0; column < out.layout().width; ++column)
      if (!out.isPoison(row, 0, column))
        return "row " + std::to_string(row) +
               " of out was written, which is no row's place";
  }
  return {};
}

} // namespace kdac::reference
