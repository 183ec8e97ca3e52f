#include "mezzo/sampling/blocks/draw_layer.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/core/random.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/sampling/draw_stream.h"
#include "mezzo/sampling/sorted_nodes.h"

namespace mezzo::detail {
namespace {

constexpr std::size_t kMostDrawnLayers = 255;  // distinct steps of draw_stream()

/// The squared norm of each candidate's column: [u].
std::vector<double> squared_norms(const DrawnNeighbors& all, const SortedNodes& candidates) {
  std::vector<double> norms(static_cast<std::size_t>(candidates.distinct.numel()), 0.0);
  const auto* offset = all.offsets.const_data_ptr<std::int64_t>();
  visit(IdTypes{}, candidates.positions.scalar_type(), [&]<class Id>() {
    const auto* position = candidates.positions.const_data_ptr<typename Id::Type>();
    for (std::int64_t v = 0; v + 1 < all.offsets.numel(); ++v) {
      const auto degree = static_cast<double>(offset[v + 1] - offset[v]);
      for (std::int64_t i = offset[v]; i < offset[v + 1]; ++i) {
        norms[static_cast<std::size_t>(position[i])] += 1 / (degree * degree);
      }
    }
  });
  return norms;
}

/// The weight of an edge from each candidate, 0 if it is not drawn: draws / (count q).
std::vector<double> drawn_weights(const std::vector<double>& norms, std::int64_t count,
                                  std::uint64_t seed, std::uint64_t stream) {
  if (static_cast<std::int64_t>(norms.size()) <= count) {
    return std::vector<double>(norms.size(), 1.0);
  }
  std::vector<double> sums(norms.size()), weights(norms.size(), 0.0);
  double total = 0;
  for (std::size_t u = 0; u < norms.size(); ++u) sums[u] = total += norms[u];
  for (std::int64_t i = 0; i < count; ++i) {
    const double point = total * random_uniform(seed, stream, static_cast<std::uint64_t>(i));
    // The product may round up to the total.
    const auto sum = std::min(std::upper_bound(sums.begin(), sums.end(), point), sums.end() - 1);
    const auto u = static_cast<std::size_t>(sum - sums.begin());
    weights[u] += total / (static_cast<double>(count) * norms[u]);
  }
  return weights;
}

/// The candidates with nonzero weight and all edges from them.
DrawnLayer layer_of(const DrawnNeighbors& all, const SortedNodes& candidates,
                    const std::vector<double>& weights) {
  const std::int64_t num_rows = all.offsets.numel() - 1;
  const auto num_nodes =
      static_cast<std::int64_t>(weights.size()) - std::count(weights.begin(), weights.end(), 0.0);
  DrawnLayer layer;
  layer.nodes = at::empty({num_nodes}, at::kLong);
  layer.edges = at::empty_like(all.edges, at::kLong);
  layer.weights = at::empty({all.edges.numel()}, at::kFloat);
  layer.offsets = at::empty_like(all.offsets);
  layer.sources = at::empty_like(candidates.positions);
  layer.degrees = all.offsets.diff();
  std::int64_t num_edges = 0;
  visit(IdTypes{}, layer.sources.scalar_type(), [&]<class Id>() {
    using Integer = typename Id::Type;
    const auto* candidate = candidates.distinct.const_data_ptr<std::int64_t>();
    const auto* position = candidates.positions.const_data_ptr<Integer>();
    const auto* edge = all.edges.const_data_ptr<Integer>();
    const auto* offset = all.offsets.const_data_ptr<std::int64_t>();
    auto* node = layer.nodes.mutable_data_ptr<std::int64_t>();
    std::vector<Integer> new_position(weights.size());
    Integer count = 0;
    for (std::size_t u = 0; u < weights.size(); ++u) {
      if (weights[u] == 0) continue;
      node[count] = candidate[u];
      new_position[u] = count++;
    }
    auto* offset_out = layer.offsets.mutable_data_ptr<std::int64_t>();
    auto* source = layer.sources.mutable_data_ptr<Integer>();
    auto* edge_out = layer.edges.mutable_data_ptr<std::int64_t>();
    auto* weight = layer.weights.mutable_data_ptr<float>();
    offset_out[0] = 0;
    for (std::int64_t v = 0; v < num_rows; ++v) {
      for (std::int64_t i = offset[v]; i < offset[v + 1]; ++i) {
        const auto u = static_cast<std::size_t>(position[i]);
        if (weights[u] == 0) continue;
        source[num_edges] = new_position[u];
        weight[num_edges] = static_cast<float>(weights[u]);
        edge_out[num_edges++] = edge[i];
      }
      offset_out[v + 1] = num_edges;
    }
  });
  // Copies, to free the unused ends of the buffers.
  layer.edges = layer.edges.narrow(0, 0, num_edges).clone();
  layer.weights = layer.weights.narrow(0, 0, num_edges).clone();
  layer.sources = layer.sources.narrow(0, 0, num_edges).clone();
  return layer;
}

}  // namespace

void check_layer_sizes(std::string_view operation, const std::vector<std::int64_t>& layer_sizes) {
  const std::size_t num_layers = layer_sizes.size();
  MEZZO_CHECK(num_layers >= 1 && num_layers <= kMostDrawnLayers,
              "{}: expected 1 to {} layer_sizes, got {}", operation, kMostDrawnLayers, num_layers);
  for (const std::int64_t size : layer_sizes) {
    MEZZO_CHECK(size >= 1, "{}: expected layer_sizes of at least 1, got {}", operation, size);
  }
}

DrawnLayer draw_layer(const NeighborSource& source, const at::Tensor& above, std::int64_t size,
                      const BatchKey& key, std::int64_t hop, Workspace& workspace) {
  const DrawnNeighbors all = source.draw(above, {.type = source.type()}, key, hop, workspace);
  const SortedNodes candidates = sort_nodes(all.neighbors, source.num_nodes(), workspace);
  const std::uint64_t stream = draw_stream(key, DrawPurpose::kLayers, hop);
  return layer_of(all, candidates,
                  drawn_weights(squared_norms(all, candidates), size, key.seed, stream));
}

}  // namespace mezzo::detail
