#include "mezzo/data/source/graph_source.h"

#include <algorithm>
#include <charconv>

#include <ATen/ATen.h>

#include "mezzo/data/source/source_support.h"

namespace mezzo::data {
namespace {

namespace fs = std::filesystem;

bool is_file_called(const fs::path& path, const std::string& suffix) {
  const std::string name = path.filename().string();
  const bool called = name.ends_with(suffix) || name.ends_with(suffix + ".gz");
  return called && fs::is_regular_file(path);
}

bool is_ogb_folder(const fs::path& folder) {
  const auto has = [&](const char* file) { return fs::exists(folder / "raw" / file); };
  return has("edge.csv.gz") || has("data.npz") || has("triplet-type-list.csv.gz") ||
         has("edge_index_dict.npz");
}

bool is_integer(std::string_view text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && stop == end;
}

/// The source of a text whose name does not say what it is: MatrixMarket if it begins with `%%`,
/// SNAP if the first line that is no comment has two integers.
std::unique_ptr<GraphSource> source_of_text(const fs::path& path, const LoadOptions& options) {
  TextLines lines(path);
  std::string_view line;
  std::vector<std::string_view> fields;
  while (lines.next(line)) {
    if (lines.number() == 1 && line.starts_with("%%")) return matrix_market_source(path, options);
    if (is_snap_comment(line)) continue;
    split_fields(line, Separator::kBlanks, fields);
    if (fields.empty()) continue;
    const bool snap = fields.size() == 2 && is_integer(fields[0]) && is_integer(fields[1]);
    return snap ? snap_source(path, options) : nullptr;
  }
  return nullptr;
}

/// A Dataset in memory, handed on in pieces.
class DatasetSource : public GraphSource {
 public:
  explicit DatasetSource(const Dataset& dataset) : dataset_(dataset) {}

  SourceHeader header() override {
    return {.name = dataset_.name,
            .num_nodes = dataset_.num_nodes,
            .num_features = dataset_.num_features(),
            .class_names = dataset_.class_names,
            .metric = dataset_.metric};
  }

  void edges(const TakeEdges& take) override {
    if (dataset_.indices.defined()) return take_rows_by_destination(take);
    for (std::int64_t begin = 0; begin < dataset_.num_edges(); begin += kPieceEdges) {
      const std::int64_t count = std::min(kPieceEdges, dataset_.num_edges() - begin);
      take(dataset_.src.narrow(0, begin, count), dataset_.dst.narrow(0, begin, count));
    }
  }

  void features(const TakeRows& take) override {
    const std::int64_t width = dataset_.num_features();
    if (width == 0) return;
    const bool sparse = dataset_.features.layout() == at::kSparseCsr;
    const std::int64_t step = rows_of_piece(width);
    for (std::int64_t begin = 0; begin < dataset_.num_nodes; begin += step) {
      const std::int64_t count = std::min(step, dataset_.num_nodes - begin);
      take(sparse ? dense_rows(begin, count) : dataset_.features.narrow(0, begin, count));
    }
  }

  at::Tensor labels() override {
    return dataset_.labels.defined() ? dataset_.labels : no_labels(dataset_.num_nodes).labels;
  }

  std::int64_t num_classes() override { return dataset_.num_classes; }

  std::optional<Masks> masks() override {
    if (!dataset_.train_masks.defined()) return std::nullopt;
    return Masks{dataset_.train_masks, dataset_.val_masks, dataset_.test_masks};
  }

 private:
  void take_rows_by_destination(const TakeEdges& take) const {
    const auto* start = dataset_.indptr.const_data_ptr<std::int64_t>();
    std::int64_t row = 0;
    for (std::int64_t begin = 0; begin < dataset_.num_edges(); begin += kPieceEdges) {
      const std::int64_t count = std::min(kPieceEdges, dataset_.num_edges() - begin);
      at::Tensor dst = at::empty({count}, at::kLong);
      auto* const destination = dst.mutable_data_ptr<std::int64_t>();
      for (std::int64_t i = 0; i < count; ++i) {
        while (start[row + 1] <= begin + i) ++row;
        destination[i] = row;
      }
      take(dataset_.indices.narrow(0, begin, count).to(at::kLong), dst);
    }
  }

  at::Tensor dense_rows(std::int64_t begin, std::int64_t count) const {
    const at::Tensor starts = dataset_.features.crow_indices();
    const at::Tensor columns = dataset_.features.col_indices();
    const at::Tensor values = dataset_.features.values();
    const auto* start = starts.const_data_ptr<std::int64_t>();
    const auto* column = columns.const_data_ptr<std::int64_t>();
    const auto* value = values.const_data_ptr<float>();
    const std::int64_t width = dataset_.num_features();
    at::Tensor rows = at::zeros({count, width}, at::kFloat);
    auto* const data = rows.mutable_data_ptr<float>();
    for (std::int64_t row = 0; row < count; ++row) {
      for (std::int64_t k = start[begin + row]; k < start[begin + row + 1]; ++k) {
        data[row * width + column[k]] = value[k];
      }
    }
    return rows;
  }

