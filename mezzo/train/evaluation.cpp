#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/nn/model/evaluation_mode.h"
#include "mezzo/nn/model/inference.h"
#include "mezzo/sampling/gather.h"
#include "mezzo/train/link_scores.h"
#include "mezzo/train/problem.h"
#include "mezzo/train/report/metrics.h"

namespace mezzo {

at::Tensor in_own_units(const at::Tensor& outputs, const NumberScale& scale) {
  if (!scale.mean.defined()) return outputs;
  return at::addcmul(scale.mean.to(outputs.device()), outputs,
                     scale.deviation.to(outputs.device()));
}

namespace {

/// Of a model with rows h of the nodes, on the CPU, a batch of edges or links at a time.
at::Tensor outputs_of_edges(nn::Model& model, const Problem& problem, const TrainOptions& options,
                            const at::Tensor& h) {
  const nn::HeadTargets& all = problem.head_targets;
  const std::int64_t num_edges = all.edges.num_edges();
  std::vector<at::Tensor> outputs;
  std::int64_t first = 0;
  do {
    const std::int64_t count = std::min(options.sampling->inference_batch_size, num_edges - first);
    const auto [nodes, ends, counts] = at::_unique2(
        at::cat({all.edges.src().narrow(0, first, count), all.edges.dst().narrow(0, first, count)}),
        /*sorted=*/true, /*return_inverse=*/true);
    const auto of_batch = [&](const at::Tensor& rows) {
      return rows.defined() ? rows.narrow(0, first, count) : rows;
    };
    const nn::HeadTargets batch =
        nn::HeadTargets{
            .edges = Topology::from_coo(ends.narrow(0, 0, count), ends.narrow(0, count, count),
                                        nodes.numel(), nodes.numel()),
            .edge_features = of_batch(all.edge_features),
            .graph_sizes = {},
            .edge_types = of_batch(all.edge_types)}
            .to(options.device);
    outputs.push_back(
        model->forward_head(gather_rows(h, nodes).to(options.device), &batch).to(at::kCPU));
    first += count;
  } while (first < num_edges);
  return at::cat(outputs);
}

/// A batch of graphs at a time: as many as have together at most inference_batch_size nodes, or one
/// that has more.
at::Tensor outputs_of_graphs(nn::Model& model, const Problem& problem,
                             const TrainOptions& options) {
  const Adjacency& rows = problem.topology.csc();
  const auto* indptr = rows.indptr.const_data_ptr<std::int64_t>();
  const at::Tensor& sizes = problem.head_targets.graph_sizes;
  const auto* size = sizes.const_data_ptr<std::int64_t>();
  const std::int64_t num_graphs = sizes.numel();
  std::vector<at::Tensor> outputs;
  std::int64_t graph = 0, node = 0;
  do {
    std::int64_t end = graph, count = 0;
    while (end < num_graphs &&
           (end == graph || count + size[end] <= options.sampling->inference_batch_size)) {
      count += size[end++];
    }
    const std::int64_t edge = indptr[node], num_edges = indptr[node + count] - edge;
    const Topology topology =
        detail::topology_from_rows({rows.indptr.narrow(0, node, count + 1) - edge,
                                    rows.indices.narrow(0, edge, num_edges) - node, at::Tensor()},
                                   count, count)
            .to(options.device);
    const nn::HeadTargets targets =
        nn::HeadTargets{
            .edges = {}, .edge_features = {}, .graph_sizes = sizes.narrow(0, graph, end - graph)}
            .to(options.device);
    const at::Tensor edge_rows =
        problem.edge_rows.defined()
            ? problem.edge_rows.narrow(0, edge, num_edges).to(options.device)
            : at::Tensor();
    at::Tensor x = problem.features.narrow(0, node, count).to(options.device);
    if (!is_low(options.precision)) x = x.to(at::kFloat);
    outputs.push_back(
        model->forward(nn::ModelInput(topology, edge_rows).with_targets(targets), x).to(at::kCPU));
    graph = end;
    node += count;
  } while (graph < num_graphs);
  return at::cat(outputs);
}

/// What the head reads, or the logits without a head: on the full graph on its device, else on the
/// CPU.
at::Tensor rows_of_nodes(nn::Model& model, const Problem& problem, const TrainOptions& options) {
  if (!options.sampling) return model->forward_layers(full_input(problem), problem.features);
  return inference(model, problem.topology, problem.features,
                   {.batch_size = options.sampling->inference_batch_size,
                    .device = options.device,
                    .edge_rows = problem.edge_rows});
}

at::Tensor outputs_of(nn::Model& model, const Problem& problem, const TrainOptions& options,
                      const at::Tensor& h) {
  if (!options.sampling) return model->forward_head(h, full_input(problem).targets());
  return has_pairs(problem) ? outputs_of_edges(model, problem, options, h) : h;
}

}  // namespace

Outputs evaluate_model(nn::Model& model, const Problem& problem, const TrainOptions& options) {
  const at::NoGradGuard no_grad;
  const nn::EvaluationMode evaluation(*model);
  Outputs outputs;
  {
    const amp::PrecisionScope scope(options.precision, options.device);
    if (options.sampling && problem.task.target == TaskTarget::kGraph) {
      outputs.logits = outputs_of_graphs(model, problem, options);
    } else {
      const at::Tensor h = rows_of_nodes(model, problem, options);
      outputs.logits = outputs_of(model, problem, options, h);
      if (problem.task.target == TaskTarget::kLink) outputs.nodes = h;
    }
  }
  outputs.logits =
      in_own_units(outputs.logits.to(problem.features.device(), at::kFloat), problem.number_scale);
  return outputs;
}

EvaluatedTargets evaluated_targets(const at::Tensor& logits, TaskTarget target,
                                   const std::optional<DatasetPart>& part) {
  EvaluatedTargets evaluated{.target = target, .count = logits.size(0)};
  if (part) evaluated.count = part->own_mask.sum().item<std::int64_t>();
  if (logits.numel() == 0) return evaluated;
  const auto [smallest, largest] = at::aminmax(logits);  // NaN if any is
  if (std::isfinite(smallest.item<float>()) && std::isfinite(largest.item<float>()))
    return evaluated;
  at::Tensor not_finite = at::isfinite(logits).all(1).logical_not();
  if (part) not_finite = not_finite.logical_and(part->own_mask.to(not_finite.device()));
  evaluated.not_finite = not_finite.sum().item<std::int64_t>();
  return evaluated;
}

bool has_score(const at::Tensor& mask, const Problem& problem) {
  return is_defined(problem.metric, problem.labels, mask);
}

std::optional<double> chance_score(const Problem& problem) {
  if (problem.metric == Metric::kRocAuc) return 0.5;
  if (problem.metric == Metric::kR2) return 0;
  if (problem.metric != Metric::kAccuracy) return std::nullopt;
  const at::Tensor labels = problem.labels.masked_select(problem.masks.train);
  if (labels.numel() == 0) return std::nullopt;
  return static_cast<double>(at::bincount(labels).max().item<std::int64_t>()) /
         static_cast<double>(labels.numel());
}

Scores score_outputs(const Outputs& outputs, const nn::Head& head, const Problem& problem,
                     const TrainOptions& options) {
  if (is_of_ranks(problem.metric)) {
    return rank_links(head, outputs.nodes.to(options.device, at::kFloat), problem);
  }
  const at::Tensor& logits = outputs.logits;
  const SplitMasks& masks = problem.masks;
  if (problem.metric == Metric::kAccuracy) {
    const auto shares = accuracies(logits, problem.labels, {masks.train, masks.val, masks.test});
    return {.train = shares[0], .val = shares[1], .test = shares[2]};
  }
  const auto score = [&](const at::Tensor& mask) {
    if (!has_score(mask, problem)) return std::numeric_limits<double>::quiet_NaN();
    return score_of(problem.metric, logits, problem.labels, mask);
  };
  return {.train = score(masks.train), .val = score(masks.val), .test = score(masks.test)};
}

}  // namespace mezzo
