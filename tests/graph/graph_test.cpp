#include "mezzo/graph/graph.h"

#include <algorithm>

#include "mezzo/data/dataset.h"

#include "support/errors.h"
#include "support/graphs.h"
#include "support/warnings.h"

namespace mezzo::test {
namespace {

/// Three nodes, two splits.
Dataset small_dataset() {
  Dataset data;
  data.name = "small";
  data.num_nodes = 3;
  data.num_classes = 2;
  data.src = ids({0, 1, 1, 2});
  data.dst = ids({1, 0, 2, 1});
  data.features = at::tensor({1.0F, 0.0F, 0.0F, 2.0F, 0.0F, 3.0F}).view({3, 2});
  data.labels = ids({0, 1, 1});
  const auto masks = [](const Ids& rows) { return ids(rows).view({3, 2}).to(at::kBool); };
  data.train_masks = masks({1, 0, 0, 1, 0, 0});
  data.val_masks = masks({0, 1, 1, 0, 0, 0});
  data.test_masks = masks({0, 0, 0, 0, 1, 1});
  return data;
}

TEST(Graph, default_has_no_nodes) {
  const Graph g;
  EXPECT_EQ(g.num_nodes(), 0);
  EXPECT_EQ(g.num_edges(), 0);
  EXPECT_TRUE(g.ndata().columns().empty());
}

TEST(Graph, has_a_row_of_features_for_each_node_and_edge) {
  for (const NamedGraph& named : named_graphs()) {
    SCOPED_TRACE(named.name);
    Graph g = named.graph;
    EXPECT_EQ(g.ndata().num_rows(), g.num_nodes());
    EXPECT_EQ(g.edata().num_rows(), g.num_edges());
    EXPECT_EQ(g.topology().num_src(), g.num_nodes());
    EXPECT_EQ(g.topology().num_dst(), g.num_nodes());
    EXPECT_EQ(g.in_degrees().sum().item<std::int64_t>(), g.num_edges());
    EXPECT_EQ(g.out_degrees().sum().item<std::int64_t>(), g.num_edges());
    g.ndata()["h"] = at::zeros({g.num_nodes() + 1});
    g.edata()["w"] = at::zeros({g.num_edges() + 1});
    EXPECT_ERROR("nodecolumn'h'", g.ndata().at("h"));
    EXPECT_ERROR("edgecolumn'w'", g.edata().at("w"));
  }
}

TEST(Graph, coordinates_and_rows_describe_the_same_graph) {
  const Graph by_edges = Graph::from_coo(ids({0, 0, 1, 3}), ids({1, 2, 2, 2}), 4);
  const Graph by_source = Graph::from_csr(ids({0, 2, 3, 3, 4}), ids({1, 2, 2, 2}));
  const Graph by_destination = Graph::from_csc(ids({0, 0, 1, 4, 4}), ids({0, 0, 1, 3}));
  for (const Graph& g : {by_edges, by_source, by_destination}) {
    EXPECT_EQ(g.num_nodes(), 4);
    EXPECT_EQ(edges(g), std::vector<Edge>({{0, 1}, {0, 2}, {1, 2}, {3, 2}}));
    EXPECT_EQ(values(g.in_degrees()), Ids({0, 1, 3, 0}));
    EXPECT_EQ(values(g.out_degrees()), Ids({2, 1, 0, 1}));
    EXPECT_TRUE(g.topology().has_zero_in_degree());
  }
}

TEST(Graph, of_rows_takes_edge_ids_and_an_id_width) {
  const Graph g = Graph::from_csc(ids({0, 2, 3}), ids({1, 0, 1}), ids({2, 0, 1}), IdWidth::kInt64);
  EXPECT_EQ(edges(g), std::vector<Edge>({{0, 0}, {1, 1}, {1, 0}}));
  EXPECT_EQ(g.topology().id_dtype(), at::kLong);
  EXPECT_EQ(Graph::from_coo(ids({}), ids({}), 2, IdWidth::kInt64).topology().id_dtype(), at::kLong);
}

TEST(Graph, ids_beyond_the_number_of_nodes_are_errors) {
  EXPECT_ERROR("from_coo:expectedsrcin[0,5),got5atposition1",
               Graph::from_coo(ids({0, 5}), ids({0, 1}), 5));
  EXPECT_ERROR("from_csr:expectedindicesin[0,1),got1atposition0",
               Graph::from_csr(ids({0, 1}), ids({1})));
  EXPECT_ERROR("from_csc:expectedindptrofatleastoneentry", Graph::from_csc(ids({}), ids({})));
  EXPECT_ERROR("from_csr:expectedindptr", Graph::from_csr({}, ids({})));
}

TEST(Graph, two_sides_of_different_size_are_an_error) {
  EXPECT_ERROR("Graph:expectedasmanysourcesasdestinations,got3and1", Graph(in_star(3)));
}

TEST(Graph, converts_to_its_topology) {
  const Graph g = four_node_graph();
  const Topology& topology = g;
  EXPECT_TRUE(topology.is_same(g.topology()));
}

TEST(Graph, both_sides_are_its_nodes) {
  Graph g = four_node_graph();
  EXPECT_EQ(g.num_src(), 4);
  EXPECT_EQ(g.num_dst(), 4);
  g.srcdata()["h"] = at::ones({4});
  EXPECT_EQ(&g.srcdata(), &g.ndata());
  EXPECT_EQ(&g.dstdata(), &g.ndata());
  const Graph& same = g;
  EXPECT_TRUE(same.srcdata().at("h").is_same(same.dstdata().at("h")));
}

TEST(Graph, copies_and_moves_to_its_own_device_share_structure_and_frames) {
  for (const bool moved : {false, true}) {
    Graph g = four_node_graph();
    Graph same = moved ? g.to(at::kCPU) : g;
    same.ndata()["h"] = at::ones({4});
    EXPECT_TRUE(g.ndata().contains("h"));
    EXPECT_TRUE(same.topology().is_same(g.topology()));
    g.edata()["w"] = at::ones({4});
    EXPECT_TRUE(same.edata().contains("w"));
  }
}

TEST(Graph, to_cuda_moves_structure_and_columns_and_leaves_the_old_graph) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no CUDA device";
  Graph g = four_node_graph();
  g.ndata()["h"] = at::ones({4});
  g.edata()["w"] = at::ones({4});
  Graph moved = g.to(at::kCUDA);
  EXPECT_TRUE(moved.device().is_cuda());
  EXPECT_TRUE(moved.ndata().at("h").is_cuda());
  EXPECT_TRUE(moved.edata().at("w").is_cuda());
  EXPECT_TRUE(g.ndata().at("h").is_cpu());
  EXPECT_EQ(values(moved.topology().csc().indices), values(g.topology().csc().indices));
}

TEST(Graph, local_scope_undoes_what_was_added_replaced_or_removed) {
  Graph g = four_node_graph();
  const at::Tensor old = at::zeros({4});
  g.ndata()["x"] = old;
  g.ndata()["removed"] = at::zeros({4});
  {
    const auto scope = g.local_scope();
    g.ndata()["added"] = at::ones({4});
    g.ndata()["x"] = at::ones({4});
    g.ndata().erase("removed");
    g.edata()["w"] = at::ones({4});
    EXPECT_TRUE(g.ndata().contains("added"));
  }
  EXPECT_EQ(g.ndata().names(), Names({"removed", "x"}));
  EXPECT_TRUE(g.ndata()["x"].is_same(old));
  EXPECT_TRUE(g.edata().columns().empty());
}

TEST(Graph, local_var_shares_structure_and_tensors_but_no_columns) {
  Graph g = four_node_graph();
  const at::Tensor h = at::zeros({4}), w = at::zeros({4});
  g.ndata()["h"] = h;
  g.edata()["w"] = w;
  g.set_batch(ids({1, 3}), ids({0, 4}));
  Graph own = g.local_var();
  EXPECT_TRUE(own.topology().is_same(g.topology()));
  EXPECT_TRUE(own.ndata()["h"].is_same(h));
  EXPECT_EQ(values(own.batch_num_nodes()), Ids({1, 3}));
  own.ndata()["new"] = at::zeros({4});
  own.ndata()["h"] = at::ones({4});
  own.edata().erase("w");
  EXPECT_EQ(g.ndata().names(), Names({"h"}));
  EXPECT_TRUE(g.ndata()["h"].is_same(h));
  EXPECT_TRUE(g.edata()["w"].is_same(w));
}

TEST(Graph, in_edges_and_out_edges_are_listed_node_by_node) {
  const Graph g = graph_of({2, 0, 1, 2, 0}, {2, 0, 2, 2, 1}, 4);
  EXPECT_EQ(values(g.in_edges(ids({2, 3, 0}))), Ids({0, 2, 3, 1}));
  EXPECT_EQ(values(g.out_edges(ids({0, 2}))), Ids({1, 4, 0, 3}));
  EXPECT_EQ(values(g.in_edges(ids({0, 1, 0}))), Ids({1, 4, 1}));
  EXPECT_EQ(values(g.out_edges(ids({0, 1, 0, 0}).to(at::kBool))), Ids({2}));
  EXPECT_EQ(values(g.in_edges(ids({}))), Ids());
  EXPECT_EQ(g.in_edges(ids({1})).scalar_type(), at::kLong);
}

TEST(Graph, in_edges_and_out_edges_of_all_nodes_are_all_edges) {
  for (const NamedGraph& named : named_graphs()) {
    SCOPED_TRACE(named.name);
    const Graph& g = named.graph;
    const at::Tensor all = at::arange(g.num_edges()), nodes = at::arange(g.num_nodes());
    for (const at::Tensor& listed : {g.in_edges(nodes), g.out_edges(nodes)}) {
      EXPECT_EQ(values(std::get<0>(listed.sort())), values(all));
    }
    for (std::int64_t node = 0; node < g.num_nodes(); ++node) {
      EXPECT_EQ(values(g.in_edges(ids({node}))),
                values((g.topology().dst() == node).nonzero().squeeze(1)));
      EXPECT_EQ(values(g.out_edges(ids({node}))),
                values((g.topology().src() == node).nonzero().squeeze(1)));
    }
  }
}

TEST(Graph, edge_ids_finds_the_lowest_edge_of_each_pair) {
  for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
    const Graph g = graph_of({0, 1, 0, 0, 2}, {2, 0, 1, 1, 2}, 3, width);
    EXPECT_EQ(values(g.edge_ids(ids({0, 2, 0, 1, 0}), ids({1, 2, 2, 0, 1}))), Ids({2, 4, 0, 1, 2}));
    EXPECT_EQ(values(g.edge_ids(ids({}), ids({}))), Ids());
  }
}

