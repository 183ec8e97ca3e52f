// Cases with results worked out by hand: products, every sparse format of a graph, messages of many
// dimensions, very large degrees.
#include <cmath>
#include <optional>

#include "mezzo/graph/functions.h"
#include "mezzo/graph/graph.h"
#include "mezzo/ops/ops.h"

#include "support/reference.h"
#include "support/special_numbers.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

using mezzo::detail::for_each;

/// The product of messages over a star, and its gradient for the upstream gradient `grad`.
struct Product {
  at::Tensor value, gradient;
};

Product product_of(const std::vector<double>& messages, at::ScalarType dtype, double grad = 1) {
  const auto x = leaf(numbers(messages, dtype));
  const auto star = in_star(static_cast<std::int64_t>(messages.size()));
  const auto out = gspmm(star, BinaryOp::kCopyLhs, ReduceOp::kProd, x, std::nullopt);
  out.backward(numbers({grad}, dtype));
  return {out.detach(), x.grad()};
}

TEST(Products, multiply_the_messages_of_each_node) {
  for (const DTypeInfo& dtype : dtypes()) {
    for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
      SCOPED_TRACE(dtype.name);
      const Topology g = four_nodes(width);
      const at::Tensor x = leaf(numbers({2, 3, 5, -4}, dtype.scalar));
      const auto out = gspmm(g, BinaryOp::kCopyLhs, ReduceOp::kProd, x, std::nullopt);
      EXPECT_TRUE(exact(out, numbers({0, 2, -24, 0})));
      EXPECT_EQ(out.scalar_type(), dtype.scalar);
      out.sum().backward();  // node 2: 2 * 3 * -4; node 0 sends to node 1 as well
      EXPECT_TRUE(exact(x.grad(), numbers({-12 + 1, -8, 0, 6})));
    }
  }
}

TEST(Products, of_no_messages_are_zero_and_take_no_gradient) {
  for (const DTypeInfo& dtype : dtypes()) {
    const at::Tensor x = leaf(at::ones({3, 4}, on_device(dtype.scalar)));
    const auto out =
        gspmm(topology_of({}, {}, 3, 5), BinaryOp::kCopyLhs, ReduceOp::kProd, x, std::nullopt);
    EXPECT_TRUE(exact(out, at::zeros({5, 4}))) << dtype.name;
    out.sum().backward();
    EXPECT_TRUE(exact(x.grad(), at::zeros({3, 4}))) << dtype.name;
  }
}

TEST(Products, with_a_zero_have_a_gradient_at_the_zero_alone) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const Product one = product_of({2, 0, 3}, dtype.scalar, 5);
    EXPECT_TRUE(exact(one.value, numbers({0})));
    EXPECT_TRUE(exact(one.gradient, numbers({0, 30, 0})));
    const Product two = product_of({2, 0, 3, 0}, dtype.scalar, 5);
    EXPECT_TRUE(exact(two.value, numbers({0})));
    EXPECT_TRUE(exact(two.gradient, numbers({0, 0, 0, 0})));
    const Product lone = product_of({0}, dtype.scalar, 7);
    EXPECT_TRUE(exact(lone.gradient, numbers({7})));
  }
}

TEST(Products, with_zeros_pass_the_gradient_through_every_operation) {
  // Messages are integers around zero; the other operand is a power of two.
  const Topology g = random_topology(12, 8, 24, 71);
  for (const DTypeInfo& dtype : dtypes()) {
    for_each(BinaryOps{}, [&]<class Op>() {
      SCOPED_TRACE(dtype.name + " " + std::string(Op::name));
      const auto x = leaf(integers(shape(g, Target::kSrc, {5}), dtype.scalar, 72, -1, 1));
      const auto w = leaf(divisors(shape(g, Target::kEdge, {5}), dtype.scalar, 73));
      const auto out = gspmm(g, Op::kind, ReduceOp::kProd, x, w);
      const auto grad = integers(out.sizes(), dtype.scalar, 74);
      out.backward(grad);
      const auto forward = gspmm_reference(g, Op::kind, ReduceOp::kProd, x, w);
      const auto expected = gspmm_gradients(g, Op::kind, ReduceOp::kProd, x, w, grad);
      EXPECT_TRUE(near(out, forward, dtype.scalar));
      expect_operand_gradients(x, w, expected, /*exactly=*/false);
    });
  }
}

