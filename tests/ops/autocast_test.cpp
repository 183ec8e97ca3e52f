#include <optional>

#include <ATen/autocast_mode.h>

#include "mezzo/ops/ops.h"

#include "support/reference.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

/// Enables libtorch's autocast on the CPU during its lifetime.
class AutocastRegion {
 public:
  explicit AutocastRegion(at::ScalarType dtype)
      : enabled_(at::autocast::is_autocast_enabled(test_device().type())),
        dtype_(at::autocast::get_autocast_dtype(test_device().type())) {
    at::autocast::set_autocast_enabled(test_device().type(), true);
    at::autocast::set_autocast_dtype(test_device().type(), dtype);
    at::autocast::increment_nesting();
  }
  ~AutocastRegion() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_dtype(test_device().type(), dtype_);
    at::autocast::set_autocast_enabled(test_device().type(), enabled_);
  }
  AutocastRegion(const AutocastRegion&) = delete;
  AutocastRegion& operator=(const AutocastRegion&) = delete;

 private:
  bool enabled_;
  at::ScalarType dtype_;
};

class Autocast : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::ScalarType dtype() const { return GetParam(); }
  Topology graph = random_topology(12, 9, 50, 91);
  at::Tensor x = leaf(uniform({12, 5}, at::kFloat, 1));
  at::Tensor y = leaf(uniform({9, 5}, at::kFloat, 2));
  at::Tensor w = leaf(uniform({50, 1}, at::kFloat, 3));
};

INSTANTIATE_TEST_SUITE_P(, Autocast, testing::Values(at::kBFloat16, at::kHalf),
                         [](const auto& one) { return std::string(c10::toString(one.param)); });

TEST_P(Autocast, casts_node_operands_and_leaves_edge_operands) {
  at::Tensor out;
  {
    const AutocastRegion region(dtype());
    out = gspmm(graph, BinaryOp::kMul, ReduceOp::kSum, x, w);
  }
  EXPECT_EQ(out.scalar_type(), dtype());
  EXPECT_TRUE(same_bits(out, gspmm(graph, BinaryOp::kMul, ReduceOp::kSum, x.to(dtype()), w)));
}

TEST_P(Autocast, two_operands_of_edges_meet_in_the_wider_type) {
  const at::Tensor low = uniform({50, 1}, dtype(), 5);
  const at::Tensor product = w.detach() * low.to(at::kFloat);
  const AutocastRegion region(dtype());
  for (const bool wide_first : {false, true}) {
    const at::Tensor &lhs = wide_first ? w : low, &rhs = wide_first ? low : w;
    const at::Tensor on_edges =
        gsddmm(graph, BinaryOp::kMul, lhs, rhs, Target::kEdge, Target::kEdge);
    EXPECT_TRUE(same_bits(on_edges, product));
    const at::Tensor sums =
        gspmm(graph, BinaryOp::kMul, ReduceOp::kSum, lhs, rhs, Target::kEdge, Target::kEdge);
    EXPECT_TRUE(same_bits(sums, gspmm(graph, BinaryOp::kMul, ReduceOp::kSum, lhs.to(at::kFloat),
                                      rhs.to(at::kFloat), Target::kEdge, Target::kEdge)));
  }
}

TEST_P(Autocast, gives_gradients_in_the_dtypes_of_the_leaves) {
  at::Tensor out;
  {
    const AutocastRegion region(dtype());
    out = gspmm(graph, BinaryOp::kMul, ReduceOp::kMean, x, w);
  }
  const at::Tensor grad = uniform(out.sizes(), dtype(), 4);
  out.backward(grad);
  EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(w.grad().scalar_type(), at::kFloat);
  const auto low = leaf(x.to(dtype())), edge = leaf(w);
  gspmm(graph, BinaryOp::kMul, ReduceOp::kMean, low, edge).backward(grad);
  EXPECT_TRUE(same_bits(x.grad(), low.grad().to(at::kFloat)));
  EXPECT_TRUE(same_bits(w.grad(), edge.grad()));
}

TEST_P(Autocast, casts_both_nodes_of_an_edge_message) {
  const AutocastRegion region(dtype());
  mezzo::detail::for_each(BinaryOps{}, [&]<class Op>() {
    const auto out = gsddmm(graph, Op::kind, x, y);
    EXPECT_EQ(out.scalar_type(), dtype()) << Op::name;
  });
}

