// Sparse rows of another floating dtype than the layer's: the product has the weight's dtype.

#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/conv/attention_layers.h"
#include "mezzo/nn/conv/edge_conv.h"
#include "mezzo/nn/conv/graph_conv.h"
#include "mezzo/nn/conv/propagation_layers.h"

#include "support/nn_reference.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test::sparse_dtype_test {
namespace {

constexpr std::int64_t kIn = 4, kOut = 3;

/// Expects the same result for sparse rows of the other dtype (float32, float64) as for rows of
/// dtype `stored`. The numbers are integers, so casts are exact.
template <class Layer, class Forward>
void expect_cast(Layer layer, const Forward& forward) {
  for (const at::ScalarType stored : {at::kFloat, at::kDouble}) {
    SCOPED_TRACE(testing::Message() << layer->name() << " in " << stored);
    randomise(*layer, stored);
    const at::ScalarType other = stored == at::kFloat ? at::kDouble : at::kFloat;
    const at::Tensor h = integers({8, kIn}, at::kDouble, 2) * sparse_numbers({8, kIn}, 2).ne(0);
    const at::Tensor got = forward(layer, h.to(other).to_sparse_csr());
    EXPECT_TRUE(same_bits(got, forward(layer, h.to(stored).to_sparse_csr())));
    EXPECT_EQ(got.scalar_type(), stored);
  }
}

TEST(SparseDtype, is_cast_to_the_weights_by_layers_with_edge_weights) {
  const Topology g = connected(8, 8, 20, 1);
  const at::Tensor weight = uniform({g.num_edges()}, at::kDouble, 3, 0.5, 2);
  const auto run = [&](auto& layer, const at::Tensor& h) { return layer(g, h, weight); };
  expect_cast(nn::GraphConv(kIn, kOut), run);
  expect_cast(nn::SAGEConv(kIn, kOut), run);
  expect_cast(nn::GATConv(kIn, kOut), run);
  expect_cast(nn::SGConv(kIn, kOut), run);
  expect_cast(nn::TAGConv(kIn, kOut), run);
}

TEST(SparseDtype, is_cast_to_the_weights_by_layers_without) {
  const Topology g = connected(8, 8, 20, 1);
  const auto run = [&](auto& layer, const at::Tensor& h) { return layer(g, h); };
  expect_cast(nn::ChebConv(kIn, kOut, {.k = 2}), run);
  expect_cast(nn::EdgeConv(kIn, kOut), run);
  expect_cast(nn::SGConv(kIn, kOut), run);
}

}  // namespace
}  // namespace mezzo::test::sparse_dtype_test
