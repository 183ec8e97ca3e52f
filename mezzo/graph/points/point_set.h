#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

/// Internal: the points of one or several graphs.
namespace mezzo::detail {

struct PointSet {
  at::Tensor coordinates;             ///< float64 [N, d] on the CPU, contiguous
  std::vector<std::int64_t> offsets;  ///< points [offsets[g], offsets[g + 1]) are of graph g

  std::int64_t num_points() const { return coordinates.size(0); }
  std::int64_t num_dimensions() const { return coordinates.size(1); }
  std::int64_t num_graphs() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
};

/// Throws InvalidArgument that starts with `operation` unless the arguments are as in points.h, and
/// for points so far apart that a squared distance overflows.
PointSet check_points(std::string_view operation, const at::Tensor& points,
                      const at::Tensor& batch_num_nodes);

/// Throws InvalidArgument unless `values` has one element for each graph.
void check_per_graph(std::string_view operation, std::string_view name, const at::Tensor& values,
                     const PointSet& set);

}  // namespace mezzo::detail
