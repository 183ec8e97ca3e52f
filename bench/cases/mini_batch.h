#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mezzo/amp/precision.h"
#include "mezzo/graph/graph.h"

#include "bench/cases/sampling.h"
#include "bench/harness/measure.h"

namespace mezzo::bench {

/// The trained model: SAGE with one layer per fan-out.
struct MiniBatchModel {
  std::int64_t hidden = 256;
  std::int64_t num_classes = 2;
  std::vector<amp::Precision> precisions = {amp::Precision::kFloat32};
};

/// Training over the work on one thread: batches prepared ahead by one worker ("pipelined"), and
/// preparation and training of the same batches separately. Stages: the worker's time for sampling,
/// gathering and preparing gradients ("transfer"), and the caller's waiting time; none for training
/// alone. Results: the number of batches. graph: with columns "feat" and "label". `graph` must
/// outlive the plan.
Plan pipelined_epoch(const Graph& graph, const SamplingWork& work, const MiniBatchModel& model);

/// A table of an outcome of pipelined_epoch: preparing and training, how much longer the epoch took
/// than the slower of them, and the medians of the stages of the pipeline while it trained.
std::string format_pipelining(const Outcome& outcome);

}  // namespace mezzo::bench
