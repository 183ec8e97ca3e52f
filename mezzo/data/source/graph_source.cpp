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
    return {
        .name = dataset_.name,
        .num_nodes = dataset_.num_nodes,
        .num_features = dataset_.num_features(),
        .num_edge_features = dataset_.edge_features.defined() ? dataset_.edge_features.size(1) : 0,
        .class_names = dataset_.class_names,
        .metric = dataset_.metric,
        .tasks = dataset_.tasks};
  }

  void edges(const TakeEdges& take) override {
    if (dataset_.indices.defined()) return take_rows_by_destination(take);
    for (std::int64_t begin = 0; begin < dataset_.num_edges(); begin += kPieceEdges) {
      const std::int64_t count = std::min(kPieceEdges, dataset_.num_edges() - begin);
      take(dataset_.src.narrow(0, begin, count), dataset_.dst.narrow(0, begin, count));
    }
  }

  at::Tensor edge_weights() override { return dataset_.edge_weights; }
  at::Tensor graph_offsets() override { return dataset_.graph_offsets; }
  void features(const TakeRows& take) override { take_rows(dataset_.features, take); }
  void edge_features(const TakeRows& take) override { take_rows(dataset_.edge_features, take); }

  TargetLabels labels() override {
    return {.labels = dataset_.labels,
            .has_label = {},
            .num_classes = dataset_.num_classes,
            .target = dataset_.target};
  }

  std::optional<Masks> masks() override {
    if (!dataset_.train_masks.defined()) return std::nullopt;
    return Masks{dataset_.train_masks, dataset_.val_masks, dataset_.test_masks};
  }

  Dataset* dataset() override { return &dataset_; }

 private:
  static void take_rows(const at::Tensor& matrix, const TakeRows& take) {
    if (!matrix.defined() || matrix.size(1) == 0) return;
    const std::int64_t step = rows_of_piece(matrix.size(1));
    for (std::int64_t begin = 0; begin < matrix.size(0); begin += step) {
      take(matrix.narrow(0, begin, std::min(step, matrix.size(0) - begin)));
    }
  }

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

/// float32 [num_rows, width] of the chunks that read(take) passes. what: "features", for errors.
template <class Read>
at::Tensor all_rows(std::int64_t num_rows, std::int64_t width, const char* what, Dataset& dataset,
                    const Read& read) {
  require_room_for(num_rows, width, dataset.origin);
  at::Tensor features = at::empty({num_rows, width}, at::kFloat);
  std::int64_t done = 0;
  read([&](const at::Tensor& rows) {
    require(done + rows.size(0) <= num_rows, dataset.origin, "more rows of {} than {}", what,
            num_rows);
    features.narrow(0, done, rows.size(0)).copy_(rows);
    if (rows.scalar_type() != at::kFloat) dataset.stored_dtype = rows.scalar_type();
    done += rows.size(0);
  });
  require(done == num_rows, dataset.origin, "{} rows of {}, expected {}", done, what, num_rows);
  return features;
}

void read_all_features(GraphSource& source, const SourceHeader& header, Dataset& dataset) {
  using TakeRows = GraphSource::TakeRows;
  if (header.num_edge_features > 0) {
    dataset.edge_features =
        all_rows(dataset.num_edges(), header.num_edge_features, "edge features", dataset,
                 [&](const TakeRows& take) { source.edge_features(take); });
    dataset.stored_dtype.reset();  // of the features of nodes
  }
  if (header.num_features == 0) return;
  dataset.features = all_rows(dataset.num_nodes, header.num_features, "features", dataset,
                              [&](const TakeRows& take) { source.features(take); });
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
  dataset.tasks = header.tasks;
  const TargetLabels labels = source.labels();
  dataset.num_classes = labels.num_classes;
  dataset.target = labels.target;
  if (dataset.num_classes > 0) dataset.labels = labels.labels;
  require_labels(dataset, options);
  std::optional<GraphSource::Masks> masks;
  if (dataset.num_classes > 0) {
    masks = source.masks();
    if (masks) dataset.split_names = source.split_names();
  }
  dataset.graph_offsets = source.graph_offsets();
  read_all_edges(source, dataset);
  if (header.distinct_edges) merge_parallel_edges(dataset);
  read_all_features(source, header, dataset);
  if (masks) {
    dataset.train_masks = masks->train;
    dataset.val_masks = masks->val;
    dataset.test_masks = masks->test;
  } else if (dataset.num_classes > 0) {
    set_random_split(dataset, options.split_seed);
  }
  return dataset;
}

std::unique_ptr<GraphSource> source_of(Dataset dataset) {
  return std::make_unique<DatasetSource>(std::move(dataset));
}

}  // namespace mezzo::data
