#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mezzo/data/source/graph_source.h"
#include "mezzo/data/source/text_lines.h"

/// The columns `label` and `split` of a CSV file; internal. Errors are IoErrors with the line.
namespace mezzo::data {

/// Whether a cell has no value, as pandas and R write it.
bool is_missing(std::string_view cell);

/// What the cells of a label column are.
struct LabelCells {
  bool any = false;       ///< some have a value
  bool words = false;     ///< some are no numbers
  bool decimals = false;  ///< some are numbers, but no integers

  void add(const TextLines& lines, std::string_view cell);
  LabelKind kind() const { return decimals && !words ? LabelKind::kNumbers : LabelKind::kClass; }
};

/// A line of a target.
struct LabelRow {
  const TextLines& lines;
  std::int64_t target = 0;  ///< its number in the data set
  std::string_view label;
  std::optional<std::string_view> split = {};  ///< if there is such a column
};

/// Passes each line of a file to a function.
using EachLabelRow = std::function<void(const std::function<void(const LabelRow&)>&)>;

/// The labels and the split of a file.
struct LabelColumns {
  TargetLabels labels = {};                   ///< undefined if no cell has a value
  std::vector<std::string> class_names = {};  ///< if the labels are words
  std::optional<GraphSource::Masks> masks = {};
};

/// Reads the file two or three times. cells: what the column is. wanted: what the labels are, if
/// the cells leave it open. where: the file.
LabelColumns read_label_columns(const EachLabelRow& each, const LabelCells& cells,
                                std::optional<LabelKind> wanted, std::int64_t num_targets,
                                TaskTarget of, const std::string& where);

}  // namespace mezzo::data
