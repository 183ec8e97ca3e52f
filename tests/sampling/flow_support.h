#pragma once

#include <algorithm>
#include <functional>

#include "mezzo/graph/graph.h"
#include "mezzo/sampling/node_flow/flow_samplers.h"
#include "mezzo/sampling/node_flow/node_flow.h"

#include "support/graphs.h"
#include "support/tensors.h"

/// Shared by the tests of node flows.
namespace mezzo::test {

/// The flow of these seeds with every neighbour in each hop: sampled on the CPU and moved to the
/// test device. On other devices its parent is a copy of the graph.
inline NodeFlow whole_flow(const Graph& graph, const Ids& seeds, std::int64_t hops,
                           bool add_self_loop = false) {
  const NeighborSampler sampler(graph.to(at::kCPU), ids(seeds).cpu(),
                                {.num_hops = hops, .add_self_loop = add_self_loop});
  NodeFlow flow = sampler.batch(0, 0);
  if (!on_cpu()) flow.to(test_device());
  return flow;
}

/// Edges between 20 nodes, with integers in float64: "x" [20, 3] of nodes and "w" [edges, 1] of
/// edges.
inline Graph featured_graph(std::uint64_t seed = 4) {
  Graph graph = random_graph(20, 0.2, seed);
  graph.ndata()["x"] = integers({20, 3}, at::kDouble, 11);
  graph.edata()["w"] = integers({graph.num_edges(), 1}, at::kDouble, 12);
  return graph;
}

/// Functions of a block that read "h" of a layer and write "h" of the next; "x" and "w" belong to
/// the parent.
struct NamedStep {
  std::string name;
  MessageFunction message;
  ReduceFunction reduce;
  ApplyFunction apply = {};
};

inline Columns message_of_h(const EdgeBatch& edges) {
  return one_column("m", edges.src("h") * edges.data("w") + 1);
}
inline Columns largest_message(const NodeBatch& nodes) {
  return one_column("h", nodes.mailbox("m").amax(1));
}
inline Columns doubled_plus_x(const NodeBatch& nodes) {
  return one_column("h", nodes.data("h") * 2 + nodes.data("x"));
}

/// The nodes and edges of the parent in a flow, and their connections.
inline std::vector<Ids> contents(const NodeFlow& flow) {
  std::vector<Ids> all;
  for (std::int64_t i = 0; i < flow.num_layers(); ++i) {
    all.push_back(values(flow.layer_parent_nid(i)));
  }
  for (std::int64_t i = 0; i < flow.num_blocks(); ++i) {
    const NodeFlow::BlockEdges edges = flow.block_edges(i, /*local=*/true);
    all.push_back(values(edges.src));
    all.push_back(values(edges.dst));
    all.push_back(values(flow.block_parent_eid(i)));
  }
  return all;
}

/// The contents of every flow of the next epoch.
inline std::vector<std::vector<Ids>> epoch_contents(Batches<NodeFlow>& sampler) {
  std::vector<std::vector<Ids>> all;
  for (const NodeFlow& flow : sampler) all.push_back(contents(flow));
  return all;
}

inline bool is_ascending(const Ids& ids) {
  return std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) == ids.end();
}

/// Expects each parent edge of the block to have the end nodes that it has in the parent, reversed
/// if `turned`, and each added edge to be a self loop.
inline void expect_edges_of_the_parent(const NodeFlow& flow, std::int64_t block,
                                       bool turned = false) {
  const Topology& parent = flow.parent().topology();
  const auto parent_src = values(turned ? parent.dst() : parent.src());
  const auto parent_dst = values(turned ? parent.src() : parent.dst());
  const NodeFlow::BlockEdges edges = flow.block_edges(block);
  const auto src = values(flow.map_to_parent_nid(edges.src));
  const auto dst = values(flow.map_to_parent_nid(edges.dst));
  const auto edge = values(flow.block_parent_eid(block));
  for (std::size_t i = 0; i < edge.size(); ++i) {
    const auto e = static_cast<std::size_t>(edge[i]);
    EXPECT_EQ(src[i], edge[i] < 0 ? dst[i] : parent_src[e]);
    if (edge[i] >= 0) {
      EXPECT_EQ(dst[i], parent_dst[e]);
    }
  }
}

/// Whether the mean of independent samples [n, ...] is as expected, element by element: within five
/// standard deviations, estimated from the samples. The slack is for rounding.
inline testing::AssertionResult is_unbiased(const at::Tensor& samples, const at::Tensor& expected) {
  constexpr double kDeviations = 5;
  const at::Tensor float64 = samples.to(at::kDouble);
  const at::Tensor error = float64.var(0, /*unbiased=*/true).div(float64.size(0)).sqrt();
  const at::Tensor rounding = (expected.abs() + 1) * Float32::epsilon;
  const at::Tensor distance = (float64.mean(0) - expected).abs();
  if (distance.le(error * kDeviations + rounding).all().item<bool>()) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "mean " << float64.mean(0) << "\nexpected " << expected
                                     << "\nstandard deviation " << error;
}

}  // namespace mezzo::test
