#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mezzo/amp/precision.h"
#include "mezzo/cli/bench_measure.h"
#include "mezzo/graph/graph.h"

namespace mezzo::bench {

/// A part of an epoch over a graph.
struct SamplingWork {
  std::vector<std::int64_t> fanouts = {15, 10, 5};  ///< input layer first
  std::int64_t batch_size = 1024;
  std::int64_t num_batches = 32;  ///< fewer where the graph has too few nodes
};

/// The seeds of the work: distinct nodes, at random, int64.
at::Tensor sampling_seeds(const Graph& graph, const SamplingWork& work);

/// Neighbours drawn and renumbered into blocks, without features, by a BlockLoader of one worker
/// and of `threads` workers: the blocks alone, and "with degrees" by a loader with its defaults,
/// which also keeps the degrees of the nodes and builds what gradients need; beside them, on as
/// many threads, a bare loop of prefetched random reads, two for each edge that is sampled (one of
/// the graph's neighbours, one of a table of all nodes), which no sampler can beat by much.
/// Results: millions of edges. `graph` outlives the plan.
Plan neighbor_sampling(const Graph& graph, const SamplingWork& work, std::int64_t threads);

/// What learns from the batches: SAGE with a layer for each fan-out.
struct MiniBatchModel {
  std::int64_t hidden = 256;
  std::int64_t num_classes = 2;
  std::vector<amp::Precision> precisions = {amp::Precision::kFloat32};
};

/// Training over the work on one thread: batches prepared ahead by one worker ("pipelined"), and
/// the preparing and the training of the same batches each by itself. Stages: what the worker spent
/// with sampling, gathering and preparing gradients ("transfer"), and the caller with waiting; none
/// in the training alone. Results: the number of batches. graph: with columns "feat" and "label".
/// `graph` outlives the plan.
Plan pipelined_epoch(const Graph& graph, const SamplingWork& work, const MiniBatchModel& model);

/// A table of an outcome of pipelined_epoch: preparing and training, how much longer the epoch took
/// than the slower of them, and the medians of the stages of the pipeline while it trained.
std::string format_pipelining(const Outcome& outcome);

/// A table of the rates of an outcome of neighbor_sampling: millions of edges a second by minima
/// and medians, and their share of the bare loop's on as many threads.
std::string format_rates(const Outcome& outcome, double million_edges);

/// Millions of edges that the work samples.
double million_edges(const Graph& graph, const SamplingWork& work);

}  // namespace mezzo::bench
