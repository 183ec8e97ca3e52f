// Properties that hold for every graph and operand.
#include <functional>
#include <optional>

#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "mezzo/ops/ops.h"

#include "support/reference.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

using mezzo::detail::for_each;

at::Tensor permutation(std::int64_t count, std::uint64_t seed) {
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < count; ++i) {
    order.push_back(i);
    std::swap(order.back(), order[random_below(order.size(), seed, 41, order.size())]);
  }
  return ids(order);
}

/// Features of the sources and of the edges.
struct Operands {
  at::Tensor lhs, rhs;
};

// Algebra on integers, so that both sides are exact.

TEST(Properties, sums_are_linear_in_each_operand) {
  const Topology g = random_topology(30, 40, 200, 11, 2.0);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto whole = [&](Target target, std::uint64_t seed) {
      return integers(shape(g, target, {5}), dtype.scalar, seed, -1, 1);
    };
    const auto sum = [&](const at::Tensor& x, const at::Tensor& w) {
      return gspmm(g, BinaryOp::kMul, ReduceOp::kSum, x, w);
    };
    const auto x = whole(Target::kSrc, 1), y = whole(Target::kSrc, 2);
    const auto w = whole(Target::kEdge, 3), z = whole(Target::kEdge, 4);
    EXPECT_TRUE(exact(sum(x - 2 * y, w), sum(x, w) - 2 * sum(y, w)));
    EXPECT_TRUE(exact(sum(x, w - 2 * z), sum(x, w) - 2 * sum(x, z)));
  }
}

TEST(Properties, the_sum_over_two_sets_of_edges_is_the_sum_of_the_sums) {
  const Topology first = random_topology(20, 25, 70, 12), second = random_topology(20, 25, 90, 13);
  const auto both = Topology::from_coo(at::cat({first.src(), second.src()}),
                                       at::cat({first.dst(), second.dst()}), 20, 25);
  for (const DTypeInfo& dtype : dtypes()) {
    const auto x = integers({20, 7}, dtype.scalar, 5);
    const auto sum = [&](const Topology& g) {
      return gspmm(g, BinaryOp::kCopyLhs, ReduceOp::kSum, x, std::nullopt);
    };
    EXPECT_TRUE(exact(sum(both), sum(first) + sum(second))) << dtype.name;
  }
}

TEST(Properties, the_gradient_to_the_sources_is_the_sum_over_the_reversed_graph) {
  for (const NamedTopology& g : topologies()) {
    for (const DTypeInfo& dtype : dtypes()) {
      SCOPED_TRACE(dtype.name + " on " + g.name);
      const auto x = leaf(integers(shape(g.topology, Target::kSrc, {3, 5}), dtype.scalar, 6));
      const auto w = integers(shape(g.topology, Target::kEdge, {3, 1}), dtype.scalar, 7);
      const auto grad = integers(shape(g.topology, Target::kDst, {3, 5}), dtype.scalar, 8);
      gspmm(g.topology, BinaryOp::kMul, ReduceOp::kSum, x, w).backward(grad);
      const auto transposed = gspmm(g.topology.reverse(), BinaryOp::kMul, ReduceOp::kSum, grad, w);
      EXPECT_TRUE(exact(x.grad(), transposed));
    }
  }
}

TEST(Properties, maxima_are_the_negated_minima_of_the_negated_messages) {
  for (const NamedTopology& g : topologies()) {
    for (const DTypeInfo& dtype : dtypes()) {
      const auto x = uniform(shape(g.topology, Target::kSrc, {9}), dtype.scalar, 9);
      const auto reduced = [&](ReduceOp op, const at::Tensor& from) {
        return gspmm(g.topology, BinaryOp::kCopyLhs, op, from, std::nullopt);
      };
      EXPECT_TRUE(exact(reduced(ReduceOp::kMax, x), -reduced(ReduceOp::kMin, -x)))
          << dtype.name << " on " << g.name;
    }
  }
}

/// Value and gradients of one op; rows of `lhs` and `rhs` are those of sources and edges.
struct Outcome {
  at::Tensor out, lhs, rhs;
};

