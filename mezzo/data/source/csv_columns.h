#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mezzo/data/dataset.h"
#include "mezzo/data/source/text_lines.h"

/// The headers of a CSV folder; internal. Errors are IoErrors with the header and the options that
/// name its columns.
namespace mezzo::data {

/// The fields of a line.
using Fields = std::vector<std::string_view>;

/// Splits a line. Quotes around a whole field do not belong to it; a separator inside them does
/// not count as text.
void split_csv(std::string_view line, Separator separator, Fields& fields);

/// The columns of edges.csv; without a header the source and the destination.
struct EdgeColumns {
  Separator separator = Separator::kComma;
  bool has_header = false;
  std::size_t count = 2;
  std::size_t src = 0, dst = 1;
  std::optional<std::size_t> weight = {};
};

/// The columns by the first line, which is a header unless all its fields are integers. Other
/// columns are an error unless src and dst are named.
EdgeColumns edge_columns(const TextLines& lines, std::string_view first_line,
                         const CsvColumns& names);

/// The columns of nodes.csv, in any order; those without another meaning are features.
struct NodeColumns {
  struct Feature {
    std::size_t column;
    std::string name;
  };
  Separator separator = Separator::kComma;
  std::size_t count = 0;
  std::size_t id = 0, label = 0;
  std::optional<std::size_t> split = {};
  std::vector<Feature> features = {};

  std::int64_t num_features() const { return static_cast<std::int64_t>(features.size()); }
};

/// The columns by the header.
NodeColumns node_columns(const TextLines& lines, std::string_view header, const CsvColumns& names);

}  // namespace mezzo::data