TEST(Products, are_kept_in_the_accumulator_until_the_end) {
  // 300 * 300 overflows float16, and 2^-20 squared underflows its subnormal numbers.
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const double tiny = 0x1p-20;
    EXPECT_TRUE(exact(product_of({256, 256, 1.0 / 256}, dtype.scalar).value, numbers({256})));
    EXPECT_TRUE(
        exact(product_of({tiny, tiny, 1024, 1024, 1024, 1024}, dtype.scalar).value, numbers({1})));
  }
  EXPECT_TRUE(exact(product_of({256, 256}, at::kHalf).value, numbers({kInf})));
}

TEST(Products, pass_infinities_and_nan_through) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    EXPECT_TRUE(exact(product_of({2, kInf, -1}, dtype.scalar).value, numbers({-kInf})));
    EXPECT_TRUE(exact(product_of({0, kInf}, dtype.scalar).value, numbers({kNaN})));
    EXPECT_TRUE(exact(product_of({2, kNaN, 0}, dtype.scalar).value, numbers({kNaN})));
  }
}

TEST(Products, of_seventy_thousand_messages_see_every_one) {
  constexpr std::int64_t degree = 70000;
  const Topology star = in_star(degree);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    at::Tensor messages = at::ones({degree, 1}, on_device(dtype.scalar));
    messages[degree - 1] = 3;
    messages[12345] = -1;
    const at::Tensor x = leaf(messages);
    const auto out = gspmm(star, BinaryOp::kCopyLhs, ReduceOp::kProd, x, std::nullopt);
    EXPECT_TRUE(exact(out, at::full({1, 1}, -3)));
    out.backward(at::ones_like(out));
    EXPECT_TRUE(exact(x.grad(), -3 / messages.to(at::kDouble)));
  }
}

TEST(Hubs, of_seventy_thousand_edges_choose_the_right_one) {
  constexpr std::int64_t degree = 70000;
  const Topology star = in_star(degree);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    at::Tensor x = at::zeros({degree, 2}, on_device(dtype.scalar));
    x[69999][0] = 1;  // beyond the range of a 16-bit index
    x[66000][1] = -1;
    for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
      const auto input = leaf(x);
      const auto out = gspmm(star, BinaryOp::kCopyLhs, op, input, std::nullopt);
      const bool max = op == ReduceOp::kMax;
      EXPECT_TRUE(exact(out, numbers({max ? 1.0 : 0, max ? 0 : -1.0}).reshape({1, 2})));
      out.backward(at::ones_like(out));
      EXPECT_EQ(input.grad()[max ? 69999 : 0][0].item<double>(), 1);
      EXPECT_EQ(input.grad()[max ? 0 : 66000][1].item<double>(), 1);
      EXPECT_EQ(input.grad().to(at::kDouble).sum().item<double>(), 2);
    }
  }
}

TEST(Hubs, of_the_softmax_share_the_gradient) {
  // 2^16 equal logits: p = 2^-16, every step is exact.
  constexpr std::int64_t degree = 65536;
  const Topology star = in_star(degree);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto logits = leaf(at::full({degree}, 3, on_device()).to(dtype.scalar));
    const auto grad = at::zeros({degree}, on_device(dtype.scalar));
    grad[0] = 1;
    edge_softmax(star, logits).backward(grad);
    const double p = 1.0 / static_cast<double>(degree);
    EXPECT_TRUE(exact_rounded(logits.grad()[0], at::full({}, p * (1 - p), at::kDouble)));
    EXPECT_TRUE(exact_rounded(logits.grad()[1], at::full({}, -p * p, at::kDouble)));
  }
}

/// The edges 0->1, 0->2, 1->2, 3->2 of a graph that stores only the named format.
std::vector<NamedTopology> stored_forms(IdWidth width) {
  return {
      {"coordinates", topology_of({0, 0, 1, 3}, {1, 2, 2, 2}, 4, 4, width)},
      {"rows by source", Topology::from_csr(ids({0, 2, 3, 3, 4}), ids({1, 2, 2, 2}), 4, {}, width)},
      {"rows by destination",
       Topology::from_csc(ids({0, 0, 1, 4, 4}), ids({0, 0, 1, 3}), 4, {}, width)},
  };
}

