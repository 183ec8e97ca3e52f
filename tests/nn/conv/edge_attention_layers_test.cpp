#include "mezzo/nn/conv/edge_attention_layers.h"

#include "support/edge_layer_reference.h"

namespace mezzo::test::edge_attention_layers_test {
namespace {

using nn::EdgeGATConv;
using nn::EGATConv;

constexpr std::int64_t kIn = 5, kInDst = 6, kEdge = 4, kOut = 3, kOutEdge = 2, kHeads = 2;

/// A graph whose destinations are the first of its sources, and one of pairs.
const Topology& prefix() {
  static const Topology g = connected(9, 6, 20, 1);
  return g;
}
const Topology& pairs() {
  static const Topology g =
      topology_of({0, 1, 2, 3, 0, 1, 2, 3, 3, 0}, {0, 1, 2, 3, 4, 5, 4, 0, 1, 1}, 4, 6);
  return g;
}

/// Inputs of a layer on a graph: the rows of the sources, of the destinations, of the edges.
struct Inputs {
  at::Tensor src, dst, edges, weight;
};

Inputs inputs_of(const Topology& g, at::ScalarType dtype = at::kDouble) {
  const auto drawn = [&](std::int64_t rows, std::int64_t width, std::uint64_t seed) {
    return uniform({rows, width}, at::kBFloat16, seed).to(dtype);
  };
  return {drawn(g.num_src(), kIn, 2), drawn(g.num_dst(), kInDst, 3), drawn(g.num_edges(), kEdge, 4),
          drawn(g.num_edges(), 1, 5).squeeze(1)};
}

at::Tensor by_heads(const at::Tensor& rows) {
  return rows.view({rows.size(0), kHeads, -1});
}

at::Tensor leaky(const at::Tensor& x, double slope) {
  return at::where(x > 0, x, slope * x);
}

Outputs define(const EGATConv& layer, const Topology& g, const at::Tensor& src,
               const at::Tensor& dst, const at::Tensor& edges, const at::Tensor& weight) {
  at::Tensor hidden = rows_of_sources(g, plain(layer->fc_ni, src)) +
                      rows_of_destinations(g, plain(layer->fc_nj, dst)) +
                      plain(layer->fc_fij, edges);
  if (layer->bias.defined()) hidden = hidden + take(layer->bias, Numbers::kGiven);
  const at::Tensor rows = by_heads(leaky(hidden, 0.01));
  at::Tensor shares = shares_of_messages(g, (rows * take(layer->attn, Numbers::kGiven)).sum(-1));
  if (weight.defined()) shares = shares * weight.unsqueeze(1);
  const at::Tensor sent = rows_of_sources(g, by_heads(plain(layer->fc_node_src, src)));
  return {sums_of_messages(g, sent * shares.unsqueeze(-1)), rows};
}

TEST(EGATConv, equals_the_definition_in_every_precision) {
  for (const bool bias : {true, false}) {
    EGATConv layer(kIn, kEdge, kOut, kOutEdge, {.num_heads = kHeads, .bias = bias});
    const Inputs in = inputs_of(prefix());
    for (const at::Tensor& weight : {at::Tensor(), in.weight}) {
      expect_in_every_precision(
          *layer,
          [&](at::ScalarType dtype) {
            const Inputs given = inputs_of(prefix(), dtype);
            return outputs_of(layer(prefix(), given.src, given.edges,
                                    weight.defined() ? given.weight : at::Tensor()));
          },
          [&] { return define(layer, prefix(), in.src, in.src.slice(0, 0, 6), in.edges, weight); });
    }
  }
}

TEST(EGATConv, takes_pairs_of_rows_and_sparse_rows) {
  EGATConv layer(kIn, kEdge, kOut, kOutEdge, {.in_features_dst = kInDst, .num_heads = kHeads});
  const Inputs in = inputs_of(pairs());
  expect_in_every_precision(
      *layer,
      [&](at::ScalarType dtype) {
        const Inputs given = inputs_of(pairs(), dtype);
        return outputs_of(layer(pairs(), std::pair(given.src, given.dst), given.edges));
      },
      [&] { return define(layer, pairs(), in.src, in.dst, in.edges, {}); });
  const auto sparse = layer(pairs(), std::pair(in.src.to_sparse_csr(), in.dst), in.edges);
  expect_near_outputs(outputs_of(sparse), define(layer, pairs(), in.src, in.dst, in.edges, {}),
                      at::kDouble);
}

TEST(EGATConv, gradients_agree_with_differences) {
  EGATConv layer(kIn, kEdge, kOut, kOutEdge, {.in_features_dst = kInDst, .num_heads = kHeads});
  layer->to(test_device(), at::kDouble);
  const Inputs in = inputs_of(pairs());
  EXPECT_TRUE(edge_gradcheck(
      *layer,
      [&](const auto& x) { return outputs_of(layer(pairs(), std::pair(x[0], x[1]), x[2], x[3])); },
      {in.src, in.dst, in.edges, in.weight}));
}

TEST(EGATConv, returns_the_attention) {
  EGATConv layer(kIn, kEdge, kOut, kOutEdge, {.num_heads = kHeads});
  layer->to(test_device(), at::kDouble);
  const Inputs in = inputs_of(prefix());
  const auto [nodes, edges, attention] =
      layer->forward_with_attention(prefix(), in.src, in.edges, in.weight);
  EXPECT_EQ(attention.sizes(), (at::IntArrayRef{prefix().num_edges(), kHeads, 1}));
  const at::Tensor sums = sums_of_messages(prefix(), attention / in.weight.view({-1, 1, 1}));
  EXPECT_TRUE(near_terms(sums, at::ones_like(sums), 40));
  EXPECT_TRUE(same_bits(nodes, layer(prefix(), in.src, in.edges, in.weight).first));
}

Outputs define(const EdgeGATConv& layer, const Topology& g, const at::Tensor& src,
               const at::Tensor& dst, const at::Tensor& edges) {
  const bool shares = !layer->fc.is_empty();
  const at::Tensor sent =
      rows_of_sources(g, by_heads(plain(shares ? layer->fc : layer->fc_src, src)));
  const at::Tensor received =
      rows_of_destinations(g, by_heads(plain(shares ? layer->fc : layer->fc_dst, dst)));
  const at::Tensor rows = by_heads(plain(layer->fc_edge, edges));
  const auto scores = [](const at::Tensor& x, const at::Tensor& attn) {
    return (x * take(attn, Numbers::kGiven)).sum(-1);
  };
  const at::Tensor logits = leaky(scores(sent, layer->attn_l) + scores(received, layer->attn_r) +
                                      scores(rows, layer->attn_edge),
                                  layer->options.negative_slope);
  at::Tensor out = sums_of_messages(g, (sent + rows) * shares_of_messages(g, logits).unsqueeze(-1));
  if (!layer->res_fc.is_empty()) out = out + by_heads(plain(layer->res_fc, dst));
  if (layer->bias.defined()) {
    out = out + take(layer->bias, Numbers::kGiven).view({kHeads, kOut});
  }
  return {layer->options.activation ? layer->options.activation(out) : out};
}

TEST(EdgeGATConv, equals_the_definition_in_every_precision) {
  for (const bool plain_layer : {true, false}) {
    EdgeGATConv layer(kIn, kEdge, kOut,
                      {.num_heads = kHeads,
                       .negative_slope = plain_layer ? 0.2 : 0.5,
                       .residual = plain_layer,
                       .activation = plain_layer ? nn::Activation()
                                                 : [](const at::Tensor& x) { return x.tanh(); },
                       .bias = plain_layer});
    const Inputs in = inputs_of(prefix());
    expect_in_every_precision(
        *layer,
        [&](at::ScalarType dtype) {
          const Inputs given = inputs_of(prefix(), dtype);
          return outputs_of(layer(prefix(), given.src, given.edges));
        },
        [&] { return define(layer, prefix(), in.src, in.src.slice(0, 0, 6), in.edges); });
  }
}

TEST(EdgeGATConv, takes_pairs_of_rows_and_sixteen_bit_edges) {
  EdgeGATConv layer(kIn, kEdge, kOut, {.in_features_dst = kInDst, .num_heads = kHeads});
  const Inputs in = inputs_of(pairs());
  const auto expected = [&] { return define(layer, pairs(), in.src, in.dst, in.edges); };
  expect_in_every_precision(
      *layer,
      [&](at::ScalarType dtype) {
        const Inputs given = inputs_of(pairs(), dtype);
        return outputs_of(layer(pairs(), std::pair(given.src, given.dst), given.edges));
      },
      expected);
  layer->to(at::kBFloat16);
  const Inputs narrow = inputs_of(pairs(), at::kBFloat16);
  expect_near_outputs(outputs_of(layer(pairs(), std::pair(narrow.src, narrow.dst), narrow.edges)),
                      expected(), at::kBFloat16);
}

TEST(EdgeGATConv, gradients_agree_with_differences) {
  EdgeGATConv layer(kIn, kEdge, kOut, {.in_features_dst = kInDst, .num_heads = kHeads});
  layer->to(test_device(), at::kDouble);
  const Inputs in = inputs_of(pairs());
  EXPECT_TRUE(edge_gradcheck(
      *layer,
      [&](const auto& x) { return outputs_of(layer(pairs(), std::pair(x[0], x[1]), x[2])); },
      {in.src, in.dst, in.edges}));
}

TEST(EdgeGATConv, dropout_changes_training_alone_and_the_attention_is_its_own) {
  EdgeGATConv layer(kIn, kEdge, kOut,
                    {.num_heads = kHeads, .feature_dropout = 0.5, .attention_dropout = 0.5});
  layer->to(test_device(), at::kDouble);
  const Inputs in = inputs_of(prefix());
  const auto run = [&] { return layer(prefix(), in.src, in.edges); };
  EXPECT_FALSE(same_bits(run(), run()));
  layer->eval();
  EXPECT_TRUE(same_bits(run(), run()));
  const auto [out, attention] = layer->forward_with_attention(prefix(), in.src, in.edges);
  const at::Tensor sums = sums_of_messages(prefix(), attention);
  EXPECT_TRUE(near_terms(sums, at::ones_like(sums), 40));
}

TEST(EdgeAttention, layers_have_the_names_of_dgl) {
  using Shapes = std::set<std::string>;
  EXPECT_EQ(parameter_shapes(*EGATConv(5, 4, 3, 2, {.in_features_dst = 6, .num_heads = 2})),
            (Shapes{"fc_node_src.weight [6, 5]", "fc_ni.weight [4, 5]", "fc_nj.weight [4, 6]",
                    "fc_fij.weight [4, 4]", "attn [1, 2, 2]", "bias [4]"}));
  const Shapes common = {"fc_edge.weight [6, 4]", "attn_l [1, 2, 3]", "attn_r [1, 2, 3]",
                         "attn_edge [1, 2, 3]", "bias [6]"};
  Shapes one = common, two = common;
  one.merge(Shapes{"fc.weight [6, 5]", "res_fc.weight [6, 5]"});
  two.merge(Shapes{"fc_src.weight [6, 5]", "fc_dst.weight [6, 6]", "res_fc.weight [6, 6]"});
  EXPECT_EQ(parameter_shapes(*EdgeGATConv(5, 4, 3, {.num_heads = 2})), one);
  EXPECT_EQ(parameter_shapes(*EdgeGATConv(5, 4, 3, {.in_features_dst = 6, .num_heads = 2})), two);
}

TEST(EdgeAttention, wrong_arguments_are_errors_that_name_them) {
  EXPECT_ERROR("EGATConv:expectedin_edge_featuresofatleast1,got0", EGATConv layer(5, 0, 3, 2));
  EXPECT_ERROR("EdgeGATConv:expectedattention_dropoutin[0,1)",
               EdgeGATConv layer(5, 4, 3, {.attention_dropout = 1}));
  EGATConv egat = placed(EGATConv(kIn, kEdge, kOut, kOutEdge));
  EdgeGATConv edge_gat = placed(EdgeGATConv(kIn, kEdge, kOut));
  const Inputs in = inputs_of(prefix(), at::kFloat);
  const Topology bare = topology_of({0}, {0}, 2, 2);
  const auto errors = [&](const Topology& g, const at::Tensor& h, const at::Tensor& edges,
                          const std::string& text) {
    EXPECT_TRUE(mentions(error_of([&] { egat(g, h, edges); }), "EGATConv:" + text));
    EXPECT_TRUE(mentions(error_of([&] { edge_gat(g, h, edges); }), "EdgeGATConv:" + text));
  };
  errors(prefix(), in.src.narrow(1, 0, 4), in.edges, "expectedfloatingh[9,5]");
  errors(prefix(), in.src, in.edges.narrow(1, 0, 3), "expectedfloating,stridededge_features[26,4]");
  errors(prefix(), in.src, {}, "expectedfloating,stridededge_features[26,4]");
  errors(prefix(), in.src, in.edges.to(at::kDouble), "expectededge_featuresofthedtypeofh");
  errors(bare, in.src.narrow(0, 0, 2), in.edges.narrow(0, 0, 1), "expectedanin-edge");
  EXPECT_ERROR("EGATConv:expectedfloatingedge_weight[26]",
               egat(prefix(), in.src, in.edges, in.weight.narrow(0, 0, 3)));
}

}  // namespace
}  // namespace mezzo::test::edge_attention_layers_test
