#include "mezzo/train/options/recipe.h"

#include <algorithm>
#include <type_traits>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/train/options/option_fields.h"
#include "mezzo/train/report/metrics.h"

namespace mezzo {
namespace {

using nn::ModelKind;
using nn::Normalization;

// Fewer training nodes than this share of all: what counts is not to overfit them.
constexpr double kFewLabels = 0.08;
// Few features of a node are not 0, as in counts of words.
constexpr double kSparseFeatures = 0.1;
// A mean over more neighbours leaves too little of normalised features to learn from.
constexpr double kFewNeighbours = 20;
// So few features say little about a node by itself: the model has to look farther.
constexpr std::int64_t kFewFeatures = 64;

constexpr std::int64_t kHeads = 8;

double density_of(const Dataset& dataset) {
  const at::Tensor& features = dataset.features;
  if (!features.defined() || features.numel() == 0 || dataset.is_mapped) return 1;
  const std::int64_t nonzero = features.layout() == at::kSparseCsr
                                   ? features._nnz()
                                   : at::count_nonzero(features).item<std::int64_t>();
  return static_cast<double>(nonzero) / static_cast<double>(features.numel());
}

/// width: of a hidden layer; of gat: of all heads together.
void set_hidden(TrainOptions& options, std::int64_t width, Normalization normalization) {
  const bool has_hidden_layer = options.layers > 1 && options.model != ModelKind::kSgc;
  const bool is_gat = options.model == ModelKind::kGat;
  options.hidden = options.heads = std::nullopt;
  if (has_hidden_layer || nn::has_layer_mlps(options.model)) {
    options.hidden = is_gat ? width / kHeads : width;
  }
  if (has_hidden_layer && is_gat) options.heads = kHeads;
  options.normalization = has_hidden_layer ? normalization : Normalization::kNone;
}

/// Few labels, counts of words and few neighbours, as in citations.
void set_for_sparse_few_labels(TrainOptions& options) {
  const bool is_gat = options.model == ModelKind::kGat;
  // The sums of gin need a norm.
  set_hidden(options, 64,
             nn::has_layer_mlps(options.model) ? Normalization::kLayer : Normalization::kNone);
  options.normalize_features = true;
  options.dropout = is_gat ? 0.6 : 0.8;
  if (is_gat) options.attention_dropout = 0.6;
  options.learning_rate = 0.01;
  options.weight_decay = is_gat ? 5e-4 : 1e-3;
}

void set_for_few_labels(TrainOptions& options) {
  set_hidden(options, 64, Normalization::kLayer);
  if (options.model == ModelKind::kGat) options.attention_dropout = 0.5;
  options.dropout = 0.5;
  options.learning_rate = 0.01;
  options.weight_decay = 5e-4;
}

/// are_links: skip connections help to classify, but with them dot products find fewer links.
void set_for_many_labels(TrainOptions& options, bool are_links) {
  set_hidden(options, 128, Normalization::kLayer);
  options.skip = !are_links;
  options.dropout = 0.5;
  options.learning_rate = 0.003;
  options.weight_decay = 5e-5;
}

/// Also for labels of graphs, with any features.
void set_for_few_features(TrainOptions& options) {
  // A mini-batch may have one row, which has no statistics.
  set_hidden(options, 64, options.sampling ? Normalization::kLayer : Normalization::kBatch);
  options.skip = true;
  options.dropout = 0.2;
  options.learning_rate = 0.01;
  options.weight_decay = 0;
}

/// Whether the validation targets have a score. Links get negative pairs.
bool has_validation_score(const Dataset& dataset, std::int64_t split_index) {
  const at::Tensor mask = dataset.split(split_index).val;
  if (dataset.target == TaskTarget::kLink) return mask.any().item<bool>();
  return is_defined(dataset.metric, dataset.labels, mask);
}

/// For data with few features. Models of graphs need less depth: the readout sees all nodes.
std::int64_t deep_layers(const TrainOptions& options, TaskTarget target) {
  if (options.model == ModelKind::kSgc) return 2;
  return target == TaskTarget::kGraph ? 4 : 8;
}

/// Sets the options of the model to those of `before`.
void keep_model(const TrainOptions& before, TrainOptions& options) {
  options.layers = before.layers;
  fields::for_each(fields::kTraining, [&](const auto& field) {
    if (field.rules.of_kinds) options.*field.member = before.*field.member;
  });
}

}  // namespace

void set_heads(TrainOptions& options, std::optional<std::int64_t> heads) {
  if (!options.hidden || !options.heads || heads.value_or(0) < 1) return;
  options.hidden = std::max<std::int64_t>(1, *options.hidden * *options.heads / *heads);
  options.heads = heads;
}

std::optional<std::int64_t> sampled_layers(const TrainOptions& options) {
  if (!options.sampling) return std::nullopt;
  const auto counts = static_cast<std::int64_t>(
      std::max(options.sampling->fanouts.size(), options.sampling->layer_sizes.size()));
  return counts > 0 ? std::optional(counts) : std::nullopt;
}

RecipeFacts recipe_facts(const Dataset& dataset, std::int64_t split_index) {
  const auto count = [](const at::Tensor& mask) { return mask.sum().item<std::int64_t>(); };
  const auto ratio = [](std::int64_t numerator, std::int64_t denominator) {
    return static_cast<double>(numerator) /
           static_cast<double>(std::max<std::int64_t>(denominator, 1));
  };
  // The halo of a part is in no mask, and its outer nodes lack edges.
  const std::optional<DatasetPart>& part = dataset.part;
  return {.train_share = ratio(count(dataset.split(split_index).train),
                               part ? count(part->own_mask) : dataset.num_targets()),
          .mean_degree = part ? ratio(part->num_edges, part->num_nodes)
                              : ratio(dataset.num_edges(), dataset.num_nodes),
          .feature_density = density_of(dataset),
          .num_features = dataset.num_features(),
          .target = dataset.target};
}

std::string to_string(const RecipeFacts& facts) {
  return fmt::format(
      "{:.3g} % of the {}s to train on, {:.3g} edges a node, {} features, {:.3g} % not 0",
      100 * facts.train_share, name_of(TaskTargets{}, facts.target), facts.mean_degree,
      facts.num_features, 100 * facts.feature_density);
}

nn::ModelKind recommended_model(const Dataset& dataset) {
  const bool weighted = dataset.edge_weights.defined();
  if (dataset.target != TaskTarget::kGraph || weighted) return ModelKind::kGcn;
  return dataset.edge_features.defined() ? ModelKind::kGine : ModelKind::kGin;
}

TrainOptions recommended_options(const Dataset& dataset, TrainOptions options,
                                 std::optional<std::int64_t> layers) {
  const TrainOptions before = options;
  const RecipeFacts facts = recipe_facts(dataset, options.split_index);
  const bool deep = facts.num_features < kFewFeatures || facts.target == TaskTarget::kGraph;
  const bool few_labels = facts.train_share < kFewLabels;
  if (!layers) layers = sampled_layers(options);
  options.layers = layers.value_or(deep ? deep_layers(options, facts.target) : 2);
  if (dataset.part && !layers) options.layers = std::min(options.layers, dataset.part->hops);
  options.attention_dropout = std::nullopt;
  options.skip = options.normalize_features = false;
  const bool sparse = facts.feature_density < kSparseFeatures && !dataset.is_mapped;
  if (deep) {
    set_for_few_features(options);
  } else if (!few_labels) {
    set_for_many_labels(options, dataset.target == TaskTarget::kLink);
  } else if (sparse && facts.mean_degree < kFewNeighbours) {
    set_for_sparse_few_labels(options);
  } else {
    set_for_few_labels(options);
  }
  if (nn::is_own(options.model)) keep_model(before, options);
  options.epochs = options.sampling ? 100 : 500;
  options.patience = std::nullopt;
  // Without validation scores a run cannot stop early.
  if (has_validation_score(dataset, options.split_index)) {
    constexpr std::int64_t kFewestEvaluations = 3;
    options.patience = std::max<std::int64_t>(options.sampling ? 20 : 100,
                                              kFewestEvaluations * options.eval_every);
  }
  return options;
}

std::string recipe_flags(const TrainOptions& options) {
  std::string flags;
  const auto add = [&flags](const char* name, const std::string& value) {
    flags +=
        fmt::format("{}--{}{}{}", flags.empty() ? "" : " ", name, value.empty() ? "" : " ", value);
  };
  fields::for_each(fields::kTraining, [&](const auto& field) {
    const auto& member = options.*field.member;
    using T = std::decay_t<decltype(member)>;
    if (!field.rules.in_recipe) return;
    if constexpr (std::is_same_v<T, bool>) {
      if (member) add(field.name, "");
    } else if constexpr (fields::Textual<T>) {
      add(field.name, fields::to_text(member));
    } else if constexpr (std::is_arithmetic_v<T>) {
      add(field.name, fmt::format("{}", member));
    } else if constexpr (std::is_arithmetic_v<typename fields::Unwrapped<T>::Type>) {
      if (member) add(field.name, fmt::format("{}", *member));
    }
  });
  return flags;
}

}  // namespace mezzo
