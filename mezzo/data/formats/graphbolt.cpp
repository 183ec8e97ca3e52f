#include <algorithm>

#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include "mezzo/data/formats.h"
#include "mezzo/data/source/array_pieces.h"
#include "mezzo/data/source/source_support.h"

namespace mezzo::data {
namespace {

namespace fs = std::filesystem;

/// A node of metadata.yaml with typed access. Errors contain file and line.
class YamlPlace {
 public:
  YamlPlace(YAML::Node node, const std::string& file) : node_(std::move(node)), file_(file) {}

  /// Whether a value exists; GraphBolt's `type: null` counts as missing.
  bool has(const char* key) const {
    return node_.IsMap() && node_[key].IsDefined() && !node_[key].IsNull();
  }

  YamlPlace at(const char* key) const {
    check(node_.IsMap(), "expected a map");
    check(has(key), "'{}' is missing", key);
    return {node_[key], file_};
  }

  /// The items of the list under `key`; empty if the key is missing.
  std::vector<YamlPlace> list(const char* key) const {
    std::vector<YamlPlace> items;
    if (!has(key)) return items;
    const YamlPlace place = at(key);
    place.check(place.node_.IsSequence(), "'{}' is not a list", key);
    for (const YAML::Node& item : place.node_) items.emplace_back(item, file_);
    return items;
  }

  /// The one item of a homogeneous graph's list.
  YamlPlace only(const char* key) const {
    const std::vector<YamlPlace> items = list(key);
    check(items.size() == 1, "'{}' has {} entries, expected one (graphs of one type are read)", key,
          items.size());
    check(!items[0].has("type"), "'{}' has a type, expected a graph of one type, without", key);
    return items[0];
  }

  std::string text(const char* key) const {
    const YamlPlace place = at(key);
    place.check(place.node_.IsScalar(), "'{}' is not a single value", key);
    return place.node_.Scalar();
  }

  std::int64_t count(const char* key) const {
    const YamlPlace place = at(key);
    std::int64_t value = -1;
    const bool read =
        place.node_.IsScalar() && YAML::convert<std::int64_t>::decode(place.node_, value);
    place.check(read && value >= 0, "'{}' is not an integer that is at least 0", key);
    return value;
  }

  template <class... Args>
  void check(bool condition, fmt::format_string<Args...> text, Args&&... args) const {
    require(condition, fmt::format("{}:{}", file_, node_.Mark().line + 1), text,
            std::forward<Args>(args)...);
  }

 private:
  YAML::Node node_;
  std::string file_;
};

YamlPlace read_metadata(const fs::path& path) {
  try {
    return {YAML::Load(read_file(path)), path.string()};
  } catch (const YAML::Exception& fault) {
    detail::raise<IoError>("{}:{}: not valid YAML: {}", path.string(), fault.mark.line + 1,
                           fault.msg);
  }
}

/// The input form of a GraphBolt OnDiskDataset, homogeneous: metadata.yaml and the files that it
/// names, in the formats csv (edges) and numpy. The features are the node feature called 'feat', or
/// the only one; labels and split come from the only task, or from the task options.split. Features
/// of edges and of graph.feature_data are not read. Memory: the task's sets.
class GraphBoltSource : public GraphSource {
 public:
  GraphBoltSource(const fs::path& folder, const LoadOptions& options)
      : folder_(folder), task_name_(options.split), on_lines_(options.on_lines) {}

  SourceHeader header() override {
    const std::optional<fs::path> path = feature_path();
    std::int64_t num_features = 0;
    if (path) {
      const NpyStream rows(*path);
      check_feature_shape(rows.shape(), num_nodes(), rows.where());
      num_features = rows.shape()[1];
    }
    const bool has_name = metadata().has("dataset_name");
    return {.name = has_name ? metadata().text("dataset_name") : name_of_path(folder_),
            .num_nodes = num_nodes(),
            .num_features = num_features};
  }

  void edges(const TakeEdges& take) override {
    const YamlPlace entry = metadata().at("graph").only("edges");
    const std::string format = entry.text("format");
    entry.check(format == "csv" || format == "numpy", "format '{}', expected csv or numpy", format);
    const fs::path path = folder_ / entry.text("path");
    EdgePieces pieces(take);
    const auto add = [&](std::int64_t src, std::int64_t dst) { pieces.add(src, dst); };
    if (format == "numpy") {
      for_each_edge_of_array([&] { return NpyStream(path); }, num_nodes(), add);
    } else {
      read_edge_lines(path, add);
    }
    pieces.finish();
  }

  void features(const TakeRows& take) override {
    if (const std::optional<fs::path> path = feature_path()) {
      take_rows_of_array(NpyStream(*path), num_nodes(), take);
    }
  }

  TargetLabels labels() override { return known_sets().labels; }
  std::optional<Masks> masks() override { return known_sets().masks; }

  std::vector<std::string> split_names() override {
    std::vector<std::string> names;
    for (const YamlPlace& one : metadata().list("tasks")) {
      if (one.has("name")) names.push_back(one.text("name"));
    }
    return names;
  }

 private:
  /// The combined contents of the sets of the task.
  struct Sets {
    TargetLabels labels;
    std::optional<Masks> masks;
  };

  const YamlPlace& metadata() {
    if (metadata_) return *metadata_;
    metadata_ = read_metadata(folder_ / "metadata.yaml");
    metadata_->check(!metadata_->has("graph_topology"),
                     "a preprocessed folder, expected the input form beside 'preprocessed'");
    return *metadata_;
  }

