#pragma once

#include <ATen/ATen.h>

#include "mezzo/data/dataset.h"
#include "mezzo/train/options/options.h"
#include "mezzo/train/trained_model.h"
#include "mezzo/train/trainer.h"

#include "train/synthetic.h"

/// A small data set of links.
namespace mezzo::test {

inline constexpr nn::Decoder kDecoders[] = {nn::Decoder::kMlp, nn::Decoder::kDot,
                                            nn::Decoder::kDistMult, nn::Decoder::kComplEx};
/// Half of the way from chance, 0.5, to 1.
constexpr double kLinksLearnt = 0.75;

/// Nodes of six groups; node i is linked in both directions to the next three of its group, with
/// type 0 or 1 by the group. A feature a group.
inline Dataset links_within_groups(bool with_types) {
  constexpr std::int64_t kGroups = 6, kOfGroup = 10, kNodes = kGroups * kOfGroup;
  Dataset data;
  data.name = "groups";
  data.origin = "made in the test";
  data.num_nodes = kNodes;
  const at::Tensor nodes = at::arange(kNodes), place = nodes.remainder(kOfGroup);
  const auto ahead = [&](std::int64_t steps) {
    return nodes - place + (place + steps).remainder(kOfGroup);
  };
  const at::Tensor from = nodes.repeat({3}), to = at::cat({ahead(1), ahead(2), ahead(3)});
  data.src = at::cat({from, to});
  data.dst = at::cat({to, from});
  const at::Tensor group = nodes.div(kOfGroup, "floor");
  data.features = at::one_hot(group, kGroups).to(at::kFloat);
  if (with_types) {
    data.edge_types = group.index_select(0, data.src).remainder(2);
    data.num_edge_types = 2;
  }
  data.target = TaskTarget::kLink;
  data.num_classes = 1;
  data.labels = at::ones({data.num_edges(), 1}, at::kByte);
  data.metric = Metric::kRocAuc;
  // Both directions of every tenth pair are for validation, of the next one for testing.
  const at::Tensor side = at::arange(3 * kNodes).remainder(10).repeat({2});
  data.train_masks = side.ge(2).unsqueeze(1);
  data.val_masks = side.eq(0).unsqueeze(1);
  data.test_masks = side.eq(1).unsqueeze(1);
  data.validate();
  return data;
}

/// Options that train them to kLinksLearnt on the full graph.
inline TrainOptions link_options(nn::Decoder decoder) {
  TrainOptions options = test::quick_options();
  options.model = nn::ModelKind::kSage;
  options.decoder = decoder;
  options.epochs = 200;
  options.dropout = 0;
  options.weight_decay = 0;
  options.hidden = 32;
  return options;
}

/// The same links with types; three features of 0 and 1.
inline Dataset links_of_bits() {
  Dataset data = links_within_groups(true);
  data.features =
      (at::arange(data.num_nodes * 3) * 7).remainder(11).lt(5).view({-1, 3}).to(at::kFloat);
  return data;
}

/// A model for links_of_bits() whose weights are integers of at most 2. The magnitudes of a score
/// sum up to less than 2^24, so that float32 has all sums exactly: 3 features of 7 nodes give at
/// most 44, 8 of these 706, and 8 products of two of these and a weight 8 million, complex products
/// twice that.
inline TrainedModel model_of_integers(const Dataset& data, nn::Decoder decoder) {
  TrainOptions options = link_options(decoder);
  options.model = nn::ModelKind::kGin;
  options.layers = 1;
  options.hidden = 8;
  options.epochs = 1;
  const TrainedModel trained = train(data, options).trained;
  const at::NoGradGuard no_grad;
  std::int64_t first = 0;
  for (at::Tensor& values : trained.model->parameters()) {
    const at::Tensor numbers = at::arange(first, first + values.numel()) * 7;
    values.copy_((numbers.remainder(5) - 2).view_as(values));
    ++first;
  }
  return trained;
}

/// links_within_groups(true) with 72 negative pairs for training, and others for validation and
/// testing.
inline Dataset links_with_negatives() {
  Dataset data = links_within_groups(true);
  const auto nodes = [&](std::int64_t rows, std::int64_t columns, std::int64_t step) {
    return (at::arange(rows * columns) * step).remainder(data.num_nodes).view({rows, columns});
  };
  data.negatives = {
      .train = {.pairs = nodes(2, 72, 17)},
      .val = {.pairs = nodes(2, 25, 23), .src = nodes(36, 12, 7)},
      .test = {.pairs = nodes(2, 30, 11), .src = nodes(36, 15, 29), .dst = nodes(36, 20, 13)}};
  data.validate();
  return data;
}

/// Three batches an epoch of the 288 training links.
inline SamplingOptions link_batches() {
  return {.batch_size = 100, .fanouts = {3, 3}};
}

}  // namespace mezzo::test
