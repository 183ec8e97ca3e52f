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

/// Splits the last line of `lines`. Quotes around a whole field do not belong to it. Throws for a
/// field with an opening quote alone: a separator inside quotes is not read.
void split_csv(const TextLines& lines, std::string_view line, Separator separator, Fields& fields);

/// A column of numbers.
struct FeatureColumn {
  std::size_t column;
  std::string name;
};

/// Whether the header `line` has the column of labels.
bool has_label_column(const TextLines& lines, std::string_view line, const CsvColumns& names);

/// The columns of edges.csv; without a header the source and the destination.
struct EdgeColumns {
  Separator separator = Separator::kComma;
  bool has_header = false;
  std::size_t count = 2;
  std::size_t src = 0, dst = 1;
  std::optional<std::size_t> weight = {};
  std::optional<std::size_t> label = {}, split = {};
  std::vector<FeatureColumn> features = {};
};

/// The columns by the first line, which is a header unless all its fields are integers.
/// are_targets: the edges may have labels and a split, and other columns are features; else other
/// columns are an error unless src and dst are named.
EdgeColumns edge_columns(const TextLines& lines, std::string_view first_line,
                         const CsvColumns& names, bool are_targets);

/// The columns of nodes.csv, in any order; those without another meaning are features.
struct NodeColumns {
  Separator separator = Separator::kComma;
  std::size_t count = 0;
  std::size_t id = 0;
  std::optional<std::size_t> label = {}, split = {};
  std::vector<FeatureColumn> features = {};
};

/// The columns by the header. needs_label: whether there must be a column of labels.
NodeColumns node_columns(const TextLines& lines, std::string_view header, const CsvColumns& names,
                         bool needs_label);

}  // namespace mezzo::data
