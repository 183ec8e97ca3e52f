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
#include "mezzo/train/links.h"
#include "mezzo/train/report/metrics.h"

namespace mezzo {
namespace {

/// The device of the whole graph.
at::Device problem_device(const TrainOptions& options) {
  return options.sampling ? at::Device(at::kCPU) : options.device;
}

/// Samplers on a part of a data set must begin at its own nodes and stay within its halo.
void check_part(const Dataset& dataset, const TrainOptions& options) {
  if (!dataset.part) return;
  MEZZO_CHECK(
      options.sampling && draws_blocks(options.sampling->sampler),
      "dataset: {} is a part of a data set, which needs the sampler neighbor, labor or layer: set "
      "batch-size and fanout or layer-sizes",
      dataset.origin);
  MEZZO_CHECK(
      options.layers <= dataset.part->hops,
      "dataset: {} has a halo of {} hops, too few for {} layers; partition again: mezzo data "
      "partition --hops {}",
      dataset.origin, dataset.part->hops, options.layers, options.layers);
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

void check_sampler_of_edge_rows(const Dataset& dataset, const TrainOptions& options) {
  const std::optional<SamplingOptions>& sampling = options.sampling;
  MEZZO_CHECK(
      !sampling || (sampling->sampler == SamplerKind::kNeighbor && !sampling->control_variates),
      "dataset: the weights or features of the edges of {} need the sampler neighbor, without "
      "control-variates",
      dataset.origin);
}

void check_edge_weights(const Dataset& dataset, const TrainOptions& options) {
  constexpr const char* kWithout =
      "to ignore them leave out --weight, here or when the data were converted, or "
      "edge_weights.npy";
  MEZZO_CHECK(nn::takes_edge_weights(options.model),
              "dataset: {} has edge weights, which gcn and sage take and {} does not; {}",
              dataset.origin, nn::to_string(options.model), kWithout);
  check_sampler_of_edge_rows(dataset, options);
  MEZZO_CHECK(options.model != nn::ModelKind::kGcn || dataset.edge_weights.gt(0).all().item<bool>(),
              "dataset: {} has edge weights of at most 0, of whose sums gcn takes the root; {}",
              dataset.origin, kWithout);
}

void check_edge_features(const Dataset& dataset, const TrainOptions& options) {
  MEZZO_CHECK(dataset.edge_features.defined() && !dataset.edge_weights.defined(),
              "dataset: {} reads features of edges and no weights, {} has {}",
              nn::to_string(options.model), dataset.origin,
              dataset.edge_weights.defined() ? "edge weights" : "no features of edges");
  MEZZO_CHECK(!uses_self_loops(options),
              "self-loops: {} reads features of edges, which added loops do not have",
              nn::to_string(options.model));
  check_sampler_of_edge_rows(dataset, options);
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

/// Whether the batches are whole graphs of a set.
bool has_batches_of_graphs(const Problem& problem, const TrainOptions& options) {
  return options.sampling && problem.task.target == TaskTarget::kGraph;
}

/// Sets the topology and the edge weights.
void set_structure(Problem& problem, const Dataset& dataset, const TrainOptions& options) {
  Graph graph(topology_of(dataset));
  const bool has_weights = dataset.edge_weights.defined() && options.model != nn::ModelKind::kMlp;
  const bool has_features = nn::takes_edge_features(options.model);
  if (has_weights || has_features) {
    has_features ? check_edge_features(dataset, options) : check_edge_weights(dataset, options);
    graph.edata()[kEdgeRowsColumn] = has_features ? dataset.edge_features : dataset.edge_weights;
  }
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
  if (!has_weights && !has_features) return;
  const at::Tensor& rows = graph.edata().at(kEdgeRowsColumn);
  const bool is_gcn = options.model == nn::ModelKind::kGcn;
  problem.edge_rows = is_gcn ? gcn_factors(topology, rows) : rows;
}

/// Whether the first layer reads features in the precision's 16-bit type and nothing else reads
/// them, as far as is known.
bool reads_16_bit(const TrainOptions& options) {
  const std::vector<std::string>& float32 = options.keep_float32;
  return is_low(options.precision) && !options.sampling && !options.skip &&
         options.model != nn::ModelKind::kOwn &&
         std::find(float32.begin(), float32.end(), "layer0") == float32.end();
}

at::Tensor make_features(const Dataset& dataset, const TrainOptions& options, bool may_be_sparse) {
  MEZZO_CHECK(dataset.features.defined() && dataset.num_features() > 0,
              "dataset {}: has no node features, which every model needs", dataset.name);
  MEZZO_CHECK(!options.normalize_features || !dataset.is_mapped,
              "normalize-features: the features of {} are mapped from a file, which is read-only",
              dataset.name);
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
    MEZZO_CHECK(dataset.graph_offsets.defined(), "dataset: expected a set of graphs, {} is one",
                dataset.origin);
    targets.graph_sizes = dataset.graph_offsets.diff();
  }
  return targets;
}

void set_input(Problem& problem, const Dataset& dataset, const TrainOptions& options,
               TaskTarget target) {
  problem.task.target = target;
  problem.num_edge_features = dataset.num_edge_features();
  problem.num_edge_types = dataset.num_edge_types;
  if (target == TaskTarget::kLink) {
    const Dataset messages = with_message_edges(dataset, options.split_index);
    problem.negatives = training_negatives(messages);
    set_structure(problem, messages, options);
  } else {
    set_structure(problem, dataset, options);
  }
  problem.features = make_features(dataset, options, !has_batches_of_graphs(problem, options));
  if (dataset.part) problem.node_ids = dataset.part->node_ids;
  problem.head_targets = head_targets_of(dataset, target).to(problem_device(options));
}

/// Checks a run whose model has a head.
void check_head(const Dataset& dataset, const TrainOptions& options) {
  const std::string_view target = name_of(TaskTargets{}, dataset.target);
  MEZZO_CHECK(options.model != nn::ModelKind::kOwn,
              "model: a model of your own has outputs for nodes, {} has labels of {}s",
              dataset.name, target);
  MEZZO_CHECK(!dataset.part, "dataset: {} is a part of a data set and has labels of {}s",
              dataset.origin, target);
  if (!options.sampling) return;
  const SamplingOptions& sampling = *options.sampling;
  MEZZO_CHECK(dataset.target != TaskTarget::kLink,
              "sampling: links are learnt on the full graph; leave out batch-size");
  MEZZO_CHECK(sampling.sampler == SamplerKind::kNeighbor,
              "sampler: {} has labels of {}s, which take the sampler neighbor, got {}",
              dataset.name, target, name_of(SamplerKinds{}, sampling.sampler));
  MEZZO_CHECK(!sampling.balance_classes && !sampling.control_variates,
              "{}: expected labels of nodes, {} has labels of {}s",
              sampling.balance_classes ? "balance-classes" : "control-variates", dataset.name,
              target);
  MEZZO_CHECK(sampling.sample_on != SamplePlace::kDevice,
              "sample-on: {} has labels of {}s, whose batches are made on the host", dataset.name,
              target);
  MEZZO_CHECK(
      dataset.target != TaskTarget::kGraph || (sampling.fanouts.empty() && !sampling.replace),
      "{}: {} has labels of graphs, whose batches have all their edges; set batch-size alone",
      sampling.replace ? "replace" : "fanout", dataset.name);
}

/// Some options are for some tasks only.
void check_task(const Dataset& dataset, const TrainOptions& options) {
  const Task task = dataset.task();
  const std::string_view target = name_of(TaskTargets{}, task.target);
  const bool is_link = task.target == TaskTarget::kLink;
  const bool of_links = options.loss == LossKind::kMargin;
  MEZZO_CHECK(options.loss == LossKind::kAutomatic ||
                  (of_links ? is_link : task.labels == LabelKind::kNumbers),
              "loss: {} is for {}, {} has labels for {}", name_of(LossKinds{}, options.loss),
              of_links ? "links" : "numbers", dataset.name, name_of(Tasks{}, task));
  check_decoder(dataset, options.decoder);
  if (task.target != TaskTarget::kNode) check_head(dataset, options);
  const std::optional<SamplingOptions>& sampling = options.sampling;
  MEZZO_CHECK(!sampling || !draws_by_fanouts(sampling->sampler) || !sampling->fanouts.empty() ||
                  task.target == TaskTarget::kGraph,
              "fanout: the sampler {} needs the neighbours drawn for a node, one number a layer",
              name_of(SamplerKinds{}, sampling->sampler));
  if (task.labels == LabelKind::kClass) {
    MEZZO_CHECK(dataset.num_classes >= 2, "dataset {}: expected at least two classes, got {}",
                dataset.name, dataset.num_classes);
    return;
  }
  MEZZO_CHECK(!options.capture,
              "capture: expected one class a {}, {} has labels for {}; train without capture",
              target, dataset.name, name_of(Tasks{}, task));
  MEZZO_CHECK(!options.sampling || !options.sampling->balance_classes,
              "balance-classes: expected one class a {}, {} has labels for {}", target,
              dataset.name, name_of(Tasks{}, task));
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
  check_task(dataset, options);
  check_part(dataset, options);
  Problem problem;
  problem.labels = dataset.labels;
  problem.masks = dataset.split(options.split_index);
  problem.num_classes = dataset.num_classes;
  problem.task = dataset.task();
  problem.metric = dataset.metric;
  MEZZO_CHECK(fits(dataset.metric, problem.task, dataset.num_classes),
              "dataset {}: the metric {} does not fit the task {} of {} classes", dataset.name,
              metric_name(dataset.metric), name_of(Tasks{}, problem.task), dataset.num_classes);
  set_input(problem, dataset, options, dataset.target);
  if (dataset.target == TaskTarget::kLink) add_negatives(problem, dataset);
  if (needs_both_labels(dataset.metric)) {
    const bool several = problem.task.labels == LabelKind::kClasses;
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
  check_part(dataset, options);
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
                         .decoder = options.decoder,
                         .edge_types = facts.num_edge_types,
                         .num_layers = options.layers,
                         .dropout = options.dropout,
                         .normalization = options.normalization,
                         .skip = options.skip};
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

nn::Model make_model(const TrainOptions& options, nn::ModelOptions architecture, nn::Model own) {
  if (options.model != nn::ModelKind::kOwn) {
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
  std::int64_t& out_features = own->options.out_features;  // 0: not known yet
  if (out_features == 0) out_features = architecture.out_features;
  MEZZO_CHECK(out_features == architecture.out_features,
              "model: expected logits of {} classes, got out_features {}",
              architecture.out_features, out_features);
  return own;
}

}  // namespace mezzo
