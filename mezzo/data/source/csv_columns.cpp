#include "mezzo/data/source/csv_columns.h"

#include <algorithm>
#include <initializer_list>
#include <string>

#include <fmt/ranges.h>

#include "mezzo/data/source/source_support.h"

namespace mezzo::data {
namespace {

constexpr std::string_view kLabelColumn = "label", kSplitColumn = "split";

/// The most frequent separator of a line.
Separator separator_of(std::string_view line) {
  Separator best = Separator::kComma;
  std::ptrdiff_t most = 0;
  for (const Separator separator : {Separator::kComma, Separator::kSemicolon, Separator::kTab}) {
    const auto count = std::count(line.begin(), line.end(), static_cast<char>(separator));
    if (count <= most) continue;
    most = count;
    best = separator;
  }
  return best;
}

/// A header, to look up columns.
class Header {
 public:
  /// rule: what a header should have, for errors.
  Header(const TextLines& lines, const Fields& fields, const char* rule)
      : lines_(lines), fields_(fields), rule_(rule) {}

  /// The column `name`, or if that is empty one of `usual`.
  std::size_t find(const std::string& name, std::initializer_list<std::string_view> usual) const {
    const auto column = name.empty() ? first_of(usual) : first_of({std::string_view(name)});
    lines_.check(column.has_value(), "expected {}{}; the header is '{}'", rule_,
                 name.empty() ? "" : fmt::format("; there is no column '{}'", name), text());
    return *column;
  }

  /// The only column that has one of the names.
  std::optional<std::size_t> first_of(std::initializer_list<std::string_view> names) const {
    for (const std::string_view name : names) {
      const auto place = std::find(fields_.begin(), fields_.end(), name);
      if (place == fields_.end()) continue;
      lines_.check(std::find(place + 1, fields_.end(), name) == fields_.end(),
                   "the header has two columns '{}': '{}'", name, text());
      return static_cast<std::size_t>(place - fields_.begin());
    }
    return std::nullopt;
  }

  std::optional<std::size_t> label(const CsvColumns& names) const {
    return first_of({names.label.empty() ? kLabelColumn : std::string_view(names.label)});
  }

  /// The columns but those with another meaning.
  std::vector<FeatureColumn> features(
      std::initializer_list<std::optional<std::size_t>> others) const {
    std::vector<FeatureColumn> columns;
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      if (std::find(others.begin(), others.end(), i) != others.end()) continue;
      lines_.check(
          !fields_[i].empty(),
          "column {} has no name, as pandas writes its index (to_csv(index=False) does not)",
          i + 1);
      columns.push_back({.column = i, .name = std::string(fields_[i])});
    }
    return columns;
  }

  /// The header for a message, shortened.
  std::string text() const {
    constexpr std::size_t kMostShown = 8;
    const std::size_t shown = std::min(fields_.size(), kMostShown);
    return fmt::format("{}{}", fmt::join(fields_.begin(), fields_.begin() + shown, ","),
                       shown < fields_.size() ? ",..." : "");
  }

 private:
  const TextLines& lines_;
  const Fields& fields_;
  const char* rule_;
};

}  // namespace

void split_csv(const TextLines& lines, std::string_view line, Separator separator, Fields& fields) {
  split_fields(line, separator, fields);
  for (std::string_view& field : fields) {
    if (!field.starts_with('"')) continue;
    lines.check(field.size() >= 2 && field.ends_with('"'),
                "expected a closing quote in the field {}; quoted fields may not contain the "
                "separator '{}'",
                field, static_cast<char>(separator));
    field = field.substr(1, field.size() - 2);
  }
}

bool has_label_column(const TextLines& lines, std::string_view line, const CsvColumns& names) {
  Fields fields;
  split_csv(lines, line, separator_of(line), fields);
  const std::string_view label = names.label.empty() ? kLabelColumn : std::string_view(names.label);
  return std::find(fields.begin(), fields.end(), label) != fields.end();
}

EdgeColumns edge_columns(const TextLines& lines, std::string_view first_line,
                         const CsvColumns& names, bool are_targets) {
  EdgeColumns columns{.separator = separator_of(first_line)};
  Fields fields;
  split_csv(lines, first_line, columns.separator, fields);
  const auto is_integer = [](std::string_view field) {
    return integer_of_field(field).has_value();
  };
  if (std::all_of(fields.begin(), fields.end(), is_integer)) {
    lines.check(names.src.empty() && names.dst.empty() && names.weight.empty(),
                "--src, --dst and --weight name columns of a header, the first line is '{}'",
                first_line);
    lines.check(fields.size() == 2, "expected two columns of node ids, got {}", fields.size());
    return columns;
  }
  const Header header(lines, fields,
                      "the columns 'src' and 'dst', or 'source' and 'target', or those that --src "
                      "and --dst name");
  columns.has_header = true;
  columns.count = fields.size();
  columns.src = header.find(names.src, {"src", "source"});
  columns.dst = header.find(names.dst, {"dst", "target"});
  lines.check(columns.src != columns.dst, "--src and --dst name the same column '{}'",
              fields[columns.src]);
  if (!names.weight.empty()) {
    columns.weight = header.find(names.weight, {});
    lines.check(columns.weight != columns.src && columns.weight != columns.dst,
                "--weight names a column of node ids, '{}'", names.weight);
  }
  if (are_targets) {
    columns.label = header.label(names);
    columns.split = header.first_of({kSplitColumn});
    lines.check(columns.label != columns.src && columns.label != columns.dst,
                "--label names a column of node ids, '{}'", names.label);
    columns.features =
        header.features({columns.src, columns.dst, columns.weight, columns.label, columns.split});
    return columns;
  }
  const std::size_t read = columns.weight ? 3 : 2;
  lines.check(columns.count == read || (!names.src.empty() && !names.dst.empty()),
              "expected no columns but node ids{}; name edge weights with --weight, and to leave "
              "out other columns the node ids with --src and --dst; the header is '{}'",
              columns.weight ? " and weights" : "", header.text());
  return columns;
}

NodeColumns node_columns(const TextLines& lines, std::string_view header_line,
                         const CsvColumns& names, bool needs_label) {
  NodeColumns columns{.separator = separator_of(header_line)};
  Fields fields;
  split_csv(lines, header_line, columns.separator, fields);
  const Header header(lines, fields,
                      "a header with the columns 'id' and 'label', or those that --id and --label "
                      "name");
  columns.count = fields.size();
  columns.id = header.find(names.id, {"id"});
  columns.label = header.label(names);
  if (needs_label) columns.label = header.find(names.label, {kLabelColumn});
  lines.check(columns.id != columns.label, "--id and --label name the same column '{}'",
              fields[columns.id]);
  columns.split = header.first_of({kSplitColumn});
  if (columns.split == columns.id || columns.split == columns.label) columns.split.reset();
  columns.features = header.features({columns.id, columns.label, columns.split});
  return columns;
}

}  // namespace mezzo::data
