#include "mezzo/nn/conv/edge_filter_layers.h"

#include <torch/nn/modules/activation.h>

#include "mezzo/runtime/memory.h"

#include "support/edge_layer_reference.h"

namespace mezzo::test::edge_filter_layers_test {
namespace {

using nn::Aggregator;
using nn::CFConv;
using nn::GatedGCNConv;
using nn::NNConv;
using torch::nn::Linear;
using torch::nn::Sequential;

constexpr std::int64_t kIn = 5, kInDst = 6, kEdge = 4, kOut = 3;

/// A graph whose destinations are the first of its sources; one has no in-edges.
const Topology& prefix() {
  static const Topology g = topology_of({0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 1, 2, 1},
                                        {1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2, 3, 4}, 9, 6);
  return g;
}

at::Tensor drawn(std::int64_t rows, std::int64_t width, std::uint64_t seed, at::ScalarType dtype) {
  return uniform({rows, width}, at::kBFloat16, seed).to(dtype);
}
at::Tensor sources(at::ScalarType dtype = at::kDouble) {
  return drawn(9, kIn, 1, dtype);
}
at::Tensor destinations(at::ScalarType dtype = at::kDouble) {
  return drawn(6, kInDst, 2, dtype);
}
at::Tensor edges(at::ScalarType dtype = at::kDouble) {
  return drawn(14, kEdge, 3, dtype);
}

/// The reduced messages [E, ...]; 0 without any.
at::Tensor reduced(const Topology& g, const at::Tensor& messages, Aggregator aggregator) {
  std::vector<at::Tensor> rows;
  for (std::int64_t v = 0; v < g.num_dst(); ++v) {
    const at::Tensor of_v = messages.index_select(0, (g.dst() == v).nonzero().squeeze(1));
    if (of_v.size(0) == 0) {
      rows.push_back(at::zeros(of_v.sizes().slice(1), of_v.options()));
    } else {
      rows.push_back(aggregator == Aggregator::kMax    ? of_v.amax(0)
                     : aggregator == Aggregator::kMean ? of_v.mean(0)
                                                       : of_v.sum(0));
    }
  }
  return at::stack(rows);
}

/// weights: edge_func of the edges, in float64.
Outputs define(const NNConv& layer, const Topology& g, const at::Tensor& src, const at::Tensor& dst,
               const at::Tensor& weights) {
  const auto& options = layer->options;
  const at::Tensor products = rows_of_sources(g, src).unsqueeze(-1) *
                              weights.view({-1, options.in_features, options.out_features});
  at::Tensor out = reduced(g, products, options.aggregator).sum(1);
  if (options.residual) out = out + (layer->res_fc.is_empty() ? dst : plain(layer->res_fc, dst));
  return {layer->bias.defined() ? out + take(layer->bias, Numbers::kGiven) : out};
}

TEST(NNConv, equals_the_definition_for_every_aggregator_and_precision) {
  for (const Aggregator aggregator : {Aggregator::kSum, Aggregator::kMean, Aggregator::kMax}) {
    SCOPED_TRACE(std::string(name_of(nn::Aggregators{}, aggregator)));
    Linear last(4, kIn * kOut);
    NNConv layer(kIn, kOut, last, {.aggregator = aggregator, .residual = true});
    expect_in_every_precision(
        *layer,
        [&](at::ScalarType dtype) {
          return outputs_of(layer(prefix(), sources(dtype), edges(dtype)));
        },
        [&] {
          const at::Tensor h = sources();
          return define(layer, prefix(), h, h.slice(0, 0, 6), plain(last, edges()));
        });
  }
}

TEST(NNConv, takes_pairs_and_any_edge_func) {
  Linear first(kEdge, 7), last(7, kIn * kOut);
  const at::Tensor hidden_edges = edges();
  // A last linear layer is applied to sums of its inputs; anything else to the edges.
  for (const bool linear_last : {true, false}) {
    const Sequential edge_func =
        linear_last ? Sequential(first, torch::nn::Tanh(), last)
                    : Sequential(first, torch::nn::Tanh(), last, torch::nn::ReLU());
    NNConv layer(kIn, kOut, edge_func,
                 {.in_features_dst = kInDst, .residual = true, .bias = false});
    expect_in_every_precision(
        *layer,
        [&](at::ScalarType dtype) {
          return outputs_of(
              layer(prefix(), std::pair(sources(dtype), destinations(dtype)), edges(dtype)));
        },
        [&] {
          at::Tensor weights = plain(last, plain(first, edges()).tanh());
          if (!linear_last) weights = weights.relu();
          return define(layer, prefix(), sources(), destinations(), weights);
        });
    EXPECT_TRUE(edge_gradcheck(
        *layer,
        [&](const auto& x) { return outputs_of(layer(prefix(), std::pair(x[0], x[1]), x[2])); },
        {sources(), destinations(), edges()}));
  }
}

TEST(NNConv, a_linear_edge_func_makes_no_weights_of_the_edges) {
  const Topology g = random_topology(50, 50, 4000, 7);
  const std::int64_t in = 32, out = 32;
  NNConv layer(in, out, Linear(2, in * out));
  layer->to(test_device());
  const at::Tensor h = uniform({50, in}, at::kFloat, 8), e = uniform({4000, 2}, at::kFloat, 9);
  reset_peak_memory(test_device());
  const std::int64_t before = peak_memory_bytes(test_device());
  layer(g, h, e).sum().backward();
  EXPECT_LT(peak_memory_bytes(test_device()) - before, 4000 * in * out * 4 / 4);
}

at::Tensor shifted_softplus(const at::Tensor& x) {
  return x.exp().log1p() - std::log(2.0);
}

Outputs define(const CFConv& layer, const Topology& g, const at::Tensor& h, const at::Tensor& e) {
  const auto part = [](const Sequential& module, std::size_t at, const at::Tensor& x) {
    const auto& linear = module->at<torch::nn::LinearImpl>(at);
    return shifted_softplus(dense_linear(x, linear.weight, linear.bias, Numbers::kGiven));
  };
  const at::Tensor filter = part(layer->project_edge, 2, part(layer->project_edge, 0, e));
  const at::Tensor messages = rows_of_sources(g, plain(layer->project_node, h)) * filter;
  return {part(layer->project_out, 0, sums_of_messages(g, messages))};
}

TEST(CFConv, equals_the_definition_in_every_precision) {
  CFConv layer(kIn, kEdge, 6, kOut);
  expect_in_every_precision(
      *layer,
      [&](at::ScalarType dtype) {
        return outputs_of(layer(prefix(), sources(dtype), edges(dtype)));
      },
      [&] { return define(layer, prefix(), sources(), edges()); });
  const at::Tensor got = layer(prefix(), std::pair(sources(), destinations()), edges());
  EXPECT_TRUE(same_bits(got, layer(prefix(), sources(), edges())));
  expect_near_outputs({layer(prefix(), sources().to_sparse_csr(), edges())},
                      define(layer, prefix(), sources(), edges()), at::kDouble);
  EXPECT_TRUE(edge_gradcheck(*layer,
                             [&](const auto& x) { return outputs_of(layer(prefix(), x[0], x[1])); },
                             {sources(), edges()}));
}

at::Tensor normalised(const at::Tensor& rows) {
  const at::Tensor centred = rows - rows.mean(0);
  return centred / (centred.square().mean(0) + 1e-5).sqrt();
}

/// Batch normalization with the weights that it starts with.
Outputs define(const GatedGCNConv& layer, const Topology& g, const at::Tensor& src,
               const at::Tensor& dst, const at::Tensor& e) {
  const auto& options = layer->options;
  at::Tensor rows = rows_of_sources(g, plain(layer->D, src)) +
                    rows_of_destinations(g, plain(layer->E, dst)) + plain(layer->C, e);
  const at::Tensor gates = rows.sigmoid();
  at::Tensor nodes =
      plain(layer->A, dst) + sums_of_messages(g, gates * rows_of_sources(g, plain(layer->B, src))) /
                                 (sums_of_messages(g, gates) + 1e-6);
  if (options.batch_norm) nodes = normalised(nodes), rows = normalised(rows);
  if (options.activation) nodes = options.activation(nodes), rows = options.activation(rows);
  const bool equal =
      options.in_features == options.out_features && options.edge_features == options.out_features;
  if (options.residual && equal) nodes = nodes + dst, rows = rows + e;
  return {nodes, rows};
}

TEST(GatedGCNConv, equals_the_definition_in_every_precision) {
  for (const std::int64_t out : {kIn, kOut}) {
    for (const bool all : {true, false}) {
      const std::int64_t width = out == kIn ? kIn : kEdge;  // equal sizes have a residual
      GatedGCNConv layer(kIn, width, out, {.batch_norm = all, .residual = all});
      if (!all) layer->options.activation = {};
      const auto rows = [&](at::ScalarType dtype) { return drawn(14, width, 4, dtype); };
      expect_in_every_precision(
          *layer,
          [&](at::ScalarType dtype) {
            return outputs_of(layer(prefix(), sources(dtype), rows(dtype)));
          },
          [&] {
            return define(layer, prefix(), sources(), sources().slice(0, 0, 6), rows(at::kDouble));
          });
    }
  }
}

TEST(GatedGCNConv, takes_pairs_and_has_gradients) {
  GatedGCNConv layer(kIn, kEdge, kOut, {.batch_norm = false});
  layer->to(test_device(), at::kDouble);
  const at::Tensor dst = drawn(6, kIn, 5, at::kDouble);
  expect_near_outputs(outputs_of(layer(prefix(), std::pair(sources(), dst), edges())),
                      define(layer, prefix(), sources(), dst, edges()), at::kDouble);
  EXPECT_TRUE(gradcheck(
      [&](const std::vector<at::Tensor>& x) {
        const auto [nodes, rows] = layer(prefix(), std::pair(x[0], x[1]), x[2]);
        return at::cat({nodes, rows});
      },
      {sources(), dst, edges()}));
  GatedGCNConv normalized(kIn, kEdge, kOut);
  normalized->to(test_device(), at::kDouble);
  EXPECT_TRUE(edge_gradcheck(
      *normalized, [&](const auto& x) { return outputs_of(normalized(prefix(), x[0], x[1])); },
      {sources(), edges()}));
}

TEST(GatedGCNConv, dropout_changes_training_alone) {
  GatedGCNConv layer(kIn, kEdge, kOut, {.dropout = 0.5, .batch_norm = false});
  layer->to(test_device(), at::kDouble);
  const auto run = [&] { return at::cat(outputs_of(layer(prefix(), sources(), edges()))); };
  EXPECT_FALSE(same_bits(run(), run()));
  layer->eval();
  EXPECT_TRUE(same_bits(run(), run()));
}

TEST(EdgeFilters, layers_have_the_names_of_dgl) {
  using Shapes = std::set<std::string>;
  EXPECT_EQ(parameter_shapes(*NNConv(5, 3, Linear(4, 15), {.residual = true})),
            (Shapes{"edge_func.weight [15, 4]", "edge_func.bias [15]", "res_fc.weight [3, 5]",
                    "bias [3]"}));
  EXPECT_EQ(parameter_shapes(*NNConv(3, 3, Linear(4, 9), {.residual = true, .bias = false})),
            (Shapes{"edge_func.weight [9, 4]", "edge_func.bias [9]"}));
  EXPECT_EQ(parameter_shapes(*CFConv(5, 4, 6, 3)),
            (Shapes{"project_edge.0.weight [6, 4]", "project_edge.0.bias [6]",
                    "project_edge.2.weight [6, 6]", "project_edge.2.bias [6]",
                    "project_node.weight [6, 5]", "project_node.bias [6]",
                    "project_out.0.weight [3, 6]", "project_out.0.bias [3]"}));
  EXPECT_EQ(
      parameter_shapes(*GatedGCNConv(5, 4, 3, {.batch_norm = false})),
      (Shapes{"A.weight [3, 5]", "A.bias [3]", "B.weight [3, 5]", "B.bias [3]", "C.weight [3, 4]",
              "C.bias [3]", "D.weight [3, 5]", "D.bias [3]", "E.weight [3, 5]", "E.bias [3]",
              "bn_node.weight [3]", "bn_node.bias [3]", "bn_edge.weight [3]", "bn_edge.bias [3]"}));
}

TEST(EdgeFilters, wrong_arguments_are_errors_that_name_them) {
  EXPECT_ERROR("NNConv:expectedanedge_func,gotnone", NNConv layer(5, 3, nn::TensorModule()));
  EXPECT_ERROR("NNConv:expectedaggregatortobeoneofsum,mean,max,gotpool",
               NNConv layer(5, 3, Linear(4, 15), {.aggregator = Aggregator::kPool}));
  EXPECT_ERROR("CFConv:expectedhidden_featuresofatleast1,got0", CFConv layer(5, 4, 0, 3));
  EXPECT_ERROR("GatedGCNConv:expecteddropoutin[0,1)", GatedGCNConv layer(5, 4, 3, {.dropout = 1}));
  const at::Tensor h = sources(at::kFloat), e = edges(at::kFloat);
  NNConv wrong = placed(NNConv(kIn, kOut, Linear(4, 14)));
  EXPECT_ERROR("NNConv:expectededge_functoreturn15numbersforeachedge,got14", wrong(prefix(), h, e));
  NNConv nn_conv = placed(NNConv(kIn, kOut, Linear(4, 15)));
  EXPECT_ERROR("NNConv:expectededge_features[14,...]", nn_conv(prefix(), h, e.narrow(0, 0, 3)));
  CFConv cf = placed(CFConv(kIn, kEdge, 6, kOut));
  EXPECT_ERROR("CFConv:expectedfloatingh[9,5]", cf(prefix(), h.narrow(0, 0, 3), e));
  EXPECT_ERROR("CFConv:expectedfloating,stridededge_features[14,4]",
               cf(prefix(), h, e.to(at::kLong)));
  GatedGCNConv gated = placed(GatedGCNConv(kIn, kEdge, kOut));
  EXPECT_ERROR("GatedGCNConv:expectedfloating,stridededge_features[14,4]", gated(prefix(), h, h));
  EXPECT_ERROR("GatedGCNConv", gated(prefix(), std::pair(h, h.narrow(0, 0, 3)), e));
}

}  // namespace
}  // namespace mezzo::test::edge_filter_layers_test
