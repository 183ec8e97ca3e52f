#include <algorithm>

#include <torch/csrc/autograd/autograd.h>

#include "mezzo/graph/graph.h"
#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/conv/graph_conv.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/sampling/blocks/block.h"
#include "mezzo/sampling/blocks/block_sampler.h"

#include "support/graphs.h"
#include "support/nn_reference.h"

namespace mezzo::test::model_blocks_test {
namespace {

using nn::Aggregator;
using nn::Model;
using nn::ModelKind;
using nn::ModelOptions;

constexpr std::int64_t kWidth = 5, kClasses = 3;

Model make(ModelOptions options) {
  Model model(std::move(options));
  randomise(*model, at::kDouble);
  return model;
}

/// Every kind that runs on blocks.
std::vector<ModelOptions> options_of_blocks(std::int64_t num_layers) {
  std::vector<ModelOptions> all;
  for (const ModelKind kind :
       {ModelKind::kGcn, ModelKind::kSage, ModelKind::kGat, ModelKind::kGin, ModelKind::kMlp}) {
    for (const bool skip : {false, true}) {
      all.push_back({.kind = kind,
                     .in_features = kWidth,
                     .hidden_features = 4,
                     .out_features = kClasses,
                     .num_layers = num_layers,
                     .num_heads = 2,
                     .dropout = 0,
                     .skip = skip});
    }
  }
  for (const Aggregator aggregator : {Aggregator::kGcn, Aggregator::kPool}) {
    ModelOptions options = all[2];
    options.aggregator = aggregator;
    all.push_back(options);
  }
  return all;
}

/// All edges into `nodes` (int64), with the degrees in the graph.
Block all_edges_into(const Topology& graph, const at::Tensor& nodes) {
  std::vector<std::int64_t> sources = values(nodes), src, dst, edges;
  const auto all_src = values(graph.src()), all_dst = values(graph.dst());
  for (std::size_t e = 0; e < all_src.size(); ++e) {
    for (std::int64_t v = 0; v < nodes.numel(); ++v) {
      if (sources[static_cast<std::size_t>(v)] != all_dst[e]) continue;
      const auto position = std::find(sources.begin(), sources.end(), all_src[e]);
      src.push_back(position - sources.begin());
      if (position == sources.end()) sources.push_back(all_src[e]);
      dst.push_back(v);
      edges.push_back(static_cast<std::int64_t>(e));
    }
  }
  const auto num_src = static_cast<std::int64_t>(sources.size());
  const Topology topology =
      topology_of(src, dst, num_src, nodes.numel())
          .with_parent_degrees(graph.in_degrees().index_select(0, nodes),
                               graph.out_degrees().index_select(0, ids(sources)));
  return {topology, ids(sources), ids(edges)};
}

Blocks all_blocks(const Topology& graph, const at::Tensor& seeds, std::int64_t num_layers) {
  Blocks blocks;
  for (std::int64_t i = 0; i < num_layers; ++i) {
    blocks.insert(blocks.begin(),
                  all_edges_into(graph, blocks.empty() ? seeds : blocks.front().src_nodes()));
  }
  return blocks;
}

/// Sparse enough that three hops do not reach all nodes.
const Topology& graph() {
  static const Topology topology = connected(60, 60, 60, 1);
  return topology;
}

at::Tensor features() {
  return uniform({graph().num_src(), kWidth}, at::kDouble, 2);
}

/// Allows some thousands of roundings at the size of the largest number.
testing::AssertionResult same_sums(const at::Tensor& got, const at::Tensor& expected) {
  const at::Tensor size = at::full_like(expected, 1 + expected.abs().max().item<double>());
  return near(got, expected, sum_bound(size, 1e4, at::kDouble));
}

/// Expects that every model, with dense and sparse features, gives the same result on blocks of all
/// neighbours of the seeds as on the whole graph.
void expect_whole_graph(const Blocks& blocks, const at::Tensor& seeds) {
  ASSERT_LT(blocks.front().num_src(), graph().num_src());
  const at::Tensor x = features(), rows = x.index_select(0, blocks.front().src_nodes());
  const auto num_layers = static_cast<std::int64_t>(blocks.size());
  for (const ModelOptions& options : options_of_blocks(num_layers)) {
    SCOPED_TRACE(testing::Message() << name_of(nn::ModelKinds{}, options.kind) << ", " << num_layers
                                    << " layers, skip " << options.skip);
    Model model = make(options);
    const at::Tensor expected = model(graph(), x).index_select(0, seeds);
    EXPECT_TRUE(same_sums(model(blocks, rows), expected));
    EXPECT_TRUE(same_sums(model(blocks, rows.to_sparse_csr()), expected));
  }
}

TEST(ModelOnBlocks, with_all_neighbours_equals_the_whole_graph_on_the_seeds) {
  const at::Tensor seeds = ids({7, 0, 23, 39});
  for (const std::int64_t num_layers : {1, 2, 3}) {
    const Blocks blocks = all_blocks(graph(), seeds, num_layers);
    expect_whole_graph(blocks, seeds);
  }
}

/// Like with_all_neighbours_equals_..., with blocks from a sampler.
TEST(ModelOnBlocks, sampled_with_unlimited_fanouts_equals_the_whole_graph_on_the_seeds) {
  MEZZO_CPU_ONLY("draws with weights and LABOR");
  const at::Tensor seeds = ids({7, 0, 23, 39});
  const std::int64_t more_than_any_degree = graph().num_edges() + 1;
  struct Draw {
    NeighborDraw draw;
    std::int64_t fanout;
    bool weighted;
  };
  for (const std::int64_t num_layers : {1, 2, 3}) {
    for (const Draw& draw : {Draw{NeighborDraw::kNeighbor, kAllNeighbors, false},
                             Draw{NeighborDraw::kNeighbor, more_than_any_degree, false},
                             Draw{NeighborDraw::kNeighbor, kAllNeighbors, true},
                             Draw{NeighborDraw::kLabor, kAllNeighbors, false}}) {
      const BlockSampler sampler(
          graph(),
          {.fanouts = std::vector<std::int64_t>(static_cast<std::size_t>(num_layers), draw.fanout),
           .draw = draw.draw,
           .edge_weights = draw.weighted ? at::ones({graph().num_edges()}) : at::Tensor(),
           .parent_degrees = true});
      Workspace workspace;
      const Blocks blocks = sampler.sample(seeds, {.seed = 3}, workspace);
      expect_whole_graph(blocks, seeds);
    }
  }
}

TEST(ModelOnBlocks, with_all_neighbours_has_the_gradients_of_the_whole_graph) {
  const at::Tensor seeds = ids({3, 11, 4}), upstream = uniform({3, kClasses}, at::kDouble, 3);
  const Blocks blocks = all_blocks(graph(), seeds, 2);
  for (const ModelOptions& options : options_of_blocks(2)) {
    SCOPED_TRACE(testing::Message()
                 << name_of(nn::ModelKinds{}, options.kind) << ", skip " << options.skip);
    Model model = make(options);
    const at::Tensor x = leaf(features());
    std::vector<at::Tensor> inputs = model->parameters();
    inputs.push_back(x);
    const auto gradients = [&](const at::Tensor& logits) {
      return torch::autograd::grad({logits}, inputs, {upstream});
    };
    const auto expected = gradients(model(graph(), x).index_select(0, seeds));
    const auto got = gradients(model(blocks, x.index_select(0, blocks.front().src_nodes())));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(same_sums(got[i], expected[i])) << i;
    }
  }
}

TEST(ModelOnBlocks, one_layer_takes_a_block_or_a_list_of_one) {
  const Blocks blocks = all_blocks(graph(), ids({5, 6}), 1);
  const at::Tensor rows = features().index_select(0, blocks.front().src_nodes());
  for (const ModelOptions& options : options_of_blocks(1)) {
    Model model = make(options);
    EXPECT_TRUE(exact(model(blocks, rows), model(blocks.front(), rows)));
  }
}

TEST(ModelOnBlocks, layers_one_by_one_are_the_model) {
  const Blocks blocks = all_blocks(graph(), ids({5, 6}), 3);
  const at::Tensor rows = features().index_select(0, blocks.front().src_nodes());
  for (const ModelOptions& options : options_of_blocks(3)) {
    Model model = make(options);
    ASSERT_EQ(model->num_layers(), 3);
    at::Tensor h = rows;
    for (std::int64_t i = 0; i < 3; ++i) {
      h = model->forward_layer(i, blocks[static_cast<std::size_t>(i)], h);
    }
    EXPECT_TRUE(exact(h, model(blocks, rows)));
  }
}

TEST(ModelOnBlocks, a_layer_takes_rows_of_destinations_that_are_not_the_first_sources) {
  const Block block = all_edges_into(graph(), ids({1, 2, 3}));
  const Topology& topology = block.topology();
  const std::int64_t num_src = topology.num_src();
  const Topology reversed =
      Topology::from_coo(num_src - 1 - topology.src(), topology.dst(), num_src, 3)
          .with_parent_degrees(*topology.parent_in_degrees(),
                               topology.parent_out_degrees()->flip(0));
  const at::Tensor rows = features().index_select(0, block.src_nodes());
  for (const ModelOptions& options : options_of_blocks(1)) {
    SCOPED_TRACE(name_of(nn::ModelKinds{}, options.kind));
    Model model = make(options);
    const at::Tensor expected = model->forward_layer(0, block, rows);
    EXPECT_TRUE(
        same_sums(model->forward_layer(0, reversed, std::pair(rows.flip(0), rows.narrow(0, 0, 3))),
                  expected));
    EXPECT_ERROR("hofthedestinations[3,5]",
                 model->forward_layer(0, reversed, std::pair(rows, rows.narrow(0, 0, 2))));
  }
}

TEST(ModelOnBlocks, takes_nodes_of_whose_neighbours_none_was_drawn) {
  const at::Tensor seeds = ids({5, 6});
  const Blocks blocks = {Block(topology_of({}, {}, 2, 2), seeds, ids({}))};
  for (ModelOptions options : options_of_blocks(1)) {
    options.allow_zero_in_degree = true;
    Model model = make(options);
    const at::Tensor logits = model(blocks, features().index_select(0, seeds));
    EXPECT_TRUE(logits.isfinite().all().item<bool>()) << name_of(nn::ModelKinds{}, options.kind);
  }
}

TEST(ModelOnBlocks, takes_blocks_without_seeds) {
  const Blocks blocks = all_blocks(graph(), ids({}), 2);
  for (const ModelOptions& options : options_of_blocks(2)) {
    Model model = make(options);
    const at::Tensor logits = model(blocks, at::zeros({0, kWidth}, on_device(at::kDouble)));
    EXPECT_EQ(logits.sizes(), at::IntArrayRef({0, kClasses}));
  }
}

TEST(ModelOnBlocks, sgc_of_one_hop_takes_a_block_and_of_more_only_the_whole_graph) {
  const auto sgc = [](std::int64_t hops) {
    return make({.kind = ModelKind::kSgc,
                 .in_features = kWidth,
                 .out_features = kClasses,
                 .num_layers = hops,
                 .dropout = 0});
  };
  const at::Tensor all = at::arange(graph().num_dst(), on_device()), x = features();
  Model one = sgc(1), two = sgc(2);
  const at::Tensor expected = one(graph(), x);
  EXPECT_TRUE(same_sums(one(all_blocks(graph(), all, 1), x), expected));
  EXPECT_EQ(two->num_layers(), 1);
  const auto text = error_of([&] { two(all_blocks(graph(), all, 1), x); });
  EXPECT_TRUE(mentions(text, "Model:expectedthewholegraphforsgcof2hops"));
}

TEST(ModelOnBlocks, layers_refuse_a_block_whose_sources_lack_the_destinations) {
  const Topology topology = topology_of({1, 2}, {2, 3}, 4, 4);
  const auto block_of = [&](bool include_dst_in_src) {
    return to_block(topology.to(at::kCPU), ids({0, 1}).cpu(), ids({2, 3}).cpu(), include_dst_in_src)
        .to(test_device());
  };
  const Block separate = block_of(false), whole = block_of(true);
  ASSERT_EQ(separate.num_src(), separate.num_dst());  // so that the numbers do not give it away
  const at::Tensor x = uniform({4, kWidth}, at::kDouble, 2);
  const auto rows = [&](const Block& block) { return x.index_select(0, block.src_nodes()); };
  for (const ModelOptions& options : options_of_blocks(1)) {
    Model model = make(options);
    EXPECT_NO_THROW(model(whole, rows(whole)));
    const std::string text = error_of([&] { model(separate, rows(separate)); });
    EXPECT_TRUE(mentions(text, "include_dst_in_src=false"))
        << name_of(nn::ModelKinds{}, options.kind);
  }
  nn::SAGEConv sage(kWidth, 2);
  randomise(*sage, at::kDouble);
  EXPECT_ERROR("SAGEConv:expected", sage(separate, rows(separate)));
  // GraphConv reads no rows of the destinations.
  nn::GraphConv conv(kWidth, 2, {.norm = nn::DegreeNorm::kNone});
  randomise(*conv, at::kDouble);
  EXPECT_TRUE(same_sums(conv(separate, rows(separate)), conv(whole, rows(whole))));
}

TEST(ModelOnBlocks, a_received_offset_passes_the_weights_of_the_neighbours) {
  const Block block = all_edges_into(graph(), ids({1, 2, 3}));
  const at::Tensor rows = features().index_select(0, block.src_nodes());
  const at::Tensor offset = uniform({3, kWidth}, at::kDouble, 4);
  for (const std::int64_t out : {kClasses, kWidth + 1}) {
    ModelOptions options{.in_features = kWidth, .out_features = out, .num_layers = 1, .dropout = 0};
    for (const ModelKind kind : {ModelKind::kGcn, ModelKind::kSage}) {
      options.kind = kind;
      Model model = make(options);
      const auto parameters = model->named_parameters();
      const at::Tensor weight = kind == ModelKind::kGcn ? parameters["layer0.weight"]
                                                        : parameters["layer0.fc_neigh.weight"].t();
      const at::Tensor plain = model->forward_layer(0, block, rows);
      EXPECT_TRUE(same_sums(model->forward_layer(0, block, rows, {}, offset),
                            plain + at::matmul(offset, weight)));
      EXPECT_ERROR("received_offsetfloating[3,5]",
                   model->forward_layer(0, block, rows, {}, offset.slice(0, 1)));
    }
    options.aggregator = Aggregator::kPool;
    EXPECT_ERROR("gotoneforsage", make(options)->forward_layer(0, block, rows, {}, offset));
    options.kind = ModelKind::kGin;
    EXPECT_ERROR("gotoneforgin", make(options)->forward_layer(0, block, rows, {}, offset));
  }
}

TEST(ModelOnBlocks, blocks_that_do_not_fit_are_errors_that_say_where) {
  Model model = make({.kind = ModelKind::kSage, .in_features = kWidth, .out_features = kClasses});
  const Blocks blocks = all_blocks(graph(), ids({1, 2, 3}), 2);
  const at::Tensor rows = features().index_select(0, blocks.front().src_nodes());
  const auto error = [&](const Blocks& input, const at::Tensor& x) {
    return error_of([&] { model(input, x); });
  };
  EXPECT_TRUE(mentions(error({}, rows), "Model:expected2blocks,oneforeachlayer,got0"));
  EXPECT_TRUE(mentions(error({blocks[0]}, rows), "expected2blocks,oneforeachlayer,got1"));
  EXPECT_TRUE(mentions(error({blocks[0], blocks[1], blocks[1]}, rows), "expected2blocks"));
  const Block other = all_edges_into(graph(), ids({1}));
  EXPECT_TRUE(mentions(error({other, blocks[1]}, rows),
                       "expectedthe1destinationsofblock0tobethesourcesofblock1,got"));
  EXPECT_TRUE(mentions(error(blocks, rows.slice(0, 1)), "onerowpersourcenode,gotfloat64["));
  EXPECT_TRUE(mentions(error(blocks, rows.slice(1, 1)), "onerowpersourcenode,gotfloat64["));
  for (const std::int64_t index : {-1, 2}) {
    const auto text = error_of([&] { model->forward_layer(index, blocks[0], rows); });
    EXPECT_TRUE(mentions(text, "Model:expectedalayerin[0,2),got"));
  }
  EXPECT_ERROR("gotfloat64[", model->forward_layer(1, blocks[0], rows));
}

}  // namespace
}  // namespace mezzo::test::model_blocks_test
