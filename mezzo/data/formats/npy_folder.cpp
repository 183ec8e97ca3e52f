#include <initializer_list>
#include <set>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/data/formats.h"
#include "mezzo/data/formats/npy_meta.h"
#include "mezzo/data/npy/npy.h"
#include "mezzo/data/npy/npy_stream.h"
#include "mezzo/data/readers.h"
#include "mezzo/data/source/source_support.h"

namespace mezzo::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRoles[] = {"train", "val", "test"};

/// The splits of a folder: NAME of each `<role>_mask[_NAME].npy`; "" is the default one.
std::set<std::string> split_names(const fs::path& folder) {
  std::set<std::string> splits;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    for (const std::string_view role : kRoles) {
      const std::string prefix = std::string(role) + "_mask";
      if (!file.starts_with(prefix) || !file.ends_with(".npy")) continue;
      const std::string rest = file.substr(prefix.size(), file.size() - prefix.size() - 4);
      if (rest.empty() || rest[0] == '_') splits.insert(rest.empty() ? "" : rest.substr(1));
    }
  }
  return splits;
}

at::Tensor read_mask(const fs::path& path, std::int64_t num_targets) {
  const at::Tensor mask = as_mask(read_npy(path), path.string());
  require((mask.dim() == 1 || mask.dim() == 2) && mask.size(0) == num_targets, path.string(),
          "expected shape [{0}] or [{0}, S], got {1}", num_targets, shape_text(mask));
  return mask.dim() == 1 ? mask.unsqueeze(1) : mask;
}

/// has_label: bool [N]. labels: their file, for errors.
void read_splits(Dataset& dataset, const at::Tensor& has_label, const fs::path& labels,
                 const LoadOptions& options) {
  const fs::path folder = labels.parent_path();
  const std::set<std::string> names = split_names(folder);
  if (names.empty() && options.split.empty()) {
    const at::Tensor without = has_label.logical_not().nonzero();
    require(without.size(0) == 0, labels.string(),
            "{} {}s have no label, and no masks exclude them", without.size(0),
            name_of(TaskTargets{}, dataset.target));
    return set_random_split(dataset, options.split_seed);
  }
  std::set<std::string> named = names;
  named.erase("");
  MEZZO_CHECK(names.contains(options.split), "split: '{}' is not a split of {}, which has {}",
              options.split, folder.string(),
              named.empty()
                  ? "no *_mask_NAME.npy"
                  : fmt::format("the names '{}' (*_mask_NAME.npy)", fmt::join(named, "', '")));
  dataset.split_names.assign(names.begin(), names.end());
  const std::string suffix = options.split.empty() ? "" : "_" + options.split;
  at::Tensor* const masks[] = {&dataset.train_masks, &dataset.val_masks, &dataset.test_masks};
  for (std::size_t i = 0; i < 3; ++i) {
    const fs::path path = folder / fmt::format("{}_mask{}.npy", kRoles[i], suffix);
    *masks[i] = read_mask(path, dataset.num_targets());
    require(masks[i]->sizes() == dataset.train_masks.sizes(), path.string(),
            "{} splits, where the training mask has {}", masks[i]->size(1),
            dataset.train_masks.size(1));
  }
  clear_unlabelled(dataset, has_label);
}

void read_edges(Dataset& dataset, const fs::path& path) {
  const std::string where = path.string();
  const at::Tensor edges = as_int64(read_npy(path), where);
  require(edges.dim() == 2 && edges.size(0) == 2, where, "expected shape [2, E], got {}",
          shape_text(edges));
  const auto* id = edges.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < edges.numel(); ++i) {
    require(id[i] >= 0 && id[i] < dataset.num_nodes, where,
            "edge {} names node {}, outside [0, {})", i % edges.size(1), id[i], dataset.num_nodes);
  }
  dataset.src = edges[0].clone();
  dataset.dst = edges[1].clone();
}

