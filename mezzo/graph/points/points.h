#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/graph.h"

// Graphs from points. points: [N, d], float32, float64, bfloat16 or float16, finite, N < 2^31; row
// i is the position of node i. Several graphs of one tensor are its consecutive parts:
// batch_num_nodes, integer [batch_size], has their sizes, as Graph::batch_num_nodes; undefined
// means one graph.
//
// Results are exact and the same for any number of threads. Distances are Euclidean: squared
// differences in float64, added in the order of the dimensions. Points at equal distance are
// ordered by id. Nothing is differentiable. Points on CUDA are copied to the CPU, which computes,
// and the result is copied back; both synchronise. Errors are InvalidArgument.

namespace mezzo {

/// Where the edges between a point and its neighbours run.
enum class EdgeFlow : std::uint8_t {
  kFromNeighbors,  ///< a neighbour is a source, as in DGL and PyG's source_to_target
  kToNeighbors,    ///< a neighbour is a destination, as in PyG's target_to_source
};

/// Options of knn_graph.
struct KnnGraphOptions {
  at::Tensor batch_num_nodes = {};
  bool self_loops = false;  ///< a point may be its own neighbour, which counts as one of k
  EdgeFlow flow = EdgeFlow::kFromNeighbors;
};

/// Returns the graph of the edges between each point and its k >= 1 nearest points of the same
/// graph, or all of them if there are fewer. Edges are sorted by point, then distance, then the
/// neighbour's id. A batch if batch_num_nodes is defined. No columns. In up to 10 dimensions
/// a k-d tree, about O(N (k + log N)) if they are few; else products of all pairs, O(N^2 d). About
/// 16 d + 4 k + 60 bytes a point beside the result. As DGL's (segmented_)knn_graph and PyG's
/// knn_graph.
MEZZO_API Graph knn_graph(const at::Tensor& points, std::int64_t k,
                          const KnnGraphOptions& options = {});

/// Options of radius_graph.
struct RadiusGraphOptions {
  at::Tensor batch_num_nodes = {};
  bool self_loops = false;  ///< a point is its own neighbour
  /// At least 1: only this many neighbours, the nearest. Without it the graph is symmetric.
  std::optional<std::int64_t> max_num_neighbors = std::nullopt;
  EdgeFlow flow = EdgeFlow::kFromNeighbors;
};

/// Returns the graph of the edges between each point and all points of the same graph at a squared
/// distance of at most radius^2 (in float64). radius: at least 0. Order of the edges, batches and
/// cost as knn_graph. As DGL's and PyG's radius_graph, but PyG's max_num_neighbors is 32.
MEZZO_API Graph radius_graph(const at::Tensor& points, double radius,
                             const RadiusGraphOptions& options = {});
/// As above with a radius for each graph: floating [batch_size].
MEZZO_API Graph radius_graph(const at::Tensor& points, const at::Tensor& radius,
                             const RadiusGraphOptions& options = {});

/// Returns the ids of `num_samples` >= 0 points of each graph, or of all its points if there are
/// fewer: int64, graph by graph, on the device of `points`. The first is the graph's first point,
/// each next one the point farthest from those before it. O(num_samples * N * d). As DGL's
/// farthest_point_sampler and PyG's fps with random_start=False, but ids are distinct.
MEZZO_API at::Tensor farthest_points(const at::Tensor& points, std::int64_t num_samples,
                                     const at::Tensor& batch_num_nodes = {});
/// As above with a number for each graph: integer [batch_size].
MEZZO_API at::Tensor farthest_points(const at::Tensor& points, const at::Tensor& num_samples,
                                     const at::Tensor& batch_num_nodes = {});

}  // namespace mezzo
