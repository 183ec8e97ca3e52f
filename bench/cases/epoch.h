#pragma once

#include <cstdint>
#include <vector>

#include "mezzo/amp/precision.h"
#include "mezzo/data/dataset.h"
#include "mezzo/nn/model/model.h"

#include "bench/harness/measure.h"

namespace mezzo::bench {

struct EpochOptions {
  nn::ModelKind model = nn::ModelKind::kGcn;
  std::int64_t hidden = 256;  ///< width of the hidden layer; for kGat: all heads together
  double dropout = 0.5;
  std::int64_t split_index = 0;
  std::vector<amp::Precision> precisions;
};

/// One training step on all training nodes of a dataset with a two-layer model, as in the trainer
/// (Adam; a GradScaler for float16), in every precision from the same weights. No baseline; the
/// expected result is the first loss of the first precision. Stages:
///
/// - "first product": the first dense product, or with sparse features the sparse one;
/// - "products", "aggregation", "attention": the other dense products, sums over neighbours (and
///   any further product with sparse features), and attention (scores, softmax, or one fused
///   operation), all in forward;
/// - "other forward": dropout, bias, normalization, activation, casts except that of the features,
///   which are cast once (cast_once());
/// - "loss", "backward", "optimizer" (with unscaling).
///
/// `dataset` must outlive the plan.
Plan training_epoch(const Dataset& dataset, const EpochOptions& options);

/// An R-MAT graph as a dataset: random dense features and labels; all nodes are training nodes
/// except the last two (validation and test).
Dataset random_dataset(int scale, std::int64_t num_edges, std::int64_t num_features,
                       std::int64_t num_classes);

}  // namespace mezzo::bench