/// [E] or [E, 1] of any real dtype.
void read_edge_weights(Dataset& dataset, const fs::path& path) {
  if (!fs::exists(path)) return;
  const at::Tensor weights = as_float32(read_npy(path), path.string());
  const bool column = weights.dim() == 2 && weights.size(1) == 1;
  require((weights.dim() == 1 || column) && weights.size(0) == dataset.num_edges(), path.string(),
          "expected one number an edge, [{}], got {}", dataset.num_edges(), shape_text(weights));
  dataset.edge_weights = weights.reshape(-1);
}

/// [E] or [E, F] of any real dtype.
void read_edge_features(Dataset& dataset, const fs::path& path) {
  if (!fs::exists(path)) return;
  const at::Tensor features = as_float32(read_npy(path), path.string());
  require((features.dim() == 1 || features.dim() == 2) && features.size(0) == dataset.num_edges() &&
              features.numel() > 0,
          path.string(), "expected numbers of each edge, [{}, F], got {}", dataset.num_edges(),
          shape_text(features));
  dataset.edge_features = features.reshape({features.size(0), -1});
}

/// [G + 1]; sets the number of nodes to the last.
void read_graph_offsets(Dataset& dataset, const fs::path& path) {
  if (!fs::exists(path)) return;
  const at::Tensor offsets = as_int64(read_npy(path), path.string());
  require(offsets.dim() == 1 && offsets.numel() > 1, path.string(),
          "expected the first node of each graph and the number of nodes, [G + 1] with G > 0, got "
          "shape {}",
          shape_text(offsets));
  const auto* offset = offsets.const_data_ptr<std::int64_t>();
  dataset.num_nodes = offset[offsets.numel() - 1];
  require(dataset.num_nodes > 0 && dataset.num_nodes <= kMostNodes, path.string(),
          "its last number, the number of nodes, is {}, outside [1, 2^48]", dataset.num_nodes);
  dataset.graph_offsets = offsets;
}

/// The first of these files that exists; empty if none does.
fs::path file_of(const fs::path& folder, std::initializer_list<const char*> names) {
  fs::path file;
  for (const char* name : names) {
    const fs::path path = folder / name;
    if (!fs::exists(path)) continue;
    require(file.empty(), folder.string(), "both {} and {}; one of them is stale",
            file.filename().string(), name);
    file = path;
  }
  return file;
}

void read_features(const fs::path& path, Dataset& dataset) {
  if (path.extension() == ".npz") {
    dataset.features = read_csr(NpzFile(path), "");
    dataset.stored_dtype = NpyStream(path, "data").next(0).scalar_type();
    return;
  }
  const at::Tensor stored = read_npy(path);
  dataset.features = as_float32(stored, path.string());
  dataset.stored_dtype = stored.scalar_type();
}

/// A file of labels.
struct LabelFile {
  TaskTarget target;
  fs::path path;
  at::Tensor items;
  LabelKind kind;
};

/// Those of a folder. task: what the labels of its target are.
std::vector<LabelFile> label_files(const fs::path& folder, std::optional<Task> task) {
  std::vector<LabelFile> files;
  for (const auto& [target, path] :
       {std::pair{TaskTarget::kNode, file_of(folder, {"labels.npy", "y.npy"})},
        std::pair{TaskTarget::kEdge, file_of(folder, {"edge_labels.npy"})},
        std::pair{TaskTarget::kGraph, file_of(folder, {"graph_labels.npy"})}}) {
    if (path.empty()) continue;
    const at::Tensor items = read_npy(path);
    const bool is_told = task && task->target == target;
    files.push_back({target, path, items, is_told ? task->labels : label_kind_of_file(items)});
  }
  return files;
}

/// The file of the classes of edges, or nullptr. Links use these classes as their types.
const LabelFile* edge_types(const std::vector<LabelFile>& files) {
  for (const LabelFile& file : files) {
    if (file.target == TaskTarget::kEdge && file.kind == LabelKind::kClass) return &file;
  }
  return nullptr;
}

