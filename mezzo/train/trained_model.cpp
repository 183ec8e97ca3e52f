#include "mezzo/train/trained_model.h"

#include <cstddef>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/amp/precision.h"
#include "mezzo/core/error.h"
#include "mezzo/nn/model/evaluation_mode.h"
#include "mezzo/sampling/blocks/block_sampler.h"
#include "mezzo/sampling/gather.h"
#include "mezzo/train/data_checks.h"
#include "mezzo/train/problem.h"

namespace mezzo {
namespace {

/// The options, for the device that the model is on.
TrainOptions options_of(const TrainedModel& trained) {
  MEZZO_CHECK(!trained.model.is_empty(), "TrainedModel: expected a model, got none");
  TrainOptions options = trained.options;
  options.device = trained.model->parameters().front().device();
  return options;
}

/// The problem of predicting without labels.
Problem prediction_problem(const TrainedModel& trained, const Dataset& dataset,
                           const TrainOptions& options) {
  check_fits(trained, dataset);
  Problem problem = make_inference_problem(dataset, options, trained.data.task.target);
  problem.number_scale = trained.data.number_scale;
  return problem;
}

/// Throws NumericError unless all logits that count are finite.
void check_finite(const at::Tensor& logits, const TrainedModel& trained, const Dataset& dataset) {
  const EvaluatedTargets evaluated =
      evaluated_targets(logits, trained.data.task.target, dataset.part);
  if (evaluated.not_finite > 0) {
    detail::raise<NumericError>("the model's outputs for {} of {} {}s are not finite in {}",
                                evaluated.not_finite, evaluated.count,
                                name_of(TaskTargets{}, evaluated.target),
                                amp::to_string(trained.options.precision));
  }
}

/// The logits of distinct nodes, from the blocks of all their neighbours.
at::Tensor logits_of_seeds(nn::Model model, const Problem& problem, const TrainOptions& options,
                           const at::Tensor& seeds) {
  const bool uses_edges = model->options.kind != nn::ModelKind::kMlp;
  const std::vector<std::int64_t> fanouts(static_cast<std::size_t>(model->num_layers()),
                                          uses_edges ? kAllNeighbors : 0);
  const BlockSampler sampler(problem.topology, {.fanouts = fanouts, .parent_degrees = true});
  Blocks blocks = sampler.sample(seeds, BatchKey{});
  at::Tensor x = gather_rows(problem.features, blocks.front().src_nodes().contiguous());
  nn::ModelInput input = input_of(blocks, problem.edge_rows);
  for (Block& block : blocks) block = block.to(options.device);
  x = x.to(options.device);
  if (!is_low(options.precision)) x = x.to(at::kFloat);
  const at::NoGradGuard no_grad;
  const nn::EvaluationMode evaluation(*model);
  const amp::PrecisionScope scope(options.precision, options.device);
  return in_own_units(model->forward(input, x).to(at::kFloat), problem.number_scale);
}

}  // namespace

at::Tensor TrainedModel::logits(const Dataset& dataset) const {
  const TrainOptions own = options_of(*this);
  const Problem problem = prediction_problem(*this, dataset, own);
  nn::Model shared = model;
  const Outputs outputs = evaluate_model(shared, problem, own);
  check_finite(outputs.logits, *this, dataset);
  return outputs.logits.cpu();
}

at::Tensor TrainedModel::logits(const Dataset& dataset, const at::Tensor& targets) const {
  const bool are_integers = at::isIntegralType(targets.scalar_type(), /*includeBool=*/false);
  const std::string_view target = name_of(TaskTargets{}, data.task.target);
  MEZZO_CHECK(targets.dim() == 1 && are_integers, "{}s: expected integers [n], got {} of {} axes",
              target, c10::toString(targets.scalar_type()), targets.dim());
  const at::Tensor ids = targets.to(at::kCPU, at::kLong).contiguous();
  const TrainOptions own = options_of(*this);
  if (ids.numel() == 0) return at::empty({0, data.num_classes});
  const auto [least, most] = at::aminmax(ids);
  const std::int64_t count = dataset.count(data.task.target);
  MEZZO_CHECK(least.item<std::int64_t>() >= 0 && most.item<std::int64_t>() < count,
              "{}s: expected ids in [0, {}), got {} to {}", target, count,
              least.item<std::int64_t>(), most.item<std::int64_t>());
  // Such as the hops of sgc, which need one set of nodes.
  const bool of_nodes = data.task.target == TaskTarget::kNode;
  if (!of_nodes || nn::needs_whole_graph(model->options.kind))
    return logits(dataset).index_select(0, ids);
  const auto [seeds, rows] = at::_unique(ids, /*sorted=*/true, /*return_inverse=*/true);
  const Problem problem = prediction_problem(*this, dataset, own);
  const at::Tensor distinct = logits_of_seeds(model, problem, own, seeds);
  check_finite(distinct, *this, dataset);
  return distinct.cpu().index_select(0, rows);
}

Scores evaluate(const Dataset& dataset, const TrainedModel& trained) {
  const TrainOptions options = options_of(trained);
  if (dataset.labels.defined()) check_task_of(trained, dataset);
  Problem problem = make_problem(dataset, options);
  problem.number_scale = trained.data.number_scale;
  check_features_of(trained, dataset);
  check_ranks(dataset, trained.model);
  MEZZO_CHECK(problem.num_classes == trained.data.num_classes,
              "dataset: the trained model has {} classes, the data have {}",
              trained.data.num_classes, problem.num_classes);
  nn::Model model = trained.model;
  const Outputs outputs = evaluate_model(model, problem, options);
  check_finite(outputs.logits, trained, dataset);
  return score_outputs(outputs, model->head(), problem, options);
}

}  // namespace mezzo
