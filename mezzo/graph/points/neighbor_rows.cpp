#include "mezzo/graph/points/neighbor_rows.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <nanoflann.hpp>

namespace mezzo::detail {
namespace {

constexpr std::int64_t kPointsPerTask = 1024;
constexpr std::int64_t kPointsOfLargeGraph = 8192;  // several threads search one graph
constexpr std::int64_t kLeafPoints = 16;
constexpr std::int64_t kPointsOfOneLeaf = 64;  // a tree does not pay below
constexpr std::int64_t kTreeDimensions = 10;   // nor above: a search visits most of its leaves
constexpr std::int64_t kTileRows = 64, kTileColumns = 8192;  // of products, 4 MiB

std::size_t to_size(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

std::int64_t num_tasks(std::int64_t num_points) {
  return (num_points + kPointsPerTask - 1) / kPointsPerTask;
}

/// Calls task(i) for i in [0, count), in any order. Tasks differ in cost, so a thread takes one
/// after another.
template <class Task>
void for_each_task(std::int64_t count, const Task& task) {
  std::atomic<std::int64_t> next = 0;
  at::parallel_for(0, std::min<std::int64_t>(count, at::get_num_threads()), 1,
                   [&](std::int64_t, std::int64_t) {
                     for (std::int64_t i = next++; i < count; i = next++) task(i);
                   });
}

/// The points of one graph, sorted along a space-filling curve: a search reads neighbouring memory,
/// and so does the next.
struct Cloud {
  std::int64_t num_points, num_dimensions;
  std::vector<double> coordinates;
  std::vector<std::int32_t> ids;

  const double* point(std::int64_t i) const { return coordinates.data() + i * num_dimensions; }

  /// As nanoflann computes it.
  double squared_distance(std::int64_t a, std::int64_t b) const {
    double sum = 0;
    for (std::int64_t j = 0; j < num_dimensions; ++j) {
      const double difference = point(a)[j] - point(b)[j];
      sum += difference * difference;
    }
    return sum;
  }

  // What nanoflann calls.
  std::size_t kdtree_get_point_count() const { return to_size(num_points); }
  double kdtree_get_pt(std::size_t i, std::size_t dimension) const {
    return coordinates[i * to_size(num_dimensions) + dimension];
  }
  template <class Box>
  bool kdtree_get_bbox(Box& /*box*/) const {
    return false;
  }
};

/// Inserts two zeros before each of the lower 21 bits.
std::uint64_t spread_bits(std::uint64_t bits) {
  bits = (bits | bits << 32U) & 0x1f00000000ffffU;
  bits = (bits | bits << 16U) & 0x1f0000ff0000ffU;
  bits = (bits | bits << 8U) & 0x100f00f00f00f00fU;
  bits = (bits | bits << 4U) & 0x10c30c30c30c30c3U;
  return (bits | bits << 2U) & 0x1249249249249249U;
}

/// The positions of the points in Morton order of their first three dimensions.
std::vector<std::int32_t> morton_order(const double* points, std::int64_t count,
                                       std::int64_t num_dimensions) {
  constexpr double kCells = (1 << 21) - 1;
  std::vector<std::pair<std::uint64_t, std::int32_t>> keys(to_size(count));
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i].second = static_cast<std::int32_t>(i);
  for (std::int64_t j = 0; j < std::min<std::int64_t>(num_dimensions, 3); ++j) {
    const auto value = [&](std::int64_t i) { return points[i * num_dimensions + j]; };
    double low = value(0), high = low;
    for (std::int64_t i = 1; i < count; ++i) {
      low = std::min(low, value(i));
      high = std::max(high, value(i));
    }
    if (!(low < high)) continue;
    for (std::int64_t i = 0; i < count; ++i) {
      const double cell = (value(i) - low) / (high - low) * kCells;
      keys[to_size(i)].first |= spread_bits(static_cast<std::uint64_t>(cell)) << j;
    }
  }
  if (count > kPointsOfOneLeaf) std::sort(keys.begin(), keys.end());
  std::vector<std::int32_t> order;
  order.reserve(keys.size());
  for (const auto& [key, position] : keys) order.push_back(position);
  return order;
}

Cloud cloud_of(const PointSet& set, std::int64_t begin, std::int64_t end) {
  const std::int64_t dimensions = set.num_dimensions();
  const double* points = set.coordinates.const_data_ptr<double>() + begin * dimensions;
  Cloud cloud{end - begin, dimensions, {}, morton_order(points, end - begin, dimensions)};
  cloud.coordinates.reserve(to_size(cloud.num_points * dimensions));
  for (std::int32_t& id : cloud.ids) {
    const double* point = points + id * dimensions;
    cloud.coordinates.insert(cloud.coordinates.end(), point, point + dimensions);
    id += static_cast<std::int32_t>(begin);
  }
  return cloud;
}

/// The neighbours of one point so far, as nanoflann calls it.
class Nearest {
 public:
  using DistanceType = double;
  using IndexType = std::uint32_t;

