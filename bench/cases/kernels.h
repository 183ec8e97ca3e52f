#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "mezzo/amp/precision.h"
#include "mezzo/graph/topology.h"

#include "bench/cases/libtorch_graph.h"
#include "bench/harness/measure.h"
#include "bench/harness/operator_case.h"

namespace mezzo::bench {

/// A graph and the precisions of Mezzo's candidates on it.
struct Workload {
  Topology topology;
  std::shared_ptr<const LibtorchGraph> torch;
  std::vector<amp::Precision> precisions;
};

/// Builds every format of the structure, so that no candidate is timed doing it. Throws
/// InvalidArgument if the formats do not fit in free memory.
Workload make_workload(const Topology& topology, std::vector<amp::Precision> precisions);

// Each plan compares a Mezzo operation in every precision with libtorch implementations. The
// expected results are libtorch's in float64 from the float32 operands: the errors of 16-bit
// candidates include the rounding of their operands. About 2^18 rows of per-edge results are
// compared.

/// Sum of the neighbours' rows [num_src, width].
Plan copy_u_sum(const Workload& load, std::int64_t width, Pass pass);

/// Sum of the neighbours' rows times the weight of the edge; gradients of rows and weights.
Plan u_mul_e_sum(const Workload& load, std::int64_t width, Pass pass);

/// Dot product of the endpoints' rows of every edge; gradients of both.
Plan u_dot_v(const Workload& load, std::int64_t width, Pass pass);

/// Softmax over the edges into each node, of `heads` numbers per edge.
Plan softmax(const Workload& load, std::int64_t heads, Pass pass);

/// Sum of the rows [num_edges, width] of each segment; segment lengths are the in-degrees.
Plan segment_sum(const Workload& load, std::int64_t width, Pass pass);

}  // namespace mezzo::bench
