#include "mezzo/data/formats/ogb.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/data/pickle/torch_file.h"

namespace mezzo::data {
namespace {

namespace fs = std::filesystem;

constexpr double kLargestLabel = 9007199254740992;  // 2^53

/// Whether OGB's table of data sets adds the inverse of each edge; no file records it.
bool adds_inverse_edges(const fs::path& folder) {
  for (const fs::path& path : {folder, fs::canonical(folder)}) {
    std::string name = name_of_path(path);
    std::replace(name.begin(), name.end(), '-', '_');
    if (name.ends_with("_dgl") || name.ends_with("_pyg")) name.resize(name.size() - 4);
    if (name.starts_with("ogbg_mol") || name == "ogbg_ppa") return true;
    if (name.starts_with("ogbn_") || name.starts_with("ogbl_")) name.erase(0, 5);
    for (const char* one : {"proteins", "products", "ppa", "ppassoc", "collab", "ddi"}) {
      if (name == one) return true;
    }
  }
  return false;
}

/// The numbers of the targets under "train", "valid" and "test".
void read_split_dict(const fs::path& path, SplitBuilder& split) {
  const std::map<std::string, at::Tensor> arrays = read_torch_file(path);
  for (const auto& [key, role] :
       {std::pair{"train", Role::kTrain}, {"valid", Role::kVal}, {"test", Role::kTest}}) {
    const std::string where = path.string() + ": " + key;
    const auto array = arrays.find(key);
    require(array != arrays.end() && array->second.dim() == 1, where,
            "expected the numbers of the targets, [n]");
    const at::Tensor ids = as_int64(array->second, where).contiguous();
    const auto* id = ids.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < ids.numel(); ++i) {
      split.assign(id[i], role, [&] { return where; });
    }
  }
}

/// What labels of graphs look like.
LabelKind kind_of_values(const at::Tensor& values) {
  if (values.size(1) > 1) return label_kind_of_file(values);
  const at::Tensor is_class = values.eq(values.floor()).logical_and_(values.ge(0));
  return is_class.logical_or_(values.isnan()).all().item<bool>() ? LabelKind::kClass
                                                                 : LabelKind::kNumbers;
}

}  // namespace

OgbSource::OgbSource(const fs::path& folder, const LoadOptions& options)
    : folder_(folder),
      raw_(folder / "raw"),
      split_(options.split),
      on_lines_(options.on_lines),
      both_(adds_inverse_edges(folder)) {
  const bool of_graphs =
      fs::exists(raw_ / "graph-label.csv.gz") || fs::exists(raw_ / "graph-label.npz");
  if (of_graphs) target_ = TaskTarget::kGraph;
  if (options.task && options.task->target == target_) kind_ = options.task->labels;
}

SourceHeader OgbSource::header() {
  const std::int64_t of_nodes = num_features(TaskTarget::kNode);
  const std::int64_t of_edges = counts().num_edges > 0 ? num_features(TaskTarget::kEdge) : 0;
  const TargetLabels& read = targets();
  const LabelKind kind = label_kind_of(read.labels);
  const bool is_binary = is_set() && kind == LabelKind::kClass && read.num_classes == 2;
  return {
      .name = name_of_path(folder_),
      .num_nodes = counts().num_nodes,
      .num_features = of_nodes,
      .num_edge_features = of_edges,
      .metric = is_binary || kind == LabelKind::kMultiLabel ? Metric::kRocAuc : usual_metric(kind)};
}

void OgbSource::edges(const TakeEdges& take) {
  EdgePieces pieces(take);
  for_each_edge([&](std::int64_t src, std::int64_t dst) {
    pieces.add(src, dst);
    if (both_) pieces.add(dst, src);
  });
  pieces.finish();
}

at::Tensor OgbSource::numbers_of_edges(const char* name) {
  const at::Tensor numbers = edge_numbers(name);
  return numbers.defined() && both_ ? numbers.repeat_interleave(2) : numbers;
}

at::Tensor OgbSource::edge_weights() {
  const at::Tensor numbers = numbers_of_edges("weight");
  if (!numbers.defined()) return numbers;
  const std::string where = (raw_ / "edge_weight").string();
  at::Tensor weights = as_float32(numbers, where);
  require(weights.isfinite().all().item<bool>(), where, "expected finite numbers");
  return weights;
}

at::Tensor OgbSource::edge_types() {
  const at::Tensor types = numbers_of_edges("reltype");
  if (!types.defined()) return types;
  const at::Tensor good =
      types.eq(types.floor()).logical_and_(types.ge(0)).logical_and_(types.lt(kLargestLabel));
  require(good.all().item<bool>(), (raw_ / "edge_reltype").string(),
          "expected integers that are at least 0");
  return types.to(at::kLong);
}

at::Tensor OgbSource::graph_offsets() {
  if (!is_set()) return {};
  const at::Tensor sizes = at::tensor(counts().nodes, at::kLong);
  return at::cat({at::zeros({1}, at::kLong), sizes.cumsum(0)});
}

