#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/sampling/blocks/block_sampler.h"
#include "mezzo/sampling/blocks/device_sampling.h"
#include "mezzo/sampling/workspace.h"

/// Drawing the neighbours of one hop on the CPU. Internal to sampling.
namespace mezzo::detail {

/// The dtype of the id type.
template <class Id>
constexpr at::ScalarType kIdDtype = sizeof(Id) == sizeof(std::int32_t) ? at::kInt : at::kLong;

/// Draws for the nodes (Id [num_nodes], in range) in source.rows(), with its weights and node ids.
/// Id: that of the topology, which is on the CPU. Each row is in CSR order; weights are defined if
/// `labor`. Leaves the nodes' degrees in state.degrees. Uses libtorch's threads, deterministic for
/// any number: O(drawn) without weights and LABOR, else O(degrees). Allocates the result.
template <class Id>
DrawnEntries draw_hop(const NeighborSource& source, const Id* nodes, std::int64_t num_nodes,
                      bool labor, const HopDraw& draw, Workspace::State& state);

}  // namespace mezzo::detail