TEST_P(Autocast, leaves_a_message_of_edges_alone) {
  const AutocastRegion region(dtype());
  const auto out = gspmm(graph, BinaryOp::kCopyRhs, ReduceOp::kSum, std::nullopt, w);
  EXPECT_EQ(out.scalar_type(), at::kFloat);
}

TEST_P(Autocast, leaves_the_softmax_of_the_edges_in_float32) {
  const AutocastRegion region(dtype());
  const auto out = edge_softmax(graph, w);
  EXPECT_EQ(out.scalar_type(), at::kFloat);
}

TEST_P(Autocast, casts_the_features_of_a_scaled_sum_and_not_its_factors) {
  const at::Tensor src = uniform({12}, at::kFloat, 5), dst = uniform({9}, at::kFloat, 6);
  const at::Tensor plain = scaled_sum(graph, x.to(dtype()), w, src, dst);
  const AutocastRegion region(dtype());
  const auto out = scaled_sum(graph, x, w, src, dst);
  EXPECT_TRUE(same_bits(out, plain));
}

TEST_P(Autocast, casts_rows_and_weight_of_a_dense_product) {
  const auto weight = leaf(integers({3, 5}, at::kFloat, 7)),
             bias = leaf(integers({3}, at::kFloat, 8));
  const auto rows = leaf(integers({12, 5}, at::kFloat, 9));
  at::Tensor out;
  {
    const AutocastRegion region(dtype());
    out = mezzo::linear(rows, weight, bias);
  }
  EXPECT_EQ(out.scalar_type(), dtype());
  EXPECT_TRUE(exact(out, rows.to(at::kDouble).matmul(weight.to(at::kDouble).t()) + bias));
  out.sum().backward();
  for (const at::Tensor& one : {rows, weight, bias}) {
    EXPECT_EQ(one.grad().scalar_type(), at::kFloat);
  }
  EXPECT_TRUE(exact(bias.grad(), at::full({3}, 12)));
}

TEST_P(Autocast, leaves_the_backward_of_a_dense_product_alone) {
  for (const at::ScalarType type : {at::kFloat, dtype()}) {
    const at::Tensor grad = uniform({12, 3}, type, 7);
    const auto gradients = [&](bool inside) {
      const at::Tensor rows = leaf(x.to(type)), weight = leaf(uniform({3, 5}, type, 8));
      const at::Tensor out = mezzo::linear(rows, weight);
      std::optional<AutocastRegion> region;
      if (inside) region.emplace(dtype());
      out.backward(grad);
      return std::vector<at::Tensor>{rows.grad(), weight.grad()};
    };
    const std::vector<at::Tensor> inside = gradients(true), outside = gradients(false);
    EXPECT_TRUE(same_bits(inside[0], outside[0])) << c10::toString(type);
    EXPECT_TRUE(same_bits(inside[1], outside[1])) << c10::toString(type);
  }
}

TEST_P(Autocast, casts_the_weight_of_a_sparse_product) {
  const auto dense = integers({6, 5}, at::kFloat, 1);
  const auto weight = leaf(integers({3, 5}, at::kFloat, 2));
  at::Tensor out;
  {
    const AutocastRegion region(dtype());
    out = mezzo::linear(dense.to_sparse_csr(), weight);
  }
  EXPECT_EQ(out.scalar_type(), dtype());
  EXPECT_TRUE(exact(out, dense.matmul(weight.t())));
  out.sum().backward();
  EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
}

TEST_P(Autocast, leaves_float64_alone) {
  const AutocastRegion region(dtype());
  const auto float64 = x.to(at::kDouble);
  EXPECT_EQ(gspmm(graph, BinaryOp::kCopyLhs, ReduceOp::kSum, float64, std::nullopt).scalar_type(),
            at::kDouble);
}

TEST_P(Autocast, ends_with_its_region) {
  { const AutocastRegion region(dtype()); }
  EXPECT_EQ(gspmm(graph, BinaryOp::kMul, ReduceOp::kSum, x, w).scalar_type(), at::kFloat);
}

TEST_P(Autocast, takes_operands_that_are_narrow_already) {
  const at::Tensor low = x.to(dtype()), edge = w.to(dtype());
  const AutocastRegion region(dtype());
  EXPECT_EQ(gspmm(graph, BinaryOp::kMul, ReduceOp::kSum, low, edge).scalar_type(), dtype());
}

}  // namespace
}  // namespace mezzo::test
