#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "mezzo/core/export.h"

namespace mezzo {

/// Lines of cells in aligned columns, two spaces apart, one line a row. The first `left_columns`
/// columns are left-aligned, the others right-aligned. Cells are UTF-8, one column a code point;
/// rows may differ in length.
MEZZO_API std::string format_table(const std::vector<std::vector<std::string>>& rows,
                                   std::size_t left_columns = 1);

/// A table for people.
struct Table {
  std::vector<std::vector<std::string>> rows;
  std::size_t left_columns = 1;  ///< those aligned at the left
  bool has_header = true;        ///< whether the first row has the names of the columns
};

/// format_table() of its rows.
inline std::string format_table(const Table& table) {
  return format_table(table.rows, table.left_columns);
}

/// "0.8150", or "-" for NaN.
MEZZO_API std::string format_score(double score);

/// "512 B", "34.2 MiB"
MEZZO_API std::string format_bytes(std::int64_t bytes);

}  // namespace mezzo
