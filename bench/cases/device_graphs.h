#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "mezzo/graph/topology.h"

namespace mezzo::bench {

/// The CUDA device that the programs measure on. Throws InvalidArgument without a CUDA device or
/// kernels for it.
at::Device gpu();

/// For a dry run, which proves the programs without a GPU: from now on gpu() is the CPU, and graphs
/// are tiny.
void measure_on_cpu();
bool is_dry_run();

/// The size of a real graph.
struct GraphSize {
  std::string name;
  std::int64_t num_nodes, num_edges;
};

inline const GraphSize kRedditLike{"reddit-like", 232'965, 114'615'892};
inline const GraphSize kProductsLike{"products-like", 2'449'029, 123'718'280};
/// Small enough to store a message for every edge.
inline const GraphSize kRedditSparse{"reddit-like, 4 M edges", 232'965, 4'000'000};

/// An R-MAT graph (a, b, c = 0.57, 0.19, 0.19) of this size, drawn on gpu() by libtorch's own
/// generator with seed 0, nodes in random order: bench/peers/common.py generates the same edges.
/// CSC and CSR are built.
Topology rmat_on_device(const GraphSize& size);

}  // namespace mezzo::bench
