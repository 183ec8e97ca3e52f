
#include <ATen/ATen.h>

#include "mezzo/data/formats.h"
#include "mezzo/data/npy/npz.h"
#include "mezzo/data/readers.h"

namespace mezzo::data {
namespace {

namespace fs = std::filesystem;

std::string name_of(const NpzFile& file) {
  return fs::path(file.path()).stem().string();
}

/// Whether a set of the heterophilous-graphs collection is directed; only its name shows it.
bool is_directed(const std::string& name) {
  return name.find("directed") != std::string::npos && name.find("undirected") == std::string::npos;
}

/// Dense features, one row a node.
at::Tensor read_matrix(const NpzFile& file, const std::string& key) {
  at::Tensor matrix = as_float32(file.numbers(key), file.where(key));
  require(matrix.dim() == 2, file.where(key), "expected shape [N, F], got {}", shape_text(matrix));
  return matrix;
}

/// Labels stored as a sparse matrix with one entry a row: the entry's column.
at::Tensor read_sparse_labels(const NpzFile& file) {
  const at::Tensor matrix = read_csr(file, "labels_");
  const at::Tensor per_row = matrix.crow_indices().diff();
  require(per_row.numel() > 0 && per_row.eq(1).all().item<bool>(), file.where("labels_*"),
          "expected one label a node");
  return matrix.col_indices();
}

std::vector<Edge> edges_of(const at::Tensor& adjacency) {
  const at::Tensor starts = adjacency.crow_indices();
  const at::Tensor columns = adjacency.col_indices();
  const at::Tensor values = adjacency.values();
  const auto* start = starts.const_data_ptr<std::int64_t>();
  const auto* column = columns.const_data_ptr<std::int64_t>();
  const auto* value = values.const_data_ptr<float>();
  std::vector<Edge> edges;
  edges.reserve(static_cast<std::size_t>(columns.numel()));
  for (std::int64_t row = 0; row < adjacency.size(0); ++row) {
    for (std::int64_t k = start[row]; k < start[row + 1]; ++k) {
      if (value[k] != 0.0F) edges.emplace_back(row, column[k]);
    }
  }
  return edges;
}

void check_rows(const Dataset& dataset, const std::string& where) {
  require(!dataset.features.defined() || dataset.features.size(0) == dataset.num_nodes, where,
          "features of {} nodes, labels of {}",
          dataset.features.defined() ? dataset.features.size(0) : 0, dataset.num_nodes);
}

at::Tensor read_masks(const NpzFile& file, const std::string& key, std::int64_t num_nodes) {
  const at::Tensor masks = as_mask(file.numbers(key), file.where(key));
  require(masks.dim() == 2 && masks.size(1) == num_nodes, file.where(key),
          "expected shape [S, {}], got {}", num_nodes, shape_text(masks));
  return masks.t().contiguous();
}

/// A gnn-benchmark npz (Shchur et al.): adj_*, attr_* or attr_matrix or neither, labels or labels_*
/// (one entry a row), class_names. Edges become undirected; entries of value 0 are no edges. Gets a
/// random split. Class names stored as Python objects are ignored.
Dataset read_gnn_benchmark(const fs::path& path, const LoadOptions& options) {
  const NpzFile file(path);
  refuse_named_split(options, file.path());
  Dataset dataset;
  dataset.name = name_of(file);
  const bool sparse_labels = file.contains("labels_indices");
  const std::string where = file.where(sparse_labels ? "labels_*" : "labels");
  const TargetLabels labels = class_labels(
      sparse_labels ? read_sparse_labels(file) : file.numbers("labels"), std::nullopt, where);
  require(labels.has_label.all().item<bool>(), where, "node {} has the negative label {}",
          labels.labels.argmin().item<std::int64_t>(), kNoLabel);
  set_labels(dataset, labels);
  if (file.contains("class_names") && !file.holds_objects("class_names")) {
    dataset.class_names = file.text("class_names");
    const auto num_names = static_cast<std::int64_t>(dataset.class_names.size());
    require(num_names >= dataset.num_classes, file.where("class_names"), "{} names for {} classes",
            num_names, dataset.num_classes);
    dataset.num_classes = num_names;
  }
  const at::Tensor adjacency = read_csr(file, "adj_");
  require(adjacency.size(0) == dataset.num_nodes && adjacency.size(1) == dataset.num_nodes,
          file.where("adj_*"),
          "a matrix of shape {}, expected one row and column for each of {} "
          "labels",
          shape_text(adjacency), dataset.num_nodes);
  set_undirected_edges(dataset, edges_of(adjacency), file.where("adj_*"));
  if (file.contains("attr_indices")) {
    dataset.features = read_csr(file, "attr_");
  } else if (file.contains("attr_matrix")) {
    dataset.features = read_matrix(file, "attr_matrix");
  }
  check_rows(dataset, file.path());
  set_random_split(dataset, options.split_seed);
  return dataset;
}

/// An npz of the heterophilous-graphs collection (Platonov et al.): node_features, node_labels,
/// edges [E, 2], {train,val,test}_masks [S, N]. Edges become undirected unless the file name
/// contains "directed", as in the collection's loader. Sets of two classes use ROC AUC, as in the
/// paper.
Dataset read_heterophilous(const fs::path& path, const LoadOptions& options) {
  const NpzFile file(path);
  refuse_named_split(options, file.path());
  Dataset dataset;
  dataset.name = name_of(file);
  const TargetLabels labels =
      class_labels(file.numbers("node_labels"), std::nullopt, file.where("node_labels"));
  set_labels(dataset, labels);
  dataset.metric = dataset.num_classes == 2 ? Metric::kRocAuc : Metric::kAccuracy;
  dataset.features = read_matrix(file, "node_features");
  check_rows(dataset, file.path());

  const at::Tensor pairs = as_int64(file.numbers("edges"), file.where("edges"));
  require(pairs.dim() == 2 && pairs.size(1) == 2, file.where("edges"),
          "expected shape [E, 2], got {}", shape_text(pairs));
  const auto* id = pairs.const_data_ptr<std::int64_t>();
  std::vector<Edge> edges(static_cast<std::size_t>(pairs.size(0)));
  for (std::size_t i = 0; i < edges.size(); ++i) edges[i] = {id[2 * i], id[2 * i + 1]};
  if (is_directed(dataset.name)) {
    for (const auto& [src, dst] : edges) {
      require_edge(src, dst, dataset.num_nodes, file.where("edges"));
    }
    dataset.src = pairs.select(1, 0).contiguous();
    dataset.dst = pairs.select(1, 1).contiguous();
  } else {
    set_undirected_edges(dataset, edges, file.where("edges"));
  }

  dataset.train_masks = read_masks(file, "train_masks", dataset.num_nodes);
  dataset.val_masks = read_masks(file, "val_masks", dataset.num_nodes);
  dataset.test_masks = read_masks(file, "test_masks", dataset.num_nodes);
  clear_unlabelled(dataset, labels.has_label);
  return dataset;
}

bool has_array(const fs::path& path, const char* key) {
  return may_be_npz(path) && NpzFile(path).contains(key);
}

}  // namespace

extern const Format kGnnBenchmarkFormat = {
    "gnn-benchmark npz", {}, open_whole<read_gnn_benchmark>, [](const fs::path& path) {
      return has_array(path, "adj_indptr");
    }};

extern const Format kHeterophilousFormat = {
    "heterophilous-graphs npz", {}, open_whole<read_heterophilous>, [](const fs::path& path) {
      return has_array(path, "node_features");
    }};

}  // namespace mezzo::data