/// The labels for `task`. Without a task: the labels if the folder has one kind, else nullptr.
const LabelFile* choose(const std::vector<LabelFile>& files, std::optional<Task> task,
                        const fs::path& folder) {
  if (!task) return files.size() == 1 ? &files.front() : nullptr;
  if (task->target == TaskTarget::kLink) return edge_types(files);
  std::string found;
  for (const LabelFile& file : files) {
    if (task->target == file.target) return &file;
    found += (found.empty() ? "" : ", ") + file.path.filename().string();
  }
  MEZZO_CHECK(files.empty(), "task: expected labels for {} in {}, got {}", name_of(Tasks{}, *task),
              folder.string(), found);
  return nullptr;
}

TargetLabels read_labels(const LabelFile& file, const NpyMeta& meta) {
  const std::string where = file.path.string();
  switch (file.kind) {
    case LabelKind::kClass:
      return class_labels(file.items, meta.num_classes, where, file.target);
    case LabelKind::kMultiLabel:
      require(!meta.num_classes || *meta.num_classes == file.items.size(-1), where,
              "{} classes are declared, the labels have {} columns", meta.num_classes.value_or(0),
              file.items.size(-1));
      return entry_labels(file.items, where, file.target);
    case LabelKind::kNumbers:
      break;
  }
  return number_labels(file.items, where, file.target);
}

void check_without_labels(const fs::path& folder, const LoadOptions& options) {
  require(split_names(folder).empty(), (folder / "labels.npy").string(),
          "no such file, but there are masks");
  MEZZO_CHECK(options.split.empty(), "split: '{}' is not a split of {}, which has no labels",
              options.split, folder.string());
}

/// The number of nodes, unless graph offsets have set it: of their labels, else declared, else that
/// of the features.
void set_num_nodes(Dataset& dataset, const std::vector<LabelFile>& labels, const NpyMeta& meta,
                   const fs::path& folder) {
  const at::Tensor& features = dataset.features;
  const bool has_rows = features.defined() && features.dim() > 0;
  if (dataset.num_nodes > 0) return;
  if (!labels.empty() && labels[0].target == TaskTarget::kNode && labels[0].items.dim() > 0) {
    dataset.num_nodes = labels[0].items.size(0);
    return;
  }
  require(meta.num_nodes.value_or(0) <= kMostNodes, (folder / "meta.json").string(),
          "it declares {} nodes, expected at most 2^48", meta.num_nodes.value_or(0));
  require(
      meta.num_nodes || has_rows, (folder / "labels.npy").string(),
      "no such file, and neither features nor 'num_nodes' in meta.json give the number of nodes "
      "there are");
  dataset.num_nodes = meta.num_nodes ? *meta.num_nodes : features.size(0);
  if (meta.num_nodes) require_room(*meta.num_nodes, (folder / "meta.json").string());
}

/// [E] of message_mask.npy, and {train,val,test}_negatives.npy [2, M], _negative_src.npy and
/// _negative_dst.npy [L, K]; with the name of the split, as its masks.
void read_link_files(Dataset& dataset, const fs::path& folder, const std::string& split) {
  const auto file_of_split = [&](const std::string& name) {
    return folder / fmt::format("{}{}{}.npy", name, split.empty() ? "" : "_", split);
  };
  const fs::path messages = file_of_split("message_mask");
  if (fs::exists(messages)) {
    const at::Tensor mask = read_mask(messages, dataset.num_edges());
    require(mask.size(1) == 1, messages.string(), "expected shape [{}], got {}",
            dataset.num_edges(), shape_text(mask));
    dataset.message_mask = mask.reshape(-1);
  }
  for_each_negatives(dataset.negatives, [&](const std::string& name, at::Tensor& nodes) {
    const fs::path path = file_of_split(name);
    if (fs::exists(path)) nodes = as_int64(read_npy(path), path.string());
  });
}

/// Masks belong to the links if the folder has no other labels that they could be of.
void read_link_splits(Dataset& dataset, const NpyMeta& meta, const fs::path& folder,
                      const LoadOptions& options) {
  const bool named = meta.task && meta.task->target == TaskTarget::kLink;
  const bool others = !file_of(folder, {"labels.npy", "y.npy", "graph_labels.npy"}).empty();
  const bool has_masks = !split_names(folder).empty() || !options.split.empty();
  if (has_masks && (named || !others)) {
    dataset.target = TaskTarget::kLink;
    dataset.metric = meta.metric.value_or(Metric::kRocAuc);
    const at::Tensor all = at::ones({dataset.num_edges()}, at::kBool);
    read_splits(dataset, all, folder / "edge_index.npy", options);
    read_link_files(dataset, folder, options.split);
  }
  set_links(dataset, options);
}

