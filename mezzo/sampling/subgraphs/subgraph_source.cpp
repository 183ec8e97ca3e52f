#include "mezzo/sampling/subgraphs/subgraph_source.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/topology.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/sampling/loader_support.h"
#include "mezzo/sampling/workspace_state.h"

namespace mezzo {
namespace detail {
namespace {

template <class Id>
InducedSubgraph induced_rows(const Topology& topology, const at::Tensor& nodes,
                             Workspace::State& scratch) {
  const Adjacency& rows = topology.csc();
  const auto* begin = rows.indptr.const_data_ptr<std::int64_t>();
  const auto* source = rows.indices.const_data_ptr<Id>();
  const Id* edge_id = rows.edge_ids.defined() ? rows.edge_ids.const_data_ptr<Id>() : nullptr;
  const auto* node = nodes.const_data_ptr<std::int64_t>();
  const std::int64_t num_nodes = nodes.numel();

  std::int64_t num_neighbors = 0;
  for (std::int64_t i = 0; i < num_nodes; ++i) num_neighbors += begin[node[i] + 1] - begin[node[i]];
  auto* numbers = scratch.neighbors.reserve<Id>(std::max(num_nodes, num_neighbors));
  scratch.numbers.begin(topology.num_dst());
  std::copy(node, node + num_nodes, numbers);
  scratch.numbers.add(numbers, num_nodes);
  auto* end = numbers;
  for (std::int64_t i = 0; i < num_nodes; ++i) {
    end = std::copy(source + begin[node[i]], source + begin[node[i] + 1], end);
  }
  scratch.numbers.add(numbers, num_neighbors);  // numbers below num_nodes are in the subgraph

  const auto is_inside = [num_nodes](Id number) { return number < num_nodes; };
  const std::int64_t num_edges = std::count_if(numbers, numbers + num_neighbors, is_inside);
  const at::TensorOptions id_options(topology.id_dtype());
  at::Tensor indptr = at::empty({num_nodes + 1}, at::kLong);
  at::Tensor indices = at::empty({num_edges}, id_options);
  at::Tensor edges = at::empty({num_edges}, at::kLong);
  auto* row_begin = indptr.mutable_data_ptr<std::int64_t>();
  auto* local = indices.mutable_data_ptr<Id>();
  auto* edge = edges.mutable_data_ptr<std::int64_t>();
  std::int64_t count = 0;
  row_begin[0] = 0;
  for (std::int64_t i = 0; i < num_nodes; ++i) {
    for (std::int64_t e = begin[node[i]]; e < begin[node[i] + 1]; ++e, ++numbers) {
      if (!is_inside(*numbers)) continue;
      local[count] = *numbers;
      edge[count++] = edge_id != nullptr ? static_cast<std::int64_t>(edge_id[e]) : e;
    }
    row_begin[i + 1] = count;
  }
  return {.topology = topology_from_rows({indptr, indices, at::Tensor()}, num_nodes, num_nodes),
          .edges = std::move(edges)};
}

}  // namespace

InducedSubgraph induced_subgraph(const Topology& topology, const at::Tensor& nodes,
                                 Workspace& workspace) {
  InducedSubgraph result;
  detail::visit(IdTypes{}, topology.id_dtype(), [&]<class Id>() {
    result = induced_rows<typename Id::Type>(topology, nodes, workspace.state());
  });
  return result;
}

SubgraphSource::SubgraphSource(std::string_view operation, const Graph& graph,
                               const std::vector<std::string>& features,
                               const std::vector<std::string>& labels, at::Device device)
    : topology_(graph.topology()), device_(resolve_device(operation, device)) {
  MEZZO_CHECK(graph.device().is_cpu(), "{}: expected a graph on the CPU, got one on {}", operation,
              graph.device().str());
  columns_ = select_columns(operation, "features", graph.ndata(), features);
  columns_.merge(select_columns(operation, "labels", graph.ndata(), labels));
}

SubgraphBatch SubgraphSource::make(const at::Tensor& nodes, std::int64_t index,
                                   Workspace& workspace, PipelineStatistics& statistics) const {
  Stopwatch watch;
  InducedSubgraph part = induced_subgraph(topology_, nodes, workspace);
  SubgraphBatch batch;
  batch.graph = Graph(std::move(part.topology));
  batch.nodes = nodes;
  batch.edges = std::move(part.edges);
  batch.index = index;
  statistics.sampled_nodes += nodes.numel();
  statistics.sampled_edges += batch.edges.numel();
  statistics.sample_seconds += watch.lap();
  batch.graph.ndata().update(gather_columns(columns_, nodes, device_));
  statistics.gather_seconds += watch.lap();
  return batch;
}

void SubgraphSource::move(SubgraphBatch& batch, PipelineStatistics& statistics) const {
  Stopwatch watch;
  batch.graph = batch.graph.to(device_);
  for (at::Tensor* tensor :
       {&batch.nodes, &batch.edges, &batch.node_weights, &batch.edge_weights}) {
    if (tensor->defined()) *tensor = tensor->to(device_);
  }
  prepare_rows(batch.graph.topology(), /*backward=*/true);
  statistics.transfer_seconds += watch.lap();
}

}  // namespace detail

const at::Tensor& SubgraphBatch::features(const std::string& column) const {
  return graph.ndata().at(column);
}

const at::Tensor& SubgraphBatch::labels(const std::string& column) const {
  return graph.ndata().at(column);
}

}  // namespace mezzo
