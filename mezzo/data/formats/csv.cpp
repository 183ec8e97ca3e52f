#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include <ATen/ATen.h>

#include "mezzo/data/formats.h"
#include "mezzo/data/source/csv_columns.h"
#include "mezzo/data/source/csv_labels.h"
#include "mezzo/data/source/node_ids.h"
#include "mezzo/data/source/source_support.h"

namespace mezzo::data {
namespace {

/// The nodes, and what their labels are.
struct NodeTable {
  NodeIds rank;
  bool ascending = false;  // the lines of nodes.csv are in the order of the ids
  LabelCells cells = {};
};

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
/// the column id and perhaps label and split, the others are features; then a line a node, in any
/// order. If edges.csv has a column of labels, or the task is one of edges, it may have a split and
/// features too; else nodes.csv must have one. See csv_columns.h. Nodes are numbered by ascending
/// id. Ids: integers, or words if one is no integer. label: an integer or is_missing(), words if
/// one is no number, which are numbered in the order of their bytes, or numbers if one is no
/// integer or the task says so; if all are missing, the data have no labels. split: train, val (or
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
    TextLines lines(edges_);
    has_edge_labels_ = has_label_column(lines, first_line(lines), names_);
    edges_are_targets_ = has_edge_labels_ || (task_ && task_->target == TaskTarget::kEdge);
  }

