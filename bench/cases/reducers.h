#pragma once

#include <cstdint>

#include "mezzo/ops/ops.h"

#include "bench/cases/kernels.h"
#include "bench/harness/measure.h"
#include "bench/harness/operator_case.h"

namespace mezzo::bench {

// More workloads, as in kernels.h.

/// The neighbours' rows [num_src, width] under a reducer other than the sum; gradients of them.
/// Baselines: libtorch's sparse product with a reduction; gather and scatter for products, which
/// that does not support. Eight evenly spread columns are compared. Rows are bfloat16 numbers in
/// every precision, so that extremes and ties agree, and 1 or -1 for products, so that long
/// products are exact.
Plan copy_u_reduce(const Workload& load, ReduceOp reduce, std::int64_t width, Pass pass);

/// Sum of the neighbours' rows scaled by 1 / sqrt(degree) at both endpoints, as in graph
/// convolutions. Baselines: sparse products with the scales in their values, and scaling before and
/// after.
Plan degree_scaled_sum(const Workload& load, std::int64_t width, Pass pass);

}  // namespace mezzo::bench
