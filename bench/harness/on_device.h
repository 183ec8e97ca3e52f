#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "mezzo/graph/topology.h"

#include "bench/harness/measure.h"

namespace mezzo::bench {

/// The CUDA device that the programs measure on. Throws InvalidArgument where there is none, or no
/// kernels for it.
at::Device gpu();

/// Waits for all work queued on gpu().
void synchronize();

/// A graph by its size, which is that of a real one.
struct GraphSize {
  std::string name;
  std::int64_t num_nodes, num_edges;
};

inline const GraphSize kRedditLike{"reddit-like", 232'965, 114'615'892};
inline const GraphSize kProductsLike{"products-like", 2'449'029, 123'718'280};
/// Of a size at which a message for every edge fits.
inline const GraphSize kRedditSparse{"reddit-like, 4 M edges", 232'965, 4'000'000};

/// An R-MAT graph (a, b, c = 0.57, 0.19, 0.19) of this size, made on gpu() by libtorch's own
/// generator with seed 0, nodes in random order: bench/peers/common.py makes the same edges. Forms
/// by destination and by source are built.
Topology rmat_on_device(const GraphSize& size);

struct DeviceRounds {
  std::int64_t rounds = 7;
  std::int64_t repeats = 1;   ///< runs between two synchronisations; times are divided by it
  std::int64_t warm_ups = 2;  ///< the first of them is compared with the expected results
};

/// As measure() on gpu(): candidates in turn, from synchronisation to synchronisation. Peaks are
/// those of libtorch's CUDA allocator. What cannot run, or does not fit, is noted as skipped; of
/// ours with "FAILED" before the reason, and so is a result of ours that is wrong. An interrupt
/// ends it after the round in which it came.
Outcome measure_on_device(const Plan& plan, const DeviceRounds& options);

}  // namespace mezzo::bench
