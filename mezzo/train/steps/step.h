#pragma once

#include <functional>
#include <optional>

#include <ATen/core/Tensor.h>

#include "mezzo/amp/precision.h"
#include "mezzo/amp/scaler/grad_scaler.h"
#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"
#include "mezzo/sampling/edges/edge_loader.h"
#include "mezzo/train/options/options.h"
#include "mezzo/train/problem.h"
#include "mezzo/train/state.h"

namespace mezzo {

/// The nodes, edges, graphs or links, with their negative pairs if the data fix them, whose labels
/// are learnt.
struct TrainingRows {
  at::Tensor rows;    ///< int64 [n], their ids
  at::Tensor labels;  ///< these rows of Problem::loss_labels
};

/// The training rows of `problem`, the result of make_problem(dataset, options). Throws
/// InvalidArgument if there are none.
TrainingRows training_rows(const Problem& problem, const Dataset& dataset,
                           const TrainOptions& options);

/// Computes `loss()` (float32, one element) in that precision on `device`, scales it by `scaler`
/// and runs the backward, which accumulates into the parameters' gradients. Returns the loss,
/// detached. Does not synchronise by itself.
MEZZO_API at::Tensor scaled_backward(amp::Precision precision, at::Device device,
                                     amp::GradScaler& scaler,
                                     const std::function<at::Tensor()>& loss,
                                     const amp::PrecisionOptions& options = {});

/// How a loss counts in the mean loss of its epoch, the sum of loss * factor divided by the sum of
/// weight, the number of terms (see loss.h).
struct LossShare {
  double factor = 1;
  double weight = 1;
};

/// The result of a step, over all processes.
struct StepResult {
  double loss = 0;        ///< without the loss factor
  bool skipped = false;   ///< because of inf or nan gradients
  double loss_scale = 1;  ///< after it
  LossTotals totals = {};
};

/// Call this after scaler.step(): updates the loss scale and returns the numbers of a StepResult as
/// float64 [3] on the device of `loss`. Does not synchronise.
at::Tensor finish_step(amp::GradScaler& scaler, const torch::optim::Optimizer& optimizer,
                       const at::Tensor& loss);

/// The result of finish_step() on the host. Synchronises once.
StepResult read_step(const at::Tensor& numbers);

/// One step that minimises `loss()` (float32, one element; called in the precision of the options)
/// times the loss factor. Zeroes the gradients first; they stay in the parameters afterwards,
/// divided by the loss scale unless the optimizer is a fused one. If state.exchange is set,
/// communicates, and calls `meanwhile` during the communication. Synchronises.
StepResult take_step(TrainState& state, const TrainOptions& options, const LossShare& share,
                     const std::function<at::Tensor()>& loss,
                     const std::function<void()>& meanwhile = {});

/// The loss of all training rows on the full graph; of links, unless the data fix negative pairs,
/// with a new one for each, by a number of libtorch's CPU generator.
class FullGraphLoss {
 public:
  /// problem, which must outlive the result. Copies the ends of training edges or links, and of
  /// links the edges that carry messages, for negative pairs.
  FullGraphLoss(const Problem& problem, TrainingRows rows, LossKind loss);
  /// In the precision of the caller's region; does not synchronise.
  at::Tensor operator()(nn::Model& model) const;

 private:
  const Problem& problem_;
  TrainingRows rows_;
  LossKind loss_;
  nn::HeadTargets edges_;                     ///< of training edges or links
  std::optional<NegativeSampler> negatives_;  ///< of links, if they are drawn
};

/// take_step() with the loss of all training rows.
StepResult train_step(TrainState& state, const FullGraphLoss& loss, const TrainOptions& options);

/// train_step() of one process, up to the result of finish_step(). Synchronises as GradScaler::step
/// does.
at::Tensor queue_train_step(TrainState& state, const FullGraphLoss& loss,
                            const TrainOptions& options);

}  // namespace mezzo
