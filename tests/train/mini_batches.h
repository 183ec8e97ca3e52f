#pragma once

#include "mezzo/train/options/options.h"

#include "train/synthetic.h"

/// Runs by mini-batches on two_rings(), which has 20 training nodes of 40.
namespace mezzo::test {

/// quick_options() with the required options of the sampler: batches of 8 seeds, a quarter of the
/// graph, or 12 drawn nodes.
inline TrainOptions sampled_options(SamplerKind sampler) {
  TrainOptions options = quick_options();
  options.sampling.emplace();
  SamplingOptions& sampling = *options.sampling;
  sampling.sampler = sampler;
  if (sampler == SamplerKind::kLayer) {
    sampling.batch_size = 8;
    sampling.layer_sizes = {20, 12};
  } else if (draws_blocks(sampler)) {
    sampling.batch_size = 8;
    sampling.fanouts = {2, 2};
  } else if (sampler == SamplerKind::kCluster) {
    sampling.parts = 4;
  } else {
    sampling.saint_budget = sampler == SamplerKind::kSaintNode   ? 12
                            : sampler == SamplerKind::kSaintEdge ? 6
                                                                 : 4;
    sampling.batches_per_epoch = 3;
  }
  return options;
}

}  // namespace mezzo::test
