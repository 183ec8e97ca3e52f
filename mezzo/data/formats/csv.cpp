#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include <ATen/ATen.h>

#include "mezzo/data/formats.h"
#include "mezzo/data/source/csv_columns.h"
#include "mezzo/data/source/node_ids.h"
#include "mezzo/data/source/source_support.h"

namespace mezzo::data {
namespace {

/// The columns of nodes.csv except the features.
struct NodeTable {
  NodeIds rank;
  bool ascending = false;  // the lines are in the order of the ids
  TargetLabels labels = {};
  std::vector<std::string> class_names = {};  // if the labels are words
  std::optional<GraphSource::Masks> masks = {};
};

Role role_of_field(const TextLines& lines, std::string_view field) {
  if (field.empty()) return Role::kNone;
  if (field == "train") return Role::kTrain;
  if (field == "val" || field == "valid") return Role::kVal;
  lines.check(field == "test", "split '{}', expected train, val, valid, test or nothing", field);
  return Role::kTest;
}

/// Whether a cell has no value, as pandas and R write it.
bool is_missing(std::string_view cell) {
  return cell.empty() || cell == "NA" || cell == "nan" || cell == "NaN";
}

/// The ids of nodes.csv, in the order of its lines.
template <class Id>
NodeIds distinct_ids(std::vector<Id> ids, bool& ascending, const std::string& where) {
  require(!ids.empty(), where, "no nodes");
  ascending = std::is_sorted(ids.begin(), ids.end());
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  require(twice == ids.end(), where, "node {} occurs twice", twice == ids.end() ? Id() : *twice);
  return NodeIds(std::move(ids));
}

/// A folder with edges.csv (two columns of node ids; a header unless its first line has integers
/// only) and, unless the graph has no node data, nodes.csv (either may be a .csv.gz): a header with
/// the columns id, label and perhaps split, the others are features; then a line a node, in any
/// order. See csv_columns.h. Nodes are numbered by ascending id. Ids: integers, or words if one is
/// no integer. label: an integer or is_missing(), words if one is no number, which are numbered in
/// the order of their bytes, or numbers if one is no integer or the task says so; if all are
/// missing, the data have no labels. split: train, val (or
/// valid), test or empty. Edges are taken as they are. Memory: the ids, labels and splits. If the
/// lines are not in id order, features() reads the file once per chunk.
class CsvSource : public GraphSource {
 public:
  CsvSource(const std::filesystem::path& folder, const LoadOptions& options)
      : folder_(folder),
        edges_(plain_or_packed(folder_ / "edges.csv")),
        nodes_(plain_or_packed(folder_ / "nodes.csv")),
        has_nodes_(std::filesystem::exists(nodes_)),
        names_(options.csv),
        task_(options.task),
        on_lines_(options.on_lines) {
    refuse_named_split(options, folder.string());
  }

  SourceHeader header() override {
    std::int64_t num_features = 0;
    if (has_nodes_) {
      TextLines lines(nodes_);
      num_features = read_header(lines).num_features();
    }
    return {.name = name_of_path(folder_),
            .num_nodes = table().rank.size(),
            .num_features = num_features,
            .class_names = table().class_names,
            .metric = usual_metric(label_kind_of(table().labels.labels))};
  }

  void edges(const TakeEdges& take) override {
    const NodeIds& rank = table().rank;
    EdgePieces pieces(take);
    for_each_edge([&](const TextLines& lines, std::string_view src, std::string_view dst) {
      const std::int64_t from = rank(lines, src), to = rank(lines, dst);
      const bool known = from >= 0 && to >= 0;
      lines.check(known || has_nodes_, kFileChanged);
      lines.check(known, "node {} is not in nodes.csv", from < 0 ? src : dst);
      pieces.add(from, to);
    });
    pieces.finish();
  }

  at::Tensor edge_weights() override {
    if (names_.weight.empty()) return {};
    std::vector<float> weights;
    for_each_edge_line([&](const TextLines& lines, const EdgeColumns& columns,
                           const Fields& fields) {
      const std::string_view cell = fields[*columns.weight];
      weights.push_back(static_cast<float>(lines.real(cell)));
      lines.check(std::isfinite(weights.back()), "edge weight {} is not finite in float32", cell);
    });
    return at::tensor(weights, at::kFloat);
  }

  void features(const TakeRows& take) override {
    const std::int64_t width = header().num_features;
    if (width == 0) return;
    const std::int64_t num_nodes = table().rank.size();
    if (table().ascending) return take_nodes_in_order(width, take);
    const std::int64_t step = rows_of_piece(width);
    for (std::int64_t begin = 0; begin < num_nodes; begin += step) {
      take_scattered_nodes(begin, std::min(begin + step, num_nodes), width, take);
    }
  }

  TargetLabels labels() override { return table().labels; }
  std::optional<Masks> masks() override { return table().masks; }

