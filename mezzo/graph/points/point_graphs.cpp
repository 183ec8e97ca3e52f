#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/points/neighbor_rows.h"
#include "mezzo/graph/points/points.h"
#include "mezzo/graph/topology_build.h"

namespace mezzo {
namespace {

/// Rows by point.
Adjacency joined_rows(const std::vector<detail::NeighborRows>& results, std::int64_t num_points,
                      std::string_view operation) {
  at::Tensor indptr = at::zeros({num_points + 1}, at::kLong);
  auto* const begin = indptr.mutable_data_ptr<std::int64_t>();
  for (const detail::NeighborRows& rows : results) {
    for (std::size_t i = 0; i < rows.points.size(); ++i)
      begin[rows.points[i] + 1] = rows.lengths[i];
  }
  const std::int64_t longest = *std::max_element(begin, begin + num_points + 1);
  std::partial_sum(begin, begin + num_points + 1, begin);
  const std::int64_t num_edges = begin[num_points];
  const at::ScalarType ids =
      detail::choose_id_dtype(operation, IdWidth::kAutomatic, num_points, num_points, num_edges);
  at::Tensor indices = at::empty({num_edges}, ids);
  detail::visit(detail::IdTypes(), ids, [&]<class Id>() {
    auto* const out = indices.mutable_data_ptr<typename Id::Type>();
    at::parallel_for(0, static_cast<std::int64_t>(results.size()), 1, [&](auto first, auto last) {
      for (auto result = first; result < last; ++result) {
        const detail::NeighborRows& rows = results[static_cast<std::size_t>(result)];
        auto next = rows.neighbors.begin();
        for (std::size_t i = 0; i < rows.points.size(); ++i) {
          std::copy(next, next + rows.lengths[i], out + begin[rows.points[i]]);
          next += rows.lengths[i];
        }
      }
    });
  });
  return {std::move(indptr), std::move(indices), {}, longest};
}

Graph point_graph(std::string_view operation, const at::Tensor& points, const detail::PointSet& set,
                  const std::vector<detail::NeighborQuery>& queries, bool is_batch, EdgeFlow flow) {
  const std::int64_t num_points = set.num_points();
  Adjacency rows = joined_rows(detail::find_neighbors(set, queries), num_points, operation);
  const at::Tensor ends = rows.indptr.index_select(0, at::tensor(set.offsets, at::kLong));
  Topology topology = detail::topology_from_rows(std::move(rows), num_points, num_points);
  Graph graph(flow == EdgeFlow::kFromNeighbors ? topology : topology.reverse());
  if (is_batch) graph.set_batch(at::tensor(set.offsets, at::kLong).diff(), ends.diff());
  return graph.to(points.device());
}

}  // namespace

Graph knn_graph(const at::Tensor& points, std::int64_t k, const KnnGraphOptions& options) {
  const detail::PointSet set = detail::check_points("knn_graph", points, options.batch_num_nodes);
  MEZZO_CHECK(k >= 1, "knn_graph: expected k of at least 1, got {}", k);
  const std::vector<detail::NeighborQuery> queries(static_cast<std::size_t>(set.num_graphs()),
                                                   {.count = k, .self_loops = options.self_loops});
  return point_graph("knn_graph", points, set, queries, options.batch_num_nodes.defined(),
                     options.flow);
}

Graph radius_graph(const at::Tensor& points, const at::Tensor& radius,
                   const RadiusGraphOptions& options) {
  const detail::PointSet set =
      detail::check_points("radius_graph", points, options.batch_num_nodes);
  MEZZO_CHECK(radius.defined() && radius.layout() == at::kStrided &&
                  at::isFloatingType(radius.scalar_type()),
              "radius_graph: expected radius floating [batch_size], got {}",
              detail::describe(radius));
  detail::check_per_graph("radius_graph", "a radius", radius, set);
  const std::int64_t most =
      options.max_num_neighbors.value_or(std::numeric_limits<std::int64_t>::max());
  MEZZO_CHECK(most >= 1, "radius_graph: expected max_num_neighbors of at least 1, got {}", most);
  const at::Tensor radii = radius.detach().cpu().to(at::kDouble).contiguous();
  std::vector<detail::NeighborQuery> queries;
  for (std::int64_t graph = 0; graph < set.num_graphs(); ++graph) {
    const double r = radii.const_data_ptr<double>()[graph];
    MEZZO_CHECK(r >= 0, "radius_graph: expected radius of at least 0, got {}", r);
    queries.push_back({most, r * r, options.self_loops});
  }
  return point_graph("radius_graph", points, set, queries, options.batch_num_nodes.defined(),
                     options.flow);
}

Graph radius_graph(const at::Tensor& points, double radius, const RadiusGraphOptions& options) {
  const std::int64_t num_graphs =
      options.batch_num_nodes.defined() ? options.batch_num_nodes.numel() : 1;
  return radius_graph(points, at::full({num_graphs}, radius, at::kDouble), options);
}

}  // namespace mezzo