Outcome outcome(const Topology& g, BinaryOp op, ReduceOp reduce_op, const Operands& operands,
                const at::Tensor& grad) {
  const at::Tensor lhs = leaf(operands.lhs), rhs = leaf(operands.rhs);
  const at::Tensor out = gspmm(g, op, reduce_op, lhs, rhs);
  out.backward(grad);
  return {out.detach(), lhs.grad(), rhs.grad()};
}

/// Permuted rows; undefined stays undefined.
at::Tensor reordered(const at::Tensor& rows, const at::Tensor& order) {
  return rows.defined() ? rows.index_select(0, order) : rows;
}

testing::AssertionResult agree(const at::Tensor& got, const at::Tensor& expected) {
  if (!expected.defined()) {
    return got.defined() ? testing::AssertionFailure() << "a gradient that was not there"
                         : testing::AssertionSuccess();
  }
  return exact(got, expected);
}

/// No two messages of a node are equal, so max and min are unique in any order.
Operands distinct_messages(const Topology& g, at::ScalarType dtype) {
  const at::Tensor edge = permutation(g.num_edges(), 14).to(dtype).unsqueeze(1) - 64;
  return {at::full({g.num_src(), 3}, 2, on_device()).to(dtype), edge.expand({g.num_edges(), 3})};
}

TEST(Properties, the_order_of_the_edges_changes_nothing) {
  const Topology g = random_topology(30, 20, 128, 15, 2.0);
  const at::Tensor order = permutation(g.num_edges(), 16);
  const auto permuted =
      Topology::from_coo(g.src().index_select(0, order), g.dst().index_select(0, order), 30, 20);
  for (const DTypeInfo& dtype : dtypes()) {
    for_each(BinaryOps{}, [&]<class Op>() {
      for_each(ReduceOps{}, [&]<class Reduce>() {
        if (rounds_between(Reduce::kind) || Op::kind == BinaryOp::kCopyLhs) return;
        SCOPED_TRACE(fmt::format("{} {} {}", dtype.name, Op::name, Reduce::name));
        Operands in = distinct_messages(g, dtype.scalar);
        if (Op::kind == BinaryOp::kDiv) in.rhs = divisors(in.rhs.sizes(), dtype.scalar, 3);
        const bool ties = Op::kind == BinaryOp::kDiv && Reduce::selects;
        const auto width = Op::kind == BinaryOp::kDot ? 1 : 3;
        const auto grad = integers({20, width}, dtype.scalar, 17);
        const auto plain = outcome(g, Op::kind, Reduce::kind, in, grad);
        const auto other = outcome(permuted, Op::kind, Reduce::kind,
                                   {in.lhs, in.rhs.index_select(0, order)}, grad);
        EXPECT_TRUE(exact(other.out, plain.out));
        if (ties) return;  // the lowest edge id wins ties, and the ids changed
        EXPECT_TRUE(agree(other.lhs, plain.lhs));
        EXPECT_TRUE(agree(other.rhs, reordered(plain.rhs, order)));
      });
    });
  }
}

TEST(Properties, renaming_the_nodes_renames_the_rows) {
  const Topology g = random_topology(30, 20, 128, 18, 2.0);
  const at::Tensor new_src = permutation(30, 19), new_dst = permutation(20, 20);
  const auto renamed = Topology::from_coo(new_src.index_select(0, g.src().to(at::kLong)),
                                          new_dst.index_select(0, g.dst().to(at::kLong)), 30, 20);
  for (const DTypeInfo& dtype : dtypes()) {
    for_each(ReduceOps{}, [&]<class Reduce>() {
      SCOPED_TRACE(dtype.name + " " + std::string(Reduce::name));
      const auto x = uniform({30, 6}, dtype.scalar, 21), w = uniform({128, 6}, dtype.scalar, 22);
      const auto grad = uniform({20, 6}, dtype.scalar, 23);
      const auto plain = outcome(g, BinaryOp::kMul, Reduce::kind, {x, w}, grad);
      const auto other = outcome(renamed, BinaryOp::kMul, Reduce::kind,
                                 {at::empty_like(x).index_copy(0, new_src, x), w},
                                 at::empty_like(grad).index_copy(0, new_dst, grad));
      // The edges of a node keep their order, so not even the rounding differs.
      EXPECT_TRUE(same_bits(other.out.index_select(0, new_dst), plain.out));
      EXPECT_TRUE(same_bits(other.lhs.index_select(0, new_src), plain.lhs));
      EXPECT_TRUE(same_bits(other.rhs, plain.rhs));
    });
  }
}

