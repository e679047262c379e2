// Promises: where form rows' latent stores its rows: the page tables of cases,
// the places that they give, and the rows that a run should have written. Does
// not: run anything.
#ifndef KDAC_REFERENCE_PLACES_H
#define KDAC_REFERENCE_PLACES_H

#include "kdac/Reference/Buffer.h"

#include <string>
#include <vector>

namespace kdac::reference {

class Case;

/// dplr.latent's table [slots, pagesOfSlot] of pages with `page` rows each.
struct PageTable {
  std::vector<int64_t> pages;
  int64_t slots = 0, pagesOfSlot = 0;
  int64_t page = 1; ///< rows of one
  int64_t rows = 0; ///< of all pages together

  /// The row of a slot's position, or -1 where anything is outside.
  int64_t placeOf(int64_t slot, int64_t position) const;
};

/// How many columns of rows of D are normalised in cases and timed calls: about
/// eight ninths, as the models have.
int64_t usualRank(const Variant &variant, int64_t columns);

/// The table of a case and its rows' slots and positions: some of each outside.
PageTable pageTableOf(const Case &c);
int64_t slotOfRow(const Case &c, int64_t row);
int64_t positionOfRow(const Case &c, int64_t row);
/// Where each row of the case goes, or -1.
std::vector<int64_t> placesOf(const Case &c);

/// Rows of `out` that have a place, in the order of the case's rows, beside
/// what the oracle has for them.
struct PlacedRows {
  Buffer actual; ///< [count, 1, D]
  std::vector<double> expected;
};
PlacedRows placedRows(const Case &c, const std::vector<double> &expected);

/// A sentence about a row of `out` that changed and is nobody's place, or "".
std::string placeFailure(const Case &c);

} // namespace kdac::reference

#endif // KDAC_REFERENCE_PLACES_H
