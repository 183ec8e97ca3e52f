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

/// Options of libtorch's BatchNorm1d.
struct SyncBatchNorm1dOptions {
  std::int64_t num_features = 0;  ///< columns, at least 1
  double eps = 1e-5;              ///< added to the variance, above 0
  double momentum = 0.1;          ///< weight of a batch in the running statistics, in [0, 1]
};

/// Batch normalization over the rows of all ranks: libtorch's BatchNorm1d on the joined batch.
/// Parameters `weight`, `bias`, buffers `running_mean`, `running_var` (float32 until converted)
/// and `num_batches_tracked` as in BatchNorm1d.
///
/// In training mode all ranks must run each forward and backward in the same order; the number of
/// rows may differ and be 0. The gradients of weight and bias cover this rank's rows and must be
/// reduced like other gradients. Does not communicate in evaluation mode.
class MEZZO_API SyncBatchNorm1dImpl : public torch::nn::Cloneable<SyncBatchNorm1dImpl> {
 public:
  /// Throws InvalidArgument for options out of range.
  SyncBatchNorm1dImpl(SyncBatchNorm1dOptions options, ProcessGroup group);
  /// Creates the parameters; called by the constructor and clone().
  void reset() override;
  /// Sets weight to 1 and bias to 0, and resets the running statistics.
  void reset_parameters();
  /// Writes the name, sizes and options in one line.
  void pretty_print(std::ostream& stream) const override;
  /// x: floating [n, num_features]. Returns the same shape and dtype. Statistics and sums are
  /// float32 (float64 if x or the parameters are), merged over ranks in float64 and rounded once at
  /// the end. Allocates; in training mode communicates, blocks and synchronizes. Throws
  /// InvalidArgument for another shape or dtype (in training on every rank if the group checks
  /// collectives; otherwise the other ranks wait for this one), and on every rank for fewer than 2
  /// rows in total; IoError as the group's collectives do. No second derivatives.
  at::Tensor forward(const at::Tensor& x);

  SyncBatchNorm1dOptions options;
  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  ProcessGroup group_;
};
TORCH_MODULE(SyncBatchNorm1d);

/// For nn::ModelOptions::batch_normalization: creates a SyncBatchNorm1d over the group with the
/// default eps and momentum of BatchNorm1d.
MEZZO_API nn::NormalizationFactory sync_batch_normalization(ProcessGroup group);

}  // namespace mezzo::dist
