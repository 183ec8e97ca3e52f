#pragma once

#include <cstdint>

#include "mezzo/ops/ops.h"

#include "bench/cases/kernels.h"
#include "bench/harness/measure.h"
#include "bench/harness/operator_case.h"

namespace mezzo::bench {

// Further works as in kernels.h.

/// The neighbours' rows [num_src, width] under a reducer other than the sum; gradients of them.
/// Baselines: libtorch's sparse product with a reduction; gathering and scattering for products,
/// which that does not support. Eight columns, spread over all, are compared. The rows are bfloat16
/// numbers in every precision, so that the largest and smallest ones and their ties are the same in
/// all, and 1 or -1 where they are multiplied, so that the products of hubs are exact.
Plan copy_u_reduce(const Workload& load, ReduceOp reduce, std::int64_t width, Pass pass);

/// Sum of the neighbours' rows scaled by 1 / sqrt(degree) at both ends, as in graph convolutions.
/// Baselines: sparse products with the scales in their values, and scaling before and after.
Plan degree_scaled_sum(const Workload& load, std::int64_t width, Pass pass);

}  // namespace mezzo::bench
