#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

#include "mezzo/data/dataset.h"
#include "mezzo/train/options.h"
#include "mezzo/train/problem.h"
#include "mezzo/train/state.h"

namespace mezzo {

/// What a training step compares the logits with.
struct TrainingNodes {
  at::Tensor rows;    ///< int64 [n], their numbers
  at::Tensor labels;  ///< int64 [n]
};

/// Those of the problem that make_problem gave for `dataset`. Throws InvalidArgument where there
/// are none.
TrainingNodes training_nodes(const Problem& problem, const Dataset& dataset,
                             const TrainOptions& options);

/// What came of a step.
struct StepResult {
  double loss = 0;       ///< cross entropy, without the loss factor
  bool skipped = false;  ///< for inf or nan gradients
};

/// One step that minimises what `loss` gives (float32, one element; called in the precision of the
/// options), times the loss factor. The gradients stay in the parameters, divided by the loss
/// scale; those of the step before are dropped first. Synchronises.
StepResult take_step(TrainState& state, const TrainOptions& options,
                     const std::function<at::Tensor()>& loss);

/// take_step() on the mean cross entropy of all training nodes.
StepResult train_step(TrainState& state, const Problem& problem, const TrainingNodes& nodes,
                      const TrainOptions& options);

}  // namespace mezzo
