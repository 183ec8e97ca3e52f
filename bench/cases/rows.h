#pragma once

#include <cstdint>
#include <vector>

#include "mezzo/amp/precision.h"

#include "bench/harness/measure.h"
#include "bench/harness/operator_case.h"

namespace mezzo::bench {

// More workloads, as in kernels.h, on rows without a graph.

/// Rows in groups, each with its own factor, like relations of a heterogeneous graph.
struct GroupedRows {
  std::int64_t rows = 131072;
  std::int64_t groups = 32;  ///< group i has about 1 / (i + 1) of the rows of the first
};

/// `segment_mm` of rows in the order of their groups, [rows, width] x [groups, width, width],
/// compared with a loop of libtorch products; gradients of both operands.
Plan segment_products(const GroupedRows& size, std::int64_t width,
                      const std::vector<amp::Precision>& precisions, Pass pass);

/// `gather_mm` of the same rows in random order, compared with a loop over the groups and a
/// gathered factor for every row (index_select and bmm).
Plan gathered_products(const GroupedRows& size, std::int64_t width,
                       const std::vector<amp::Precision>& precisions, Pass pass);

/// `feature_dropout` of half of the elements of [rows, width], compared with libtorch's. Checks:
/// the others are doubled and so is their gradient, dropped ones have no gradient, and the number
/// of dropped ones is within six standard deviations of a half.
Plan row_dropout(std::int64_t rows, std::int64_t width,
                 const std::vector<amp::Precision>& precisions, Pass pass);

}  // namespace mezzo::bench
