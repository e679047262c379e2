// Promises: tables for people, the same in every tool. Does not: print.
#ifndef KDAC_TOOLS_TABLE_H
#define KDAC_TOOLS_TABLE_H

#include <string>
#include <vector>

namespace kdac {

/// Rows of cells as lines of aligned columns; the first row is the header.
std::string formatTable(const std::vector<std::vector<std::string>> &rows);

} // namespace kdac

#endif // KDAC_TOOLS_TABLE_H
