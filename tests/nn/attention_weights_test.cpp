#include <optional>

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/nn/conv/attention_layers.h"
#include "mezzo/ops/ops.h"

#include "support/gradcheck.h"
#include "support/nn_reference.h"

/// forward_with_attention of the layers that have it.
namespace mezzo::test::attention_weights_test {
namespace {

using nn::DotGatConv;
using nn::GATConv;
using nn::GATv2Conv;

constexpr std::int64_t kIn = 4, kOut = 3, kHeads = 2;

template <class Layer>
Layer drawn(Layer layer, at::ScalarType stored = at::kDouble) {
  randomise(*layer, stored, 1, stored);
  return layer;
}

/// h W^T of a layer without bias: [rows, heads, out].
at::Tensor rows_of(const at::Tensor& weight, const at::Tensor& h) {
  return dense_linear(take(h, Numbers::kGiven), weight, {}, Numbers::kGiven)
      .view({h.size(0), kHeads, kOut});
}

/// The softmax of `logits` ([E, heads]) over the edges into each destination: [E, heads, 1].
at::Tensor shares_of(const Topology& g, const at::Tensor& logits) {
  at::Tensor shares = at::zeros_like(logits);
  for (std::int64_t v = 0; v < g.num_dst(); ++v) {
    const at::Tensor edges = (g.dst() == v).nonzero().squeeze(1);
    const at::Tensor powers = logits.index_select(0, edges).exp();
    shares.index_copy_(0, edges, powers / powers.sum(0));
  }
  return shares.unsqueeze(-1);
}

at::Tensor ends(const at::Tensor& rows, const at::Tensor& nodes) {
  return rows.index_select(0, nodes.to(at::kLong));
}

at::Tensor leaky(const at::Tensor& x, double slope) {
  return at::where(x > 0, x, x * slope);
}

at::Tensor expected_attention(const GATConv& layer, const Topology& g, const at::Tensor& h) {
  const at::Tensor sent = attention_scores(layer, h, layer->attn_l);
  const at::Tensor received = attention_scores(layer, h, layer->attn_r);
  return shares_of(
      g, leaky(ends(sent, g.src()) + ends(received, g.dst()), layer->options.negative_slope));
}

at::Tensor expected_attention(const GATv2Conv& layer, const Topology& g, const at::Tensor& h) {
  const auto part = [&](const torch::nn::Linear& linear) {
    return dense_linear(take(h, Numbers::kGiven), linear->weight, linear->bias, Numbers::kGiven)
        .view({h.size(0), kHeads, kOut});
  };
  const at::Tensor sum = ends(part(layer->fc_src), g.src()) + ends(part(layer->fc_dst), g.dst());
  const at::Tensor attn = take(layer->attn, Numbers::kGiven);
  return shares_of(g, (attn * leaky(sum, layer->options.negative_slope)).sum(-1));
}

at::Tensor expected_attention(const DotGatConv& layer, const Topology& g, const at::Tensor& h) {
  const at::Tensor z = rows_of(layer->fc->weight, h);
  const double divisor = std::sqrt(static_cast<double>(kOut));
  return shares_of(g, (ends(z, g.src()) * ends(z, g.dst())).sum(-1) / divisor);
}

/// The rounding steps of a logit (their error becomes a relative error of the attention) and of the
/// rows that the attention multiplies: more than any of the layers has.
double terms(const Topology& g) {
  const double rows = static_cast<double>(kIn) + 1;
  return 2 * rows * rows * rows * static_cast<double>(kOut) + max_in_degree(g) + 8;
}

template <class Layer>
void expect_definition(Layer layer) {
  const Topology square = connected(12, 12, 40, 1), rectangular = connected(9, 5, 20, 2);
  for (const Topology& g : {square, rectangular}) {
    const at::Tensor h = uniform({g.num_src(), kIn}, at::kDouble, 3);
    const auto [out, attention] = layer->forward_with_attention(g, h);
    EXPECT_TRUE(near_terms(out, layer(g, h), terms(g)));
    EXPECT_TRUE(near_terms(attention, expected_attention(layer, g, h), terms(g)));
  }
}

TEST(AttentionWeights, equal_the_definition_beside_the_result_of_forward) {
  expect_definition(drawn(GATConv(kIn, kOut, {.num_heads = kHeads, .residual = true})));
  expect_definition(drawn(GATv2Conv(kIn, kOut, {.num_heads = kHeads, .residual = true})));
  expect_definition(drawn(DotGatConv(kIn, kOut, {.num_heads = kHeads})));
}

TEST(AttentionWeights, of_layers_that_have_them_anyway_come_with_the_bits_of_forward) {
  const Topology g = connected(12, 12, 40, 4);
  for (const DTypeInfo& dtype : dtypes()) {
    const at::Tensor h = uniform({12, kIn}, dtype.scalar, 5);
    GATv2Conv second = drawn(GATv2Conv(kIn, kOut, {.num_heads = kHeads}), dtype.scalar);
    DotGatConv dot = drawn(DotGatConv(kIn, kOut, {.num_heads = kHeads}), dtype.scalar);
    EXPECT_TRUE(same_bits(second->forward_with_attention(g, h).first, second(g, h)));
    EXPECT_TRUE(same_bits(dot->forward_with_attention(g, h).first, dot(g, h)));
  }
}

TEST(AttentionWeights, of_gat_conv_stay_float32_beside_sixteen_bit_rows_also_under_autocast) {
  const Topology g = connected(20, 20, 100, 6);
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    for (const bool autocast : {false, true}) {
      SCOPED_TRACE(testing::Message() << dtype.name << ", autocast " << autocast);
      GATConv layer = drawn(GATConv(kIn, kOut, {.num_heads = kHeads}), dtype.scalar);
      if (autocast) layer->to(at::kFloat);
      const at::Tensor h = uniform({20, kIn}, dtype.scalar, 7);
      const auto run = [&] {
        const at::Tensor rows = autocast ? h.to(at::kFloat) : h;
        std::optional<amp::Autocast> scope;
        if (autocast) scope.emplace(test_device().type(), dtype.scalar);
        return std::pair(layer(g, rows), layer->forward_with_attention(g, rows));
      };
      const auto [fused, both] = run();
      const auto& [out, attention] = both;
      EXPECT_EQ(out.scalar_type(), dtype.scalar);
      EXPECT_EQ(attention.scalar_type(), at::kFloat);
      // Both ways round rows and scores alike and are float32 from there on: each rounds the sum
      // over the edges once and the sum with the bias once.
      const at::Tensor size = define(layer, g, h, Numbers::kAbsolute);
      EXPECT_TRUE(near(out, fused.to(at::kDouble),
                       sum_bound(size, 2 * terms(g), dtype.scalar, 2 * dtype.epsilon)));
      const at::Tensor total = gspmm(g, BinaryOp::kCopyRhs, ReduceOp::kSum, std::nullopt,
                                     attention.detach().to(at::kDouble));
      EXPECT_TRUE(near(total.to(at::kFloat), at::ones_like(total),
                       sum_bound(at::ones_like(total), max_in_degree(g) + 16, at::kFloat)));
    }
  }
}

TEST(AttentionWeights, are_those_after_dropout_and_edge_weight) {
  const Topology g = connected(30, 30, 200, 8);
  const at::Tensor h = uniform({30, kIn}, at::kDouble, 9);
  const at::Tensor weight = uniform({g.num_edges()}, at::kDouble, 10, 0.5, 2);
  GATConv layer =
      drawn(GATConv(kIn, kOut, {.num_heads = kHeads, .attention_dropout = 0.5, .bias = false}));
  at::manual_seed(3);
  const at::Tensor fused = layer(g, h, weight);
  at::manual_seed(3);
  const auto [out, attention] = layer->forward_with_attention(g, h, weight);
  EXPECT_TRUE(near_terms(out, fused, 4 * terms(g)));
  const at::Tensor whole = expected_attention(layer, g, h) * weight.view({-1, 1, 1});
  const at::Tensor present_edges = attention.detach().ne(0).to(at::kDouble);
  // 460 shares, each dropped with the probability a half.
  EXPECT_GT(present_edges.mean().item<double>(), 0.3);
  EXPECT_LT(present_edges.mean().item<double>(), 0.7);
  EXPECT_TRUE(near_terms(attention, whole * present_edges * 2, 4 * terms(g)));
  layer->eval();
  EXPECT_TRUE(near_terms(layer->forward_with_attention(g, h, weight).second, whole, 2 * terms(g)));

  GATv2Conv second = drawn(GATv2Conv(kIn, kOut, {.num_heads = kHeads, .attention_dropout = 0.5}));
  const at::Tensor dropped = second->forward_with_attention(g, h).second.detach();
  const at::Tensor present = dropped.ne(0).to(at::kDouble);
  EXPECT_LT(present.mean().item<double>(), 0.7);
  EXPECT_TRUE(near_terms(dropped, expected_attention(second, g, h) * present * 2, 2 * terms(g)));
}

/// The gradients of the rows, through result and attention.
template <class Layer>
void expect_gradients(Layer layer) {
  const Topology g = connected(6, 4, 9, 11);
  const auto function = [&](const std::vector<at::Tensor>& inputs) {
    const auto [out, attention] = layer->forward_with_attention(g, inputs[0]);
    return at::cat({out.flatten(), attention.flatten()});
  };
  EXPECT_TRUE(gradcheck(function, {uniform({6, kIn}, at::kDouble, 12)}));
}

TEST(AttentionWeights, gradients_flow_through_them_and_agree_with_differences) {
  expect_gradients(drawn(GATConv(kIn, kOut, {.num_heads = kHeads})));
  expect_gradients(drawn(GATv2Conv(kIn, kOut, {.num_heads = kHeads})));
  expect_gradients(drawn(DotGatConv(kIn, kOut, {.num_heads = kHeads})));
}

TEST(AttentionWeights, of_no_edges_are_none) {
  const Topology g = topology_of({}, {}, 3, 3);
  GATConv layer = drawn(GATConv(kIn, kOut, {.num_heads = kHeads, .allow_zero_in_degree = true}));
  const at::Tensor h = uniform({3, kIn}, at::kDouble, 13);
  const auto [out, attention] = layer->forward_with_attention(g, h);
  EXPECT_EQ(attention.sizes(), (std::vector<std::int64_t>{0, kHeads, 1}));
  EXPECT_TRUE(same_bits(out, layer(g, h)));
}

}  // namespace
}  // namespace mezzo::test::attention_weights_test