TEST(Properties, isolated_nodes_change_nothing) {
  const Topology g = random_topology(10, 12, 60, 24);
  const auto larger = Topology::from_coo(g.src(), g.dst(), 15, 20);
  for (const DTypeInfo& dtype : dtypes()) {
    for_each(ReduceOps{}, [&]<class Reduce>() {
      SCOPED_TRACE(dtype.name + " " + std::string(Reduce::name));
      const auto x = uniform({15, 4}, dtype.scalar, 25), w = uniform({60, 1}, dtype.scalar, 26);
      const auto few = gspmm(g, BinaryOp::kMul, Reduce::kind, x.slice(0, 0, 10), w);
      const auto many = gspmm(larger, BinaryOp::kMul, Reduce::kind, x, w);
      EXPECT_TRUE(same_bits(many.slice(0, 0, 12), few));
      EXPECT_TRUE(exact(many.slice(0, 12), at::zeros({8, 4})));
    });
  }
}

// Widths that are no multiple of any vector width, and multiples plus and minus one.

std::vector<std::int64_t> widths() {
  std::vector<std::int64_t> all = {63, 64, 65, 127, 128, 129, 255, 256, 257};
  for (std::int64_t width = 1; width <= 40; ++width) all.push_back(width);
  return all;
}

/// Compares value and gradients with the definition, on numbers for which only the last rounding is
/// inexact.
template <class Op>
void expect_width(const Topology& g, const DTypeInfo& dtype, ReduceOp reduce_op,
                  std::int64_t lhs_width, std::int64_t rhs_width) {
  SCOPED_TRACE(fmt::format("{} {} {}, {} with {} features", dtype.name, Op::name,
                           name_of(ReduceOps{}, reduce_op), lhs_width, rhs_width));
  const auto x = leaf(integers(shape(g, Target::kSrc, {lhs_width}), dtype.scalar, 31));
  const auto y = leaf(divisors(shape(g, Target::kEdge, {rhs_width}), dtype.scalar, 32));
  const auto out = gspmm(g, Op::kind, reduce_op, x, y);
  const auto grad = integers(out.sizes(), dtype.scalar, 33);
  out.backward(grad);
  EXPECT_TRUE(exact_rounded(out, gspmm_reference(g, Op::kind, reduce_op, x, y).value));
  const auto expected = gspmm_gradients(g, Op::kind, reduce_op, x, y, grad);
  expect_operand_gradients(x, y, expected, /*exactly=*/true);
}

TEST(Properties, every_width_is_computed_to_its_last_element) {
  const Topology g = random_topology(7, 6, 25, 34);
  for (const DTypeInfo& dtype : dtypes()) {
    for (const std::int64_t width : widths()) {
      for (const ReduceOp reduce_op : {ReduceOp::kSum, ReduceOp::kMax}) {
        expect_width<kernels::CopyLhs>(g, dtype, reduce_op, width, 1);
        expect_width<kernels::Mul>(g, dtype, reduce_op, width, 1);
      }
      expect_width<kernels::Mul>(g, dtype, ReduceOp::kSum, width, width);
      expect_width<kernels::Div>(g, dtype, ReduceOp::kSum, 1, width);
      expect_width<kernels::Dot>(g, dtype, ReduceOp::kSum, width, width);
    }
  }
}

