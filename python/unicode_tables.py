#!/usr/bin/env python3
"""unicode_tables.py > lib/Model/UnicodeTables.cpp: what the tokenizer's split
pattern must know of Unicode: general categories, grouped as the pattern groups
them, and the script Han (Scripts.txt of Unicode 15; Python has no scripts). ./dev format does the rest.
"""
import unicodedata

GROUPS = {"Lu": "Upper", "Lt": "Upper", "Ll": "Lower", "Lm": "OtherLetter",
          "Lo": "OtherLetter", "Mn": "Mark", "Mc": "Mark", "Me": "Mark",
          "Nd": "Number", "Nl": "Number", "No": "Number"}
HAN = """2E80-2E99 2E9B-2EF3 2F00-2FD5 3005 3007 3021-3029 3038-303B 3400-4DBF
4E00-9FFF F900-FA6D FA70-FAD9 16FE2-16FE3 16FF0-16FF1 20000-2A6DF 2A700-2B739
2B740-2B81D 2B820-2CEA1 2CEB0-2EBE0 2F800-2FA1D 30000-3134A 31350-323AF"""


def ranges():
    begin, group = 0, None
    for code in range(0x110001):
        next_group = GROUPS.get(unicodedata.category(chr(code))) \
            if code < 0x110000 else None
        if next_group != group:
            if group:
                yield begin, code - 1, group
            begin, group = code, next_group


print(f"""// Written by python/unicode_tables.py from Unicode \
{unicodedata.unidata_version}.
#include "Unicode.h"

namespace kdac::model {{

const std::vector<CategoryRange> &categoryRanges() {{
  using enum_ = Category;
  static const std::vector<CategoryRange> ranges = {{""".replace(
      "  using enum_ = Category;\n", ""))
for begin, end, group in ranges():
    print(f"    {{{begin:#x}, {end:#x}, Category::{group}}},")
print("""  };
  return ranges;
}

const std::vector<CategoryRange> &hanRanges() {
  static const std::vector<CategoryRange> ranges = {""")
for text in HAN.split():
    begin, _, end = text.partition("-")
    print(f"    {{0x{begin.lower()}, 0x{(end or begin).lower()}, "
          "Category::OtherLetter},")
print("""  };
  return ranges;
}

} // namespace kdac::model""")
