#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mezzo/graph/graph.h"

#include "bench/harness/measure.h"

namespace mezzo::bench {

/// A part of an epoch over a graph.
struct SamplingWork {
  std::vector<std::int64_t> fanouts = {15, 10, 5};  ///< input layer first
  std::int64_t batch_size = 1024;
  std::int64_t num_batches = 32;  ///< fewer if the graph has too few nodes
};

/// Its fan-outs and batch size, in a work's name.
std::string text_of(const SamplingWork& work);

/// The seeds of the work: distinct nodes, at random, int64.
at::Tensor sampling_seeds(const Graph& graph, const SamplingWork& work);

/// Neighbours drawn and renumbered into blocks, without features, by a BlockLoader of one worker
/// and of `threads` workers: the blocks alone, and "with degrees" by a loader with its defaults,
/// which also stores the degrees and builds the gradient structures. Baseline on as many threads: a
/// bare loop of prefetched random reads, two per sampled edge (a neighbour and an item of a table
/// of all nodes), close to the upper limit of any sampler. Results: millions of edges. `graph` must
/// outlive the plan.
Plan neighbor_sampling(const Graph& graph, const SamplingWork& work, std::int64_t threads);

/// A table of the rates of an outcome of neighbor_sampling: millions of edges a second by minima
/// and medians, and their share of the bare loop's on as many threads.
std::string format_rates(const Outcome& outcome);

}  // namespace mezzo::bench