TEST(Properties, every_width_of_edge_messages_is_computed_to_its_last_element) {
  const Topology g = random_topology(7, 6, 25, 35);
  for (const DTypeInfo& dtype : dtypes()) {
    for (const std::int64_t width : widths()) {
      SCOPED_TRACE(fmt::format("{} {} features", dtype.name, width));
      const auto x = integers({7, width}, dtype.scalar, 36);
      const auto y = integers({6, width}, dtype.scalar, 37);
      for (const BinaryOp op : {BinaryOp::kSub, BinaryOp::kDot}) {
        const auto expected = message(g, op, x, y, Target::kSrc, Target::kDst);
        EXPECT_TRUE(exact_rounded(gsddmm(g, op, x, y), expected.value));
      }
      const auto logits = at::zeros({25, width}, on_device(dtype.scalar));
      EXPECT_TRUE(exact_rounded(edge_softmax(g, logits), softmax_reference(g, logits).value));
    }
  }
}

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// Tensors [rows, 6] of every memory layout.
std::vector<NamedTensor> layouts(std::int64_t rows, at::ScalarType dtype, std::uint64_t seed) {
  const auto random = [&](at::IntArrayRef sizes) { return uniform(sizes, dtype, seed, 0.5, 2); };
  return {
      {"transposed", random({6, rows}).t()},
      {"every other column", random({rows, 12}).slice(1, 0, 12, 2)},
      {"every other row", random({2 * rows, 6}).slice(0, 0, 2 * rows, 2)},
      {"one element into its storage", random({rows * 6 + 1}).slice(0, 1).view({rows, 6})},
      {"columns of a wider matrix", random({rows, 9}).slice(1, 3, 9)},
      {"one row for all", random({1, 6}).expand({rows, 6})},
      {"one column for all", random({rows, 1}).expand({rows, 6})},
      {"one number for all", random({1, 1}).expand({rows, 6})},
  };
}

/// A leaf with the same layout.
at::Tensor leaf_as_it_is(const at::Tensor& tensor) {
  return tensor.detach().set_requires_grad(true);
}

TEST(Properties, operands_and_gradients_in_any_layout_give_the_bits_of_dense_ones) {
  const Topology g = random_topology(20, 15, 80, 51, 2.0);
  for (const DTypeInfo& dtype : dtypes()) {
    for (std::size_t i = 0; i < layouts(1, dtype.scalar, 1).size(); ++i) {
      const auto [name, x] = layouts(20, dtype.scalar, 1)[i];
      const at::Tensor w = layouts(80, dtype.scalar, 2)[i].tensor;
      const at::Tensor grad = layouts(15, dtype.scalar, 3)[i].tensor;
      for_each(BinaryOps{}, [&]<class Op>() {
        for_each(ReduceOps{}, [&]<class Reduce>() {
          SCOPED_TRACE(fmt::format("{} {} {} {}", dtype.name, Op::name, Reduce::name, name));
          const at::Tensor a = leaf_as_it_is(x), b = leaf_as_it_is(w);
          const at::Tensor c = leaf(x.contiguous()), d = leaf(w.contiguous());
          const at::Tensor cut = Op::kind == BinaryOp::kDot ? grad.slice(1, 2, 3) : grad;
          const at::Tensor strided = gspmm(g, Op::kind, Reduce::kind, a, b);
          const at::Tensor dense = gspmm(g, Op::kind, Reduce::kind, c, d);
          ASSERT_TRUE(same_bits(strided, dense));
          strided.backward(cut);
          dense.backward(cut.contiguous());
          if (Op::uses_lhs) {
            EXPECT_TRUE(same_bits(a.grad(), c.grad()));
          }
          if (Op::uses_rhs) {
            EXPECT_TRUE(same_bits(b.grad(), d.grad()));
          }
        });
      });
      EXPECT_TRUE(same_bits(edge_softmax(g, w), edge_softmax(g, w.contiguous()))) << name;
      const auto y = layouts(15, dtype.scalar, 4)[i].tensor;
      EXPECT_TRUE(same_bits(gsddmm(g, BinaryOp::kDiv, x, y),
                            gsddmm(g, BinaryOp::kDiv, x.contiguous(), y.contiguous())))
          << name;
    }
  }
}

