#include "mezzo/data/source/csv_labels.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <ATen/ATen.h>

#include "mezzo/data/source/source_support.h"

namespace mezzo::data {
namespace {

Role role_of_field(const TextLines& lines, std::string_view field) {
  if (field.empty()) return Role::kNone;
  if (field == "train") return Role::kTrain;
  if (field == "val" || field == "valid") return Role::kVal;
  lines.check(field == "test", "split '{}', expected train, val, valid, test or nothing", field);
  return Role::kTest;
}

/// The distinct labels, in the order of their bytes.
std::vector<std::string> words_of_labels(const EachLabelRow& each) {
  std::set<std::string, std::less<>> words;
  each([&](const LabelRow& row) {
    if (!is_missing(row.label) && !words.contains(row.label)) words.emplace(row.label);
  });
  return {words.begin(), words.end()};
}

std::int64_t class_of(const LabelRow& row, const std::vector<std::string>& names) {
  if (is_missing(row.label)) return kNoLabel;
  if (names.empty()) return label_of_field(row.lines, row.label);
  const auto name = std::lower_bound(names.begin(), names.end(), row.label);
  row.lines.check(name != names.end() && *name == row.label, kFileChanged);
  return name - names.begin();
}

}  // namespace

bool is_missing(std::string_view cell) {
  return cell.empty() || cell == "NA" || cell == "nan" || cell == "NaN";
}

void LabelCells::add(const TextLines& lines, std::string_view cell) {
  if (is_missing(cell)) return;
  any = true;
  words = words || !is_number(cell);
  if (words || decimals) return;
  const double value = lines.real(cell);
  decimals = value != std::floor(value);
}

LabelColumns read_label_columns(const EachLabelRow& each, const LabelCells& cells,
                                std::optional<LabelKind> wanted, std::int64_t num_targets,
                                TaskTarget of, const std::string& where) {
  LabelColumns columns;
  const bool are_numbers = wanted.value_or(cells.kind()) == LabelKind::kNumbers;
  if (cells.words && !are_numbers) columns.class_names = words_of_labels(each);
  const auto count = static_cast<std::size_t>(num_targets);
  std::vector<std::int64_t> classes(are_numbers ? 0 : count, kNoLabel);
  std::vector<float> numbers(are_numbers ? count : 0, std::nanf(""));
  SplitBuilder split(num_targets, of);
  bool has_split = false, has_label = false;
  each([&](const LabelRow& row) {
    row.lines.check(row.target < num_targets, kFileChanged);
    const auto place = static_cast<std::size_t>(row.target);
    has_label = has_label || !is_missing(row.label);
    if (!are_numbers) {
      classes[place] = class_of(row, columns.class_names);
    } else if (!is_missing(row.label)) {
      numbers[place] = feature_of_field(row.lines, row.label);
    }
    has_split = row.split.has_value();
    const Role role = has_split ? role_of_field(row.lines, *row.split) : Role::kNone;
    if (role != Role::kNone) split.assign(row.target, role, [&] { return row.lines.where(); });
  });
  if (!has_label) return {};
  std::optional<std::int64_t> num_classes;
  if (const std::size_t names = columns.class_names.size(); names > 0) {
    num_classes = static_cast<std::int64_t>(names);
  }
  columns.labels = are_numbers
                       ? number_labels(at::tensor(numbers, at::kFloat), where, of)
                       : class_labels(at::tensor(classes, at::kLong), num_classes, where, of);
  if (has_split) {
    columns.masks = split.masks(columns.labels.has_label);
  } else {
    require_all_labelled(columns.labels, where);
  }
  return columns;
}

}  // namespace mezzo::data
