#include <algorithm>

#include <ATen/ATen.h>

#include "mezzo/data/formats.h"
#include "mezzo/data/source/source_support.h"

namespace mezzo::data {
namespace {

/// The first line of nodes.csv.
struct NodeColumns {
  std::size_t count = 0;
  std::size_t first_feature = 0;
  bool has_split = false;

  std::int64_t num_features() const { return static_cast<std::int64_t>(count - first_feature); }
};

/// The columns of nodes.csv except the features.
struct NodeTable {
  IdRanks rank;
  bool ascending = false;  // the lines are in the order of the ids
  NodeLabels labels;
  std::optional<GraphSource::Masks> masks;
};

Role role_of_field(const TextLines& lines, std::string_view field) {
  if (field.empty()) return Role::kNone;
  if (field == "train") return Role::kTrain;
  if (field == "val") return Role::kVal;
  lines.check(field == "test", "split '{}', expected train, val, test or nothing", field);
  return Role::kTest;
}

NodeColumns read_node_columns(TextLines& lines) {
  std::string_view line;
  std::vector<std::string_view> names;
  require(lines.next(line), lines.where(), "the file is empty");
  split_fields(line, Separator::kComma, names);
  lines.check(names.size() >= 2 && names[0] == "id" && names[1] == "label",
              "expected a header 'id,label[,split],<features>'");
  const bool has_split = names.size() > 2 && names[2] == "split";
  return {.count = names.size(), .first_feature = has_split ? 3U : 2U, .has_split = has_split};
}

/// A folder with edges.csv (two node ids a line; a first line `src,dst` is a header) and, unless
/// the graph has no node data, nodes.csv (either may be a .csv.gz): a header
/// `id,label[,split],<names of features>`, then a line a node, in any order. Nodes are numbered by
/// ascending id. label: an integer or empty; if all are empty, the data have no labels; split:
/// train, val, test or empty. Edges are taken as they are. Memory: the ids, labels and splits. If
/// the lines are not in id order, features() reads the file once per chunk.
class CsvSource : public GraphSource {
 public:
  CsvSource(const std::filesystem::path& folder, const LoadOptions& options)
      : folder_(folder),
        edges_(plain_or_packed(folder_ / "edges.csv")),
        nodes_(plain_or_packed(folder_ / "nodes.csv")),
        has_nodes_(std::filesystem::exists(nodes_)),
        on_lines_(options.on_lines) {
    refuse_named_split(options, folder.string());
  }

  SourceHeader header() override {
    std::int64_t num_features = 0;
    if (has_nodes_) {
      TextLines lines(nodes_);
      num_features = read_node_columns(lines).num_features();
    }
    return {.name = name_of_path(folder_),
            .num_nodes = table().rank.size(),
            .num_features = num_features};
  }