  Nearest(const NeighborQuery& query, const std::vector<std::int32_t>& ids)
      : query_(query), ids_(ids) {}

  void begin(std::int64_t self) {
    self_ = query_.self_loops ? -1 : self;
    found_.clear();
    set_bound(query_.squared_radius);
  }

  /// No neighbour is at this squared distance or beyond.
  double worstDist() const { return bound_; }
  std::size_t size() const { return found_.size(); }
  bool full() const { return static_cast<std::int64_t>(found_.size()) == query_.count; }

  bool addPoint(double distance, std::uint32_t index) {
    const Neighbor candidate = {distance, ids_[index]};
    if (index == self_ || distance > query_.squared_radius) return true;
    if (!full()) {
      found_.push_back(candidate);
      if (!full()) return true;
      std::make_heap(found_.begin(), found_.end());
    } else if (candidate < found_.front()) {
      std::pop_heap(found_.begin(), found_.end());
      found_.back() = candidate;
      std::push_heap(found_.begin(), found_.end());
    }
    set_bound(found_.front().first);
    return true;
  }

  void sort() { std::sort(found_.begin(), found_.end()); }  // newer versions of nanoflann call it

  void append_to(NeighborRows& rows, std::int32_t point) {
    sort();
    rows.points.push_back(point);
    rows.lengths.push_back(static_cast<std::int64_t>(found_.size()));
    for (const Neighbor& neighbor : found_) rows.neighbors.push_back(neighbor.second);
  }

 private:
  using Neighbor = std::pair<double, std::int32_t>;  // squared distance, id

  /// nanoflann skips points at the bound and beyond, and cells by a distance with its own
  /// roundings. The bound is therefore larger than the distance: addPoint() decides.
  void set_bound(double distance) { bound_ = distance * (1 + 1e-12) + 1e-300; }

