#pragma once

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

/// One step on all training nodes, in the precision of the options. The gradients stay in the
/// parameters, divided by the loss scale; those of the step before are dropped first. Synchronises.
StepResult train_step(TrainState& state, const Problem& problem, const TrainingNodes& nodes,
                      const TrainOptions& options);

}  // namespace mezzo
