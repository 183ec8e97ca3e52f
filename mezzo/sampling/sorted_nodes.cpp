#include "mezzo/sampling/sorted_nodes.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "mezzo/graph/topology_build.h"
#include "mezzo/sampling/workspace_state.h"

namespace mezzo::detail {

SortedNodes sort_nodes(const at::Tensor& nodes, std::int64_t num_nodes, Workspace& workspace) {
  Workspace::State& state = workspace.state();
  SortedNodes result{{}, nodes.clone(at::MemoryFormat::Contiguous)};
  visit(IdTypes{}, nodes.scalar_type(), [&]<class Id>() {
    using Integer = typename Id::Type;
    auto* positions = result.positions.mutable_data_ptr<Integer>();
    state.numbers.begin(num_nodes);
    state.numbers.add(positions, nodes.numel());
    const std::int64_t count = state.numbers.size();
    auto* ranks = state.sorting.reserve<Integer>(count);
    auto* sorted = state.neighbors.reserve<Integer>(count);
    std::copy_n(state.numbers.nodes<Integer>(), count, ranks);
    std::copy_n(ranks, count, sorted);
    std::sort(sorted, sorted + count);
    result.distinct = at::empty({count}, at::kLong);
    std::copy_n(sorted, count, result.distinct.mutable_data_ptr<std::int64_t>());
    // Renumbering in ascending order gives the rank of each first number.
    state.numbers.begin(num_nodes);
    state.numbers.add(sorted, count);
    state.numbers.add(ranks, count);
    for (std::int64_t i = 0; i < nodes.numel(); ++i) positions[i] = ranks[positions[i]];
  });
  return result;
}

}  // namespace mezzo::detail
