#include "mezzo/graph/graph.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/data/dataset.h"
#include "mezzo/graph/selection.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/graph/transforms/transforms.h"

namespace mezzo {
namespace {

/// The number of rows of `indptr`. Topology reports errors in it.
std::int64_t rows_of(const at::Tensor& indptr) {
  return indptr.defined() && indptr.dim() == 1 && indptr.numel() > 0 ? indptr.numel() - 1 : 0;
}

at::Tensor dense_features(const Dataset& dataset) {
  constexpr std::int64_t kMostSilentMiB = 64;
  const std::int64_t mib = dataset.features.numel() * dataset.features.element_size() >> 20;
  if (mib > kMostSilentMiB) {
    TORCH_WARN("mezzo: Graph::from_dataset: the sparse features of ", dataset.name,
               " become a dense tensor of ", mib, " MiB; SparseFeatures::kKeep keeps them sparse");
  }
  return dataset.features.to_dense();
}

/// The graphs of a set as a batch.
Graph as_batch(const Graph& graph, const at::Tensor& offsets) {
  const at::Tensor sources = graph.topology().src().to(at::kLong);
  const at::Tensor of_edge =
      at::searchsorted(offsets, sources, /*out_int32=*/false, /*right=*/true) - 1;
  const std::int64_t num_graphs = offsets.numel() - 1;
  Graph sorted = graph;
  if (of_edge.diff().lt(0).any().item<bool>()) {
    const at::Tensor order = of_edge.argsort(/*stable=*/true, /*dim=*/0);
    sorted = Graph::from_coo(sources.index_select(0, order),
                             graph.topology().dst().index_select(0, order), graph.num_nodes());
    sorted.ndata() = graph.ndata();
    sorted.edata() = graph.edata().rows(order);
  }
  sorted.set_batch(offsets.diff(), at::bincount(of_edge, {}, num_graphs));
  return sorted;
}

}  // namespace

struct Graph::State {
  Topology topology;
  Frame ndata;
  Frame edata;
  std::vector<std::int64_t> batch_num_nodes, batch_num_edges;
};

Graph::Graph() : Graph(Topology()) {}

Graph::Graph(Topology topology) {
  MEZZO_CHECK(topology.num_src() == topology.num_dst(),
              "Graph: expected as many sources as destinations, got {} and {}", topology.num_src(),
              topology.num_dst());
  Frame nodes("node", topology.num_src(), topology.device());
  Frame edges("edge", topology.num_edges(), topology.device());
  const std::int64_t num_nodes = topology.num_src(), num_edges = topology.num_edges();
  state_ = std::make_shared<State>(
      State{std::move(topology), std::move(nodes), std::move(edges), {num_nodes}, {num_edges}});
}

Graph Graph::from_coo(const at::Tensor& src, const at::Tensor& dst, std::int64_t num_nodes,
                      IdWidth width) {
  return Graph(Topology::from_coo(src, dst, num_nodes, num_nodes, width));
}

Graph Graph::from_csr(const at::Tensor& indptr, const at::Tensor& indices,
                      const at::Tensor& edge_ids, IdWidth width) {
  return Graph(Topology::from_csr(indptr, indices, rows_of(indptr), edge_ids, width));
}

Graph Graph::from_csc(const at::Tensor& indptr, const at::Tensor& indices,
                      const at::Tensor& edge_ids, IdWidth width) {
  return Graph(Topology::from_csc(indptr, indices, rows_of(indptr), edge_ids, width));
}

Graph Graph::from_dataset(const Dataset& dataset, std::int64_t split_index, SparseFeatures sparse) {
  Columns columns, edge_columns;
  if (dataset.labels.defined() && dataset.target != TaskTarget::kGraph) {
    const SplitMasks masks = dataset.split(split_index);
    (dataset.target == TaskTarget::kNode ? columns : edge_columns) = {{"label", dataset.labels},
                                                                      {"train_mask", masks.train},
                                                                      {"val_mask", masks.val},
                                                                      {"test_mask", masks.test}};
  }
  Graph graph(topology_of(dataset));
  if (dataset.features.defined()) {
    const bool as_read =
        dataset.features.layout() == at::kStrided || sparse == SparseFeatures::kKeep;
    columns["feat"] = as_read ? dataset.features : dense_features(dataset);
  }
  if (dataset.part) {
    columns["node_id"] = dataset.part->node_ids;
    columns["own_mask"] = dataset.part->own_mask;
  }
  graph.ndata().update(columns);
  if (dataset.edge_weights.defined()) edge_columns["weight"] = dataset.edge_weights;
  if (dataset.edge_features.defined()) edge_columns["feat"] = dataset.edge_features;
  graph.edata().update(edge_columns);
  return dataset.graph_offsets.defined() ? as_batch(graph, dataset.graph_offsets) : graph;
}

Topology topology_of(const Dataset& dataset) {
  if (!dataset.indptr.defined()) {
    return Topology::from_coo(dataset.src, dataset.dst, dataset.num_nodes, dataset.num_nodes);
  }
  const IdWidth width = detail::width_like(dataset.indices.scalar_type());
  const Topology topology =
      Topology::from_csc(dataset.indptr, dataset.indices, dataset.num_nodes, {}, width);
  if (!dataset.part) return topology;
  return topology.with_parent_degrees(dataset.part->in_degrees, dataset.part->out_degrees);
}

std::int64_t Graph::num_nodes() const {
  return state_->topology.num_src();
}

std::int64_t Graph::num_edges() const {
  return state_->topology.num_edges();
}

at::Device Graph::device() const {
  return state_->topology.device();
}

const Topology& Graph::topology() const {
  return state_->topology;
}

Frame& Graph::ndata() {
  return state_->ndata;
}

const Frame& Graph::ndata() const {
  return state_->ndata;
}

Frame& Graph::edata() {
  return state_->edata;
}

const Frame& Graph::edata() const {
  return state_->edata;
}

at::Tensor Graph::in_degrees() const {
  return state_->topology.in_degrees();
}

at::Tensor Graph::out_degrees() const {
  return state_->topology.out_degrees();
}

at::Tensor Graph::in_edges(const at::Tensor& nodes) const {
  return detail::edges_into(
      topology(), detail::selected_ids("in_edges", "nodes", nodes, num_nodes(), device()));
}

at::Tensor Graph::out_edges(const at::Tensor& nodes) const {
  return detail::edges_into(topology().reverse(), detail::selected_ids("out_edges", "nodes", nodes,
                                                                       num_nodes(), device()));
}

at::Tensor Graph::edge_ids(const at::Tensor& src, const at::Tensor& dst) const {
  return detail::edges_between("edge_ids", topology(), src, dst);
}

at::Tensor Graph::has_edges_between(const at::Tensor& src, const at::Tensor& dst) const {
  return detail::are_joined("has_edges_between", topology(), src, dst);
}

std::int64_t Graph::batch_size() const {
  return static_cast<std::int64_t>(state_->batch_num_nodes.size());
}

at::Tensor Graph::batch_num_nodes() const {
  return at::tensor(state_->batch_num_nodes, at::kLong);
}

at::Tensor Graph::batch_num_edges() const {
  return at::tensor(state_->batch_num_edges, at::kLong);
}

void Graph::set_batch(const at::Tensor& num_nodes, const at::Tensor& num_edges) {
  detail::BatchCounts counts = detail::check_batch("set_batch", *this, num_nodes, num_edges);
  state_->batch_num_nodes = std::move(counts.num_nodes);
  state_->batch_num_edges = std::move(counts.num_edges);
}

Graph Graph::to(at::Device device) const {
  Topology moved = topology().to(device);
  if (moved.is_same(topology())) return *this;
  Graph graph(std::move(moved));
  graph.ndata() = ndata().to(graph.device());
  graph.edata() = edata().to(graph.device());
  graph.state_->batch_num_nodes = state_->batch_num_nodes;
  graph.state_->batch_num_edges = state_->batch_num_edges;
  return graph;
}

Graph Graph::local_var() const {
  Graph own;
  own.state_ = std::make_shared<State>(*state_);
  return own;
}

Graph::LocalScope Graph::local_scope() {
  return LocalScope(*this);
}

Graph::LocalScope::LocalScope(Graph graph)
    : graph_(std::move(graph)), ndata_(graph_.ndata()), edata_(graph_.edata()) {}

Graph::LocalScope::~LocalScope() {
  detail::restore(graph_.ndata(), ndata_);
  detail::restore(graph_.edata(), edata_);
}

}  // namespace mezzo