  std::int64_t num_nodes() {
    const YamlPlace nodes = metadata().at("graph").only("nodes");
    const std::int64_t count = nodes.count("num");
    nodes.check(count > 0, "no nodes");
    nodes.check(count <= kMostNodes, "{} nodes, expected at most 2^48", count);
    return count;
  }

  void read_edge_lines(const fs::path& path, const TakeEdge& edge) {
    const std::int64_t count = num_nodes();
    TextLines lines(path, on_lines_);
    std::string_view line;
    std::vector<std::string_view> fields;
    while (lines.next(line)) {
      split_fields(line, Separator::kComma, fields);
      const auto [src, dst] = edge_of_fields(lines, fields, count);
      edge(src, dst);
    }
  }

  static fs::path numpy_path(const YamlPlace& entry, const fs::path& folder) {
    const std::string format = entry.text("format");
    entry.check(format == "numpy", "format '{}', expected numpy", format);
    return folder / entry.text("path");
  }

  std::optional<fs::path> feature_path() {
    std::vector<YamlPlace> candidates;
    std::vector<std::string> names;
    for (const YamlPlace& entry : metadata().list("feature_data")) {
      if (entry.text("domain") != "node") continue;
      if (entry.text("name") == "feat") return numpy_path(entry, folder_);
      candidates.push_back(entry);
      names.push_back(entry.text("name"));
    }
    metadata().check(candidates.size() <= 1,
                     "node features '{}', expected one, or one called 'feat'",
                     fmt::join(names, "', '"));
    if (candidates.empty()) return std::nullopt;
    return numpy_path(candidates[0], folder_);
  }

  /// The requested task; nullopt if the data have no task.
  std::optional<YamlPlace> task() {
    const std::vector<YamlPlace> tasks = metadata().list("tasks");
    if (tasks.empty() && task_name_.empty()) return std::nullopt;
    if (task_name_.empty() && tasks.size() == 1) return tasks[0];
    std::vector<std::string> names;
    for (const YamlPlace& one : tasks) {
      names.push_back(one.text("name"));
      if (names.back() == task_name_) return one;
    }
    detail::raise<InvalidArgument>("split: '{}' does not name one task of {}, which has: '{}'",
                                   task_name_, folder_.string(), fmt::join(names, "', '"));
  }

  const Sets& known_sets() {
    if (sets_) return *sets_;
    const std::optional<YamlPlace> chosen = task();
    if (!chosen) {
      sets_ = Sets{.labels = {}, .masks = std::nullopt};
      return *sets_;
    }
    const std::int64_t classes = chosen->count("num_classes");
    std::vector<std::int64_t> values(static_cast<std::size_t>(num_nodes()), kNoLabel);
    SplitBuilder split(num_nodes());
    const std::pair<const char*, Role> sets[] = {
        {"train_set", Role::kTrain}, {"validation_set", Role::kVal}, {"test_set", Role::kTest}};
    for (const auto& [key, role] : sets) {
      if (role == Role::kTrain || chosen->has(key))
        read_set(chosen->only(key), role, values, split);
    }
    const std::string where = (folder_ / "metadata.yaml").string();
    TargetLabels labels = class_labels(at::tensor(values, at::kLong), classes, where);
    std::optional<Masks> masks = split.masks(labels.has_label);
    sets_ = Sets{.labels = std::move(labels), .masks = std::move(masks)};
    return *sets_;
  }

  void read_set(const YamlPlace& set, Role role, std::vector<std::int64_t>& values,
                SplitBuilder& split) const {
    std::optional<fs::path> seeds_path, labels_path;
    for (const YamlPlace& entry : set.list("data")) {
      const std::string name = entry.text("name");
      // The first releases wrote seed_nodes.
      if (name == "seeds" || name == "seed_nodes") seeds_path = numpy_path(entry, folder_);
      if (name == "labels") labels_path = numpy_path(entry, folder_);
    }
    set.check(seeds_path && labels_path, "expected data called 'seeds' and 'labels'");
    const std::string seeds_where = seeds_path->string(), labels_where = labels_path->string();
    const at::Tensor seeds = as_int64(read_npy(*seeds_path), seeds_where);
    require(seeds.dim() == 1, seeds_where, "expected node ids of shape [n], got {}",
            shape_text(seeds));
    const at::Tensor labels = as_int64(read_npy(*labels_path), labels_where);
    require(labels.numel() == seeds.numel() &&
                (labels.dim() == 1 || (labels.dim() == 2 && labels.size(1) == 1)),
            labels_where, "expected one label a seed, shape [{}], got {}", seeds.numel(),
            shape_text(labels));
    const auto* seed = seeds.const_data_ptr<std::int64_t>();
    const auto* label = labels.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < seeds.numel(); ++i) {
      split.assign(seed[i], role, [&] { return seeds_where; });
      require(label[i] >= 0, labels_where, "item {} is the negative label {}", i, label[i]);
      values[static_cast<std::size_t>(seed[i])] = label[i];
    }
  }

  fs::path folder_;
  std::string task_name_;
  std::function<void()> on_lines_;
  std::optional<YamlPlace> metadata_;
  std::optional<Sets> sets_;
};

}  // namespace

extern const Format kGraphBoltFormat = {
    "GraphBolt folder", {"metadata.yaml"}, open_as<GraphBoltSource>};

}  // namespace mezzo::data
