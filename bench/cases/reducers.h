#pragma once

#include <cstdint>

#include "mezzo/message_passing/ops.h"

#include "bench/cases/kernels.h"
#include "bench/harness/candidates.h"
#include "bench/harness/measure.h"

namespace mezzo::bench {

// Further works as in bench_kernels.h.

/// The neighbours' rows [num_src, width] under a reducer other than the sum; gradients of them.
/// LibtorchGraph: libtorch's sparse product with a reduction; for products, which that has not,
/// gathering and scattering. Eight columns, spread over all, are compared. The rows are bfloat16
/// numbers in every precision, so that the largest and smallest ones and their ties are the same in
/// all, and 1 or -1 where they are multiplied, so that the products of hubs are exact.
Plan copy_u_reduce(const Workload& load, ReduceOp reduce, std::int64_t width, Pass pass);

/// Sum of the neighbours' rows scaled by 1 / sqrt(degree) at both ends, as graph convolutions have
/// it. LibtorchGraph: sparse products with the scales in their values, and scaling before and
/// after.
Plan degree_scaled_sum(const Workload& load, std::int64_t width, Pass pass);

}  // namespace mezzo::bench