TEST(StoredForms, give_every_reduction_its_value_and_gradient) {
  const auto expected = [](ReduceOp op) -> std::pair<at::Tensor, at::Tensor> {
    switch (op) {
      case ReduceOp::kSum:
        return {numbers({0, 1, 7, 0}), numbers({2, 1, 0, 1})};
      case ReduceOp::kMean:
        return {numbers({0, 1, 7.0 / 3, 0}), numbers({4.0 / 3, 1.0 / 3, 0, 1.0 / 3})};
      case ReduceOp::kMax:
        return {numbers({0, 1, 4, 0}), numbers({1, 0, 0, 1})};
      case ReduceOp::kMin:
        return {numbers({0, 1, 1, 0}), numbers({2, 0, 0, 0})};
      case ReduceOp::kProd:
        return {numbers({0, 1, 8, 0}), numbers({9, 4, 0, 2})};
    }
    return {};
  };
  for (const DTypeInfo& dtype : dtypes()) {
    for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
      for_each(ReduceOps{}, [&]<class Reduce>() {
        for (const NamedTopology& g : stored_forms(width)) {
          SCOPED_TRACE(fmt::format("{} {} of {}", dtype.name, Reduce::name, g.name));
          const auto x = leaf(numbers({1, 2, 3, 4}, dtype.scalar));
          const auto out = gspmm(g.topology, BinaryOp::kCopyLhs, Reduce::kind, x, std::nullopt);
          out.backward(at::ones_like(out));
          EXPECT_TRUE(exact_rounded(out, expected(Reduce::kind).first));
          EXPECT_TRUE(exact_rounded(x.grad(), expected(Reduce::kind).second));
        }
      });
    }
  }
}

TEST(StoredForms, give_every_edge_its_message_and_share) {
  for (const DTypeInfo& dtype : dtypes()) {
    for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
      for (const NamedTopology& g : stored_forms(width)) {
        SCOPED_TRACE(dtype.name + " " + g.name);
        const auto x = leaf(numbers({1, 2, 3, 4}, dtype.scalar));
        const auto out = gsddmm(g.topology, BinaryOp::kSub, x, x);
        EXPECT_TRUE(exact(out, numbers({-1, -2, -1, 1})));
        out.backward(numbers({1, 2, 3, 4}, dtype.scalar));
        EXPECT_TRUE(exact(x.grad(), numbers({3, 3 - 1, -9, 4})));
        const auto share = edge_softmax(g.topology, at::ones({4}, on_device(dtype.scalar)));
        EXPECT_TRUE(exact_rounded(share, numbers({1, 1.0 / 3, 1.0 / 3, 1.0 / 3})));
      }
    }
  }
}

TEST(Shapes, of_six_dimensions_broadcast_and_gradients_come_back_in_the_operands_shapes) {
  const Topology g = random_topology(6, 5, 14, 75);
  for (const DTypeInfo& dtype : dtypes()) {
    for_each(ReduceOps{}, [&]<class Reduce>() {
      SCOPED_TRACE(dtype.name + " " + std::string(Reduce::name));
      const auto x = leaf(integers({6, 1, 2, 1, 3, 1}, dtype.scalar, 76));
      const auto w = leaf(divisors({14, 4, 1, 3, 1, 1}, dtype.scalar, 77));
      const auto out = gspmm(g, BinaryOp::kMul, Reduce::kind, x, w);
      EXPECT_EQ(out.sizes(), (std::vector<std::int64_t>{5, 4, 2, 3, 3, 1}));
      const auto grad = integers(out.sizes(), dtype.scalar, 78);
      out.backward(grad);
      const auto expected = gspmm_gradients(g, BinaryOp::kMul, Reduce::kind, x, w, grad);
      expect_operand_gradients(x, w, expected, /*exactly=*/false);
    });
  }
}

TEST(Shapes, with_no_elements_stay_empty) {
  const Topology g = four_nodes();
  for (const DTypeInfo& dtype : dtypes()) {
    for_each(ReduceOps{}, [&]<class Reduce>() {
      SCOPED_TRACE(dtype.name + " " + std::string(Reduce::name));
      const auto x = leaf(at::empty({4, 3, 0}, on_device(dtype.scalar)));
      const auto w = leaf(at::ones({4, 3, 1}, on_device(dtype.scalar)));
      const auto out = gspmm(g, BinaryOp::kMul, Reduce::kind, x, w);
      EXPECT_EQ(out.sizes(), (std::vector<std::int64_t>{4, 3, 0}));
      out.backward(at::ones_like(out));
      EXPECT_EQ(x.grad().sizes(), x.sizes());
      EXPECT_TRUE(exact(w.grad(), at::zeros({4, 3, 1})));  // an empty sum
    });
  }
}