void check_count(const std::optional<std::int64_t>& declared, std::int64_t actual, const char* what,
                 const fs::path& folder) {
  require(!declared || *declared == actual, (folder / "meta.json").string(),
          "it declares {} {}, the arrays have {}", declared.value_or(0), what, actual);
}

/// An npy folder: edge_index.npy int [2, E], taken as it is; edge_weights.npy [E] and
/// edge_features.npy [E, F], or none; features.npz (CSR), features.npy or x.npy, or none; labels of
/// nodes (labels.npy or y.npy), edges (edge_labels.npy) or graphs (graph_labels.npy) as for
/// class_labels, entry_labels or number_labels, -1 or nan if missing (without them there may be no
/// masks); graph_offsets.npy int [G + 1] of a set of graphs;
/// {train,val,test}_mask[_NAME].npy bool [T] or [T, S], a row a label; of links see
/// read_link_files; meta.json; its name, task,
/// metric, class_names, num_nodes, num_edges, num_features and num_classes are used. Without any
/// masks: a random split, and every target has a label.
Dataset read_npy_folder(const fs::path& folder, const LoadOptions& options) {
  const NpyMeta meta = read_npy_meta(folder);
  Dataset dataset;
  dataset.name = meta.name.value_or(name_of_path(folder));

  const fs::path features = file_of(folder, {"features.npz", "features.npy", "x.npy"});
  if (!features.empty()) read_features(features, dataset);
  read_graph_offsets(dataset, folder / "graph_offsets.npy");
  const std::optional<Task> task = options.task ? options.task : meta.task;
  const std::vector<LabelFile> files = label_files(folder, task);
  for (const LabelFile& file : files) dataset.tasks.push_back({file.target, file.kind});
  const LabelFile* const labels = choose(files, task, folder);
  at::Tensor has_label;
  const bool is_link = task && task->target == TaskTarget::kLink;
  if (labels != nullptr) {
    const TargetLabels read = read_labels(*labels, meta);
    dataset.target = labels->target;
    dataset.labels = read.labels;
    dataset.num_classes = read.num_classes;
    dataset.class_names = meta.class_names;
    has_label = read.has_label;
  } else if (files.empty() && !is_link) {
    check_without_labels(folder, options);
  }
  set_num_nodes(dataset, files, meta, folder);
  dataset.metric = meta.metric.value_or(usual_metric(dataset.task().labels));
  require(features.empty() ||
              (dataset.features.dim() == 2 && dataset.features.size(0) == dataset.num_nodes),
          features.string(), "expected shape [{}, F], got {}", dataset.num_nodes,
          features.empty() ? "" : shape_text(dataset.features));
  read_edges(dataset, folder / "edge_index.npy");
  read_edge_weights(dataset, folder / "edge_weights.npy");
  read_edge_features(dataset, folder / "edge_features.npy");
  check_count(meta.num_nodes, dataset.num_nodes, "nodes", folder);
  check_count(meta.num_edges, dataset.num_edges(), "directed edges", folder);
  check_count(meta.num_features, dataset.num_features(), "features", folder);
  if (is_link) {
    read_link_splits(dataset, meta, folder, options);
    return dataset;
  }
  if (!has_label.defined()) return dataset;
  require(has_label.size(0) == dataset.num_targets(), labels->path.string(), "{} rows for {} {}s",
          has_label.size(0), dataset.num_targets(), name_of(TaskTargets{}, dataset.target));
  read_splits(dataset, has_label, labels->path, options);
  return dataset;
}

}  // namespace

extern const Format kNpyFormat = {
    "npy folder", {"edge_index.npy", "labels.npy"}, open_whole<read_npy_folder>};

}  // namespace mezzo::data
