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
  std::int64_t hidden = 256;  ///< width of the hidden layer; of kGat: of its heads together
  double dropout = 0.5;
  std::int64_t split_index = 0;
  std::vector<amp::Precision> precisions;
};

/// One training step on all training nodes of a data set with a model of two layers, as the trainer
/// takes it (Adam; a GradScaler for float16), in every precision from the same weights. There is no
/// baseline; the expected result is the loss of the first precision's first step. Stages:
///
/// - "first product": the first dense product, or with sparse features the sparse one;
/// - "products", "aggregation", "attention": the other dense products, sums over neighbours (and
///   any further product with sparse features), and what makes attention (scores, softmax, or all
///   of it in one) of the forward;
/// - "other forward": dropout, bias, normalization, activation, casts but that of the features,
///   which are cast once (cast_once());
/// - "loss", "backward", "optimizer" (with unscaling).
///
/// `dataset` outlives the plan.
Plan training_epoch(const Dataset& dataset, const EpochOptions& options);

/// An R-MAT graph as a data set: random dense features and labels, all nodes for training but the
/// last two, which validate and test.
Dataset random_dataset(int scale, std::int64_t num_edges, std::int64_t num_features,
                       std::int64_t num_classes);

}  // namespace mezzo::bench
