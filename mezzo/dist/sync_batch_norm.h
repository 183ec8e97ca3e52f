#pragma once

#include <cstdint>
#include <iosfwd>

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include "mezzo/core/export.h"
#include "mezzo/dist/group/process_group.h"
#include "mezzo/nn/normalization.h"

namespace mezzo::dist {

/// Those of libtorch's BatchNorm1d.
struct SyncBatchNorm1dOptions {
  std::int64_t num_features = 0;  ///< columns, at least 1
  double eps = 1e-5;              ///< added to the variance, above 0
  double momentum = 0.1;          ///< weight of a batch in the running statistics, in [0, 1]
};

/// Batch normalization over the rows of all ranks: as libtorch's BatchNorm1d with the same options
/// on the joined batch. Parameters `weight`, `bias`, buffers `running_mean`, `running_var`
/// (float32 until converted) and `num_batches_tracked` as there.
///
/// While training all ranks take part in each forward and each backward, in the same order; the
/// numbers of rows may differ, also be 0. The gradients of weight and bias are those of this rank's
/// rows, like any other parameter's, to be reduced with them. In evaluation nothing communicates.
class MEZZO_API SyncBatchNorm1dImpl : public torch::nn::Cloneable<SyncBatchNorm1dImpl> {
 public:
  /// Throws InvalidArgument for options out of range.
  SyncBatchNorm1dImpl(SyncBatchNorm1dOptions options, ProcessGroup group);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// weight 1, bias 0, no statistics.
  void reset_parameters();
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// x: floating [n, num_features]. Returns its shape and dtype; statistics and sums in float32
  /// (float64 if x or the parameters are), joined from the ranks' means in float64, rounded once
  /// at the end. Allocates; while training it communicates, blocks and synchronises. Throws
  /// InvalidArgument for another shape or dtype (while training on every rank, if the group
  /// checks its collectives; else the others wait for this one), and, on every rank, for fewer than
  /// 2 rows of all ranks together; IoError as the group's collectives do. No second derivatives.
  at::Tensor forward(const at::Tensor& x);

  SyncBatchNorm1dOptions options;
  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  ProcessGroup group_;
};
TORCH_MODULE(SyncBatchNorm1d);

/// For nn::ModelOptions::batch_normalization: each is a SyncBatchNorm1d over the group, with the
/// default eps and momentum, which are BatchNorm1d's.
MEZZO_API nn::NormalizationFactory sync_batch_normalization(ProcessGroup group);

}  // namespace mezzo::dist
