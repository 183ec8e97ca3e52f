#include "mezzo/graph/points/point_set.h"

#include <limits>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/transforms/transforms.h"

namespace mezzo::detail {
namespace {

void check_finite(std::string_view operation, const at::Tensor& coordinates) {
  if (coordinates.numel() == 0) return;
  const at::Tensor extents = coordinates.amax(0) - coordinates.amin(0);
  if (at::isfinite(extents.square().sum()).item<bool>()) return;
  const at::Tensor bad = at::isfinite(coordinates).logical_not().nonzero();
  MEZZO_CHECK(bad.size(0) > 0,
              "{}: expected points whose squared distances are finite in float64, got points that "
              "are up to {} apart in one dimension",
              operation, extents.max().item<double>());
  const auto point = bad[0][0].item<std::int64_t>(), dimension = bad[0][1].item<std::int64_t>();
  raise<InvalidArgument>("{}: expected finite points, got {} in row {}, column {}", operation,
                         coordinates[point][dimension].item<double>(), point, dimension);
}

}  // namespace

PointSet check_points(std::string_view operation, const at::Tensor& points,
                      const at::Tensor& batch_num_nodes) {
  MEZZO_CHECK(points.defined() && points.layout() == at::kStrided && points.dim() == 2 &&
                  points.size(1) > 0 && at::isFloatingType(points.scalar_type()) &&
                  c10::elementSize(points.scalar_type()) >= 2,
              "{}: expected points [N, d] of float32, float64, bfloat16 or float16, got {}{}",
              operation, describe(points), dense_hint(points));
  resolve_device(fmt::format("{}: points", operation), points.device());
  const std::int64_t num_points = points.size(0);
  MEZZO_CHECK(num_points <= std::numeric_limits<std::int32_t>::max(),
              "{}: expected fewer than 2^31 points, got {}", operation, num_points);
  PointSet set{points.detach().cpu().to(at::kDouble).contiguous(), {0}};
  std::vector<std::int64_t> counts = {num_points};
  if (batch_num_nodes.defined()) {
    counts = check_counts(operation, "batch_num_nodes", batch_num_nodes,
                          fmt::format("the {} points", num_points), num_points);
    MEZZO_CHECK(!counts.empty(), "{}: expected batch_num_nodes of at least one graph, got none",
                operation);
  }
  for (const std::int64_t count : counts) set.offsets.push_back(set.offsets.back() + count);
  check_finite(operation, set.coordinates);
  return set;
}

void check_per_graph(std::string_view operation, std::string_view name, const at::Tensor& values,
                     const PointSet& set) {
  MEZZO_CHECK(values.dim() == 1 && values.size(0) == set.num_graphs(),
              "{}: expected {} for each of {} graphs, got {}", operation, name, set.num_graphs(),
              describe(values));
}

}  // namespace mezzo::detail