  SourceHeader header() override {
    std::size_t num_features = 0;
    if (has_nodes_) {
      TextLines lines(nodes_);
      num_features = read_header(lines).features.size();
    }
    return {.name = name_of_path(folder_),
            .num_nodes = table().rank.size(),
            .num_features = static_cast<std::int64_t>(num_features),
            .num_edge_features = num_edge_features(),
            .class_names = choice().read.class_names,
            .metric = usual_metric(label_kind_of(choice().read.labels.labels)),
            .tasks = choice().tasks};
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

  void edge_features(const TakeRows& take) override {
    const std::int64_t width = num_edge_features();
    if (width == 0) return;
    RowPieces pieces(width, take);
    for_each_edge_line(
        [&](const TextLines& lines, const EdgeColumns& columns, const Fields& fields) {
          read_features(lines, columns.features, fields, width, pieces.next_row());
        });
    pieces.finish();
  }

  TargetLabels labels() override {
    TargetLabels labels = choice().read.labels;
    labels.target = choice().target;
    return labels;
  }
  std::optional<Masks> masks() override { return choice().read.masks; }

 private:
  /// Calls edge(lines, src, dst) for each line of edges.csv below its header.
  template <class Edge>
  void for_each_edge(Edge&& edge) const {
    for_each_edge_line(
        [&](const TextLines& lines, const EdgeColumns& columns, const Fields& fields) {
          const std::string_view src = fields[columns.src], dst = fields[columns.dst];
          lines.check(!src.empty() && !dst.empty(), "expected two node ids, got '{}' and '{}'", src,
                      dst);
          edge(lines, src, dst);
        });
  }

  /// The first line that is not empty; empty without one.
  static std::string_view first_line(TextLines& lines) {
    std::string_view line;
    while (lines.next(line) && line.empty()) {
    }
    return line;
  }

  std::int64_t num_edge_features() const {
    if (!edges_are_targets_) return 0;
    TextLines lines(edges_);
    const std::string_view line = first_line(lines);
    if (line.empty()) return 0;
    return static_cast<std::int64_t>(edge_columns(lines, line, names_, true).features.size());
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
        columns = edge_columns(lines, line, names_, edges_are_targets_);
        if (columns->has_header) continue;
      }
      split_csv(lines, line, columns->separator, fields);
      lines.check(fields.size() == columns->count,
                  "expected two node ids in {} columns, got {} columns", columns->count,
                  fields.size());
      row(lines, *columns, fields);
    }
  }

  NodeColumns read_header(TextLines& lines) const {
    std::string_view header;
    require(lines.next(header), nodes_.string(), "the file is empty, expected a header");
    return node_columns(lines, header, names_, !edges_are_targets_);
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
      split_csv(lines, line, columns.separator, fields);
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

  /// Also reads the label column.
  NodeIds ids_of_nodes(bool& ascending, LabelCells& labels) const {
    std::vector<std::int64_t> ids;
    bool are_words = false;
    for_each_node([&](const TextLines& lines, const NodeColumns& columns, const Fields& fields) {
      if (columns.label) labels.add(lines, fields[*columns.label]);
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

  NodeTable read_nodes() const {
    bool ascending = false;
    LabelCells cells;
    NodeIds rank = ids_of_nodes(ascending, cells);
    return {.rank = std::move(rank), .ascending = ascending, .cells = cells};
  }

  /// The targets whose labels are read: those of the task, else the only ones that have any.
  struct Choice {
    TaskTarget target = TaskTarget::kNode;
    std::vector<Task> tasks = {};
    LabelColumns read = {};
  };

  const Choice& choice() {
    if (choice_) return *choice_;
    Choice choice;
    const LabelCells nodes = table().cells, edges = cells_of_edges();
    if (nodes.any) choice.tasks.push_back({TaskTarget::kNode, nodes.kind()});
    if (edges.any) choice.tasks.push_back({TaskTarget::kEdge, edges.kind()});
    if (edges_are_targets_ && (task_ ? task_->target == TaskTarget::kEdge : !nodes.any)) {
      choice.target = TaskTarget::kEdge;
    }
    const bool of_edges = choice.target == TaskTarget::kEdge;
    const LabelCells& cells = of_edges ? edges : nodes;
    if (cells.any && (task_ || choice.tasks.size() == 1)) {
      std::optional<LabelKind> wanted;
      if (task_ && task_->target == choice.target) wanted = task_->labels;
      const EachLabelRow each = [&](const std::function<void(const LabelRow&)>& row) {
        of_edges ? for_each_label_of_edges(row) : for_each_label_of_nodes(row);
      };
      choice.read =
          read_label_columns(each, cells, wanted, of_edges ? num_edges_ : table().rank.size(),
                             choice.target, (of_edges ? edges_ : nodes_).string());
    }
    return choice_.emplace(std::move(choice));
  }

  void for_each_label_of_nodes(const std::function<void(const LabelRow&)>& row) {
    const NodeIds& rank = table().rank;
    for_each_node([&](const TextLines& lines, const NodeColumns& columns, const Fields& fields) {
      const std::int64_t node = rank(lines, fields[columns.id]);
      lines.check(node >= 0 && columns.label, kFileChanged);
      row({lines, node, fields[*columns.label], cell_of(columns.split, fields)});
    });
  }

  void for_each_label_of_edges(const std::function<void(const LabelRow&)>& row) {
    std::int64_t edge = 0;
    for_each_edge_line(
        [&](const TextLines& lines, const EdgeColumns& columns, const Fields& fields) {
          lines.check(columns.label.has_value(), kFileChanged);
          row({lines, edge++, fields[*columns.label], cell_of(columns.split, fields)});
        });
  }

  static std::optional<std::string_view> cell_of(std::optional<std::size_t> column,
                                                 const Fields& fields) {
    return column ? std::optional(fields[*column]) : std::nullopt;
  }

  /// Also counts the edges, if they have a column of labels.
  LabelCells cells_of_edges() {
    LabelCells cells;
    if (!has_edge_labels_) return cells;
    num_edges_ = 0;
    for_each_edge_line(
        [&](const TextLines& lines, const EdgeColumns& columns, const Fields& fields) {
          lines.check(columns.label.has_value(), kFileChanged);
          cells.add(lines, fields[*columns.label]);
          ++num_edges_;
        });
    return cells;
  }

  static void read_features(const TextLines& lines, const std::vector<FeatureColumn>& columns,
                            const Fields& fields, std::int64_t width, float* row) {
    lines.check(static_cast<std::int64_t>(columns.size()) == width, kFileChanged);
    for (const FeatureColumn& feature : columns) {
      const std::string_view cell = fields[feature.column];
      lines.check(!is_missing(cell), "expected a number in column {} '{}', got no value ('{}')",
                  feature.column + 1, feature.name, cell);
      try {
        *row++ = feature_of_field(lines, cell);
      } catch (const IoError& fault) {
        detail::raise<IoError>("{}, in column {} '{}'", fault.what(), feature.column + 1,
                               feature.name);
      }
    }
  }

  void take_nodes_in_order(std::int64_t width, const TakeRows& take) {
    const NodeIds& rank = table().rank;
    RowPieces pieces(width, take);
    std::int64_t next = 0;
    for_each_node([&](const TextLines& lines, const NodeColumns& columns, const Fields& fields) {
      lines.check(rank(lines, fields[columns.id]) == next++, kFileChanged);
      read_features(lines, columns.features, fields, width, pieces.next_row());
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
      read_features(lines, columns.features, fields, width, data + (node - begin) * width);
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
  bool has_edge_labels_ = false, edges_are_targets_ = false;  // by the header and the task
  std::int64_t num_edges_ = 0;                                // see cells_of_edges
  std::optional<NodeTable> table_;
  std::optional<Choice> choice_;
};

}  // namespace

extern const Format kCsvFormat = {
    kCsvFormatName, {"edges.csv", "edges.csv.gz"}, open_as<CsvSource>};

}  // namespace mezzo::data
