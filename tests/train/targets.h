#pragma once

#include "mezzo/data/dataset.h"
#include "mezzo/train/options/options.h"

#include "train/synthetic.h"

/// Small data sets with labels of edges or graphs.
namespace mezzo::test {

constexpr LabelKind kLabelKinds[] = {LabelKind::kClass, LabelKind::kMultiLabel,
                                     LabelKind::kNumbers};

/// Well above what a model reaches that ignores its input: 0.5, and 0 of numbers.
constexpr double kLearnt = 0.8;

/// Labels of that kind whose first column is `number`, of two values.
inline void set_labels(Dataset& data, LabelKind kind, const at::Tensor& number) {
  const at::Tensor both = at::stack({number, 1 - number}, 1);
  data.num_classes = 2;
  if (kind == LabelKind::kClass) data.labels = number.to(at::kLong);
  if (kind == LabelKind::kMultiLabel) data.labels = both.to(at::kByte);
  if (kind == LabelKind::kNumbers) data.labels = (100 * both).to(at::kFloat);
  data.metric = kind == LabelKind::kClass        ? Metric::kAccuracy
                : kind == LabelKind::kMultiLabel ? Metric::kMicroF1
                                                 : Metric::kR2;
  const at::Tensor place = at::arange(number.numel()).remainder(5);
  data.train_masks = place.lt(3).unsqueeze(1);
  data.val_masks = place.eq(3).unsqueeze(1);
  data.test_masks = place.eq(4).unsqueeze(1);
}

/// Edges i -> i + 1 and i -> i + 7; whether the number of the source and that of the edge are
/// equal.
inline Dataset edges_with_labels(LabelKind kind) {
  constexpr std::int64_t kNodes = 60;
  Dataset data;
  data.name = "edges";
  data.num_nodes = kNodes;
  const at::Tensor nodes = at::arange(kNodes);
  data.src = nodes.repeat({2});
  data.dst = at::cat({nodes + 1, nodes + 7}).remainder(kNodes);
  const at::Tensor of_nodes = nodes.div(3, "floor").remainder(2).to(at::kFloat);
  data.features = at::stack({of_nodes, at::ones({kNodes})}, 1);
  const at::Tensor of_edges = at::arange(2 * kNodes).remainder(2).to(at::kFloat);
  data.edge_features = of_edges.unsqueeze(1);
  data.target = TaskTarget::kEdge;
  set_labels(data, kind, of_nodes.index_select(0, data.src).eq(of_edges).to(at::kLong));
  return data;
}

/// Paths of three to six nodes; whether they have at least five.
inline Dataset graphs_with_labels(LabelKind kind) {
  Dataset data;
  data.name = "graphs";
  const at::Tensor sizes = at::arange(40).remainder(4) + 3;
  data.graph_offsets = at::cat({at::zeros({1}, at::kLong), sizes.cumsum(0)});
  data.num_nodes = sizes.sum().item<std::int64_t>();
  const at::Tensor graph = at::arange(40).repeat_interleave(sizes);
  const at::Tensor inside = graph.slice(0, 1).eq(graph.slice(0, 0, -1)).nonzero().squeeze(1);
  data.src = at::cat({inside, inside + 1});
  data.dst = at::cat({inside + 1, inside});
  data.features = at::ones({data.num_nodes, 2});
  data.target = TaskTarget::kGraph;
  set_labels(data, kind, sizes.ge(5).to(at::kLong));
  return data;
}

/// Options that train them to kLearnt.
inline TrainOptions task_options(TaskTarget target) {
  TrainOptions options = quick_options();
  options.model = nn::ModelKind::kGin;
  if (target == TaskTarget::kGraph) options.readout = ReduceOp::kSum;
  options.epochs = 120;
  options.dropout = 0;
  options.weight_decay = 0;
  options.hidden = 16;
  return options;
}

/// Three batches an epoch of the 72 training edges, or of the 24 training graphs.
inline SamplingOptions target_batches(TaskTarget target) {
  if (target == TaskTarget::kGraph) return {.batch_size = 10};
  return {.batch_size = 30, .fanouts = {2, 2}};
}

}  // namespace mezzo::test