TEST(Graph, has_edges_between_tells_which_pairs_have_an_edge) {
  for (const NamedGraph& named : named_graphs()) {
    SCOPED_TRACE(named.name);
    const Graph& g = named.graph;
    const std::vector<Edge> pairs = edges(g);
    Ids src, dst, expected;
    for (std::int64_t i = 0; i < g.num_nodes() * g.num_nodes(); ++i) {
      src.push_back(i / g.num_nodes());
      dst.push_back(i % g.num_nodes());
      const Edge pair(src.back(), dst.back());
      expected.push_back(std::find(pairs.begin(), pairs.end(), pair) != pairs.end());
    }
    const at::Tensor joined = g.has_edges_between(ids(src), ids(dst));
    EXPECT_EQ(joined.scalar_type(), at::kBool);
    EXPECT_EQ(values(joined), expected);
  }
}

TEST(Graph, has_edges_between_checks_ids_and_throws_for_no_missing_pair) {
  for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
    const Graph g = four_node_graph(width);
    const auto attempt = [&](const at::Tensor& src, const at::Tensor& dst) {
      g.has_edges_between(src, dst);
    };
    EXPECT_EQ(values(g.has_edges_between(ids({2, 0, 3}).to(at::kInt), ids({0, 1, 2}))),
              Ids({0, 1, 1}));
    EXPECT_EQ(g.has_edges_between(ids({}), ids({})).numel(), 0);
    EXPECT_ERROR("has_edges_between:expecteddstoflength1,assrc,got2",
                 attempt(ids({0}), ids({1, 2})));
    EXPECT_ERROR("has_edges_between:expectedsrcin[0,4),got4", attempt(ids({4}), ids({1})));
    EXPECT_ERROR("has_edges_between:expecteddstin[0,4),got-1", attempt(ids({1}), ids({-1})));
  }
}