  void edges(const TakeEdges& take) override {
    const IdRanks& rank = table().rank;
    EdgePieces pieces(take);
    for_each_edge([&](const TextLines& lines, std::int64_t src, std::int64_t dst) {
      const std::int64_t from = rank(src), to = rank(dst);
      const bool known = from >= 0 && to >= 0;
      lines.check(known || has_nodes_, kFileChanged);
      lines.check(known, "node {} is not in nodes.csv", from < 0 ? src : dst);
      pieces.add(from, to);
    });
    pieces.finish();
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

  NodeLabels labels() override { return table().labels; }
  std::optional<Masks> masks() override { return table().masks; }

 private:
  using Fields = std::vector<std::string_view>;

  template <class Edge>
  void for_each_edge(Edge&& edge) const {
    TextLines lines(edges_, on_lines_);
    std::string_view line;
    Fields fields;
    while (lines.next(line)) {
      if (line.empty()) continue;
      split_fields(line, Separator::kComma, fields);
      if (lines.number() == 1 && fields == Fields{"src", "dst"}) continue;
      const auto [src, dst] = edge_of_fields(lines, fields);
      edge(lines, src, dst);
    }
  }

  /// Calls row(lines, columns, id, fields) for each line of nodes.csv below its header.
  template <class Row>
  void for_each_node(Row&& row) const {
    TextLines lines(nodes_, on_lines_);
    const NodeColumns columns = read_node_columns(lines);
    std::string_view line;
    Fields fields;
    while (lines.next(line)) {
      if (line.empty()) continue;
      split_fields(line, Separator::kComma, fields);
      lines.check(fields.size() == columns.count, "{} columns, the header has {}", fields.size(),
                  columns.count);
      const std::int64_t id = lines.integer(fields[0]);
      lines.check(id >= 0, "node id {} is negative", id);
      row(lines, columns, id, fields);
    }
  }

  const NodeTable& table() {
    if (!table_) table_.emplace(has_nodes_ ? read_nodes() : nodes_of_edges());
    return *table_;
  }

  /// The nodes that occur in edges.csv.
  NodeTable nodes_of_edges() const {
    IdCollector ids;
    for_each_edge([&](const TextLines& /*lines*/, std::int64_t src, std::int64_t dst) {
      ids.add(src);
      ids.add(dst);
    });
    IdRanks rank(ids.finish());
    require(rank.size() > 0, edges_.string(), "no edges, and nodes.csv is missing");
    return {.rank = std::move(rank), .labels = {}, .masks = {}};
  }

  IdRanks read_ids(bool& ascending) const {
    std::vector<std::int64_t> ids;
    for_each_node([&](const TextLines& /*lines*/, const NodeColumns& /*columns*/, std::int64_t id,
                      const Fields& /*fields*/) { ids.push_back(id); });
    require(!ids.empty(), nodes_.string(), "no nodes");
    ascending = std::is_sorted(ids.begin(), ids.end());
    std::sort(ids.begin(), ids.end());
    const auto twice = std::adjacent_find(ids.begin(), ids.end());
    require(twice == ids.end(), nodes_.string(), "node {} occurs twice",
            twice == ids.end() ? 0 : *twice);
    return IdRanks(std::move(ids));
  }

  NodeTable read_nodes() const {
    bool ascending = false;
    IdRanks rank = read_ids(ascending);
    std::vector<std::int64_t> values(static_cast<std::size_t>(rank.size()), kNoLabel);
    SplitBuilder split(rank.size());
    bool has_split = false, has_label = false;
    for_each_node([&](const TextLines& lines, const NodeColumns& columns, std::int64_t id,
                      const Fields& fields) {
      const std::int64_t node = rank(id);
      lines.check(node >= 0, kFileChanged);
      const std::int64_t label = label_of_field(lines, fields[1]);
      values[static_cast<std::size_t>(node)] = label;
      has_label = has_label || label != kNoLabel;
      has_split = columns.has_split;
      const Role role = has_split ? role_of_field(lines, fields[2]) : Role::kNone;
      if (role != Role::kNone) split.assign(node, role, [&] { return lines.where(); });
    });
    NodeLabels labels =
        has_label ? node_labels(at::tensor(values, at::kLong), std::nullopt, nodes_.string())
                  : NodeLabels();
    if (!has_split) require_all_labelled(labels, nodes_.string());
    std::optional<Masks> masks;
    if (has_split && has_label) masks = split.masks(labels.has_label);
    return {.rank = std::move(rank),
            .ascending = ascending,
            .labels = std::move(labels),
            .masks = std::move(masks)};
  }

  static void read_features(const TextLines& lines, const NodeColumns& columns,
                            const Fields& fields, std::int64_t width, float* row) {
    lines.check(columns.num_features() == width, kFileChanged);
    for (std::size_t i = columns.first_feature; i < columns.count; ++i) {
      row[i - columns.first_feature] = feature_of_field(lines, fields[i]);
    }
  }

  void take_nodes_in_order(std::int64_t width, const TakeRows& take) {
    const IdRanks& rank = table().rank;
    RowPieces pieces(width, take);
    std::int64_t next = 0;
    for_each_node([&](const TextLines& lines, const NodeColumns& columns, std::int64_t id,
                      const Fields& fields) {
      lines.check(rank(id) == next++, kFileChanged);
      read_features(lines, columns, fields, width, pieces.next_row());
    });
    pieces.finish();
  }

  /// One chunk, from lines in any order.
  void take_scattered_nodes(std::int64_t begin, std::int64_t end, std::int64_t width,
                            const TakeRows& take) {
    const IdRanks& rank = table().rank;
    at::Tensor rows = at::zeros({end - begin, width}, at::kFloat);
    auto* const data = rows.mutable_data_ptr<float>();
    std::int64_t missing = end - begin;
    for_each_node([&](const TextLines& lines, const NodeColumns& columns, std::int64_t id,
                      const Fields& fields) {
      const std::int64_t node = rank(id);
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
  std::function<void()> on_lines_;
  std::optional<NodeTable> table_;
};

}  // namespace

extern const Format kCsvFormat = {"CSV folder", {"edges.csv", "edges.csv.gz"}, open_as<CsvSource>};

}  // namespace mezzo::data