TEST(Shapes, without_nodes_on_one_side_or_both_give_zeros) {
  for (const auto& [num_src, num_dst] : {std::pair{0, 5}, std::pair{3, 0}, std::pair{0, 0}}) {
    const Topology g = topology_of({}, {}, num_src, num_dst);
    for (const DTypeInfo& dtype : dtypes()) {
      SCOPED_TRACE(fmt::format("{} sources, {}", num_src, dtype.name));
      const auto options = on_device(dtype.scalar);
      const at::Tensor x = leaf(at::ones({num_src, 2, 3}, options));
      const at::Tensor y = leaf(at::ones({num_dst, 2, 3}, options));
      const at::Tensor w = leaf(at::ones({0, 2, 1}, options));
      const at::Tensor attn = leaf(at::ones({2, 3}, options));
      std::vector<at::Tensor> nodes = {
          scaled_sum(g, x, w.select(1, 0), std::nullopt, std::nullopt),
          gat_attention(g, x, x.select(2, 0), y.select(2, 0), {.edge_weight = w.squeeze(2)})};
      for_each(ReduceOps{}, [&]<class Reduce>() {
        nodes.push_back(gspmm(g, BinaryOp::kMul, Reduce::kind, x, w));
      });
      for (const at::Tensor& out : nodes) {
        EXPECT_TRUE(exact(out, at::zeros({num_dst, 2, 3})));
        out.sum().backward();
      }
      const at::Tensor dots = gsddmm(g, BinaryOp::kDot, x, y);
      EXPECT_EQ(dots.sizes(), w.sizes());
      const at::Tensor scores = gatv2_scores(g, x, y, attn);
      EXPECT_EQ(scores.sizes(), (std::vector<std::int64_t>{0, 2}));
      (edge_softmax(g, dots).sum() + edge_softmax(g, scores).sum()).backward();
      for (const at::Tensor& one : {x, y, w, attn}) {
        EXPECT_TRUE(exact(one.grad(), at::zeros(one.sizes())));
      }
    }
  }
}

// The same pair of functions on a graph's own frames, where sources and destinations read one
// column.

TEST(Frames, both_ends_of_an_edge_may_read_one_column) {
  for (const DTypeInfo& dtype : dtypes()) {
    for_each(BinaryOps{}, [&]<class Op>() {
      for_each(ReduceOps{}, [&]<class Reduce>() {
        SCOPED_TRACE(fmt::format("{} u_{}_v {}", dtype.name, Op::name, Reduce::name));
        Graph g{topology_of({0, 1, 2, 0, 2, 2}, {0, 1, 2, 2, 2, 0}, 4, 4)};
        const at::Tensor x = leaf(divisors({4, 3}, dtype.scalar, 79));
        g.ndata()["x"] = x;
        g.update_all(BuiltinMessage{.op = Op::kind,
                                    .lhs_target = Target::kSrc,
                                    .rhs_target = Target::kDst,
                                    .lhs = Op::uses_lhs ? "x" : "",
                                    .rhs = Op::uses_rhs ? "x" : "",
                                    .out = "m"},
                     BuiltinReduce{Reduce::kind, "m", "out"});
        const at::Tensor out = g.ndata()["out"];
        const auto expected =
            gspmm_reference(g.topology(), Op::kind, Reduce::kind, x, x, Target::kSrc, Target::kDst);
        EXPECT_TRUE(near(out, expected, dtype.scalar));
        const auto grad = integers(out.sizes(), dtype.scalar, 80);
        out.backward(grad);
        const auto gradients = gspmm_gradients(g.topology(), Op::kind, Reduce::kind, x, x, grad,
                                               Target::kSrc, Target::kDst);
        at::Tensor value = at::zeros({4, 3}, on_device(at::kDouble)), size = value;
        double terms = 1;
        for (const Reference& one : {gradients.lhs, gradients.rhs}) {
          if (!one.value.defined()) continue;
          value = value + one.value;
          size = size + one.abs_sum;
          terms += one.terms;
        }
        // Both gradients are rounded before libtorch adds them.
        SumBound bound = sum_bound(size, terms, dtype.scalar);
        bound.operand_epsilon = info(dtype.scalar).epsilon;
        EXPECT_TRUE(near(x.grad(), value, bound));
      });
    });
  }
}

}  // namespace
}  // namespace mezzo::test