TEST(Graph, edges_that_are_not_there_are_errors) {
  const Graph g = four_node_graph();
  const auto attempt = [&](const at::Tensor& src, const at::Tensor& dst) { g.edge_ids(src, dst); };
  EXPECT_ERROR("edge_ids:expectedanedgefrom2to0atposition1,gotnone",
               attempt(ids({0, 2}), ids({1, 0})));
  EXPECT_ERROR("edge_ids:expecteddstoflength1,assrc,got2", attempt(ids({0}), ids({1, 2})));
  EXPECT_ERROR("edge_ids:expectedsrcin[0,4),got4", attempt(ids({4}), ids({1})));
  EXPECT_ERROR("in_edges:expectednodesin[0,4),got-1", g.in_edges(ids({-1})));
  EXPECT_ERROR("out_edges:expectednodestobeanintegervector,gotfloat32[1]",
               g.out_edges(at::zeros({1})));
}

TEST(Graph, local_scope_ends_when_an_exception_passes) {
  Graph g = four_node_graph();
  try {
    const auto scope = g.local_scope();
    g.ndata()["h"] = at::ones({4});
    throw std::runtime_error("on the way");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(g.ndata().contains("h"));
}

TEST(Graph, local_scopes_nest_and_reach_copies) {
  Graph g = four_node_graph();
  Graph copy = g;
  const auto outer = g.local_scope();
  g.ndata()["outer"] = at::ones({4});
  {
    const auto inner = copy.local_scope();
    copy.ndata()["inner"] = at::ones({4});
    EXPECT_EQ(g.ndata().names(), Names({"inner", "outer"}));
  }
  EXPECT_EQ(g.ndata().names(), Names({"outer"}));
}

TEST(Graph, local_scope_keeps_changes_made_inside_a_tensor) {
  Graph g = four_node_graph();
  g.ndata()["h"] = at::zeros({4});
  {
    const auto scope = g.local_scope();
    g.ndata()["h"].fill_(5);
  }
  EXPECT_EQ(values(g.ndata().at("h")), Ids({5, 5, 5, 5}));
}

TEST(Graph, of_a_data_set_has_its_edges_features_labels_and_masks) {
  const Dataset data = small_dataset();
  const Graph g = Graph::from_dataset(data, /*split_index=*/1);
  EXPECT_EQ(values(g.topology().src()), values(data.src));
  EXPECT_EQ(values(g.topology().dst()), values(data.dst));
  EXPECT_EQ(g.ndata().names(), Names({"feat", "label", "test_mask", "train_mask", "val_mask"}));
  EXPECT_TRUE(at::equal(g.ndata().at("feat"), data.features));
  EXPECT_EQ(values(g.ndata().at("label")), Ids({0, 1, 1}));
  EXPECT_EQ(values(g.ndata().at("train_mask")), Ids({0, 1, 0}));
  EXPECT_EQ(values(g.ndata().at("val_mask")), Ids({1, 0, 0}));
  EXPECT_EQ(values(g.ndata().at("test_mask")), Ids({0, 0, 1}));
  EXPECT_EQ(g.ndata().at("train_mask").scalar_type(), at::kBool);
  EXPECT_EQ(values(Graph::from_dataset(data).ndata().at("train_mask")), Ids({1, 0, 0}));
}

TEST(Graph, of_a_data_set_has_its_edge_weights) {
  Dataset data = small_dataset();
  EXPECT_FALSE(Graph::from_dataset(data).edata().contains("weight"));
  data.edge_weights = at::arange(data.num_edges(), at::kFloat);
  EXPECT_TRUE(at::equal(Graph::from_dataset(data).edata().at("weight"), data.edge_weights));
}

TEST(Graph, of_a_data_set_has_the_labels_and_features_of_edges) {
  Dataset data = small_dataset();
  data.target = TaskTarget::kEdge;
  data.edge_features = at::ones({data.num_edges(), 2});
  data.labels = at::zeros({data.num_edges()}, at::kLong);
  data.train_masks = data.val_masks = data.test_masks = at::zeros({data.num_edges(), 1}, at::kBool);
  const Graph g = Graph::from_dataset(data);
  EXPECT_FALSE(g.ndata().contains("label"));
  EXPECT_TRUE(at::equal(g.edata().at("feat"), data.edge_features));
  EXPECT_TRUE(at::equal(g.edata().at("label"), data.labels));
}

TEST(Graph, of_a_set_of_graphs_is_a_batch) {
  Dataset data;
  data.num_nodes = 5;
  data.graph_offsets = at::tensor({0, 2, 2, 5}, at::kLong);
  data.src = at::tensor({3, 0, 4, 1}, at::kLong);
  data.dst = at::tensor({2, 1, 4, 1}, at::kLong);
  data.edge_weights = at::arange(4, at::kFloat);
  data.features = at::arange(5, at::kFloat).unsqueeze(1);
  const Graph g = Graph::from_dataset(data);
  EXPECT_EQ(values(g.batch_num_nodes()), Ids({2, 0, 3}));
  EXPECT_EQ(values(g.batch_num_edges()), Ids({2, 0, 2}));
  EXPECT_EQ(values(g.topology().src().to(at::kLong)), Ids({0, 1, 3, 4}));
  EXPECT_EQ(values(g.topology().dst().to(at::kLong)), Ids({1, 1, 2, 4}));
  EXPECT_TRUE(at::equal(g.edata().at("weight"), at::tensor({1.0F, 3.0F, 0.0F, 2.0F})));
  EXPECT_TRUE(at::equal(g.ndata().at("feat"), data.features));
}

TEST(Graph, of_a_data_set_densifies_sparse_features) {
  Dataset data = small_dataset();
  const at::Tensor dense = data.features;
  data.features = dense.to_sparse_csr();
  const Graph g = Graph::from_dataset(data);
  EXPECT_EQ(g.ndata().at("feat").layout(), at::kStrided);
  EXPECT_TRUE(at::equal(g.ndata().at("feat"), dense));
}

TEST(Graph, of_a_data_set_keeps_sparse_features_on_request) {
  Dataset data = small_dataset();
  data.features = data.features.to_sparse_csr();
  const Graph g = Graph::from_dataset(data, 0, SparseFeatures::kKeep);
  EXPECT_EQ(g.ndata().at("feat").layout(), at::kSparseCsr);
  EXPECT_EQ(g.ndata().at("feat").values().const_data_ptr(),
            data.features.values().const_data_ptr());
}

TEST(Graph, of_a_data_set_warns_before_it_makes_a_large_dense_tensor) {
  Dataset data = small_dataset();
  const auto rows_of = [](std::int64_t width) {
    return at::sparse_csr_tensor(ids({0, 1, 1, 1}), ids({0}), at::ones({1}), {3, width},
                                 at::TensorOptions().dtype(at::kFloat));
  };
  const at::Tensor silent = rows_of(5'000'000), large = rows_of(6'000'000);  // 57, 68 MiB
  const Warnings warnings;  // after libtorch's own about sparse CSR
  data.features = silent;
  Graph::from_dataset(data);
  data.features = large;
  Graph::from_dataset(data, 0, SparseFeatures::kKeep);
  EXPECT_TRUE(warnings.texts.empty());
  Graph::from_dataset(data);
  ASSERT_EQ(warnings.texts.size(), 1U);
  EXPECT_TRUE(mentions(warnings.texts[0], "dense tensor of 68 MiB; SparseFeatures::kKeep"));
}

TEST(Graph, of_a_data_set_without_features_has_no_feature_column) {
  Dataset data = small_dataset();
  data.features = at::Tensor();
  EXPECT_FALSE(Graph::from_dataset(data).ndata().contains("feat"));
}

/// The edges of small_dataset() as rows by destination.
Dataset small_dataset_by_rows(at::ScalarType id_dtype) {
  Dataset data = small_dataset();
  data.src = data.dst = at::Tensor();
  data.indptr = ids({0, 1, 3, 4});
  data.indices = ids({1, 0, 2, 1}).to(id_dtype);
  return data;
}

TEST(Graph, of_a_data_set_by_rows_shares_its_arrays) {
  for (const at::ScalarType dtype : {at::kInt, at::kLong}) {
    const Dataset data = small_dataset_by_rows(dtype);
    const Topology topology = topology_of(data);
    EXPECT_EQ(topology.id_dtype(), dtype);
    EXPECT_EQ(topology.csc().indptr.const_data_ptr(), data.indptr.const_data_ptr());
    EXPECT_EQ(topology.csc().indices.const_data_ptr(), data.indices.const_data_ptr());
    EXPECT_EQ(edges(topology), std::vector<Edge>({{1, 0}, {0, 1}, {2, 1}, {1, 2}}));
    EXPECT_EQ(values(topology.csr().indptr), Ids({0, 1, 3, 4}));
  }
}

TEST(Graph, of_a_data_set_keeps_the_dtype_of_its_features) {
  Dataset data = small_dataset_by_rows(at::kInt);
  data.features = data.features.to(at::kBFloat16);
  const Graph g = Graph::from_dataset(data);
  EXPECT_EQ(g.num_edges(), 4);
  EXPECT_EQ(g.ndata().at("feat").const_data_ptr(), data.features.const_data_ptr());
}

TEST(Graph, of_a_data_set_without_labels_has_features_alone) {
  Dataset data = small_dataset();
  data.labels = data.train_masks = data.val_masks = data.test_masks = at::Tensor();
  data.num_classes = 0;
  EXPECT_EQ(Graph::from_dataset(data).ndata().names(), Names({"feat"}));
}

TEST(Graph, of_a_data_set_needs_a_split_and_rows_that_exist) {
  Dataset data = small_dataset();
  error_of([&] { Graph::from_dataset(data, 2); });
  error_of([&] { Graph::from_dataset(data, -1); });
  data.labels = ids({0, 1});
  EXPECT_ERROR("nodecolumn'label':expected3rows,got2", Graph::from_dataset(data));
}

TEST(Graph, references_to_columns_outlive_a_local_scope) {
  Graph g = four_node_graph();
  g.ndata()["label"] = at::arange(4);
  const at::Tensor& label = g.ndata()["label"];
  {
    const auto scope = g.local_scope();
    g.ndata()["label"] = at::zeros({4});
    g.ndata()["h"] = at::ones({4});
  }
  EXPECT_EQ(&label, &g.ndata()["label"]);  // the same column object
  EXPECT_EQ(values(label), (Ids{0, 1, 2, 3}));
  EXPECT_FALSE(g.ndata().contains("h"));
}

}  // namespace
}  // namespace mezzo::test