 private:
  /// Calls edge(lines, src, dst) for each line of edges.csv below its header.
  template <class Edge>
  void for_each_edge(Edge&& edge) const {
    for_each_edge_line(
        [&](const TextLines& lines, const EdgeColumns& columns, const Fields& fields) {
          edge(lines, fields[columns.src], fields[columns.dst]);
        });
  }

  /// The same with row(lines, columns, fields).
  template <class Row>
  void for_each_edge_line(Row&& row) const {
    TextLines lines(edges_, on_lines_);
    std::optional<EdgeColumns> columns;
    std::string_view line;
    Fields fields;
    while (lines.next(line)) {
      if (line.empty()) continue;
      if (!columns) {
        columns = edge_columns(lines, line, names_);
        if (columns->has_header) continue;
      }
      split_csv(line, columns->separator, fields);
      lines.check(fields.size() == columns->count,
                  "expected two node ids in {} columns, got {} columns", columns->count,
                  fields.size());
      row(lines, *columns, fields);
    }
  }

  NodeColumns read_header(TextLines& lines) const {
    std::string_view header;
    require(lines.next(header), lines.where(), "the file is empty");
    return node_columns(lines, header, names_);
  }

  /// Calls row(lines, columns, fields) for each line of nodes.csv below its header.
  template <class Row>
  void for_each_node(Row&& row) const {
    TextLines lines(nodes_, on_lines_);
    const NodeColumns columns = read_header(lines);
    std::string_view line;
    Fields fields;
    while (lines.next(line)) {
      if (line.empty()) continue;
      split_csv(line, columns.separator, fields);
      lines.check(fields.size() == columns.count, "{} columns, the header has {}", fields.size(),
                  columns.count);
      row(lines, columns, fields);
    }
  }

  const NodeTable& table() {
    if (!table_) table_.emplace(has_nodes_ ? read_nodes() : NodeTable{.rank = ids_of_edges()});
    return *table_;
  }

  /// The nodes that occur in edges.csv.
  NodeIds ids_of_edges() const {
    IdCollector ids;
    bool are_words = false;
    for_each_edge([&](const TextLines& lines, std::string_view src, std::string_view dst) {
      for (const std::string_view field : {src, dst}) {
        if (are_words) return;
        const std::optional<std::int64_t> id = integer_id(lines, field);
        are_words = !id;
        if (id) ids.add(*id);
      }
    });
    if (are_words) return words_of_edges();
    NodeIds rank(ids.finish());
    require(rank.size() > 0, edges_.string(), "no edges, and nodes.csv is missing");
    return rank;
  }

  NodeIds words_of_edges() const {
    std::set<std::string, std::less<>> words;
    for_each_edge([&](const TextLines& lines, std::string_view src, std::string_view dst) {
      for (const std::string_view id : {src, dst}) {
        if (!words.contains(id)) words.insert(word_id(lines, id));
      }
    });
    return NodeIds(std::vector<std::string>(words.begin(), words.end()));
  }

  /// What the cells of the label column are.
  struct LabelCells {
    bool words = false;     ///< some are no numbers
    bool decimals = false;  ///< some are numbers, but no integers

    void add(const TextLines& lines, std::string_view cell) {
      if (is_missing(cell)) return;
      words = words || !is_number(cell);
      if (words || decimals) return;
      const double value = lines.real(cell);
      decimals = value != std::floor(value);
    }
    LabelKind kind() const { return decimals && !words ? LabelKind::kNumbers : LabelKind::kClass; }
  };

  /// Also reads the label column.
  NodeIds ids_of_nodes(bool& ascending, LabelCells& labels) const {
    std::vector<std::int64_t> ids;
    bool are_words = false;
    for_each_node([&](const TextLines& lines, const NodeColumns& columns, const Fields& fields) {
      labels.add(lines, fields[columns.label]);
      if (are_words) return;
      const std::optional<std::int64_t> id = integer_id(lines, fields[columns.id]);
      are_words = !id;
      if (id) ids.push_back(*id);
    });
    if (!are_words) return distinct_ids(std::move(ids), ascending, nodes_.string());
    std::vector<std::string> words;
    for_each_node([&](const TextLines& lines, const NodeColumns& columns, const Fields& fields) {
      words.push_back(word_id(lines, fields[columns.id]));
    });
    return distinct_ids(std::move(words), ascending, nodes_.string());
  }

  /// The distinct labels, in the order of their bytes.
  std::vector<std::string> words_of_labels() const {
    std::set<std::string, std::less<>> words;
    for_each_node(
        [&](const TextLines& /*lines*/, const NodeColumns& columns, const Fields& fields) {
          const std::string_view label = fields[columns.label];
          if (!is_missing(label) && !words.contains(label)) words.emplace(label);
        });
    return {words.begin(), words.end()};
  }

