#include "mezzo/train/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/graph.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/graph/transforms/transforms.h"
#include "mezzo/nn/conv/graph_conv.h"
#include "mezzo/train/data_checks.h"
#include "mezzo/train/links.h"
#include "mezzo/train/report/metrics.h"

namespace mezzo {
namespace {

/// The device of the whole graph.
at::Device problem_device(const TrainOptions& options) {
  return options.sampling ? at::Device(at::kCPU) : options.device;
}

/// `topology` (the part's, with other self loops) with the degrees of the whole graph. The part has
/// all self loops, so the difference in degrees stays the same.
Topology with_whole_degrees(const Topology& topology, const Dataset& dataset) {
  const Topology part = topology_of(dataset);
  const DatasetPart& whole = *dataset.part;
  return topology.with_parent_degrees(
      topology.in_degrees() + (whole.in_degrees - part.in_degrees()),
      topology.out_degrees() + (whole.out_degrees - part.out_degrees()));
}

/// Nodes without in-edges in the whole graph.
std::int64_t count_unreached(const Topology& topology) {
  const at::Tensor* whole = topology.parent_in_degrees();
  return (whole != nullptr ? *whole : topology.in_degrees()).eq(0).sum().item<std::int64_t>();
}

/// Divides each weight by the square roots of the sums of weights at both ends, and multiplies it
/// by the square roots of both degrees, because GraphConv divides by them. In a sample GraphConv
/// then estimates the same normalised sum.
at::Tensor gcn_factors(const Topology& topology, const at::Tensor& weights) {
  const auto root_at = [](const at::Tensor& degrees, const at::Tensor& ends) {
    return degrees.clamp_min(1).to(at::kDouble).sqrt().index_select(0, ends);
  };
  const at::Tensor normalised = nn::EdgeWeightNorm()(topology, weights.to(at::kDouble));
  return (normalised * root_at(topology.out_degrees(), topology.src()) *
          root_at(topology.in_degrees(), topology.dst()))
      .to(at::kFloat);
}

/// The same graph with its edges in CSC order: attention and softmax then read and write numbers of
/// edges in sequence, and the topology keeps no edge ids. Rows keep the order of their entries.
Graph in_csc_order(const Graph& graph) {
  const Adjacency& rows = graph.topology().csc();
  if (!rows.edge_ids.defined()) return graph;
  Graph ordered = Graph::from_csc(rows.indptr, rows.indices, /*edge_ids=*/{},
                                  detail::width_like(rows.indices.scalar_type()));
  ordered.edata() = graph.edata().rows(rows.edge_ids);
  return ordered;
}

/// What the layers of the model read of the edges; undefined: nothing.
at::Tensor edge_rows_of(const Dataset& dataset, nn::ModelKind model) {
  if (nn::takes_edge_features(model)) return dataset.edge_features;
  return model != nn::ModelKind::kMlp ? dataset.edge_weights : at::Tensor();
}

/// Whether the batches are whole graphs of a set.
bool has_batches_of_graphs(const Problem& problem, const TrainOptions& options) {
  return options.sampling && problem.task.target == TaskTarget::kGraph;
}

/// Sets the topology and the edge rows.
void set_structure(Problem& problem, const Dataset& dataset, const TrainOptions& options) {
  Graph graph(topology_of(dataset));
  const at::Tensor edge_rows = edge_rows_of(dataset, options.model);
  if (edge_rows.defined()) graph.edata()[kEdgeRowsColumn] = edge_rows;
  // Exactly one loop a node, of weight 1, also if the data have some.
  if (uses_self_loops(options)) graph = add_self_loop(remove_self_loop(graph));
  graph = graph.to(problem_device(options));
  if (options.model != nn::ModelKind::kMlp || has_batches_of_graphs(problem, options)) {
    graph = in_csc_order(graph);
  }
  const Topology topology =
      dataset.part ? with_whole_degrees(graph.topology(), dataset) : graph.topology();
  const std::int64_t unreached = nn::needs_in_edges(options.model) ? count_unreached(topology) : 0;
  MEZZO_CHECK(unreached == 0,
              "self-loops: without them {} nodes of {} have no in-edge, which the model {} needs",
              unreached, dataset.name, nn::to_string(options.model));
  problem.topology = topology;
  if (!edge_rows.defined()) return;
  const at::Tensor& rows = graph.edata().at(kEdgeRowsColumn);
  const bool is_gcn = options.model == nn::ModelKind::kGcn;
  problem.edge_rows = is_gcn ? gcn_factors(topology, rows) : rows;
}

/// Whether the first layer reads features in the precision's 16-bit type and nothing else reads
/// them, as far as is known.
bool reads_16_bit(const TrainOptions& options) {
  const std::vector<std::string>& float32 = options.keep_float32;
  return is_low(options.precision) && !options.sampling && !options.skip &&
         !nn::is_own(options.model) &&
         std::find(float32.begin(), float32.end(), "layer0") == float32.end();
}

at::Tensor make_features(const Dataset& dataset, const TrainOptions& options, bool may_be_sparse) {
  at::Tensor features = dataset.features;
  // Mini-batches are cast one by one.
  if (!options.sampling || options.normalize_features) features = features.to(at::kFloat);
  if (options.normalize_features) features = normalize_rows(features);
  if (features.layout() == at::kSparseCsr && !(may_be_sparse && worth_sparse(features)))
    features = features.to_dense();
  return cast_once(features, options).to(problem_device(options));
}

nn::HeadTargets head_targets_of(const Dataset& dataset, TaskTarget target) {
  nn::HeadTargets targets;
  if (target == TaskTarget::kEdge || target == TaskTarget::kLink) {
    targets.edges = topology_of(dataset);
    if (target == TaskTarget::kEdge) targets.edge_features = dataset.edge_features;
    if (target == TaskTarget::kLink) targets.edge_types = dataset.edge_types;
  } else if (target == TaskTarget::kGraph) {
    targets.graph_sizes = dataset.graph_offsets.diff();
  }
  return targets;
}

/// int64 [E]: the places of the data set's edges in CSC order.
at::Tensor places_in_csc_order(const Dataset& dataset) {
  const at::Tensor ids = topology_of(dataset).csc().edge_ids;
  const at::Tensor places = at::arange(dataset.num_edges());
  return ids.defined() ? at::empty_like(places).scatter_(0, ids.to(at::kLong), places) : places;
}

void set_input(Problem& problem, const Dataset& dataset, const TrainOptions& options,
               TaskTarget target) {
  problem.task.target = target;
  problem.num_edge_features = dataset.num_edge_features();
  problem.num_edge_types = dataset.num_edge_types;
  if (target == TaskTarget::kLink) {
    const Dataset messages = with_message_edges(dataset, options.split_index);
    set_structure(problem, messages, options);
  } else {
    set_structure(problem, dataset, options);
  }
  problem.features = make_features(dataset, options, !has_batches_of_graphs(problem, options));
  if (dataset.part) problem.node_ids = dataset.part->node_ids;
  nn::HeadTargets targets = head_targets_of(dataset, target);
  const bool has_edge_outputs =
      options.model == nn::ModelKind::kOwnGraph && target == TaskTarget::kEdge;
  if (has_edge_outputs) targets.edge_ids = places_in_csc_order(dataset);
  problem.head_targets = targets.to(problem_device(options));
}

/// Of the numbers of the training nodes. A column without spread is not divided.
NumberScale number_scale_of(const at::Tensor& labels, const at::Tensor& train_mask) {
  const at::Tensor left_out = labels.isnan().logical_or_(train_mask.logical_not().unsqueeze(1));
  const at::Tensor count = left_out.logical_not().sum(0).clamp_min(1);
  const at::Tensor numbers = labels.to(at::kDouble);
  const at::Tensor mean = numbers.masked_fill(left_out, 0).sum(0) / count;
  const at::Tensor squares = (numbers - mean).masked_fill(left_out, 0).square();
  const at::Tensor deviation = (squares.sum(0) / count).sqrt();
  return {.mean = mean.to(at::kFloat),
          .deviation = deviation.masked_fill(deviation.eq(0), 1).to(at::kFloat)};
}

}  // namespace

bool worth_sparse(const at::Tensor& features) {
  if (features.layout() != at::kSparseCsr) return false;
  const std::int64_t rows = features.size(0);
  const auto value_bytes = static_cast<std::int64_t>(sizeof(float));
  const auto index_bytes = static_cast<std::int64_t>(sizeof(std::int64_t));
  const std::int64_t sparse_bytes =
      features._nnz() * (value_bytes + index_bytes) + (rows + 1) * index_bytes;
  return 3 * sparse_bytes < rows * features.size(1) * value_bytes;
}

at::Tensor cast_once(const at::Tensor& features, const TrainOptions& options) {
  const bool dense = features.layout() == at::kStrided && features.scalar_type() == at::kFloat;
  if (!dense || !reads_16_bit(options)) return features;
  if (options.precision == amp::Precision::kBFloat16) return features.to(at::kBFloat16);
  const double kLargest = std::numeric_limits<c10::Half>::max();
  const auto [least, most] = at::aminmax(features);
  const bool fit = -kLargest <= least.item<double>() && most.item<double>() <= kLargest;
  return fit ? features.to(at::kHalf) : features;
}

Problem make_problem(const Dataset& dataset, const TrainOptions& options) {
  check_data(dataset, options);
  Problem problem;
  problem.labels = dataset.labels;
  problem.masks = dataset.split(options.split_index);
  problem.num_classes = dataset.num_classes;
  problem.task = dataset.task();
  problem.metric = dataset.metric;
  set_input(problem, dataset, options, dataset.target);
  problem.negatives = dataset.negatives;
  if (dataset.target == TaskTarget::kLink) add_negatives(problem, dataset);
  if (needs_both_labels(dataset.metric)) {
    const bool several = problem.task.labels == LabelKind::kMultiLabel;
    // Other nodes may have hidden labels, all of one class.
    MEZZO_CHECK(!problem.masks.train.any().item<bool>() || has_score(problem.masks.train, problem),
                "dataset {}: the {} of the training nodes is undefined, {}", dataset.name,
                metric_name(dataset.metric),
                several ? "all or none of them belong to each class" : "they have one class only");
  }
  const at::Device device = problem_device(options);
  problem.labels = problem.loss_labels = problem.labels.to(device);
  if (problem.task.labels == LabelKind::kNumbers) {
    const NumberScale scale =
        number_scale_of(dataset.labels, dataset.split(options.split_index).train);
    problem.loss_labels = ((dataset.labels - scale.mean) / scale.deviation).to(device);
    problem.number_scale = scale;
  }
  problem.masks = {problem.masks.train.to(device), problem.masks.val.to(device),
                   problem.masks.test.to(device)};
  return problem;
}

Problem make_inference_problem(const Dataset& dataset, const TrainOptions& options,
                               TaskTarget target) {
  check_input(dataset, options, target);
  Problem problem;
  set_input(problem, dataset, options, target);
  return problem;
}

nn::ModelInput input_of(Blocks& blocks, const at::Tensor& edge_rows) {
  if (!edge_rows.defined()) return blocks;
  for (Block& block : blocks) {
    block.edata()[kEdgeRowsColumn] = edge_rows.index_select(0, block.parent_edges());
  }
  return {blocks, kEdgeRowsColumn};
}

nn::ModelOptions model_options(const TrainOptions& options, const Problem& problem) {
  return model_options(options, {.num_features = problem.features.size(1),
                                 .num_classes = problem.num_classes,
                                 .num_edge_features = problem.num_edge_features,
                                 .num_edge_types = problem.num_edge_types,
                                 .task = problem.task});
}

nn::ModelOptions model_options(const TrainOptions& options, const DatasetFacts& facts) {
  nn::ModelOptions model{.kind = options.model,
                         .in_features = facts.num_features,
                         .out_features = facts.num_classes,
                         .target = facts.task.target,
                         .edge_features = facts.num_edge_features,
                         .readout = options.readout,
                         .edge_types = facts.num_edge_types,
                         .num_layers = options.layers,
                         .dropout = options.dropout,
                         .normalization = options.normalization,
                         .skip = options.skip};
  if (facts.task.target == TaskTarget::kLink) {
    model.decoder = options.decoder.value_or(nn::Decoder::kDot);
  }
  model.hidden_features = options.hidden.value_or(model.hidden_features);
  model.num_heads = options.heads.value_or(model.num_heads);
  model.num_output_heads = options.output_heads.value_or(model.num_output_heads);
  model.attention_dropout = options.attention_dropout.value_or(model.attention_dropout);
  model.keep_float32 = options.keep_float32;
  // A batch may leave a node without neighbours; set_structure has checked the whole graph.
  model.allow_zero_in_degree = options.sampling.has_value();
  return model;
}

nn::ModelInput full_input(const Problem& problem) {
  nn::ModelInput input(problem.topology, problem.edge_rows);
  if (problem.task.target == TaskTarget::kNode) return input;
  return std::move(input).with_targets(problem.head_targets);
}

nn::ModelKind kind_of_own(const nn::Model& own) {
  const nn::ModelKind kind = own.is_empty() ? nn::ModelKind::kOwn : own->options.kind;
  if (nn::is_own(kind)) return kind;
  return nn::takes_edge_features(kind) ? nn::ModelKind::kOwnEdges : nn::ModelKind::kOwn;
}

namespace {

/// Checks that a model of the user's has the head that outputs of architecture.target need.
void check_own_head(const nn::ModelImpl& own, const nn::ModelOptions& architecture) {
  const TaskTarget target = architecture.target;
  const std::string_view name = name_of(TaskTargets{}, target);
  if (!own.has_head()) {
    const bool by_module =
        own.options.kind == nn::ModelKind::kOwnGraph && target != TaskTarget::kLink;
    MEZZO_CHECK(
        target == TaskTarget::kNode || by_module,
        "model: expected one with a head for outputs of {}s, such as a member `head` of type "
        "nn::Head, got none",
        name);
    return;
  }
  MEZZO_CHECK(target != TaskTarget::kNode,
              "model: expected one without a head for outputs of nodes, got one");
  if (own.head().is_empty()) return;  // a module of the user's
  const nn::HeadOptions& head = own.head()->options;
  MEZZO_CHECK(head.target == target && head.out_features == architecture.out_features,
              "model: expected a head for {} outputs of {}s, got one for {} of {}s",
              architecture.out_features, name, head.out_features,
              name_of(TaskTargets{}, head.target));
  MEZZO_CHECK(target != TaskTarget::kEdge || head.edge_features == architecture.edge_features,
              "model: expected a head with edge_features {}, as the data have, got {}",
              architecture.edge_features, head.edge_features);
  MEZZO_CHECK(!nn::has_edge_types(head.decoder) || head.edge_types >= architecture.edge_types,
              "model: expected a head with edge_types {}, as the data have, got {}",
              architecture.edge_types, head.edge_types);
}

}  // namespace

nn::Model make_model(const TrainOptions& options, nn::ModelOptions architecture, nn::Model own) {
  if (!nn::is_own(options.model)) {
    MEZZO_CHECK(own.is_empty(), "model: expected a model of your own, got {}",
                nn::to_string(options.model));
    return nn::Model(std::move(architecture));
  }
  MEZZO_CHECK(!own.is_empty(),
              "model: expected one of {}, got a model of your own; pass it to train() or "
              "load_checkpoint()",
              detail::names(nn::ModelKinds{}));
  MEZZO_CHECK(own->num_layers() == options.layers, "model: expected {} layers, got {}",
              options.layers, own->num_layers());
  const std::vector<at::Tensor> parameters = own->parameters();
  MEZZO_CHECK(!parameters.empty(), "model: expected parameters, got none");
  for (const at::Tensor& parameter : parameters) {
    MEZZO_CHECK(parameter.scalar_type() == at::kFloat, "model: expected float32 parameters, got {}",
                detail::describe(parameter));
  }
  check_own_head(*own, architecture);
  std::int64_t& out_features = own->options.out_features;  // 0: not known yet
  if (out_features == 0) out_features = architecture.out_features;
  MEZZO_CHECK(out_features == architecture.out_features,
              "model: expected logits of {} classes, got out_features {}",
              architecture.out_features, out_features);
  return own;
}

}  // namespace mezzo
