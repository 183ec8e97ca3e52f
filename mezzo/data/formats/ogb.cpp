#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/data/formats.h"
#include "mezzo/data/npy/npz.h"
#include "mezzo/data/source/array_pieces.h"
#include "mezzo/data/source/source_support.h"

namespace mezzo::data {
namespace {

namespace fs = std::filesystem;

struct OgbCounts {
  std::int64_t num_nodes = 0;
  std::int64_t num_edges = 0;  // as stored, without inverse ones
};

/// Whether OGB's table of data sets adds the inverse of each edge; no file records it.
bool adds_inverse_edges(const fs::path& folder) {
  for (const fs::path& path : {folder, fs::canonical(folder)}) {
    std::string name = name_of_path(path);
    std::replace(name.begin(), name.end(), '-', '_');
    if (name.ends_with("_dgl") || name.ends_with("_pyg")) name.resize(name.size() - 4);
    if (name.starts_with("ogbn_")) name.erase(0, 5);
    if (name == "proteins" || name == "products") return true;
  }
  return false;
}

/// Calls `row` for each line of a csv.gz file of num_rows lines.
void for_each_row(
    const fs::path& path, std::int64_t num_rows, const std::function<void()>& on_lines,
    const std::function<void(const TextLines&, std::vector<std::string_view>&)>& row) {
  TextLines lines(path, on_lines);
  std::string_view line;
  std::vector<std::string_view> fields;
  while (lines.next(line)) {
    lines.check(lines.number() <= num_rows, "more lines than the {} that are declared", num_rows);
    split_fields(line, Separator::kComma, fields);
    row(lines, fields);
  }
  require(lines.number() == num_rows, lines.where(), "the file ends after {} lines, expected {}",
          lines.number(), num_rows);
}

/// An OGB node-property folder: raw/{edge,num-node-list,num-edge-list,node-feat,node-label}.csv.gz,
/// or raw/data.npz and raw/node-label.npz; split/<type>/{train,valid,test}.csv.gz. Uses the only
/// split type, or options.split. The sets proteins and products store each edge once and get its
/// reverse, as in OGB's loader; they are recognised by the name of the folder or of the target of a
/// link: ogbn_products, products, ogbn_products_dgl, ogbn_products_pyg, with hyphens too. An empty
/// or nan label is missing; several labels a node, 0 and 1, are multi-label data with ROC AUC, as
/// in OGB. Memory: the nodes' labels and splits; the two halves of edge_index in data.npz are read
/// side by side.
class OgbSource : public GraphSource {
 public:
  OgbSource(const fs::path& folder, const LoadOptions& options)
      : folder_(folder), raw_(folder / "raw"), split_(options.split), on_lines_(options.on_lines) {}

  SourceHeader header() override {
    return {.name = name_of_path(folder_),
            .num_nodes = counts().num_nodes,
            .num_features = num_features(),
            .metric = label_kind_of(labels().labels) == LabelKind::kClasses ? Metric::kRocAuc
                                                                            : Metric::kAccuracy};
  }

  void edges(const TakeEdges& take) override {
    const bool both = adds_inverse_edges(folder_);
    EdgePieces pieces(take);
    for_each_edge([&](std::int64_t src, std::int64_t dst) {
      pieces.add(src, dst);
      if (both) pieces.add(dst, src);
    });
    pieces.finish();
  }

  TargetLabels labels() override {
    if (!labels_) labels_ = read_labels();
    return *labels_;
  }

  std::optional<Masks> masks() override {
    const std::optional<fs::path> folder = split_folder();
    if (!folder) {
      require_all_labelled(labels(), folder_.string());
      return std::nullopt;
    }
    const std::int64_t num_nodes = counts().num_nodes;
    SplitBuilder split(num_nodes);
    read_role(*folder / "train.csv.gz", Role::kTrain, split);
    read_role(*folder / "valid.csv.gz", Role::kVal, split);
    read_role(*folder / "test.csv.gz", Role::kTest, split);
    return split.masks(labels().has_label);
  }

 protected:
  virtual OgbCounts read_counts() const = 0;
  virtual std::int64_t num_features() = 0;
  virtual void for_each_edge(const TakeEdge& edge) = 0;
  virtual TargetLabels read_labels() = 0;

