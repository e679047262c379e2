// Promises: rows of one case copied into, and compared with, those of another,
// bit by bit.
// Does not: run kernels.
#ifndef KDAC_TEST_NUMERICS_CASESURGERY_H
#define KDAC_TEST_NUMERICS_CASESURGERY_H

#include "kdac/Reference/Case.h"

namespace kdac::reference {

/// True for tensors of the case with one row for every token.
bool isPerToken(const Buffer &buffer, const Case &c);

/// The first byte of row (token, or sequence of a state) `row`, and their
/// number.
std::byte *rowOf(Buffer &buffer, int64_t row);
const std::byte *rowOf(const Buffer &buffer, int64_t row);
size_t rowBytes(const Buffer &buffer);

/// Copies `count` rows.
void copyRows(const Buffer &from, int64_t first, Buffer &to, int64_t toFirst,
              int64_t count);

/// Copies tokens of every sequence input, and all per-head parameters.
void copyTokens(const Case &from, int64_t first, Case &to, int64_t toFirst,
                int64_t count);

/// Fails the test at the first row that differs in a bit.
void expectSameRows(const Buffer &x, int64_t firstX, const Buffer &y,
                    int64_t firstY, int64_t count, const std::string &what);

/// The same for all of out and ht.
void expectSameOutputs(const Case &x, const Case &y, const std::string &what);

} // namespace kdac::reference

#endif // KDAC_TEST_NUMERICS_CASESURGERY_H