void OgbSource::edge_features(const TakeRows& take) {
  take_features(TaskTarget::kEdge,
                [&](const at::Tensor& rows) { take(both_ ? rows.repeat_interleave(2, 0) : rows); });
}

std::optional<GraphSource::Masks> OgbSource::masks() {
  const std::optional<fs::path> folder = split_folder();
  if (!folder) {
    require_all_labelled(targets(), folder_.string());
    return std::nullopt;
  }
  SplitBuilder split(num_targets(), target_);
  if (!fs::exists(*folder / "train.csv.gz") && fs::exists(*folder / "split_dict.pt")) {
    read_split_dict(*folder / "split_dict.pt", split);
    return split.masks(targets().has_label);
  }
  read_role(*folder / "train.csv.gz", Role::kTrain, split);
  read_role(*folder / "valid.csv.gz", Role::kVal, split);
  read_role(*folder / "test.csv.gz", Role::kTest, split);
  return split.masks(targets().has_label);
}

const OgbCounts& OgbSource::counts() {
  if (counts_) return *counts_;
  const bool typed =
      fs::exists(raw_ / "triplet-type-list.csv.gz") || fs::exists(raw_ / "edge_index_dict.npz");
  require(!typed, folder_.string(), "graphs of several node or edge types are not read");
  OgbCounts counts = read_counts();
  const std::string where = folder_.string();
  require(is_set() || counts.num_graphs() == 1, where,
          "{} graphs, expected one because the labels are of nodes", counts.num_graphs());
  require(counts.nodes.size() == counts.edges.size() && !counts.nodes.empty(), where,
          "num-node-list has {} graphs, num-edge-list {}", counts.nodes.size(),
          counts.edges.size());
  counts.num_nodes = total(counts.nodes, "nodes");
  counts.num_edges = total(counts.edges, "edges");
  counts_ = std::move(counts);
  return *counts_;
}

std::vector<std::string> OgbSource::split_names() {
  std::vector<std::string> types;
  if (!fs::is_directory(folder_ / "split")) return types;
  for (const auto& entry : fs::directory_iterator(folder_ / "split")) {
    if (fs::is_directory(entry.path())) types.push_back(entry.path().filename().string());
  }
  std::sort(types.begin(), types.end());
  return types;
}

fs::path OgbSource::raw_file(TaskTarget of, const char* name) const {
  return raw_ / fmt::format("{}-{}", name_of(TaskTargets{}, of), name);
}

std::optional<LabelKind> OgbSource::label_kind(std::int64_t columns) const {
  if (kind_ || is_set()) return kind_;
  return columns > 1 ? LabelKind::kMultiLabel : LabelKind::kClass;
}

std::int64_t OgbSource::total(const std::vector<std::int64_t>& counts, const char* what) const {
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) {
    if (sum <= kMostNodes) sum += std::min(count, kMostNodes + 1);
  }
  require(sum <= kMostNodes, folder_.string(), "{} {}, expected at most 2^48", sum, what);
  return sum;
}

const TargetLabels& OgbSource::targets() {
  if (!labels_) labels_ = read_labels();
  return *labels_;
}

TargetLabels OgbSource::read_labels() {
  const auto [values, where] = label_values();
  switch (label_kind(values.size(1)).value_or(kind_of_values(values))) {
    case LabelKind::kClass:
      break;
    case LabelKind::kMultiLabel:
      return entry_labels(values, where, target_);
    case LabelKind::kNumbers:
      return number_labels(values, where, target_);
  }
  const at::Tensor known = values.isnan().logical_not_();
  const at::Tensor bad = values.ge(0)
                             .logical_and_(values.lt(kLargestLabel))
                             .logical_and_(values.eq(values.floor()))
                             .logical_not_()
                             .logical_and_(known)
                             .nonzero();
  if (bad.size(0) > 0) {
    const auto row = bad[0][0].item<std::int64_t>();
    detail::raise<IoError>("{}: {} {} has label {}, expected an integer that is at least 0", where,
                           name_of(TaskTargets{}, target_), row, values[row][0].item<double>());
  }
  return class_labels(values.nan_to_num(static_cast<double>(kNoLabel)).to(at::kLong), std::nullopt,
                      where, target_);
}

std::optional<fs::path> OgbSource::split_folder() {
  const std::vector<std::string> types = split_names();
  if (types.empty() && split_.empty()) return std::nullopt;
  const bool known =
      split_.empty() ? types.size() == 1 : std::count(types.begin(), types.end(), split_) > 0;
  MEZZO_CHECK(known, "split: '{}' does not name one split of {}, which has: '{}'", split_,
              folder_.string(), fmt::join(types, "', '"));
  return folder_ / "split" / (split_.empty() ? types[0] : split_);
}

void OgbSource::read_role(const fs::path& path, Role role, SplitBuilder& split) const {
  TextLines lines(path, on_lines_);
  std::string_view line;
  while (lines.next(line)) {
    split.assign(lines.integer(line), role, [&] { return lines.where(); });
  }
}

}  // namespace mezzo::data