  const OgbCounts& counts() {
    if (counts_) return *counts_;
    const bool typed =
        fs::exists(raw_ / "triplet-type-list.csv.gz") || fs::exists(raw_ / "edge_index_dict.npz");
    require(!typed, folder_.string(), "graphs of several node or edge types are not read");
    counts_ = read_counts();
    require(counts_->num_nodes <= kMostNodes, folder_.string(), "{} nodes, expected at most 2^48",
            counts_->num_nodes);
    return *counts_;
  }

  std::vector<std::string> split_names() final {
    std::vector<std::string> types;
    if (!fs::is_directory(folder_ / "split")) return types;
    for (const auto& entry : fs::directory_iterator(folder_ / "split")) {
      if (fs::is_directory(entry.path())) types.push_back(entry.path().filename().string());
    }
    std::sort(types.begin(), types.end());
    return types;
  }

  const fs::path& raw() const { return raw_; }
  const std::function<void()>& on_lines() const { return on_lines_; }

 private:
  /// The folder of the requested split; nullopt if the data have no split.
  std::optional<fs::path> split_folder() {
    const std::vector<std::string> types = split_names();
    if (types.empty() && split_.empty()) return std::nullopt;
    const bool known =
        split_.empty() ? types.size() == 1 : std::count(types.begin(), types.end(), split_) > 0;
    MEZZO_CHECK(known, "split: '{}' does not name one split of {}, which has: '{}'", split_,
                folder_.string(), fmt::join(types, "', '"));
    const fs::path split_folder = folder_ / "split" / (split_.empty() ? types[0] : split_);
    require(
        fs::exists(split_folder / "train.csv.gz") || !fs::exists(split_folder / "split_dict.pt"),
        (split_folder / "split_dict.pt").string(),
        "splits stored by PyTorch are not read, expected train.csv.gz and the others");
    return split_folder;
  }

  void read_role(const fs::path& path, Role role, SplitBuilder& split) const {
    TextLines lines(path, on_lines_);
    std::string_view line;
    while (lines.next(line)) {
      split.assign(lines.integer(line), role, [&] { return lines.where(); });
    }
  }

  fs::path folder_;
  fs::path raw_;
  std::string split_;
  std::function<void()> on_lines_;
  std::optional<OgbCounts> counts_;
  std::optional<TargetLabels> labels_;
};

/// raw/*.csv.gz
class OgbTextSource : public OgbSource {
 public:
  using OgbSource::OgbSource;

  void features(const TakeRows& take) override {
    const std::int64_t width = num_features();
    if (width == 0) return;
    RowPieces pieces(width, take);
    const auto read = [&](const TextLines& lines, std::vector<std::string_view>& fields) {
      lines.check(static_cast<std::int64_t>(fields.size()) == width,
                  "{} columns, the first line has {}", fields.size(), width);
      float* const row = pieces.next_row();
      for (std::size_t i = 0; i < fields.size(); ++i) row[i] = feature_of_field(lines, fields[i]);
    };
    for_each_row(raw() / "node-feat.csv.gz", counts().num_nodes, on_lines(), read);
    pieces.finish();
  }

 protected:
  OgbCounts read_counts() const override {
    return {.num_nodes = read_count("num-node-list.csv.gz"),
            .num_edges = read_count("num-edge-list.csv.gz")};
  }

  std::int64_t num_features() override {
    const fs::path path = raw() / "node-feat.csv.gz";
    if (!fs::exists(path)) return 0;
    TextLines lines(path);
    std::string_view line;
    require(lines.next(line), lines.where(), "the file is empty");
    return std::count(line.begin(), line.end(), ',') + 1;
  }

  void for_each_edge(const TakeEdge& edge) override {
    const std::int64_t num_nodes = counts().num_nodes;
    const auto read = [&](const TextLines& lines, std::vector<std::string_view>& fields) {
      const auto [src, dst] = edge_of_fields(lines, fields, num_nodes);
      edge(src, dst);
    };
    for_each_row(raw() / "edge.csv.gz", counts().num_edges, on_lines(), read);
  }

