#include <algorithm>
#include <charconv>
#include <limits>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "mezzo/data/formats.h"
#include "mezzo/data/json_file.h"
#include "mezzo/data/source/array_pieces.h"
#include "mezzo/data/source/source_support.h"

namespace mezzo::data {
namespace {

/// A GraphSAINT folder: adj_full.npz (scipy CSR; entry (i, j) is the edge from i to j, entries of
/// value 0 are no edges), feats.npy, class_map.json, role.json. Labels have the smallest one
/// subtracted, as in GraphSAINT; lists of 0 and 1, one item a class, are multi-label data with
/// micro-F1; features are not standardised. Memory: the row starts and the two JSON files; the
/// entries are streamed.
class GraphSaintSource : public GraphSource {
 public:
  GraphSaintSource(const std::filesystem::path& folder, const LoadOptions& options)
      : folder_(folder) {
    refuse_named_split(options, folder.string());
  }

  SourceHeader header() override {
    const NpyStream rows(folder_ / "feats.npy");
    check_feature_shape(rows.shape(), num_nodes(), rows.where());
    return {.name = name_of_path(folder_),
            .num_nodes = num_nodes(),
            .num_features = rows.shape()[1],
            .metric = usual_metric(label_kind_of(labels().labels))};
  }

  void edges(const TakeEdges& take) override {
    take_entries_of_csr(folder_ / "adj_full.npz", num_nodes(), take);
  }

  void features(const TakeRows& take) override {
    take_rows_of_array(NpyStream(folder_ / "feats.npy"), num_nodes(), take);
  }

  TargetLabels labels() override {
    if (labels_) return *labels_;
    const std::filesystem::path path = folder_ / "class_map.json";
    const nlohmann::json root = read_json_object(path);
    const bool lists = !root.empty() && root.front().is_array();
    labels_ = lists ? entries_of(root, path.string()) : labels_of(root, path.string());
    return *labels_;
  }

  std::optional<Masks> masks() override {
    const std::filesystem::path path = folder_ / "role.json";
    const std::string where = path.string();
    const nlohmann::json root = read_json_object(path);
    SplitBuilder split(num_nodes());
    const std::pair<const char*, Role> roles[] = {
        {"tr", Role::kTrain}, {"va", Role::kVal}, {"te", Role::kTest}};
    for (const auto& [key, role] : roles) {
      const auto nodes = root.find(key);
      require(nodes != root.end() && nodes->is_array(), where, "'{}' is not a list of nodes", key);
      for (const nlohmann::json& node : *nodes) {
        require(is_int64(node), where, "'{}' holds more than integers", key);
        split.assign(node.get<std::int64_t>(), role, [&] { return where + ": " + key; });
      }
    }
    return split.masks(labels().has_label);
  }

 private:
  std::int64_t num_nodes() {
    if (!num_nodes_) num_nodes_ = size_of_square(folder_ / "adj_full.npz", "csr");
    return *num_nodes_;
  }

  TargetLabels labels_of(const nlohmann::json& root, const std::string& where) {
    std::vector<std::int64_t> values(static_cast<std::size_t>(num_nodes()), kAbsent);
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const auto& [key, value] : root.items()) {
      const std::int64_t node = node_of_key(key, where);
      require(is_int64(value), where, "the class of node {} is not an integer of 64 bits", node);
      values[static_cast<std::size_t>(node)] = value.get<std::int64_t>();
      least = std::min(least, value.get<std::int64_t>());
    }
    for (std::int64_t& value : values) {
      if (value == kAbsent) {
        value = kNoLabel;
      } else {
        require(!__builtin_sub_overflow(value, least, &value), where,
                "expected class ids that fit int64 when numbered from 0, got one of {}", least);
      }
    }
    return class_labels(at::tensor(values, at::kLong), std::nullopt, where);
  }

  TargetLabels entries_of(const nlohmann::json& root, const std::string& where) {
    const std::size_t classes = root.front().size();
    require(classes > 0, where, "a node has an empty list of classes");
    std::vector<std::uint8_t> rows(static_cast<std::size_t>(num_nodes()) * classes, kNoEntry);
    for (const auto& [key, list] : root.items()) {
      const std::int64_t node = node_of_key(key, where);
      require(list.is_array() && list.size() == classes, where,
              "node {} has no list of {} classes, as other nodes do", node, classes);
      const std::size_t first = static_cast<std::size_t>(node) * classes;
      for (std::size_t c = 0; c < classes; ++c) {
        const double entry = list[c].is_number() ? list[c].get<double>() : -1;
        if (entry != 0 && entry != 1) {
          detail::raise<IoError>("{}: node {} has {} for class {}, expected 0 or 1", where, node,
                                 list[c].dump(), c);
        }
        rows[first + c] = entry == 1 ? 1 : 0;
      }
    }
    return entry_labels(at::tensor(rows, at::kByte).view({num_nodes(), -1}), where);
  }

  std::int64_t node_of_key(const std::string& key, const std::string& where) {
    std::int64_t node = 0;
    const char* const end = key.data() + key.size();
    const auto [stop, error] = std::from_chars(key.data(), end, node);
    const bool plain = error == std::errc{} && stop == end && key == std::to_string(node);
    require(plain, where, "a key that is not a node id");
    require(node >= 0 && node < num_nodes(), where, "node {} is outside [0, {})", node,
            num_nodes());
    return node;
  }

  static constexpr std::int64_t kAbsent = std::numeric_limits<std::int64_t>::min();

  std::filesystem::path folder_;
  std::optional<std::int64_t> num_nodes_;
  std::optional<TargetLabels> labels_;
};

}  // namespace

extern const Format kGraphSaintFormat = {
    "GraphSAINT folder", {"adj_full.npz"}, open_as<GraphSaintSource>};

}  // namespace mezzo::data
