#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/points/point_set.h"
#include "mezzo/graph/points/points.h"
#include "mezzo/graph/topology_build.h"

namespace mezzo {
namespace {

constexpr std::int64_t kDistancesPerTask = 1 << 13;

using Farthest = std::pair<double, std::int64_t>;  // squared distance, position

/// The farther one; of two at equal distance the first.
Farthest farther(const Farthest& a, const Farthest& b) {
  if (a.first != b.first) return a.first > b.first ? a : b;
  return a.second < b.second ? a : b;
}

/// Chooses `count` of the points of one graph; writes their positions.
void choose_points(const double* points, std::int64_t num_points, std::int64_t num_dimensions,
                   std::int64_t count, std::int64_t* chosen) {
  if (count == 0) return;
  constexpr double kChosen = -1;
  // The squared distance of each point to the nearest chosen one.
  std::vector<double> distances(static_cast<std::size_t>(num_points),
                                std::numeric_limits<double>::infinity());
  const Farthest none = {kChosen, num_points};
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    chosen[i] = last;
    distances[static_cast<std::size_t>(last)] = kChosen;
    const double* const center = points + last * num_dimensions;
    const auto update = [&](std::int64_t begin, std::int64_t end, Farthest best) {
      for (std::int64_t p = begin; p < end; ++p) {
        double distance = 0;
        for (std::int64_t j = 0; j < num_dimensions; ++j) {
          const double difference = points[p * num_dimensions + j] - center[j];
          distance += difference * difference;
        }
        double& nearest = distances[static_cast<std::size_t>(p)];
        nearest = std::min(nearest, distance);
        if (nearest > best.first) best = {nearest, p};
      }
      return best;
    };
    last = at::parallel_reduce(0, num_points, kDistancesPerTask, none, update, farther).second;
  }
}

}  // namespace

at::Tensor farthest_points(const at::Tensor& points, const at::Tensor& num_samples,
                           const at::Tensor& batch_num_nodes) {
  const detail::PointSet set = detail::check_points("farthest_points", points, batch_num_nodes);
  const at::Tensor counts =
      detail::check_vector("farthest_points", "num_samples", num_samples).cpu().to(at::kLong);
  detail::check_per_graph("farthest_points", "num_samples", counts, set);
  std::vector<std::int64_t> ends = {0};
  for (std::int64_t graph = 0; graph < set.num_graphs(); ++graph) {
    const auto g = static_cast<std::size_t>(graph);
    const std::int64_t count = counts.const_data_ptr<std::int64_t>()[graph];
    MEZZO_CHECK(count >= 0, "farthest_points: expected num_samples of at least 0, got {}", count);
    ends.push_back(ends.back() + std::min(count, set.offsets[g + 1] - set.offsets[g]));
  }
  at::Tensor ids = at::empty({ends.back()}, at::kLong);
  auto* const out = ids.mutable_data_ptr<std::int64_t>();
  const auto* const coordinates = set.coordinates.const_data_ptr<double>();
  const auto choose = [&](std::int64_t first, std::int64_t last) {
    for (auto g = static_cast<std::size_t>(first); g < static_cast<std::size_t>(last); ++g) {
      const std::int64_t begin = set.offsets[g];
      choose_points(coordinates + begin * set.num_dimensions(), set.offsets[g + 1] - begin,
                    set.num_dimensions(), ends[g + 1] - ends[g], out + ends[g]);
      std::for_each(out + ends[g], out + ends[g + 1], [&](std::int64_t& id) { id += begin; });
    }
  };
  at::parallel_for(0, set.num_graphs(), 1, choose);
  return ids.to(points.device());
}

at::Tensor farthest_points(const at::Tensor& points, std::int64_t num_samples,
                           const at::Tensor& batch_num_nodes) {
  const std::int64_t num_graphs = batch_num_nodes.defined() ? batch_num_nodes.numel() : 1;
  return farthest_points(points, at::full({num_graphs}, num_samples, at::kLong), batch_num_nodes);
}

}  // namespace mezzo
