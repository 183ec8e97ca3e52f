#pragma once

#include <vector>

#include "mezzo/train/options/options.h"

#include "support/tolerance.h"
#include "train/synthetic.h"

/// Runs by mini-batches, such as on two_rings(), which has 20 training nodes of 40.
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

/// Losses as close as float32 sums let them be: each of the epochs rounds sums of at most `terms`
/// terms, in two layers, forward and backward.
inline testing::AssertionResult same_losses(const std::vector<double>& got,
                                            const std::vector<double>& expected,
                                            double terms = 40) {
  const auto column = [](const std::vector<double>& values) {
    return at::tensor(at::ArrayRef<double>(values), at::kDouble);
  };
  const at::Tensor reference = column(expected);
  const double all_terms = terms * 4 * static_cast<double>(expected.size());
  return near(column(got).to(at::kFloat), reference,
              sum_bound(reference.abs(), all_terms, at::kFloat));
}

}  // namespace mezzo::test
