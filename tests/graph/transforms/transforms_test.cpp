#include "mezzo/graph/transforms/transforms.h"

#include <algorithm>
#include <array>
#include <set>

#include "support/graphs.h"

namespace mezzo::test {
namespace {

/// Whether a count out of n draws of probability p is within six standard deviations.
testing::AssertionResult is_likely(double count, double n, double p) {
  if (std::abs(count - n * p) <= 6 * std::sqrt(n * p * (1 - p))) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << count << " of " << n << " draws of probability " << p;
}

TEST(RandGraph, has_distinct_edges_sorted_by_source_and_destination) {
  for (const std::int64_t num_edges : {0, 1, 7, 50, 51, 99, 100}) {
    SCOPED_TRACE(num_edges);
    const Graph g = rand_graph(10, num_edges, 3);
    EXPECT_EQ(g.num_nodes(), 10);
    EXPECT_EQ(g.num_edges(), num_edges);
    const std::vector<Edge> pairs = edges(g);
    EXPECT_EQ(std::set<Edge>(pairs.begin(), pairs.end()).size(), pairs.size());
    EXPECT_TRUE(std::is_sorted(pairs.begin(), pairs.end()));
  }
}

TEST(RandGraph, is_equal_on_every_machine) {
  EXPECT_EQ(edges(rand_graph(5, 6)),
            std::vector<Edge>({{0, 0}, {1, 2}, {1, 4}, {2, 0}, {3, 2}, {4, 2}}));
}

TEST(RandGraph, depends_on_the_seed_and_not_on_the_threads) {
  const ThreadCount one(1);
  const Graph first = rand_graph(1000, 100000, 1);
  {
    const ThreadCount four(4);
    EXPECT_EQ(edges(rand_graph(1000, 100000, 1)), edges(first));
  }
  EXPECT_NE(edges(rand_graph(1000, 100000, 2)), edges(first));
}

TEST(RandGraph, draws_every_edge_equally_often) {
  constexpr int kRounds = 2000;
  for (const std::int64_t num_edges :
       {2, 4, 5, 7}) {  // both methods: drawn edges and drawn omissions
    std::array<int, 9> counts{};
    for (std::uint64_t seed = 0; seed < kRounds; ++seed) {
      for (const auto& [src, dst] : edges(rand_graph(3, num_edges, seed))) {
        ++counts[static_cast<std::size_t>(3 * src + dst)];
      }
    }
    for (const int count : counts) {
      EXPECT_TRUE(is_likely(count, kRounds, static_cast<double>(num_edges) / 9));
    }
  }
}

TEST(RandGraph, of_no_or_one_node) {
  EXPECT_EQ(rand_graph(0, 0).num_nodes(), 0);
  EXPECT_EQ(edges(rand_graph(1, 1)), std::vector<Edge>({{0, 0}}));
}

TEST(RandGraph, impossible_sizes_are_errors) {
  EXPECT_ERROR("rand_graph:expectednum_edgesin[0,num_nodes^2=9],got10", rand_graph(3, 10));
  EXPECT_ERROR("got-1", rand_graph(3, -1));
  EXPECT_ERROR("rand_graph:expectednum_nodesin[0,", rand_graph(-1, 0));
  EXPECT_ERROR("num_nodesin[0,", rand_graph(std::int64_t{1} << 40, 1));
}

TEST(RmatGraph, is_equal_on_every_machine) {
  EXPECT_EQ(edges(rmat_graph(10, 6)),
            std::vector<Edge>({{712, 52}, {779, 282}, {1, 512}, {768, 16}, {927, 72}, {9, 656}}));
}

TEST(RmatGraph, depends_on_the_seed_and_not_on_the_threads) {
  const ThreadCount one(1);
  const Graph first = rmat_graph(12, 100000, 1);
  EXPECT_EQ(first.num_nodes(), 4096);
  EXPECT_EQ(first.num_edges(), 100000);
  {
    const ThreadCount four(4);
    EXPECT_EQ(edges(rmat_graph(12, 100000, 1)), edges(first));
  }
  EXPECT_NE(edges(rmat_graph(12, 100000, 2)), edges(first));
}

TEST(RmatGraph, meets_the_quadrant_probabilities_on_every_level) {
  constexpr int kScale = 9;  // one more level than a random block covers
  constexpr std::int64_t kEdges = 1 << 16;
  const Graph g = rmat_graph(kScale, kEdges, 3);
  for (int level = 0; level < kScale; ++level) {
    SCOPED_TRACE(level);
    std::array<int, 4> counts{};
    for (const auto& [src, dst] : edges(g)) {
      ++counts[static_cast<std::size_t>((src >> level & 1) * 2 + (dst >> level & 1))];
    }
    const std::array<double, 4> probabilities = {0.57, 0.19, 0.19, 0.05};
    for (std::size_t quadrant = 0; quadrant < 4; ++quadrant) {
      EXPECT_TRUE(is_likely(counts[quadrant], kEdges, probabilities[quadrant]));
    }
  }
}

TEST(RmatGraph, of_scale_zero_has_only_loops) {
  EXPECT_EQ(edges(rmat_graph(0, 2)), std::vector<Edge>({{0, 0}, {0, 0}}));
}

TEST(RmatGraph, impossible_sizes_are_errors) {
  EXPECT_ERROR("expectedscalein[0,40],got-1", rmat_graph(-1, 1));
  EXPECT_ERROR("expectedscalein[0,40],got41", rmat_graph(41, 1));
  EXPECT_ERROR("expectednum_edges>=0,got-1", rmat_graph(1, -1));
}

TEST(AddSelfLoop, appends_one_loop_a_node_whether_or_not_there_is_one) {
  const Graph g = with_id_columns(self_loop_graph());
  const Graph looped = add_self_loop(g);
  std::vector<Edge> expected = edges(g);
  for (std::int64_t node = 0; node < g.num_nodes(); ++node) expected.emplace_back(node, node);
  EXPECT_EQ(edges(looped), expected);
  EXPECT_FALSE(looped.topology().has_zero_in_degree());
  EXPECT_TRUE(looped.ndata()["h"].is_same(g.ndata()["h"]));
  EXPECT_EQ(values(looped.edata().at("w")),
            Ids({0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 1, 1, 1, 1, 1, 1, 1, 1}));
}

TEST(AddSelfLoop, fills_the_edge_columns_of_the_loops) {
  Graph g = cycle_graph(2);
  g.edata()["type"] = ids({3, 4});
  EXPECT_EQ(values(add_self_loop(g, 7).edata().at("type")), Ids({3, 4, 7, 7}));
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double fill : {0.5, infinity, 0x1p63}) {
    EXPECT_ERROR(fmt::format("'type'ofLongcanhold,got{}", fill), add_self_loop(g, fill));
  }
  g.edata()["type"] = at::zeros({2}, at::kHalf);
  EXPECT_ERROR("'type'ofHalfcanhold", add_self_loop(g, 1e6));
  EXPECT_TRUE(std::isinf(add_self_loop(g, infinity).edata().at("type")[2].item<double>()));
  g.edata()["type"] = at::zeros({2, 1});
  const at::Tensor filled = add_self_loop(g, 0.5).edata().at("type");
  EXPECT_TRUE(at::equal(filled, at::tensor({0.0F, 0.0F, 0.5F, 0.5F}).view({4, 1})));
}

TEST(AddSelfLoop, leaves_the_old_graph_alone) {
  Graph g = self_loop_graph();
  Graph looped = add_self_loop(g);
  looped.ndata()["new"] = at::zeros({4});
  EXPECT_FALSE(g.ndata().contains("new"));
  EXPECT_EQ(g.num_edges(), 5);
}

TEST(AddSelfLoop, then_removing_them_gives_the_graph_without_loops) {
  for (const NamedGraph& named : named_graphs()) {
    SCOPED_TRACE(named.name);
    EXPECT_EQ(add_self_loop(named.graph).num_edges(),
              named.graph.num_edges() + named.graph.num_nodes());
    EXPECT_EQ(edges(remove_self_loop(add_self_loop(named.graph))),
              edges(remove_self_loop(named.graph)));
  }
}

TEST(AddSelfLoop, passes_gradients_to_the_old_edge_columns) {
  Graph g = cycle_graph(3);
  const at::Tensor w = leaf(at::ones({3}));
  g.edata()["w"] = w;
  add_self_loop(g).edata().at("w").sum().backward();
  EXPECT_EQ(values(w.grad()), Ids({1, 1, 1}));
}

TEST(RemoveSelfLoop, removes_all_loops_and_their_rows) {
  const Graph g = with_id_columns(self_loop_graph());
  const Graph loopless = remove_self_loop(g);
  EXPECT_EQ(edges(loopless), std::vector<Edge>({{1, 2}, {0, 1}}));
  EXPECT_EQ(loopless.num_nodes(), 4);
  EXPECT_EQ(values(loopless.edata().at("w")), Ids({2, 2, 4, 4}));
  EXPECT_TRUE(loopless.ndata()["h"].is_same(g.ndata()["h"]));
}

TEST(RemoveSelfLoop, keeps_the_parts_of_a_batch) {
  const Graph part = self_loop_graph();
  const Graph loopless = remove_self_loop(batch({part, part, part}));
  EXPECT_EQ(values(loopless.batch_num_nodes()), Ids({4, 4, 4}));
  EXPECT_EQ(values(loopless.batch_num_edges()), Ids({2, 2, 2}));
  const Graph loop = Graph::from_coo(ids({0}), ids({0}), 1);
  EXPECT_EQ(values(remove_self_loop(batch({loop, loop})).batch_num_edges()), Ids({0, 0}));
}

TEST(ToBidirected, has_each_edge_both_ways_once_in_order) {
  for (const NamedGraph& named : named_graphs()) {
    SCOPED_TRACE(named.name);
    std::set<Edge> expected;
    for (const auto& [src, dst] : edges(named.graph)) {
      expected.emplace(src, dst);
      expected.emplace(dst, src);
    }
    const Graph simple = to_bidirected(with_id_columns(named.graph));
    EXPECT_EQ(edges(simple), std::vector<Edge>(expected.begin(), expected.end()));
    EXPECT_EQ(simple.num_nodes(), named.graph.num_nodes());
    EXPECT_TRUE(simple.ndata().contains("h"));
    EXPECT_TRUE(simple.edata().columns().empty());
  }
}

TEST(Reverse, turns_every_edge_and_keeps_ids_and_columns) {
  for (const NamedGraph& named : named_graphs()) {
    SCOPED_TRACE(named.name);
    const Graph g = with_id_columns(named.graph);
    const Graph turned = mezzo::reverse(g);
    std::vector<Edge> expected;
    for (const auto& [src, dst] : edges(g)) expected.emplace_back(dst, src);
    EXPECT_EQ(edges(turned), expected);
    EXPECT_TRUE(turned.ndata()["h"].is_same(g.ndata()["h"]));
    EXPECT_TRUE(turned.edata()["w"].is_same(g.edata()["w"]));
    EXPECT_EQ(edges(mezzo::reverse(turned)), edges(g));
  }
}

TEST(Subgraph, keeps_the_edges_among_the_nodes_in_the_given_order) {
  const Graph g = with_id_columns(four_node_graph());
  const Graph part = subgraph(g, ids({2, 0, 3}));
  EXPECT_EQ(edges(part), std::vector<Edge>({{1, 0}, {2, 0}}));  // 0->2 and 3->2
  EXPECT_EQ(values(part.ndata().at("_ID")), Ids({2, 0, 3}));
  EXPECT_EQ(values(part.edata().at("_ID")), Ids({1, 3}));
  EXPECT_EQ(values(part.ndata().at("h")), Ids({2, 2, 0, 0, 3, 3}));
  EXPECT_EQ(values(part.edata().at("w")), Ids({1, 1, 3, 3}));
}

TEST(Subgraph, of_all_nodes_is_the_graph) {
  for (const NamedGraph& named : named_graphs()) {
    SCOPED_TRACE(named.name);
    const Graph whole = subgraph(named.graph, at::arange(named.graph.num_nodes()));
    EXPECT_EQ(edges(whole), edges(named.graph));
    EXPECT_EQ(subgraph(named.graph, ids({})).num_nodes(), 0);
  }
}

TEST(Subgraph, edges_lie_in_the_parent) {
  const Graph g = random_graph(30, 0.3, 9);
  const Graph part = subgraph(g, ids({3, 29, 7, 11, 0, 16}));
  const Ids nodes = values(part.ndata().at("_ID")), parents = values(part.edata().at("_ID"));
  const std::vector<Edge> all = edges(g), own = edges(part);
  for (std::size_t e = 0; e < own.size(); ++e) {
    const Edge mapped = {nodes[static_cast<std::size_t>(own[e].first)],
                         nodes[static_cast<std::size_t>(own[e].second)]};
    EXPECT_EQ(mapped, all[static_cast<std::size_t>(parents[e])]);
  }
  const std::set<std::int64_t> chosen(nodes.begin(), nodes.end());
  const auto inside = std::count_if(all.begin(), all.end(), [&](const Edge& edge) {
    return chosen.contains(edge.first) && chosen.contains(edge.second);
  });
  EXPECT_EQ(part.num_edges(), inside);
}

TEST(Subgraph, nodes_that_repeat_or_are_not_there_are_errors) {
  const Graph g = four_node_graph();
  EXPECT_ERROR("subgraph:expecteddistinctnodes,got2morethanonce", subgraph(g, ids({0, 2, 2})));
  EXPECT_ERROR("subgraph:expectednodesin[0,4),got4atposition1", subgraph(g, ids({0, 4})));
  EXPECT_ERROR("subgraph:expectednodestobeanintegervector,gotfloat32[1]",
               subgraph(g, at::zeros({1})));
  EXPECT_ERROR("gotmeta", subgraph(g, ids({0}).to(at::kMeta)));
}

TEST(Subgraphs, keep_their_ids_when_the_caller_changes_his) {
  const Graph g = four_node_graph();
  const at::Tensor nodes = ids({2, 0}), edge = ids({1});
  const Graph by_nodes = subgraph(g, nodes), by_edges = edge_subgraph(g, edge, false);
  nodes.zero_();
  edge.zero_();
  EXPECT_EQ(values(by_nodes.ndata().at("_ID")), Ids({2, 0}));
  EXPECT_EQ(values(by_edges.edata().at("_ID")), Ids({1}));
}

TEST(Subgraph, takes_a_mask) {
  const Graph g = with_id_columns(four_node_graph());
  const Graph part = subgraph(g, ids({1, 0, 1, 1}).to(at::kBool));
  EXPECT_EQ(values(part.ndata().at("_ID")), Ids({0, 2, 3}));
  EXPECT_EQ(edges(part), std::vector<Edge>({{0, 1}, {2, 1}}));
  EXPECT_ERROR("subgraph:expectednodesasamaskof4entries,gotbool[2]",
               subgraph(g, ids({1, 0}).to(at::kBool)));
}

TEST(EdgeSubgraph, has_the_edges_in_the_given_order_and_their_ends_as_they_appear) {
  const Graph g = with_id_columns(cycle_graph(5));
  for (const at::Tensor& chosen : {ids({0, 4}), ids({1, 0, 0, 0, 1}).to(at::kBool)}) {
    const Graph part = edge_subgraph(g, chosen);
    EXPECT_EQ(edges(part), std::vector<Edge>({{0, 2}, {1, 0}}));
    EXPECT_EQ(values(part.ndata().at("_ID")), Ids({0, 4, 1}));
    EXPECT_EQ(values(part.edata().at("_ID")), Ids({0, 4}));
    EXPECT_EQ(values(part.ndata().at("h")), Ids({0, 0, 4, 4, 1, 1}));
    EXPECT_EQ(values(part.edata().at("w")), Ids({0, 0, 4, 4}));
  }
}

TEST(EdgeSubgraph, keeps_all_nodes_where_they_are_not_relabelled) {
  const Graph g = with_id_columns(four_node_graph());
  const Graph part = edge_subgraph(g, ids({3, 0, 3}), /*relabel_nodes=*/false);
  EXPECT_EQ(part.num_nodes(), 4);
  EXPECT_EQ(edges(part), std::vector<Edge>({{3, 2}, {0, 1}, {3, 2}}));
  EXPECT_TRUE(part.ndata()["h"].is_same(g.ndata()["h"]));
  EXPECT_FALSE(part.ndata().contains("_ID"));
  EXPECT_EQ(values(part.edata().at("_ID")), Ids({3, 0, 3}));
  EXPECT_EQ(values(part.edata().at("w")), Ids({3, 3, 0, 0, 3, 3}));
}

TEST(EdgeSubgraph, of_all_or_no_edges) {
  for (const NamedGraph& named : named_graphs()) {
    SCOPED_TRACE(named.name);
    const Graph g = with_id_columns(named.graph);
    const Graph whole = edge_subgraph(g, at::arange(g.num_edges()), /*relabel_nodes=*/false);
    EXPECT_EQ(edges(whole), edges(g));
    const Graph part = edge_subgraph(g, at::arange(g.num_edges()));
    const Ids nodes = values(part.ndata().at("_ID"));
    std::vector<Edge> mapped;
    for (const auto& [src, dst] : edges(part)) {
      mapped.emplace_back(nodes[static_cast<std::size_t>(src)],
                          nodes[static_cast<std::size_t>(dst)]);
    }
    EXPECT_EQ(mapped, edges(g));
    EXPECT_EQ(std::set<std::int64_t>(nodes.begin(), nodes.end()).size(), nodes.size());
    EXPECT_EQ(edge_subgraph(g, ids({})).num_nodes(), 0);
    EXPECT_EQ(edge_subgraph(g, ids({}), /*relabel_nodes=*/false).num_nodes(), g.num_nodes());
  }
}

TEST(EdgeSubgraph, passes_gradients_to_the_columns_of_the_parent) {
  Graph g = cycle_graph(3);
  const at::Tensor h = leaf(at::ones({3})), w = leaf(at::ones({3}));
  g.ndata()["h"] = h;
  g.edata()["w"] = w;
  const Graph part = edge_subgraph(g, ids({1}));
  (part.ndata().at("h").sum() + part.edata().at("w").sum()).backward();
  EXPECT_EQ(values(h.grad()), Ids({0, 1, 1}));
  EXPECT_EQ(values(w.grad()), Ids({0, 1, 0}));
}

TEST(InSubgraph, has_all_nodes_and_the_edges_into_the_given_ones) {
  const Graph g = with_id_columns(four_node_graph());
  const Graph into = in_subgraph(g, ids({2, 0}));
  EXPECT_EQ(into.num_nodes(), 4);
  EXPECT_EQ(edges(into), std::vector<Edge>({{0, 2}, {1, 2}, {3, 2}}));
  EXPECT_EQ(values(into.edata().at("_ID")), Ids({1, 2, 3}));
  EXPECT_EQ(values(into.edata().at("w")), Ids({1, 1, 2, 2, 3, 3}));
  EXPECT_TRUE(into.ndata()["h"].is_same(g.ndata()["h"]));
  EXPECT_EQ(in_subgraph(g, ids({})).num_edges(), 0);
}

TEST(OutSubgraph, has_all_nodes_and_the_edges_out_of_the_given_ones) {
  const Graph g = with_id_columns(four_node_graph());
  for (const at::Tensor& nodes : {ids({0, 3}), ids({1, 0, 0, 1}).to(at::kBool)}) {
    const Graph out = out_subgraph(g, nodes);
    EXPECT_EQ(out.num_nodes(), 4);
    EXPECT_EQ(edges(out), std::vector<Edge>({{0, 1}, {0, 2}, {3, 2}}));
    EXPECT_EQ(values(out.edata().at("_ID")), Ids({0, 1, 3}));
    EXPECT_EQ(values(out.edata().at("w")), Ids({0, 0, 1, 1, 3, 3}));
  }
}

TEST(InAndOutSubgraph, nodes_that_repeat_or_are_not_there_are_errors) {
  const Graph g = four_node_graph();
  EXPECT_ERROR("in_subgraph:expecteddistinctnodes,got1morethanonce", in_subgraph(g, ids({1, 1})));
  EXPECT_ERROR("out_subgraph:expectednodesin[0,4),got4atposition0", out_subgraph(g, ids({4})));
  EXPECT_ERROR("edge_subgraph:expectededgesin[0,4),got-1atposition1",
               edge_subgraph(g, ids({0, -1})));
  EXPECT_ERROR("edge_subgraph:expectededgestobeanintegervector,gotfloat32[2]",
               edge_subgraph(g, at::zeros({2})));
}

/// By the definition: the nodes that reach one of `nodes` in at most k edges.
std::set<std::int64_t> nodes_within(const Graph& g, const Ids& nodes, int k) {
  std::set<std::int64_t> reached(nodes.begin(), nodes.end());
  for (int hop = 0; hop < k; ++hop) {
    const std::set<std::int64_t> before = reached;
    for (const auto& [src, dst] : edges(g)) {
      if (before.contains(dst)) reached.insert(src);
    }
  }
  return reached;
}

TEST(KhopInSubgraph, has_the_nodes_that_reach_the_seeds_and_all_edges_among_them) {
  for (const NamedGraph& named : named_graphs()) {
    if (named.graph.num_nodes() < 3) continue;
    for (const int k : {0, 1, 2, 5}) {
      SCOPED_TRACE(named.name + ", hops: " + std::to_string(k));
      const Graph g = with_id_columns(named.graph);
      const HopSubgraph part = khop_in_subgraph(g, ids({2, 0}), k);
      const std::set<std::int64_t> expected = nodes_within(g, {2, 0}, k);
      const at::Tensor nodes = part.graph.ndata().at("_ID");
      EXPECT_EQ(values(nodes), Ids(expected.begin(), expected.end()));
      EXPECT_EQ(values(nodes.index_select(0, part.seeds)), Ids({2, 0}));
      EXPECT_EQ(part.seeds.scalar_type(), at::kLong);
      const Graph whole = subgraph(g, nodes);
      EXPECT_EQ(edges(part.graph), edges(whole));
      EXPECT_EQ(values(part.graph.edata().at("_ID")), values(whole.edata().at("_ID")));
      EXPECT_EQ(values(part.graph.ndata().at("h").select(1, 0)), values(nodes));
    }
  }
}

TEST(KhopInSubgraph, is_that_of_dgls_manual) {
  for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
    Graph g = graph_of({1, 1, 2, 3, 4}, {0, 2, 0, 4, 2}, 5, width);
    const at::Tensor w = leaf(at::arange(10, on_device(at::kFloat)).view({5, 2}));
    g.edata()["w"] = w;
    const auto [part, seeds] = khop_in_subgraph(g, ids({0}), 2);
    EXPECT_EQ(edges(part), std::vector<Edge>({{1, 0}, {1, 2}, {2, 0}, {3, 2}}));
    EXPECT_EQ(values(part.edata().at("_ID")), Ids({0, 1, 2, 4}));
    EXPECT_EQ(values(part.edata().at("w")), Ids({0, 1, 2, 3, 4, 5, 8, 9}));
    EXPECT_EQ(values(seeds), Ids({0}));
    part.edata().at("w").sum().backward();
    EXPECT_EQ(values(w.grad()), Ids({1, 1, 1, 1, 1, 1, 0, 0, 1, 1}));
  }
}

