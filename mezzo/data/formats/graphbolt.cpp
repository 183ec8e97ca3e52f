#include "mezzo/data/formats/graphbolt.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/data/formats.h"
#include "mezzo/data/pickle/torch_file.h"
#include "mezzo/data/source/array_pieces.h"

namespace mezzo::data {
namespace {

namespace fs = std::filesystem;

YamlPlace read_metadata(const fs::path& path) {
  try {
    return {YAML::Load(read_file(path)), path.string()};
  } catch (const YAML::Exception& fault) {
    detail::raise<IoError>("{}:{}: not valid YAML: {}", path.string(), fault.mark.line + 1,
                           fault.msg);
  }
}

/// Labels of nodes, streamed with the graph.
class GraphBoltSource : public GraphBoltGraph {
 public:
  GraphBoltSource(const fs::path& folder, const LoadOptions& options)
      : GraphBoltGraph(folder, options), task_(*this, options) {}

  SourceHeader header() override {
    SourceHeader header = GraphBoltGraph::header();
    header.tasks = task_.kinds();
    if (is_of_nodes()) header.metric = usual_metric(task_.kind()->labels);
    return header;
  }
  TargetLabels labels() override { return is_of_nodes() ? known().labels : TargetLabels(); }
  std::optional<Masks> masks() override {
    return is_of_nodes() ? std::optional(known().masks) : std::nullopt;
  }
  std::vector<std::string> split_names() override { return task_.names(); }

  const GraphBoltTask& task() const { return task_; }

 private:
  bool is_of_nodes() const { return task_.kind() && task_.kind()->target == TaskTarget::kNode; }

  const GraphBoltTask::Labels& known() {
    if (!labels_) labels_ = task_.node_labels();
    return *labels_;
  }

