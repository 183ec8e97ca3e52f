#include "mezzo/data/source/graph_source.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/data/source/source_support.h"

namespace mezzo::data {
namespace {

/// The source of a data set in memory.
class DatasetSource : public GraphSource {
 public:
  explicit DatasetSource(Dataset dataset) : dataset_(std::move(dataset)) {}

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

  at::Tensor edge_weights() override { return dataset_.edge_weights; }

  void features(const TakeRows& take) override {
    const std::int64_t width = dataset_.num_features();
    if (width == 0) return;
    const std::int64_t step = rows_of_piece(width);
    for (std::int64_t begin = 0; begin < dataset_.num_nodes; begin += step) {
      const std::int64_t count = std::min(step, dataset_.num_nodes - begin);
      take(dataset_.features.narrow(0, begin, count));
    }
  }

  TargetLabels labels() override {
    return {.labels = dataset_.labels, .has_label = {}, .num_classes = dataset_.num_classes};
  }

  std::optional<Masks> masks() override {
    if (!dataset_.train_masks.defined()) return std::nullopt;
    return Masks{dataset_.train_masks, dataset_.val_masks, dataset_.test_masks};
  }

  Dataset* dataset() override { return &dataset_; }

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

  Dataset dataset_;
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
  dataset.edge_weights = source.edge_weights();
}

void read_all_features(GraphSource& source, std::int64_t width, Dataset& dataset) {
  at::Tensor features = at::empty({dataset.num_nodes, width}, at::kFloat);
  std::int64_t done = 0;
  source.features([&](const at::Tensor& rows) {
    require(done + rows.size(0) <= dataset.num_nodes, dataset.origin,
            "more rows of features than {}", dataset.num_nodes);
    features.narrow(0, done, rows.size(0)).copy_(rows);
    if (rows.scalar_type() != at::kFloat) dataset.stored_dtype = rows.scalar_type();
    done += rows.size(0);
  });
  require(done == dataset.num_nodes, dataset.origin, "{} rows of features for {} nodes", done,
          dataset.num_nodes);
  dataset.features = features;
}

}  // namespace

Dataset read_all(GraphSource& source, const LoadOptions& options, const std::string& origin) {
  const SourceHeader header = source.header();
  Dataset dataset;
  dataset.name = header.name;
  dataset.origin = origin.empty() ? header.name : origin;
  require_room(header.num_nodes, dataset.origin);
  dataset.num_nodes = header.num_nodes;
  dataset.class_names = header.class_names;
  dataset.metric = header.metric;
  const TargetLabels labels = source.labels();
  dataset.num_classes = labels.num_classes;
  require_labels(dataset, options);
  if (dataset.num_classes > 0) {
    dataset.labels = labels.labels;
    if (const std::optional<GraphSource::Masks> masks = source.masks()) {
      dataset.train_masks = masks->train;
      dataset.val_masks = masks->val;
      dataset.test_masks = masks->test;
      dataset.split_names = source.split_names();
    } else {
      set_random_split(dataset, options.split_seed);
    }
  }
  read_all_edges(source, dataset);
  if (header.distinct_edges) merge_parallel_edges(dataset);
  if (header.num_features > 0) read_all_features(source, header.num_features, dataset);
  return dataset;
}

std::unique_ptr<GraphSource> source_of(Dataset dataset) {
  return std::make_unique<DatasetSource>(std::move(dataset));
}

}  // namespace mezzo::data