TEST(KhopInSubgraph, takes_masks_and_no_nodes_and_refuses_what_is_wrong) {
  const Graph g = four_node_graph();
  const HopSubgraph part = khop_in_subgraph(g, ids({0, 0, 1, 1}).to(at::kBool), 1);
  EXPECT_EQ(values(part.graph.ndata().at("_ID")), Ids({0, 1, 2, 3}));
  EXPECT_EQ(values(part.seeds), Ids({2, 3}));
  EXPECT_EQ(khop_in_subgraph(g, ids({}), 3).graph.num_nodes(), 0);
  EXPECT_ERROR("khop_in_subgraph:expectedk>=0,got-1", khop_in_subgraph(g, ids({0}), -1));
  EXPECT_ERROR("khop_in_subgraph:expecteddistinctnodes,got1morethanonce",
               khop_in_subgraph(g, ids({1, 1}), 1));
  EXPECT_ERROR("khop_in_subgraph:expectednodesin[0,4),got4atposition0",
               khop_in_subgraph(g, ids({4}), 1));
}

TEST(Transforms, keep_int64_ids) {
  const Graph g = four_node_graph(IdWidth::kInt64);
  for (const Graph& transformed :
       {add_self_loop(g), remove_self_loop(g), to_bidirected(g), mezzo::reverse(g),
        subgraph(g, ids({0, 2})), edge_subgraph(g, ids({1})), in_subgraph(g, ids({2})),
        add_self_loop(g, ReduceOp::kSum), to_simple(g), line_graph(g),
        khop_in_subgraph(g, ids({2}), 1).graph}) {
    EXPECT_EQ(transformed.topology().id_dtype(), at::kLong);
  }
}