  TargetLabels read_labels() override {
    const fs::path path = raw() / "node-label.csv.gz";
    std::vector<std::int64_t> values;
    std::vector<std::uint8_t> entries;
    std::size_t width = 0;
    const auto read = [&](const TextLines& lines, std::vector<std::string_view>& fields) {
      if (lines.number() == 1) width = fields.size();
      lines.check(fields.size() == width, "{} labels, the first line has {}", fields.size(), width);
      if (width == 1) {
        values.push_back(label_of_field(lines, fields[0]));
        return;
      }
      for (const std::string_view field : fields) {
        const std::int64_t entry = label_of_field(lines, field);
        lines.check(entry <= 1, "label {} among several, expected 0 or 1", entry);
        entries.push_back(entry == kNoLabel ? kNoEntry : static_cast<std::uint8_t>(entry));
      }
    };
    for_each_row(path, counts().num_nodes, on_lines(), read);
    if (width > 1) {
      const at::Tensor rows = at::tensor(entries, at::kByte).view({counts().num_nodes, -1});
      return entry_labels(rows, path.string());
    }
    return class_labels(at::tensor(values, at::kLong), std::nullopt, path.string());
  }

 private:
  std::int64_t read_count(const char* file) const {
    TextLines lines(raw() / file);
    std::string_view line;
    require(lines.next(line), lines.where(), "the file is empty");
    const std::int64_t count = lines.integer(line);
    lines.check(count >= 0, "the count {} is negative", count);
    lines.check(!lines.next(line), "several graphs, expected one");
    return count;
  }
};

/// raw/data.npz and raw/node-label.npz
class OgbBinarySource : public OgbSource {
 public:
  using OgbSource::OgbSource;

  void features(const TakeRows& take) override {
    if (num_features() == 0) return;
    take_rows_of_array(NpyStream(data(), "node_feat"), counts().num_nodes, take);
  }

 protected:
  OgbCounts read_counts() const override {
    const NpzFile file(data());
    return {.num_nodes = read_count(file, "num_nodes_list"),
            .num_edges = read_count(file, "num_edges_list")};
  }

  std::int64_t num_features() override {
    if (!NpzFile(data()).contains("node_feat")) return 0;
    const NpyStream rows(data(), "node_feat");
    check_feature_shape(rows.shape(), counts().num_nodes, rows.where());
    return rows.shape()[1];
  }

  void for_each_edge(const TakeEdge& edge) override {
    const auto open = [&] { return NpyStream(data(), "edge_index"); };
    const NpyStream edges = open();
    require(edges.numel() % 2 == 0 && edges.numel() / 2 == counts().num_edges, edges.where(),
            "{} items, where num_edges_list says {} edges", edges.numel(), counts().num_edges);
    for_each_edge_of_array(open, counts().num_nodes, edge);
  }

  TargetLabels read_labels() override {
    const NpzFile file(raw() / "node-label.npz");
    const std::string where = file.where("node_label");
    at::Tensor array = file.numbers("node_label");
    require(array.dim() <= 2 && array.dim() >= 1 && array.size(0) == counts().num_nodes, where,
            "expected shape [{0}, 1] or [{0}, C], got {1}", counts().num_nodes, shape_text(array));
    if (array.dim() == 2 && array.size(1) > 1) return entry_labels(array, where);
    array = array.to(at::kDouble).reshape(-1).contiguous();
    const auto* value = array.const_data_ptr<double>();
    std::vector<std::int64_t> values(static_cast<std::size_t>(array.numel()), kNoLabel);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(value[i])) continue;
      require(value[i] >= 0 && value[i] < kLargestLabel && value[i] == std::floor(value[i]), where,
              "node {} has label {}, expected an integer that is at least 0", i, value[i]);
      values[i] = static_cast<std::int64_t>(value[i]);
    }
    return class_labels(at::tensor(values, at::kLong), std::nullopt, where);
  }

 private:
  static constexpr double kLargestLabel = 9007199254740992;  // 2^53

  fs::path data() const { return raw() / "data.npz"; }

  static std::int64_t read_count(const NpzFile& file, const char* key) {
    const at::Tensor counts = as_int64(file.numbers(key), file.where(key));
    require(counts.numel() == 1, file.where(key), "{} graphs, expected one", counts.numel());
    const auto count = counts.item<std::int64_t>();
    require(count >= 0, file.where(key), "the count {} is negative", count);
    return count;
  }
};

std::unique_ptr<GraphSource> open_ogb(const fs::path& folder, const LoadOptions& options) {
  if (fs::exists(folder / "raw" / "data.npz")) {
    return std::make_unique<OgbBinarySource>(folder, options);
  }
  return std::make_unique<OgbTextSource>(folder, options);
}

}  // namespace

extern const Format kOgbFormat = {
    "OGB folder",
    {"raw/edge.csv.gz", "raw/data.npz", "raw/triplet-type-list.csv.gz", "raw/edge_index_dict.npz"},
    open_ogb};

}  // namespace mezzo::data