  const Dataset& dataset_;
};

void read_all_edges(GraphSource& source, Dataset& dataset) {
  std::vector<at::Tensor> src = {at::empty({0}, at::kLong)};
  std::vector<at::Tensor> dst = src;
  source.edges([&](const at::Tensor& from, const at::Tensor& to) {
    src.push_back(from);
    dst.push_back(to);
  });
  dataset.src = at::cat(src);
  src.clear();
  dataset.dst = at::cat(dst);
}

/// Leaves each edge once, sorted by source and destination.
void merge_parallel_edges(Dataset& dataset) {
  constexpr std::int64_t kMaxPackedNodes = std::int64_t{1} << 32;
  require(dataset.num_nodes <= kMaxPackedNodes, dataset.origin, "{} nodes, expected at most 2^32",
          dataset.num_nodes);
  const auto* src = dataset.src.const_data_ptr<std::int64_t>();
  const auto* dst = dataset.dst.const_data_ptr<std::int64_t>();
  std::vector<std::uint64_t> edges(static_cast<std::size_t>(dataset.num_edges()));
  for (std::size_t i = 0; i < edges.size(); ++i) {
    edges[i] = static_cast<std::uint64_t>(src[i]) << 32 | static_cast<std::uint64_t>(dst[i]);
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  const auto count = static_cast<std::int64_t>(edges.size());
  dataset.src = at::empty({count}, at::kLong);
  dataset.dst = at::empty({count}, at::kLong);
  auto* const from = dataset.src.mutable_data_ptr<std::int64_t>();
  auto* const to = dataset.dst.mutable_data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < edges.size(); ++i) {
    from[i] = static_cast<std::int64_t>(edges[i] >> 32);
    to[i] = static_cast<std::int64_t>(edges[i] & 0xFFFFFFFF);
  }
}

void read_all_features(GraphSource& source, std::int64_t width, Dataset& dataset) {
  at::Tensor features = at::empty({dataset.num_nodes, width}, at::kFloat);
  std::int64_t done = 0;
  source.features([&](const at::Tensor& rows) {
    require(done + rows.size(0) <= dataset.num_nodes, dataset.origin,
            "more rows of features than {}", dataset.num_nodes);
    features.narrow(0, done, rows.size(0)).copy_(rows);
    done += rows.size(0);
  });
  require(done == dataset.num_nodes, dataset.origin, "{} rows of features for {} nodes", done,
          dataset.num_nodes);
  dataset.features = features;
}

}  // namespace

bool is_graph_text(const fs::path& path) {
  return source_of_text(path, {}) != nullptr;
}

std::unique_ptr<GraphSource> open_source(const fs::path& path, const LoadOptions& options) {
  if (is_file_called(path, ".mtx")) return matrix_market_source(path, options);
  if (is_file_called(path, ".txt")) return snap_source(path, options);
  if (is_file_called(path, ".edges") || is_file_called(path, ".el")) {
    std::unique_ptr<GraphSource> told = source_of_text(path, options);
    return told ? std::move(told) : snap_source(path, options);  // which says what is wrong
  }
  if (is_file_called(path, ".gz") || is_file_called(path, ".tsv")) {
    return source_of_text(path, options);
  }
  if (is_ogb_folder(path)) return ogb_source(path, options);
  if (fs::exists(path / "adj_full.npz")) return graphsaint_source(path, options);
  if (fs::exists(path / "reddit_graph.npz")) return reddit_source(path, options);
  if (fs::exists(path / "metadata.yaml")) return graphbolt_source(path, options);
  if (fs::exists(plain_or_packed(path / "edges.csv"))) return csv_source(path, options);
  return nullptr;
}

Dataset read_all(GraphSource& source, const LoadOptions& options, const std::string& origin) {
  const SourceHeader header = source.header();
  Dataset dataset;
  dataset.name = header.name;
  dataset.origin = origin.empty() ? header.name : origin;
  require_room(header.num_nodes, dataset.origin);
  dataset.num_nodes = header.num_nodes;
  dataset.class_names = header.class_names;
  dataset.metric = header.metric;
  dataset.num_classes = source.num_classes();
  require(dataset.num_classes > 0 || options.labels_optional, dataset.origin,
          "it has no labels, which a data set of node classification needs");
  if (dataset.num_classes > 0) {
    dataset.labels = source.labels();
    if (const std::optional<GraphSource::Masks> masks = source.masks()) {
      dataset.train_masks = masks->train;
      dataset.val_masks = masks->val;
      dataset.test_masks = masks->test;
    } else {
      set_random_split(dataset, options.split_seed);
    }
  }
  read_all_edges(source, dataset);
  if (header.distinct_edges) merge_parallel_edges(dataset);
  if (header.num_features > 0) read_all_features(source, header.num_features, dataset);
  return dataset;
}

std::unique_ptr<GraphSource> source_of(const Dataset& dataset) {
  return std::make_unique<DatasetSource>(dataset);
}

}  // namespace mezzo::data