TEST(Transforms, refuse_edge_columns_of_the_wrong_size) {
  Graph g = four_node_graph();
  g.edata()["w"] = at::zeros({3});
  const std::string text = "edgecolumn'w':expected4rows,got3";
  EXPECT_ERROR(text, add_self_loop(g));
  EXPECT_ERROR(text, remove_self_loop(g));
  EXPECT_ERROR(text, subgraph(g, ids({0})));
  EXPECT_ERROR(text, edge_subgraph(g, ids({0})));
  EXPECT_ERROR(text, in_subgraph(g, ids({0})));
}

TEST(Transforms, on_cuda_give_what_they_give_on_the_cpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no CUDA device";
  const Graph host = with_id_columns(random_graph(20, 0.2, 4)), g = host.to(at::kCUDA);
  EXPECT_EQ(edges(add_self_loop(g)), edges(add_self_loop(host)));
  EXPECT_EQ(edges(remove_self_loop(g)), edges(remove_self_loop(host)));
  EXPECT_EQ(edges(to_bidirected(g)), edges(to_bidirected(host)));
  const Graph part = subgraph(g, ids({4, 1, 9}).cuda());
  EXPECT_EQ(edges(part), edges(subgraph(host, ids({4, 1, 9}))));
  EXPECT_TRUE(part.edata().at("w").is_cuda());
  EXPECT_EQ(edges(edge_subgraph(g, ids({7, 2}).cuda())), edges(edge_subgraph(host, ids({7, 2}))));
  EXPECT_EQ(edges(in_subgraph(g, ids({4}).cuda())), edges(in_subgraph(host, ids({4}))));
  EXPECT_EQ(edges(to_simple(g)), edges(to_simple(host)));
  EXPECT_EQ(edges(line_graph(g, false)), edges(line_graph(host, false)));
  EXPECT_EQ(edges(khop_in_subgraph(g, ids({4}).cuda(), 2).graph),
            edges(khop_in_subgraph(host, ids({4}), 2).graph));
}

}  // namespace
}  // namespace mezzo::test
