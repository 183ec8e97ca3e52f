#include "mezzo/train/data_checks.h"

#include <optional>
#include <string_view>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/train/link_scores.h"
#include "mezzo/train/links.h"
#include "mezzo/train/trained_model.h"

namespace mezzo {
namespace {

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

void check_sampler_of_edge_rows(const Dataset& dataset, const TrainOptions& options) {
  const std::optional<SamplingOptions>& sampling = options.sampling;
  MEZZO_CHECK(
      !sampling || (sampling->sampler == SamplerKind::kNeighbor && !sampling->control_variates),
      "dataset: {} has edge weights or features, which need the sampler neighbor without "
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
              "dataset: {} has edge weights of 0 or less, expected positive ones for gcn; {}",
              dataset.origin, kWithout);
}

void check_edge_features(const Dataset& dataset, const TrainOptions& options) {
  const bool own = nn::is_own(options.model);
  MEZZO_CHECK((dataset.edge_features.defined() || own) && !dataset.edge_weights.defined(),
              "dataset: {} {} edge features and takes no edge weights, {} has {}",
              nn::to_string(options.model), own ? "reads" : "needs", dataset.origin,
              dataset.edge_weights.defined() ? "edge weights" : "no edge features");
  MEZZO_CHECK(!uses_self_loops(options),
              "self-loops: {} reads edge features, which added self loops do not have",
              nn::to_string(options.model));
  if (dataset.edge_features.defined()) check_sampler_of_edge_rows(dataset, options);
}

void check_features(const Dataset& dataset, const TrainOptions& options) {
  MEZZO_CHECK(dataset.features.defined() && dataset.num_features() > 0,
              "dataset {}: has no node features, which every model needs", dataset.name);
  MEZZO_CHECK(!options.normalize_features || !dataset.is_mapped,
              "normalize-features: the features of {} are mapped from a file, which is read-only",
              dataset.name);
}

/// Throws InvalidArgument if the metric of the data ranks links otherwise than by the decoder.
void check_decoder(const Dataset& dataset, nn::Decoder decoder) {
  const auto ranks_all = [&](const NegativePairs& negatives) {
    return is_of_ranks(dataset.metric) && ranks_all_nodes(dataset.metric, negatives);
  };
  MEZZO_CHECK(decoder != nn::Decoder::kMlp ||
                  !(ranks_all(dataset.negatives.val) || ranks_all(dataset.negatives.test)),
              "decoder: the metric {} scores all nodes for each link, which needs dot, distmult or "
              "complex, got mlp",
              metric_name(dataset.metric));
}

/// Checks a run whose model has a head.
void check_head(const Dataset& dataset, const TrainOptions& options) {
  const std::string_view target = name_of(TaskTargets{}, dataset.target);
  MEZZO_CHECK(!dataset.part,
              "dataset: expected labels of nodes in {}, a part of a data set, got labels of {}s",
              dataset.origin, target);
  if (!options.sampling) return;
  const SamplingOptions& sampling = *options.sampling;
  MEZZO_CHECK(sampling.sampler == SamplerKind::kNeighbor,
              "sampler: {} has labels of {}s, which need the sampler neighbor, got {}",
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
              "loss: {} is for {}, the task of {} is {}", name_of(LossKinds{}, options.loss),
              of_links ? "links" : "numbers", dataset.name, name_of(Tasks{}, task));
  if (options.decoder) {
    MEZZO_CHECK(is_link, "decoder: {} is for the task link, the task of {} is {}",
                name_of(nn::Decoders{}, *options.decoder), dataset.name, name_of(Tasks{}, task));
    check_decoder(dataset, *options.decoder);
  }
  MEZZO_CHECK(options.readout == TrainOptions().readout || task.target == TaskTarget::kGraph,
              "readout: {} is for labels of graphs, the task of {} is {}",
              name_of(nn::Readouts{}, options.readout), dataset.name, name_of(Tasks{}, task));
  MEZZO_CHECK(!of_links || !has_any(dataset.negatives.train),
              "loss: margin compares each link with a pair that is drawn for it, but {} fixes the "
              "negative pairs of training; train without --loss",
              dataset.name);
  if (task.target != TaskTarget::kNode) check_head(dataset, options);
  const std::optional<SamplingOptions>& sampling = options.sampling;
  MEZZO_CHECK(
      !sampling || !draws_by_fanouts(sampling->sampler) || !sampling->fanouts.empty() ||
          task.target == TaskTarget::kGraph,
      "fanout: the sampler {} requires it: the neighbours drawn for a node, one number a layer",
      name_of(SamplerKinds{}, sampling->sampler));
  if (task.labels == LabelKind::kClass) {
    MEZZO_CHECK(dataset.num_classes >= 2, "dataset {}: expected at least two classes, got {}",
                dataset.name, dataset.num_classes);
    return;
  }
  MEZZO_CHECK(!options.capture,
              "capture: expected one class a {}, the task of {} is {}; train without capture",
              target, dataset.name, name_of(Tasks{}, task));
  MEZZO_CHECK(!options.sampling || !options.sampling->balance_classes,
              "balance-classes: expected one class a {}, the task of {} is {}", target,
              dataset.name, name_of(Tasks{}, task));
}

}  // namespace

void check_input(const Dataset& dataset, const TrainOptions& options, TaskTarget target) {
  check_part(dataset, options);
  if (nn::takes_edge_features(options.model)) {
    check_edge_features(dataset, options);
  } else if (dataset.edge_weights.defined() && options.model != nn::ModelKind::kMlp) {
    check_edge_weights(dataset, options);
  }
  check_features(dataset, options);
  MEZZO_CHECK(target != TaskTarget::kGraph || dataset.graph_offsets.defined(),
              "dataset: expected a set of graphs, {} is one graph", dataset.origin);
}

void check_data(const Dataset& dataset, const TrainOptions& options) {
  check_task(dataset, options);
  MEZZO_CHECK(fits(dataset.metric, dataset.task(), dataset.num_classes),
              "dataset {}: the metric {} does not fit the task {} of {} classes", dataset.name,
              metric_name(dataset.metric), name_of(Tasks{}, dataset.task()), dataset.num_classes);
  check_input(dataset, options, dataset.target);
}

void check_features_of(const TrainedModel& trained, const Dataset& dataset) {
  MEZZO_CHECK(dataset.num_features() == trained.data.num_features,
              "dataset: the trained model has {} features, the data have {}",
              trained.data.num_features, dataset.num_features());
  const bool reads_edges = trained.data.task.target == TaskTarget::kEdge ||
                           nn::takes_edge_features(trained.options.model);
  MEZZO_CHECK(!reads_edges || dataset.num_edge_features() == trained.data.num_edge_features,
              "dataset: the trained model has {} features of edges, the data have {}",
              trained.data.num_edge_features, dataset.num_edge_features());
  MEZZO_CHECK(dataset.num_edge_types <= trained.data.num_edge_types,
              "dataset: the trained model has {} types of edges, the data have {}",
              trained.data.num_edge_types, dataset.num_edge_types);
}

void check_ranks(const Dataset& dataset, const nn::Model& model) {
  if (!is_of_ranks(dataset.metric)) return;
  MEZZO_CHECK(
      !model->head().is_empty(),
      "model: the metric {} scores links one by one, which needs a `head` of type nn::Head, "
      "got one of your own",
      metric_name(dataset.metric));
  check_decoder(dataset, model->head()->options.decoder);
}

void check_task_of(const TrainedModel& trained, const Dataset& dataset) {
  MEZZO_CHECK(dataset.task() == trained.data.task,
              "dataset: the trained model is for the task {}, the data have labels for {}",
              name_of(Tasks{}, trained.data.task), name_of(Tasks{}, dataset.task()));
}

void check_fits(const TrainedModel& trained, const Dataset& dataset) {
  MEZZO_CHECK(!dataset.part, "dataset: expected a whole data set, {} is a part of one",
              dataset.origin);
  MEZZO_CHECK(dataset.num_classes <= trained.data.num_classes,
              "dataset: the trained model has {} classes, the data have {}",
              trained.data.num_classes, dataset.num_classes);
  if (dataset.labels.defined()) check_task_of(trained, dataset);
  check_input(dataset, trained.options, trained.data.task.target);
  check_features_of(trained, dataset);
}

}  // namespace mezzo