TEST(Properties, attention_in_any_layout_has_the_bits_of_dense_operands) {
  const Topology g = random_topology(20, 15, 80, 52, 2.0);
  for (const DTypeInfo& dtype : dtypes()) {
    for (std::size_t i = 0; i < layouts(1, dtype.scalar, 1).size(); ++i) {
      const auto [name, x] = layouts(20, dtype.scalar, 1)[i];
      SCOPED_TRACE(dtype.name + " " + name);
      const auto by_head = [&](std::int64_t rows, std::uint64_t seed) {
        return layouts(rows, dtype.scalar, seed)[i].tensor.slice(1, 1, 3);
      };
      const std::vector<at::Tensor> inputs = {x.unflatten(1, {2, 3}), by_head(20, 2),
                                              by_head(15, 3), by_head(80, 4)};
      const at::Tensor grad = layouts(15, dtype.scalar, 5)[i].tensor.unflatten(1, {2, 3});
      std::vector<at::Tensor> strided, dense;
      for (const at::Tensor& one : inputs) {
        strided.push_back(leaf_as_it_is(one));
        dense.push_back(leaf(one.contiguous()));
      }
      const auto run = [&](const std::vector<at::Tensor>& in) {
        return gat_attention(g, in[0], in[1], in[2], {.edge_weight = in[3]});
      };
      const at::Tensor out = run(strided), expected = run(dense);
      ASSERT_TRUE(same_bits(out, expected));
      out.backward(grad);
      expected.backward(grad.contiguous());
      for (std::size_t k = 0; k < inputs.size(); ++k) {
        EXPECT_TRUE(same_bits(strided[k].grad(), dense[k].grad())) << "operand " << k;
      }
    }
  }
}

// Lifetime of the tensors saved for the backward.

struct NamedOp {
  std::string name;
  std::function<at::Tensor(const Topology&, const at::Tensor&, const at::Tensor&)> run;
};

/// One op of each kind of source features [N, 4, 3] and edge features [E, 4, 1].
std::vector<NamedOp> ops() {
  std::vector<NamedOp> all;
  for_each(ReduceOps{}, [&]<class Reduce>() {
    all.push_back({"gspmm", [](const auto& g, const auto& x, const auto& w) {
                     return gspmm(g, BinaryOp::kMul, Reduce::kind, x, w);
                   }});
  });
  all.push_back({"gsddmm", [](const auto& g, const auto& x, const auto& w) {
                   return gsddmm(g, BinaryOp::kDiv, x, w, Target::kSrc, Target::kEdge);
                 }});
  all.push_back({"edge_softmax", [](const auto& g, const auto& x, const auto& w) {
                   return edge_softmax(g, w) * x.sum();
                 }});
  all.push_back({"scaled_sum", [](const auto& g, const auto& x, const auto& w) {
                   return scaled_sum(g, x, w.select(1, 0), std::nullopt, std::nullopt);
                 }});
  // Rows of w are the scores of nodes; its 360 numbers are also three matrices.
  all.push_back({"gat_attention", [](const auto& g, const auto& x, const auto& w) {
                   return gat_attention(g, x, w.slice(0, 0, 30).squeeze(2),
                                        w.slice(0, 30, 60).squeeze(2),
                                        {.edge_weight = w.squeeze(2)});
                 }});
  all.push_back({"gatv2_scores", [](const auto& g, const auto& x, const auto& w) {
                   return gatv2_scores(g, x, x, w.slice(0, 0, 3).squeeze(2).t(), 0.2);
                 }});
  all.push_back({"segment_reduce", [](const auto&, const auto& x, const auto& w) {
                   return segment_reduce(ReduceOp::kProd, ids({10, 0, 20}), x) * w.sum();
                 }});
  all.push_back({"segment_softmax", [](const auto&, const auto& x, const auto& w) {
                   return segment_softmax(ids({40, 0, 50}), w) * x.sum();
                 }});
  all.push_back({"segment_mm", [](const auto&, const auto& x, const auto& w) {
                   return segment_mm(x.flatten(1), w.view({3, 12, 10}), ids({10, 0, 20}));
                 }});
  all.push_back({"gather_mm", [](const auto&, const auto& x, const auto& w) {
                   return gather_mm(x.flatten(1), w.view({3, 12, 10}),
                                    at::arange(30, on_device(at::kLong)).remainder(3));
                 }});
  all.push_back({"linear", [](const auto&, const auto& x, const auto& w) {
                   return mezzo::linear(x.flatten(1), w.view({30, 12}));
                 }});
  return all;
}