  GraphBoltTask task_;
  std::optional<GraphBoltTask::Labels> labels_;
};

std::unique_ptr<GraphSource> open_graphbolt(const fs::path& folder, const LoadOptions& options) {
  auto source = std::make_unique<GraphBoltSource>(folder, options);
  const std::optional<Task>& kind = source->task().kind();
  const bool is_typed = source->edge_types().size() > 1;
  const bool of_nodes = kind && kind->target == TaskTarget::kNode;
  require(!of_nodes || !is_typed, folder.string(),
          "edges of {} types, which are read for links and labels of edges only",
          source->edge_types().size());
  if (of_nodes || (!kind && !is_typed)) return source;
  LoadOptions graph_options = options;
  graph_options.labels_optional = true;
  Dataset dataset = read_all(*source, graph_options, folder.string());
  if (is_typed) {
    dataset.edge_types = source->types_of_edges();
    dataset.num_edge_types = static_cast<std::int64_t>(source->edge_types().size());
  }
  if (kind) {
    source->task().add_to(dataset);
    dataset.split_names = source->split_names();
  }
  return source_of(std::move(dataset));
}

}  // namespace

at::Tensor read_graphbolt_array(const YamlPlace& entry, const fs::path& folder) {
  const std::string format = entry.text("format");
  entry.check(format == "numpy" || format == "torch", "format '{}', expected numpy or torch",
              format);
  const fs::path path = folder / entry.text("path");
  if (format == "numpy") return read_npy(path);
  const std::map<std::string, at::Tensor> arrays = read_torch_file(path);
  require(arrays.count("") == 1, path.string(), "expected a tensor, got a dict");
  return arrays.at("");
}

GraphBoltGraph::GraphBoltGraph(fs::path folder, const LoadOptions& options)
    : folder_(std::move(folder)),
      on_lines_(options.on_lines),
      metadata_(read_metadata(folder_ / "metadata.yaml")) {
  metadata_.check(!metadata_.has("graph_topology"),
                  "a preprocessed folder, expected the input form beside 'preprocessed'");
  const YamlPlace graph = metadata_.at("graph"), nodes = graph.only("nodes");
  num_nodes_ = nodes.count("num");
  nodes.check(num_nodes_ > 0, "no nodes");
  nodes.check(num_nodes_ <= kMostNodes, "{} nodes, expected at most 2^48", num_nodes_);
  node_type_ = nodes.text_if_any("type");
  std::multimap<std::string, YamlPlace> entries;
  for (const YamlPlace& entry : graph.list("edges")) {
    entries.emplace(entry.text_if_any("type"), entry);
  }
  graph.check(!entries.empty(), "'edges' has 0 entries, expected one for each type");
  for (const auto& [type, entry] : entries) {
    entry.check(type.empty() ? node_type_.empty() : !node_type_.empty(),
                "edges of the type '{}' in a graph whose nodes have {} type", type,
                node_type_.empty() ? "no" : "a");
    entry.check(
        type.empty() || (type.starts_with(node_type_ + ":") && type.ends_with(":" + node_type_) &&
                         std::count(type.begin(), type.end(), ':') == 2),
        "edges of the type '{}', expected '{}:relation:{}' (nodes of one type are read)", type,
        node_type_, node_type_);
    entry.check(entries.count(type) == 1, "the type '{}' occurs twice", type);
    edge_types_.push_back(type);
    edge_entries_.push_back(entry);
  }
}

SourceHeader GraphBoltGraph::header() {
  const std::string name = metadata_.text_if_any("dataset_name");
  return {.name = metadata_.has("dataset_name") ? name : name_of_path(folder_),
          .num_nodes = num_nodes_,
          .num_features = width_of(feature_entries("node", {node_type_})),
          .num_edge_features = width_of(feature_entries("edge", edge_types_))};
}

void GraphBoltGraph::edges(const TakeEdges& take) {
  EdgePieces pieces(take);
  for (const YamlPlace& entry : edge_entries_) {
    take_edges(entry, [&](std::int64_t src, std::int64_t dst) { pieces.add(src, dst); });
  }
  pieces.finish();
}

at::Tensor GraphBoltGraph::types_of_edges() {
  if (edge_entries_.size() < 2) return {};
  std::vector<at::Tensor> types;
  for (std::size_t i = 0; i < edge_entries_.size(); ++i) {
    std::int64_t count = 0;
    take_edges(edge_entries_[i], [&](std::int64_t /*src*/, std::int64_t /*dst*/) { ++count; });
    types.push_back(at::full({count}, static_cast<std::int64_t>(i), at::kLong));
  }
  return at::cat(types);
}

void GraphBoltGraph::features(const TakeRows& take) {
  for (const YamlPlace& entry : feature_entries("node", {node_type_})) {
    take_features(entry, num_nodes_, take);
  }
}

void GraphBoltGraph::edge_features(const TakeRows& take) {
  for (const YamlPlace& entry : feature_entries("edge", edge_types_)) {
    take_features(entry, std::nullopt, take);
  }
}

void GraphBoltGraph::read_edge_lines(const fs::path& path, const TakeEdge& edge) const {
  TextLines lines(path, on_lines_);
  std::string_view line;
  std::vector<std::string_view> fields;
  while (lines.next(line)) {
    split_fields(line, Separator::kComma, fields);
    const auto [src, dst] = edge_of_fields(lines, fields, num_nodes_);
    edge(src, dst);
  }
}

void GraphBoltGraph::take_edges(const YamlPlace& entry, const TakeEdge& edge) const {
  const std::string format = entry.text("format");
  entry.check(format == "csv" || format == "numpy", "format '{}', expected csv or numpy", format);
  const fs::path path = folder_ / entry.text("path");
  if (format == "csv") return read_edge_lines(path, edge);
  for_each_edge_of_array([&] { return NpyStream(path); }, num_nodes_, edge);
}

std::vector<YamlPlace> GraphBoltGraph::feature_entries(
    const char* domain, const std::vector<std::string>& types) const {
  std::set<std::string> names;
  for (const YamlPlace& entry : metadata_.list("feature_data")) {
    if (entry.text("domain") == domain) names.insert(entry.text("name"));
  }
  if (names.empty()) return {};
  metadata_.check(names.size() == 1 || names.count("feat") > 0,
                  "{} features '{}', expected one, or one called 'feat'", domain,
                  fmt::join(names, "', '"));
  const std::string name = names.size() == 1 ? *names.begin() : "feat";
  std::vector<YamlPlace> entries;
  for (const std::string& type : types) {
    const std::size_t before = entries.size();
    for (const YamlPlace& entry : metadata_.list("feature_data")) {
      if (entry.text("domain") == domain && entry.text("name") == name &&
          entry.text_if_any("type") == type) {
        entries.push_back(entry);
      }
    }
    metadata_.check(entries.size() == before + 1,
                    "{} {} features '{}' of the type '{}', expected one for each type",
                    entries.size() - before, domain, name, type);
  }
  return entries;
}

std::int64_t GraphBoltGraph::width_of(const std::vector<YamlPlace>& entries) const {
  std::optional<std::int64_t> width;
  for (const YamlPlace& entry : entries) {
    const bool is_numpy = entry.text("format") == "numpy";
    const std::vector<std::int64_t> shape =
        is_numpy ? NpyStream(folder_ / entry.text("path")).shape()
                 : read_graphbolt_array(entry, folder_).sizes().vec();
    entry.check(shape.size() == 1 || shape.size() == 2, "features of shape [{}], expected [n, F]",
                fmt::join(shape, ", "));
    const std::int64_t columns = shape.size() == 1 ? 1 : shape[1];
    entry.check(columns == width.value_or(columns), "{} features, those of another type are {}",
                columns, width.value_or(0));
    width = columns;
  }
  return width.value_or(0);
}

void GraphBoltGraph::take_features(const YamlPlace& entry, std::optional<std::int64_t> rows,
                                   const TakeRows& take) const {
  const fs::path path = folder_ / entry.text("path");
  if (entry.text("format") == "numpy") {
    NpyStream stream(path);
    if (stream.shape().size() == 2) {
      const std::int64_t count = rows.value_or(stream.shape()[0]);
      return take_rows_of_array(std::move(stream), count, take);
    }
  }
  const at::Tensor array = read_graphbolt_array(entry, folder_);
  at::Tensor matrix = array.dim() == 1 ? array.unsqueeze(1) : array;
  check_feature_shape(matrix.sizes().vec(), rows.value_or(matrix.size(0)), path.string());
  if (matrix.scalar_type() != at::kHalf) matrix = as_float32(matrix, path.string());
  require(matrix.isfinite().all().item<bool>(), path.string(), "expected finite numbers");
  const std::int64_t step = rows_of_piece(matrix.size(1));
  for (std::int64_t begin = 0; begin < matrix.size(0); begin += step) {
    take(matrix.narrow(0, begin, std::min(step, matrix.size(0) - begin)));
  }
}

extern const Format kGraphBoltFormat = {"GraphBolt folder", {"metadata.yaml"}, open_graphbolt};

}  // namespace mezzo::data