  static std::int64_t class_of(const TextLines& lines, std::string_view label,
                               const std::vector<std::string>& names) {
    if (is_missing(label)) return kNoLabel;
    if (names.empty()) return label_of_field(lines, label);
    const auto name = std::lower_bound(names.begin(), names.end(), label);
    lines.check(name != names.end() && *name == label, kFileChanged);
    return name - names.begin();
  }

  NodeTable read_nodes() const {
    bool ascending = false;
    LabelCells cells;
    NodeIds rank = ids_of_nodes(ascending, cells);
    const bool are_numbers = (task_ ? task_->labels : cells.kind()) == LabelKind::kNumbers;
    std::vector<std::string> names;
    if (cells.words && !are_numbers) names = words_of_labels();
    const auto num_nodes = static_cast<std::size_t>(rank.size());
    std::vector<std::int64_t> classes(are_numbers ? 0 : num_nodes, kNoLabel);
    std::vector<float> numbers(are_numbers ? num_nodes : 0);
    SplitBuilder split(rank.size());
    bool has_split = false, has_label = false;
    for_each_node([&](const TextLines& lines, const NodeColumns& columns, const Fields& fields) {
      const std::int64_t node = rank(lines, fields[columns.id]);
      lines.check(node >= 0, kFileChanged);
      const std::string_view label = fields[columns.label];
      const auto row = static_cast<std::size_t>(node);
      has_label = has_label || !is_missing(label);
      if (are_numbers) {
        numbers[row] = is_missing(label) ? std::nanf("") : feature_of_field(lines, label);
      } else {
        classes[row] = class_of(lines, label, names);
      }
      has_split = columns.split.has_value();
      const Role role = has_split ? role_of_field(lines, fields[*columns.split]) : Role::kNone;
      if (role != Role::kNone) split.assign(node, role, [&] { return lines.where(); });
    });
    std::optional<std::int64_t> num_classes;
    if (!names.empty()) num_classes = static_cast<std::int64_t>(names.size());
    TargetLabels labels;
    if (has_label) {
      labels = are_numbers
                   ? number_labels(at::tensor(numbers, at::kFloat), nodes_.string())
                   : class_labels(at::tensor(classes, at::kLong), num_classes, nodes_.string());
    }
    if (!has_split) require_all_labelled(labels, nodes_.string());
    std::optional<Masks> masks;
    if (has_split && has_label) masks = split.masks(labels.has_label);
    return {.rank = std::move(rank),
            .ascending = ascending,
            .labels = std::move(labels),
            .class_names = std::move(names),
            .masks = std::move(masks)};
  }

  static void read_features(const TextLines& lines, const NodeColumns& columns,
                            const Fields& fields, std::int64_t width, float* row) {
    lines.check(columns.num_features() == width, kFileChanged);
    for (const NodeColumns::Feature& feature : columns.features) {
      const std::string_view cell = fields[feature.column];
      lines.check(!is_missing(cell), "expected a number in column {} '{}', got no value ('{}')",
                  feature.column + 1, feature.name, cell);
      *row++ = feature_of_field(lines, cell);
    }
  }

  void take_nodes_in_order(std::int64_t width, const TakeRows& take) {
    const NodeIds& rank = table().rank;
    RowPieces pieces(width, take);
    std::int64_t next = 0;
    for_each_node([&](const TextLines& lines, const NodeColumns& columns, const Fields& fields) {
      lines.check(rank(lines, fields[columns.id]) == next++, kFileChanged);
      read_features(lines, columns, fields, width, pieces.next_row());
    });
    pieces.finish();
  }

  /// One chunk, from lines in any order.
  void take_scattered_nodes(std::int64_t begin, std::int64_t end, std::int64_t width,
                            const TakeRows& take) {
    const NodeIds& rank = table().rank;
    at::Tensor rows = at::zeros({end - begin, width}, at::kFloat);
    auto* const data = rows.mutable_data_ptr<float>();
    std::int64_t missing = end - begin;
    for_each_node([&](const TextLines& lines, const NodeColumns& columns, const Fields& fields) {
      const std::int64_t node = rank(lines, fields[columns.id]);
      lines.check(node >= 0, kFileChanged);
      if (node < begin || node >= end) return;
      read_features(lines, columns, fields, width, data + (node - begin) * width);
      --missing;
    });
    require(missing == 0, nodes_.string(), kFileChanged);
    take(rows);
  }

  std::filesystem::path folder_, edges_, nodes_;
  bool has_nodes_;
  CsvColumns names_;
  std::optional<Task> task_;
  std::function<void()> on_lines_;
  std::optional<NodeTable> table_;
};

}  // namespace

extern const Format kCsvFormat = {
    kCsvFormatName, {"edges.csv", "edges.csv.gz"}, open_as<CsvSource>};

}  // namespace mezzo::data