  const NeighborQuery& query_;
  const std::vector<std::int32_t>& ids_;
  std::int64_t self_ = -1;
  double bound_ = 0;
  std::vector<Neighbor> found_;  // a heap if full
};

// These write results[0, num_tasks(cloud.num_points)).

/// kDimensions: -1 if not constant.
template <int kDimensions>
void search_tree(const Cloud& cloud, const NeighborQuery& query, NeighborRows* results) {
  using Metric = nanoflann::L2_Simple_Adaptor<double, Cloud, double, std::uint32_t>;
  using Tree = nanoflann::KDTreeSingleIndexAdaptor<Metric, Cloud, kDimensions, std::uint32_t>;
  const std::int64_t leaf = cloud.num_points <= kPointsOfOneLeaf ? kPointsOfOneLeaf : kLeafPoints;
  const Tree tree(static_cast<int>(cloud.num_dimensions), cloud,
                  nanoflann::KDTreeSingleIndexAdaptorParams(to_size(leaf)));
  for_each_task(num_tasks(cloud.num_points), [&](std::int64_t task) {
    const std::int64_t begin = task * kPointsPerTask;
    const std::int64_t end = std::min(begin + kPointsPerTask, cloud.num_points);
    Nearest nearest(query, cloud.ids);
    for (std::int64_t i = begin; i < end; ++i) {
      nearest.begin(i);
      tree.findNeighbors(nearest, cloud.point(i), {});
      nearest.append_to(results[task], cloud.ids[to_size(i)]);
    }
  });
}

/// Squared distances of all pairs by a dense product, exact ones of those that may be neighbours.
void search_by_products(const Cloud& cloud, const NeighborQuery& query, NeighborRows* results) {
  const std::int64_t count = cloud.num_points, dimensions = cloud.num_dimensions;
  const at::Tensor points =
      at::from_blob(const_cast<double*>(cloud.point(0)), {count, dimensions}, at::kDouble);
  const at::Tensor centered = points - points.mean(0), transposed = centered.t();
  const at::Tensor norms = centered.square().sum(1);
  const double* const norm = norms.const_data_ptr<double>();
  // An upper bound of the rounding errors of |x|^2 + |y|^2 - 2 xy, of centring, and of the exact
  // distance, each at most (dimensions + 4) epsilon (|x| + |y|)^2.
  const double slack = static_cast<double>(dimensions + 4) * 16 *
                       std::numeric_limits<double>::epsilon() * norms.max().item<double>();
  const auto scan = [&](std::int64_t i, std::int64_t left, const at::Tensor& products,
                        Nearest& nearest) {
    const auto* const product = products.const_data_ptr<double>();
    const auto limit = [&] { return nearest.worstDist() + slack - norm[i]; };
    double most = limit();
    for (std::int64_t j = left; j < left + products.size(0); ++j) {
      if (norm[j] - 2 * product[j - left] > most) continue;
      nearest.addPoint(cloud.squared_distance(i, j), static_cast<std::uint32_t>(j));
      most = limit();
    }
  };
  for_each_task(num_tasks(count), [&](std::int64_t task) {
    const std::int64_t begin = task * kPointsPerTask, end = std::min(begin + kPointsPerTask, count);
    std::vector<Nearest> nearest(kTileRows, Nearest(query, cloud.ids));
    for (std::int64_t first = begin; first < end; first += kTileRows) {
      const std::int64_t rows = std::min(kTileRows, end - first);
      for (std::int64_t i = 0; i < rows; ++i) nearest[to_size(i)].begin(first + i);
      for (std::int64_t left = 0; left < count; left += kTileColumns) {
        const at::Tensor products =
            centered.narrow(0, first, rows).mm(transposed.slice(1, left, left + kTileColumns));
        for (std::int64_t i = 0; i < rows; ++i) {
          scan(first + i, left, products[i], nearest[to_size(i)]);
        }
      }
      for (std::int64_t i = 0; i < rows; ++i) {
        nearest[to_size(i)].append_to(results[task], cloud.ids[to_size(first + i)]);
      }
    }
  });
}

void search(const Cloud& cloud, const NeighborQuery& query, NeighborRows* results) {
  if (cloud.num_dimensions > kTreeDimensions) return search_by_products(cloud, query, results);
  switch (cloud.num_dimensions) {
    case 2:
      return search_tree<2>(cloud, query, results);
    case 3:
      return search_tree<3>(cloud, query, results);
    default:
      return search_tree<-1>(cloud, query, results);
  }
}

}  // namespace

std::vector<NeighborRows> find_neighbors(const PointSet& set,
                                         const std::vector<NeighborQuery>& queries) {
  const std::vector<std::int64_t>& offsets = set.offsets;
  std::vector<std::int64_t> first_result = {0};
  std::vector<std::size_t> small, large;
  for (std::size_t graph = 0; graph < queries.size(); ++graph) {
    const std::int64_t count = offsets[graph + 1] - offsets[graph];
    first_result.push_back(first_result.back() + num_tasks(count));
    if (count > 0) (count < kPointsOfLargeGraph ? small : large).push_back(graph);
  }
  std::vector<NeighborRows> results(to_size(first_result.back()));
  const auto search_graph = [&](std::size_t graph) {
    search(cloud_of(set, offsets[graph], offsets[graph + 1]), queries[graph],
           results.data() + first_result[graph]);
  };
  for_each_task(static_cast<std::int64_t>(small.size()),
                [&](std::int64_t i) { search_graph(small[to_size(i)]); });
  for (const std::size_t graph : large) search_graph(graph);
  return results;
}

}  // namespace mezzo::detail
