#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include <ATen/ATen.h>

#include "mezzo/core/random.h"
#include "mezzo/data/dataset.h"
#include "mezzo/train/options/options.h"

/// Small synthetic data sets.
namespace mezzo::test {

/// Two classes, node i of class i % 2, joined in a ring of each class; features are noise around
/// +1 or -1. Splits 0 and 1 take different quarters for validation and test. N = 40, F = 6.
inline Dataset two_rings() {
  constexpr std::int64_t kNodes = 40, kFeatures = 6;
  Dataset data;
  data.name = "two rings";
  data.origin = "made in the test";
  data.num_nodes = kNodes;
  data.num_classes = 2;
  const at::Tensor node = at::arange(kNodes);
  const at::Tensor next = at::remainder(node + 2, kNodes);
  data.src = at::cat({node, next});
  data.dst = at::cat({next, node});
  data.edge_features = at::stack({at::ones({2 * kNodes}), at::arange(2 * kNodes) / kNodes}, 1);
  data.labels = at::remainder(node, 2);
  data.features = at::empty({kNodes, kFeatures});
  auto* value = data.features.data_ptr<float>();
  for (std::int64_t i = 0; i < kNodes * kFeatures; ++i) {
    const double noise = random_uniform(1, 1, static_cast<std::uint64_t>(i)) - 0.5;
    value[i] = static_cast<float>((i / kFeatures % 2 == 0 ? 1 : -1) + noise);
  }
  const at::Tensor quarter = at::remainder(at::floor_divide(node, 2), 4);
  data.train_masks = at::stack({at::lt(quarter, 2), at::lt(quarter, 2)}, 1);
  data.val_masks = at::stack({at::eq(quarter, 2), at::eq(quarter, 3)}, 1);
  data.test_masks = at::stack({at::eq(quarter, 3), at::eq(quarter, 2)}, 1);
  data.validate();
  return data;
}

/// two_rings() with three classes: classes 0 and 1 are the rings, class 2 is ring 0 with one
/// entry in three missing.
inline Dataset rings_of_several_labels(Metric metric = Metric::kMicroF1) {
  Dataset data = two_rings();
  const at::Tensor ring = data.labels, node = at::arange(data.num_nodes);
  const at::Tensor first = ring.eq(0).to(at::kByte), second = ring.eq(1).to(at::kByte);
  data.labels =
      at::stack({first, second, first.masked_fill(at::remainder(node, 3).eq(0), kNoEntry)}, 1);
  data.num_classes = 3;
  data.metric = metric;
  data.validate();
  return data;
}

/// two_rings() with two numbers a node: the sum of its features, in units of 1000 around 5000, and
/// the first feature, which is unknown for every third node.
inline Dataset rings_of_numbers(Metric metric = Metric::kR2) {
  Dataset data = two_rings();
  const at::Tensor unknown = at::remainder(at::arange(data.num_nodes), 3).eq(0);
  data.labels = at::stack(
      {5000 + 1000 * data.features.sum(1), data.features.select(1, 0).masked_fill(unknown, NAN)},
      1);
  data.metric = metric;
  data.validate();
  return data;
}

/// Options that train two_rings() to convergence in a few epochs.
inline TrainOptions quick_options() {
  TrainOptions options;
  options.epochs = 10;
  options.hidden = 8;
  options.seed = 3;
  return options;
}

}  // namespace mezzo::test