struct Leaves {
  Leaves()
      : x(leaf(uniform({30, 4, 3}, at::kFloat, 61))),
        w(leaf(uniform({90, 4, 1}, at::kFloat, 62, 1, 2))) {}
  at::Tensor x, w;
};

Topology thirty_nodes() {
  return random_topology(30, 30, 90, 63);
}

TEST(Properties, the_backward_keeps_the_structure_that_it_needs) {
  for (const NamedOp& op : ops()) {
    SCOPED_TRACE(op.name);
    const Leaves retained, released;
    const Topology g = thirty_nodes();
    op.run(g, retained.x, retained.w).sum().backward();
    std::optional<Topology> other = thirty_nodes();
    const at::Tensor out = op.run(*other, released.x, released.w);
    other.reset();
    out.sum().backward();
    EXPECT_TRUE(same_bits(released.x.grad(), retained.x.grad()));
    EXPECT_TRUE(same_bits(released.w.grad(), retained.w.grad()));
  }
}

TEST(Properties, a_second_backward_through_a_retained_graph_adds_the_same_again) {
  for (const NamedOp& op : ops()) {
    SCOPED_TRACE(op.name);
    const Leaves once, twice;
    const Topology g = thirty_nodes();
    op.run(g, once.x, once.w).sum().backward();
    const at::Tensor loss = op.run(g, twice.x, twice.w).sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    EXPECT_TRUE(same_bits(twice.x.grad(), 2 * once.x.grad()));
    EXPECT_TRUE(same_bits(twice.w.grad(), 2 * once.w.grad()));
  }
}

TEST(Properties, a_second_backward_through_a_freed_graph_is_libtorchs_error) {
  for (const NamedOp& op : ops()) {
    SCOPED_TRACE(op.name);
    const Leaves in;
    const at::Tensor out = op.run(thirty_nodes(), in.x, in.w);
    out.sum().backward();
    EXPECT_TRUE(mentions(error_of<std::exception>([&] { out.sum().backward(); }), "secondtime"));
  }
}

TEST(Properties, a_second_derivative_is_a_clear_error) {
  for (const NamedOp& op : ops()) {
    SCOPED_TRACE(op.name);
    const Leaves in;
    const at::Tensor loss = op.run(thirty_nodes(), in.x, in.w).sum();
    const std::string text = error_of<std::exception>([&] {
      torch::autograd::grad({loss}, {in.x, in.w}, {}, std::nullopt, /*create_graph=*/true);
    });
    // Reductions and the softmax of segments are those of a graph.
    const std::string name = op.name == "segment_reduce"    ? "gspmm"
                             : op.name == "segment_softmax" ? "edge_softmax"
                                                            : op.name;
    EXPECT_TRUE(mentions(text, name + ":secondderivatives"));
  }
}

TEST(Properties, an_operand_that_the_backward_reads_may_not_change_before_it) {
  for (const NamedOp& op : ops()) {
    SCOPED_TRACE(op.name);
    const Leaves in;
    const at::Tensor x = in.x * 1, w = in.w * 1;
    const at::Tensor loss = op.run(thirty_nodes(), x, w).sum();
    x.mul_(2);
    w.mul_(2);
    if (op.name.ends_with("_softmax")) continue;  // it reads its own result
    EXPECT_TRUE(mentions(error_of<std::exception>([&] { loss.backward(); }), "inplace"));
  }
}

TEST(Properties, inference_gives_the_same_bits_and_records_nothing) {
  for (const NamedOp& op : ops()) {
    SCOPED_TRACE(op.name);
    const Leaves in;
    const at::Tensor trained = op.run(thirty_nodes(), in.x, in.w);
    EXPECT_TRUE(trained.requires_grad());
    const c10::InferenceMode inference;
    const at::Tensor inferred = op.run(thirty_nodes(), in.x, in.w);
    EXPECT_FALSE(inferred.requires_grad());
    EXPECT_TRUE(same_bits(inferred, trained));
  }
}

}  // namespace
}  // namespace mezzo::test
