#include <set>

#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/conv/attention_layers.h"
#include "mezzo/nn/conv/edge_conv.h"

#include "support/module_gradcheck.h"
#include "support/nn_reference.h"

/// Layers on pairs of rows: the destinations are no sources.
namespace mezzo::test::bipartite_test {
namespace {

using nn::Aggregator;
using nn::DotGatConv;
using nn::EdgeConv;
using nn::GATConv;
using nn::GATv2Conv;
using nn::GINConv;
using nn::GINConvOptions;
using nn::SAGEConv;

constexpr std::int64_t kIn = 4, kInDst = 5, kOut = 3, kHeads = 2;

template <class Layer>
Layer drawn(Layer layer) {
  randomise(*layer, at::kDouble);
  return layer;
}

/// An edge into every destination, and more: fewer sources than destinations.
Topology few_sources() {
  return topology_of({0, 1, 2, 3, 0, 1, 2, 3, 3, 0}, {0, 1, 2, 3, 4, 5, 4, 0, 1, 1}, 4, 6);
}

/// A graph with more sources than destinations, one of them without out-edges.
Topology many_sources() {
  return topology_of({0, 1, 2, 3, 4, 5, 7}, {0, 1, 2, 0, 0, 1, 2}, 8, 3);
}

at::Tensor plain(const torch::nn::Linear& linear, const at::Tensor& x) {
  return dense_linear(x, linear->weight, linear->bias, Numbers::kGiven);
}

at::Tensor by_heads(const at::Tensor& rows) {
  return rows.view({rows.size(0), kHeads, kOut});
}

/// The sum over the edges into each destination of sent[u], weighted by the softmax of
/// logits(sent[u], received[v]): [num_dst, heads, out].
template <class Logits>
at::Tensor attend(const Topology& g, const at::Tensor& sent, const at::Tensor& received,
                  Logits logits) {
  std::vector<at::Tensor> rows;
  for (std::int64_t v = 0; v < g.num_dst(); ++v) {
    const at::Tensor sent_rows = sent.index_select(0, sources_of(g, v));
    const at::Tensor powers = logits(sent_rows, received[v]).exp();
    rows.push_back((sent_rows * (powers / powers.sum(0)).unsqueeze(-1)).sum(0));
  }
  return at::stack(rows);
}

at::Tensor leaky(const at::Tensor& x) {
  return at::where(x > 0, x, 0.2 * x);
}

/// More rounding steps than any of these layers needs for a row and its logits.
double terms(const Topology& g) {
  const double width = static_cast<double>(kInDst) + 1;
  return 2 * width * width * width * static_cast<double>(kOut) * (max_in_degree(g) + 1);
}

/// Calls check(graph, rows of the sources, rows of the destinations) for both shapes.
template <class Check>
void for_each_graph(std::int64_t width_dst, Check check) {
  for (const Topology& g : {few_sources(), many_sources()}) {
    SCOPED_TRACE(testing::Message() << g.num_src() << " sources");
    check(g, uniform({g.num_src(), kIn}, at::kDouble, 1),
          uniform({g.num_dst(), width_dst}, at::kDouble, 2));
  }
}

/// Gradients by both tensors and by every parameter.
template <class Layer>
void expect_gradients(Layer layer, std::int64_t width_dst) {
  const Topology g = few_sources();
  EXPECT_TRUE(module_gradcheck(
      *layer, [&](const std::vector<at::Tensor>& in) { return layer(g, std::pair(in[0], in[1])); },
      {uniform({4, kIn}, at::kDouble, 3), uniform({6, width_dst}, at::kDouble, 4)}));
}

TEST(Bipartite, gat_conv_equals_the_definition_with_one_and_with_two_widths) {
  for (const std::int64_t width_dst : {kIn, kInDst}) {
    const bool two = width_dst == kInDst;
    GATConv layer = drawn(GATConv(
        kIn, kOut, {.in_features_dst = two ? kInDst : 0, .num_heads = kHeads, .residual = true}));
    for_each_graph(width_dst, [&](const Topology& g, const at::Tensor& src, const at::Tensor& dst) {
      const at::Tensor sent = by_heads(plain(two ? layer->fc_src : layer->fc, src));
      const at::Tensor received = by_heads(plain(two ? layer->fc_dst : layer->fc, dst));
      const auto logits = [&](const at::Tensor& sent_rows, const at::Tensor& own) {
        return leaky((sent_rows * layer->attn_l.detach()).sum(-1) +
                     (own * layer->attn_r.detach()).sum(-1));
      };
      const at::Tensor expected =
          attend(g, sent, received, logits) + by_heads(plain(layer->res_fc, dst));
      const auto [out, attention] = layer->forward_with_attention(g, std::pair(src, dst));
      EXPECT_TRUE(near_terms(layer(g, std::pair(src, dst)), expected, terms(g)));
      EXPECT_TRUE(near_terms(out, expected, terms(g)));
      EXPECT_EQ(attention.size(0), g.num_edges());
    });
    expect_gradients(layer, width_dst);
  }
}

TEST(Bipartite, gatv2_conv_equals_the_definition) {
  for (const std::int64_t width_dst : {kIn, kInDst}) {
    for (const bool share : {false, true}) {
      if (share && width_dst != kIn) continue;
      GATv2Conv layer = drawn(GATv2Conv(kIn, kOut,
                                        {.in_features_dst = width_dst,
                                         .num_heads = kHeads,
                                         .residual = true,
                                         .share_weights = share}));
      for_each_graph(
          width_dst, [&](const Topology& g, const at::Tensor& src, const at::Tensor& dst) {
            const auto logits = [&](const at::Tensor& sent_rows, const at::Tensor& own) {
              return (leaky(sent_rows + own) * layer->attn.detach()).sum(-1);
            };
            const at::Tensor expected = attend(g, by_heads(plain(layer->fc_src, src)),
                                               by_heads(plain(layer->fc_dst, dst)), logits) +
                                        by_heads(plain(layer->res_fc, dst));
            EXPECT_TRUE(near_terms(layer(g, std::pair(src, dst)), expected, terms(g)));
          });
      expect_gradients(layer, width_dst);
    }
  }
}

TEST(Bipartite, dot_gat_conv_equals_the_definition_with_one_and_with_two_widths) {
  for (const std::int64_t width_dst : {kIn, kInDst}) {
    const bool two = width_dst == kInDst;
    DotGatConv layer =
        drawn(DotGatConv(kIn, kOut, {.in_features_dst = two ? kInDst : 0, .num_heads = kHeads}));
    for_each_graph(width_dst, [&](const Topology& g, const at::Tensor& src, const at::Tensor& dst) {
      const auto logits = [](const at::Tensor& sent_rows, const at::Tensor& own) {
        return (sent_rows * own).sum(-1) / std::sqrt(static_cast<double>(kOut));
      };
      const at::Tensor expected =
          attend(g, by_heads(plain(two ? layer->fc_src : layer->fc, src)),
                 by_heads(plain(two ? layer->fc_dst : layer->fc, dst)), logits);
      EXPECT_TRUE(near_terms(layer(g, std::pair(src, dst)), expected, terms(g)));
    });
    expect_gradients(layer, width_dst);
  }
}

/// What SAGEConv's aggregators make of the rows x_u of the sources and x_v of the destinations.
at::Tensor aggregated(const SAGEConv& layer, const Topology& g, const at::Tensor& src,
                      const at::Tensor& dst) {
  const at::Tensor matrix = adjacency(g), degrees = matrix.sum(1).unsqueeze(1);
  switch (layer->options.aggregator) {
    case Aggregator::kGcn:
      return (at::matmul(matrix, src) + dst) / (degrees + 1);
    case Aggregator::kPool: {
      const at::Tensor messages = plain(layer->fc_pool, src).clamp_min(0);
      std::vector<at::Tensor> rows;
      for (std::int64_t v = 0; v < g.num_dst(); ++v) {
        rows.push_back(messages.index_select(0, sources_of(g, v)).amax(0));
      }
      return at::stack(rows);
    }
    default:
      return at::matmul(matrix, src) / degrees;
  }
}

TEST(Bipartite, sage_conv_equals_the_definition_for_every_aggregator_in_either_order) {
  for (const Aggregator aggregator : {Aggregator::kMean, Aggregator::kGcn, Aggregator::kPool}) {
    for (const std::int64_t out : {std::int64_t{3}, std::int64_t{7}}) {
      const bool two = aggregator != Aggregator::kGcn;
      SCOPED_TRACE(testing::Message() << name_of(nn::Aggregators{}, aggregator) << " to " << out);
      SAGEConv layer = drawn(
          SAGEConv(kIn, out, {.in_features_dst = two ? kInDst : 0, .aggregator = aggregator}));
      const std::int64_t width_dst = two ? kInDst : kIn;
      for_each_graph(
          width_dst, [&](const Topology& g, const at::Tensor& src, const at::Tensor& dst) {
            const at::Tensor received = plain(layer->fc_neigh, aggregated(layer, g, src, dst));
            const at::Tensor expected =
                received + (two ? plain(layer->fc_self, dst) : layer->bias.detach());
            EXPECT_TRUE(near_terms(layer(g, std::pair(src, dst)), expected, terms(g)));
          });
      expect_gradients(layer, width_dst);
    }
  }
}

TEST(Bipartite, gin_conv_equals_the_definition_for_every_aggregator) {
  for (const Aggregator aggregator : {Aggregator::kSum, Aggregator::kMean, Aggregator::kMax}) {
    GINConv layer(GINConvOptions{.aggregator = aggregator, .learn_eps = true});
    layer->to(test_device(), at::kDouble);
    layer->eps.set_data(numbers({0.25}));
    for_each_graph(kIn, [&](const Topology& g, const at::Tensor& src, const at::Tensor& dst) {
      std::vector<at::Tensor> rows;
      for (std::int64_t v = 0; v < g.num_dst(); ++v) {
        const at::Tensor sent_rows = src.index_select(0, sources_of(g, v));
        rows.push_back(aggregator == Aggregator::kSum    ? sent_rows.sum(0)
                       : aggregator == Aggregator::kMean ? sent_rows.mean(0)
                                                         : sent_rows.amax(0));
      }
      EXPECT_TRUE(
          near_terms(layer(g, std::pair(src, dst)), 1.25 * dst + at::stack(rows), terms(g)));
    });
    expect_gradients(layer, kIn);
  }
}

TEST(Bipartite, edge_conv_equals_the_definition) {
  EdgeConv layer = drawn(EdgeConv(kIn, kOut));
  for_each_graph(kIn, [&](const Topology& g, const at::Tensor& src, const at::Tensor& dst) {
    std::vector<at::Tensor> rows;
    for (std::int64_t v = 0; v < g.num_dst(); ++v) {
      const at::Tensor own = dst.narrow(0, v, 1);
      const at::Tensor differences = own - src.index_select(0, sources_of(g, v));
      rows.push_back((plain(layer->theta, differences) + plain(layer->phi, own)).amax(0));
    }
    EXPECT_TRUE(near_terms(layer(g, std::pair(src, dst)), at::stack(rows), terms(g)));
  });
  expect_gradients(layer, kIn);
}

TEST(Bipartite, edge_conv_normalises_the_messages_of_a_pair) {
  const Topology g = connected(9, 5, 20, 10);
  const at::Tensor h = uniform({9, kIn}, at::kDouble, 11);
  EdgeConv layer(kIn, kOut, {.batch_norm = true});
  layer->to(at::kDouble);  // its running statistics too
  layer = drawn(layer);
  // Normalization multiplies rounding errors by at most 1 / sqrt(1e-5).
  const double terms_of_both = 400.0 * static_cast<double>(g.num_edges());
  EXPECT_TRUE(near_terms(layer(g, std::pair(h, h.narrow(0, 0, 5))), layer(g, h), terms_of_both));
}

TEST(Bipartite, sparse_rows_of_either_side_give_what_dense_ones_give) {
  const Topology g = few_sources();
  const at::Tensor src = sparse_numbers({4, kIn}, 5), dst = sparse_numbers({6, kIn}, 6);
  const auto expect_same = [&](auto layer) {
    const at::Tensor dense = layer(g, std::pair(src, dst));
    const at::Tensor sparse_src = src.to_sparse_csr(), sparse_dst = dst.to_sparse_csr();
    EXPECT_TRUE(near_terms(layer(g, std::pair(sparse_src, dst)), dense, 2 * terms(g)));
    EXPECT_TRUE(near_terms(layer(g, std::pair(src, sparse_dst)), dense, 2 * terms(g)));
    EXPECT_TRUE(near_terms(layer(g, std::pair(sparse_src, sparse_dst)), dense, 2 * terms(g)));
  };
  expect_same(drawn(GATConv(kIn, kOut, {.num_heads = kHeads, .residual = true})));
  expect_same(drawn(GATv2Conv(kIn, kOut, {.num_heads = kHeads, .residual = true})));
  expect_same(drawn(DotGatConv(kIn, kOut, {.num_heads = kHeads})));
  for (const Aggregator aggregator : {Aggregator::kMean, Aggregator::kGcn, Aggregator::kPool}) {
    expect_same(drawn(SAGEConv(kIn, 7, {.aggregator = aggregator})));
  }
  expect_same(placed(GINConv(GINConvOptions{})));
  expect_same(drawn(EdgeConv(kIn, kOut)));
}

TEST(Bipartite, a_pair_of_the_same_rows_gives_what_one_tensor_gives) {
  const Topology g = connected(9, 5, 20, 7);
  const at::Tensor h = uniform({9, kIn}, at::kDouble, 8), own = h.narrow(0, 0, 5);
  const auto expect_same = [&](auto layer) {
    EXPECT_TRUE(near_terms(layer(g, std::pair(h, own)), layer(g, h), 2 * terms(g)));
  };
  expect_same(drawn(GATConv(kIn, kOut, {.num_heads = kHeads})));
  // Two sets of weights: one tensor is both sides there, too.
  expect_same(drawn(GATConv(kIn, kOut, {.in_features_dst = kIn, .num_heads = kHeads})));
  expect_same(drawn(DotGatConv(kIn, kOut, {.in_features_dst = kIn, .num_heads = kHeads})));
  expect_same(drawn(SAGEConv(kIn, kOut)));
  expect_same(drawn(EdgeConv(kIn, kOut)));
}

TEST(Bipartite, layers_have_the_parameters_of_dgl) {
  using Shapes = std::set<std::string>;
  EXPECT_EQ(
      parameter_shapes(*GATConv(4, 3, {.in_features_dst = 5, .num_heads = 2, .residual = true})),
      (Shapes{"fc_src.weight [6, 4]", "fc_dst.weight [6, 5]", "attn_l [1, 2, 3]",
              "attn_r [1, 2, 3]", "res_fc.weight [6, 5]", "res_fc.bias [6]"}));
  EXPECT_EQ(parameter_shapes(*GATv2Conv(
                6, 3, {.in_features_dst = 5, .num_heads = 2, .residual = true, .bias = false})),
            (Shapes{"fc_src.weight [6, 6]", "fc_dst.weight [6, 5]", "attn [1, 2, 3]",
                    "res_fc.weight [6, 5]"}));
  EXPECT_EQ(parameter_shapes(*DotGatConv(4, 3, {.in_features_dst = 5, .num_heads = 2})),
            (Shapes{"fc_src.weight [6, 4]", "fc_dst.weight [6, 5]"}));
  EXPECT_EQ(
      parameter_shapes(*SAGEConv(4, 3, {.in_features_dst = 5, .aggregator = Aggregator::kPool})),
      (Shapes{"fc_pool.weight [4, 4]", "fc_pool.bias [4]", "fc_self.weight [3, 5]",
              "fc_self.bias [3]", "fc_neigh.weight [3, 4]"}));
}

TEST(Bipartite, wrong_pairs_are_errors_that_say_what_was_expected) {
  const Topology g = few_sources();
  const auto rows = [](std::int64_t count, std::int64_t width) {
    return at::zeros({count, width}, on_device(at::kDouble));
  };
  GATConv layer = drawn(GATConv(kIn, kOut, {.in_features_dst = kInDst}));
  const auto error = [&](const at::Tensor& src, const at::Tensor& dst) {
    return error_of([&] { layer(g, std::pair(src, dst)); });
  };
  EXPECT_TRUE(mentions(error(rows(4, kIn), rows(4, kInDst)),
                       "GATConv:expectedfloatinghofthedestinations[6,5],onerowperdestination"));
  EXPECT_TRUE(mentions(error(rows(4, kIn), rows(6, kIn)), "gotfloat64[6,4]"));
  EXPECT_TRUE(mentions(error(rows(4, kIn), at::Tensor()), "gotanundefinedtensor"));
  EXPECT_TRUE(
      mentions(error(rows(5, kIn), rows(6, kInDst)), "[4,4],onerowpersourcenode,gotfloat64[5,4]"));
  EXPECT_TRUE(mentions(error(rows(4, kIn), rows(6, kInDst).to(at::kFloat)), "ofonedtype"));
  const Topology square = connected(4, 4, 6, 9);
  EXPECT_ERROR("expectedapairofrows", layer(square, rows(4, kIn)));
  GINConv gin = placed(GINConv(GINConvOptions{}));
  EXPECT_ERROR("GINConv:expectedfloatinghofthedestinations[6,4]",
               gin(g, std::pair(rows(4, kIn), rows(6, kInDst))));
  const at::Tensor single = rows(6, kIn).to(at::kFloat);
  EXPECT_ERROR("GINConv:expectedrows", gin(g, std::pair(rows(4, kIn), single)));
  EdgeConv edges = drawn(EdgeConv(kIn, kOut));
  EXPECT_ERROR("EdgeConv:expectedfloatinghofthedestinations[6,4]",
               edges(g, std::pair(rows(4, kIn), rows(6, kInDst))));

  EXPECT_ERROR("in_features_dst", GATConv wrong(3, 2, {.in_features_dst = -1}));
  EXPECT_ERROR("share_weights",
               GATv2Conv wrong(3, 2, {.in_features_dst = 4, .share_weights = true}));
  EXPECT_ERROR("in_features_dst",
               SAGEConv wrong(3, 2, {.in_features_dst = 4, .aggregator = Aggregator::kGcn}));
}

}  // namespace
}  // namespace mezzo::test::bipartite_test
