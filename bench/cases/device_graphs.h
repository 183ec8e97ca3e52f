#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "mezzo/graph/topology.h"

namespace mezzo::bench {

/// The CUDA device that the programs measure on. Throws InvalidArgument if there is none, or no
/// kernels for it.
at::Device gpu();

/// A graph by its size, which is that of a real one.
struct GraphSize {
  std::string name;
  std::int64_t num_nodes, num_edges;
};

inline const GraphSize kRedditLike{"reddit-like", 232'965, 114'615'892};
inline const GraphSize kProductsLike{"products-like", 2'449'029, 123'718'280};
/// Of a size at which a message for every edge fits.
inline const GraphSize kRedditSparse{"reddit-like, 4 M edges", 232'965, 4'000'000};

/// An R-MAT graph (a, b, c = 0.57, 0.19, 0.19) of this size, drawn on gpu() by libtorch's own
/// generator with seed 0, nodes in random order: bench/peers/common.py makes the same edges. Forms
/// by destination and by source are built.
Topology rmat_on_device(const GraphSize& size);

}  // namespace mezzo::bench
