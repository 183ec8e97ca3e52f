#include "mezzo/sampling/blocks/layer_blocks.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/topology.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/sampling/blocks/draw_layer.h"
#include "mezzo/sampling/workspace_state.h"

namespace mezzo::detail {
namespace {

/// The nodes above, then the other nodes of the layer: int64. layer.sources become positions among
/// these.
at::Tensor join_own_nodes(const at::Tensor& above, DrawnLayer& layer, std::int64_t num_nodes,
                          Workspace& workspace) {
  NodeNumbers& numbers = workspace.state().numbers;
  numbers.begin(num_nodes);
  at::Tensor own = above.clone(), drawn = layer.nodes.clone();  // add() overwrites them
  numbers.add(own.mutable_data_ptr<std::int64_t>(), own.numel());
  numbers.add(drawn.mutable_data_ptr<std::int64_t>(), drawn.numel());
  at::Tensor nodes = at::empty({numbers.size()}, at::kLong);
  std::copy_n(numbers.nodes<std::int64_t>(), numbers.size(),
              nodes.mutable_data_ptr<std::int64_t>());
  const auto* number = drawn.const_data_ptr<std::int64_t>();
  visit(IdTypes{}, layer.sources.scalar_type(), [&]<class Id>() {
    using Integer = typename Id::Type;
    auto* source = layer.sources.mutable_data_ptr<Integer>();
    for (std::int64_t i = 0; i < layer.sources.numel(); ++i) {
      source[i] = static_cast<Integer>(number[source[i]]);
    }
  });
  return nodes;
}

/// The layer's weights for sums, as weights for means over its edges.
at::Tensor weights_of_means(const DrawnLayer& layer) {
  at::Tensor weights = at::empty_like(layer.weights);
  const auto* offset = layer.offsets.const_data_ptr<std::int64_t>();
  const auto* degree = layer.degrees.const_data_ptr<std::int64_t>();
  const auto* weight = layer.weights.const_data_ptr<float>();
  auto* out = weights.mutable_data_ptr<float>();
  for (std::int64_t v = 0; v < layer.degrees.numel(); ++v) {
    const auto num_edges = static_cast<double>(offset[v + 1] - offset[v]);
    for (std::int64_t i = offset[v]; i < offset[v + 1]; ++i) {
      out[i] = static_cast<float>(weight[i] * num_edges / static_cast<double>(degree[v]));
    }
  }
  return weights;
}

}  // namespace

LayerBlocks::LayerBlocks(const Topology& topology, std::vector<std::int64_t> layer_sizes,
                         bool parent_degrees)
    : source_(topology, NeighborType::kIn), layer_sizes_(std::move(layer_sizes)) {
  check_layer_sizes("BlockLoader", layer_sizes_);
  const c10::InferenceMode no_inference(false);
  if (parent_degrees) degrees_ = parent_degrees_of(topology);
}

Blocks LayerBlocks::sample(const at::Tensor& seeds, const BatchKey& key,
                           Workspace& workspace) const {
  const c10::InferenceMode no_inference(false);
  const auto num_hops = static_cast<std::int64_t>(layer_sizes_.size());
  Blocks blocks;
  at::Tensor above = seeds;
  for (std::int64_t hop = 0; hop < num_hops; ++hop) {
    const std::int64_t size = layer_sizes_[static_cast<std::size_t>(num_hops - 1 - hop)];
    DrawnLayer layer = draw_layer(source_, above, size, key, hop, workspace);
    const at::Tensor nodes = join_own_nodes(above, layer, source_.num_nodes(), workspace);
    Topology topology =
        topology_from_rows({layer.offsets, layer.sources, {}}, nodes.numel(), above.numel());
    if (degrees_.in.defined()) {
      topology = topology.with_parent_degrees(degrees_.in.index_select(0, above),
                                              degrees_.out.index_select(0, nodes));
    }
    blocks.emplace_back(std::move(topology), nodes, layer.edges);
    blocks.back().edata()["edge_weights"] = weights_of_means(layer);
    above = nodes;
  }
  std::reverse(blocks.begin(), blocks.end());
  return blocks;
}

}  // namespace mezzo::detail
