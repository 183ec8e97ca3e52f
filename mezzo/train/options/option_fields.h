#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <tuple>

#include "mezzo/core/error.h"
#include "mezzo/train/options/field.h"
#include "mezzo/train/options/options.h"
#include "mezzo/train/options/sampling_options.h"

/// The options of training, of sampling and of CSV columns, one list each. Range checks,
/// checkpoints and command line flags derive from them: to add an option, add a member to the
/// struct and a line here.
namespace mezzo::fields {

// The ranges.

constexpr std::int64_t kMostLayers = 1 << 16;  // more would exhaust memory, or time with sgc
// Sizes of tensors with two such dimensions still fit 64 bits.
constexpr std::int64_t kMostWidth = 1 << 24;
constexpr std::int64_t kMostWorkers = 256;
constexpr std::int64_t kMostPrefetch = 1024;
constexpr std::int64_t kMostDraws = std::int64_t{1} << 31;  // of one batch

template <std::int64_t kLeast>
void at_least(std::string_view name, std::int64_t value) {
  MEZZO_CHECK(value >= kLeast, "{}: expected at least {}, got {}", name, kLeast, value);
}
template <std::int64_t kLeast, std::int64_t kMost>
void between(std::string_view name, std::int64_t value) {
  MEZZO_CHECK(value >= kLeast && value <= kMost, "{}: expected {} to {}, got {}", name, kLeast,
              kMost, value);
}
inline void is_share(std::string_view name, double value) {
  MEZZO_CHECK(value >= 0 && value < 1, "{}: expected a number in [0, 1), got {}", name, value);
}
inline void is_loss_factor(std::string_view name, double value) {
  MEZZO_CHECK(
      value >= std::numeric_limits<float>::min() && value <= std::numeric_limits<float>::max(),
      "{}: expected a positive number of float32 that is not subnormal, got {}", name, value);
}

// What options apply to.

inline bool is_gat(const TrainOptions& options) {
  return options.model == nn::ModelKind::kGat;
}
inline bool is_not_sgc(const TrainOptions& options) {
  return options.model != nn::ModelKind::kSgc;
}
inline bool is_not_mlp(const TrainOptions& options) {
  return options.model != nn::ModelKind::kMlp;
}
inline bool is_16_bit(const TrainOptions& options) {
  return is_low(options.precision);
}

inline bool has_fanouts(const SamplingOptions& options) {
  return draws_by_fanouts(options.sampler);
}
inline bool has_blocks(const SamplingOptions& options) {
  return draws_blocks(options.sampler);
}
inline bool has_budget(const SamplingOptions& options) {
  return is_saint(options.sampler);
}
inline bool has_order(const SamplingOptions& options) {
  return !is_saint(options.sampler);
}
template <SamplerKind kSampler>
bool is_sampler(const SamplingOptions& options) {
  return options.sampler == kSampler;
}

inline constexpr const char* kSgcIsOneLayer =
    "sgc has one layer, and --layers is the number of its hops";

/// All options of training but the device, which is no part of a checkpoint, and sampling.
inline const std::tuple kTraining = {
    field("dataset", &TrainOptions::dataset, Group::kData, ""),
    field("split", &TrainOptions::split, Group::kData, ""),
    field("split-index", &TrainOptions::split_index, Group::kData, "", {.check = at_least<0>}),
    field("model", &TrainOptions::model, Group::kModelKind, "Model"),
    field("layers", &TrainOptions::layers, Group::kModel, "Layers; sgc: hops of its one layer",
          {.check = between<1, kMostLayers>, .in_recipe = true}),
    field("hidden", &TrainOptions::hidden, Group::kModel,
          "Width of a hidden layer; gat: of each head",
          {.check = between<1, kMostWidth>,
           .applies = is_not_sgc,
           .why_not = kSgcIsOneLayer,
           .in_recipe = true,
           .of_kinds = true}),
    field("heads", &TrainOptions::heads, Group::kModel, "gat: heads of a hidden layer",
          {.check = between<1, kMostWidth>,
           .applies = is_gat,
           .why_not = "only gat has attention heads",
           .in_recipe = true,
           .of_kinds = true}),
    field("output-heads", &TrainOptions::output_heads, Group::kModel,
          "gat: heads of the last layer (default: 1)",
          {.check = between<1, kMostWidth>,
           .applies = is_gat,
           .why_not = "only gat has attention heads",
           .of_kinds = true}),
    field("dropout", &TrainOptions::dropout, Group::kModel,
          "Share of the features dropped before each layer",
          {.check = is_share, .in_recipe = true, .of_kinds = true}),
    field("attention-dropout", &TrainOptions::attention_dropout, Group::kModel,
          "gat: share of the attention dropped",
          {.check = is_share,
           .applies = is_gat,
           .why_not = "only gat has attention",
           .in_recipe = true,
           .of_kinds = true}),
    field("norm", &TrainOptions::normalization, Group::kModel,
          "Normalization after each hidden layer",
          {.applies = is_not_sgc, .why_not = kSgcIsOneLayer, .in_recipe = true, .of_kinds = true}),
    field("skip", &TrainOptions::skip, Group::kModel, "Add each layer's input to its output",
          {.in_recipe = true, .of_kinds = true}),
    field("readout", &TrainOptions::readout, Group::kModel,
          "Labels of graphs: how the rows of a graph's nodes become one", {.of_kinds = true}),
    field("decoder", &TrainOptions::decoder, Group::kModel,
          "Links: how the rows of two nodes are scored (default: dot)", {.of_kinds = true}),
    field("self-loops", &TrainOptions::self_loops, Group::kModel,
          "Give every node one edge to itself (default: on for gcn, gat and sgc)",
          {.applies = is_not_mlp, .why_not = "mlp uses no edges"}),
    field("precision", &TrainOptions::precision, Group::kPrecision,
          "Precision of the products; weights stay float32"),
    field("epochs", &TrainOptions::epochs, Group::kTraining,
          "Epochs: steps on the full graph, or passes over the mini-batches",
          {.check = at_least<1>, .in_checkpoint = false, .in_recipe = true}),
    field("lr", &TrainOptions::learning_rate, Group::kStep, "Learning rate", {.in_recipe = true}),
    field("weight-decay", &TrainOptions::weight_decay, Group::kStep,
          "Weight decay of every parameter", {.in_recipe = true}),
    field("optimizer", &TrainOptions::optimizer, Group::kStep, "Optimizer"),
    field("loss", &TrainOptions::loss, Group::kStep,
          "Loss (mse, l1, huber: of numbers, in standard deviations; margin: of links)"),
    field("loss-factor", &TrainOptions::loss_factor, Group::kStep,
          "Factor on the loss that is minimised; losses are reported without it",
          {.check = is_loss_factor}),
    field("seed", &TrainOptions::seed, Group::kStep, "Seed of weights, dropout and sampling"),
    field("normalize-features", &TrainOptions::normalize_features, Group::kStep,
          "Divide each row of the features by the sum of its magnitudes", {.in_recipe = true}),
    field(
        "loss-scale", &TrainOptions::loss_scale, Group::kTraining,
        "Factor on the loss and its gradients during the backward (default: dynamic for fp16, else "
        "none)"),
    field("keep-float32", &TrainOptions::keep_float32, Group::kTraining,
          "Parts of the model that bf16 and fp16 leave in float32: layer0, norm0, skip0, ...",
          {.applies = is_16_bit,
           .why_not = "only bf16 and fp16 have parts that are not in float32",
           .of_kinds = true}),
    field("capture", &TrainOptions::capture, Group::kTraining,
          "Capture the step as a CUDA graph (only on CUDA and on the full graph)",
          {.in_checkpoint = false}),
    field("patience", &TrainOptions::patience, Group::kTraining,
          "Stop after N epochs without a better validation score",
          {.check = at_least<1>, .in_checkpoint = false, .in_recipe = true}),
    field("eval-every", &TrainOptions::eval_every, Group::kTraining,
          "Evaluate every N epochs, and at the end", {.check = at_least<1>}),
    field("gradient-traffic", &TrainOptions::gradient_traffic, Group::kProcesses,
          "Several processes: dtype of the gradients that they exchange"),
    field("checkpoint", &TrainOptions::checkpoint, Group::kFiles,
          "Write the state of the run at the end, at an interrupt and once a minute",
          {.in_checkpoint = false}),
    field("resume", &TrainOptions::resume, Group::kFiles,
          "Continue the run of a checkpoint, bit for bit; options given here replace its own",
          {.in_checkpoint = false}),
    field("init", &TrainOptions::init, Group::kFiles,
          "Start a new run from the best weights of a checkpoint", {.in_checkpoint = false}),
};

inline const std::tuple kSampling = {
    field(
        "batch-size", &SamplingOptions::batch_size, Group::kSampling,
        "neighbor, labor, layer: train by mini-batches of N training nodes, edges, links or graphs",
        {.check = at_least<1>, .applies = has_blocks, .needed = "the training nodes of a batch"}),
    field("fanout", &SamplingOptions::fanouts, Group::kSampling,
          "neighbor, labor: neighbours drawn for a node, a number or all for each layer, inputs "
          "first",
          {.applies = has_fanouts}),
    field("layer-sizes", &SamplingOptions::layer_sizes, Group::kSampling,
          "layer (gcn, sage): nodes drawn for each layer, inputs first",
          {.applies = is_sampler<SamplerKind::kLayer>, .needed = "the nodes drawn for each layer"}),
    field("sampler", &SamplingOptions::sampler, Group::kSampling, "How batches are drawn"),
    field("replace", &SamplingOptions::replace, Group::kSampling,
          "neighbor: draw neighbours with replacement",
          {.applies = is_sampler<SamplerKind::kNeighbor>}),
    field("control-variates", &SamplingOptions::control_variates, Group::kSampling,
          "neighbor (gcn, sage; CPU): correct means by stored activations of all neighbours",
          {.applies = is_sampler<SamplerKind::kNeighbor>}),
    field("layer-dependency", &SamplingOptions::layer_dependency, Group::kSampling,
          "labor: draw with the same random numbers in all layers of a batch",
          {.applies = is_sampler<SamplerKind::kLabor>}),
    field("drop-last", &SamplingOptions::drop_last, Group::kSampling,
          "neighbor, labor, layer: leave out a last batch that is not full",
          {.applies = has_blocks}),
    field("balance-classes", &SamplingOptions::balance_classes, Group::kSampling,
          "neighbor, labor, layer: draw training nodes of every class equally often",
          {.applies = has_blocks}),
    field("shuffle", &SamplingOptions::shuffle, Group::kSampling,
          "neighbor, labor, layer, cluster: training nodes, or parts, in the same order each epoch",
          {.applies = has_order}),
    field("parts", &SamplingOptions::parts, Group::kSampling,
          "cluster: parts that the graph is cut into",
          {.check = at_least<1>,
           .applies = is_sampler<SamplerKind::kCluster>,
           .needed = "the parts that the graph is cut into"}),
    field("parts-per-batch", &SamplingOptions::parts_per_batch, Group::kSampling,
          "cluster: parts of a batch (default: 1)",
          {.check = at_least<1>, .applies = is_sampler<SamplerKind::kCluster>}),
    field("saint-budget", &SamplingOptions::saint_budget, Group::kSampling,
          "saint-node, saint-edge, saint-walk: nodes, edges or walks drawn for a batch",
          {.check = between<1, kMostDraws>,
           .applies = has_budget,
           .needed = "the nodes, edges or walks of a batch"}),
    field("walk-length", &SamplingOptions::walk_length, Group::kSampling,
          "saint-walk: steps of a walk (default: 2)",
          {.check = between<1, kMostDraws>, .applies = is_sampler<SamplerKind::kSaintWalk>}),
    field("batches-per-epoch", &SamplingOptions::batches_per_epoch, Group::kSampling,
          "saint: batches of an epoch (default: as many as draw each node about once)",
          {.check = at_least<1>, .applies = has_budget}),
    field("sample-on", &SamplingOptions::sample_on, Group::kSampling,
          "Where batches are drawn (device: on CUDA, sampler neighbor, without workers)",
          {.in_checkpoint = false}),
    field("workers", &SamplingOptions::num_workers, Group::kSampling,
          "Threads that prepare batches; 0: the trainer's own (default: 1; 0 if the device draws)",
          {.check = between<0, kMostWorkers>, .in_checkpoint = false}),
    field("prefetch", &SamplingOptions::prefetch, Group::kSampling,
          "Batches that each worker prepares ahead (default: 2)",
          {.check = between<1, kMostPrefetch>, .in_checkpoint = false}),
    field("inference-batch-size", &SamplingOptions::inference_batch_size, Group::kSampling,
          "Nodes, edges or links of a batch in evaluations", {.check = at_least<1>}),
};

/// The columns of a CSV folder.
inline const std::tuple kColumns = {
    field("id", &CsvColumns::id, Group::kData, "CSV folder: ids in nodes.csv, if not 'id'"),
    field("label", &CsvColumns::label, Group::kData,
          "CSV folder: labels in nodes.csv or edges.csv, if not 'label'"),
    field("src", &CsvColumns::src, Group::kData,
          "CSV folder: source nodes in edges.csv, if not 'src' or 'source'"),
    field("dst", &CsvColumns::dst, Group::kData,
          "CSV folder: destination nodes in edges.csv, if not 'dst' or 'target'"),
    field("weight", &CsvColumns::weight, Group::kData,
          "CSV folder: edge weights in edges.csv (default: no weights)"),
};

}  // namespace mezzo::fields
