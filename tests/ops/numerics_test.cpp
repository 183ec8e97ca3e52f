// The numerical guarantees of the operators.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include <fmt/ranges.h>

#include "mezzo/ops/ops.h"
#include "mezzo/runtime/memory.h"

#include "support/reference.h"
#include "support/special_numbers.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

using mezzo::detail::for_each;

/// uniform(), cached, because generating takes longer than the operators.
const at::Tensor& operand(at::IntArrayRef sizes, at::ScalarType dtype, std::uint64_t seed,
                          double low = -1, double high = 1) {
  static std::map<std::string, at::Tensor> drawn;
  at::Tensor& one = drawn[fmt::format("{} {} {} {} {}", fmt::join(sizes, ","), at::toString(dtype),
                                      seed, low, high)];
  if (!one.defined()) one = uniform(sizes, dtype, seed, low, high);
  return one;
}

/// A result and its operands' gradients.
using Tensors = std::vector<at::Tensor>;

Tensors with_gradients(const at::Tensor& out, const Tensors& leaves) {
  out.backward(operand(out.sizes(), out.scalar_type(), 77));
  Tensors all = {out.detach()};
  for (const at::Tensor& one : leaves) all.push_back(one.grad());
  return all;
}

/// Every operation with its gradients on one graph, by name.
struct NamedRun {
  std::string name;
  std::function<Tensors(const Topology&, at::ScalarType)> run;
};

std::vector<NamedRun> all_runs() {
  std::vector<NamedRun> runs;
  const auto x_of = [](const Topology& g, at::ScalarType dtype) {
    return leaf(operand(shape(g, Target::kSrc, {4, 9}), dtype, 1));
  };
  const auto w_of = [](const Topology& g, at::ScalarType dtype) {
    return leaf(operand(shape(g, Target::kEdge, {4, 1}), dtype, 2, 0.5, 2));
  };
  for_each(BinaryOps{}, [&]<class Op>() {
    for_each(ReduceOps{}, [&]<class Reduce>() {
      if (Op::kind == BinaryOp::kDot) return;
      runs.push_back({fmt::format("gspmm {} {}", Op::name, Reduce::name),
                      [=](const Topology& g, at::ScalarType dtype) {
                        const auto x = x_of(g, dtype), w = w_of(g, dtype);
                        Tensors leaves;
                        if (Op::uses_lhs) leaves.push_back(x);
                        if (Op::uses_rhs) leaves.push_back(w);
                        return with_gradients(gspmm(g, Op::kind, Reduce::kind, x, w), leaves);
                      }});
    });
    for_each(ReduceOps{}, [&]<class Reduce>() {
      if (!Op::uses_lhs || !Op::uses_rhs) return;
      runs.push_back(
          {fmt::format("gspmm {} {} of both nodes", Op::name, Reduce::name),
           [=](const Topology& g, at::ScalarType dtype) {
             const auto x = x_of(g, dtype);
             const auto y = leaf(operand(shape(g, Target::kDst, {4, 9}), dtype, 6, 0.5, 2));
             return with_gradients(
                 gspmm(g, Op::kind, Reduce::kind, x, y, Target::kSrc, Target::kDst), {x, y});
           }});
    });
    runs.push_back(
        {fmt::format("gsddmm {}", Op::name), [=](const Topology& g, at::ScalarType dtype) {
           const auto x = x_of(g, dtype);
           const auto y = leaf(operand(shape(g, Target::kDst, {4, 9}), dtype, 3, 0.5, 2));
           Tensors leaves;
           if (Op::uses_lhs) leaves.push_back(x);
           if (Op::uses_rhs) leaves.push_back(y);
           return with_gradients(gsddmm(g, Op::kind, x, y), leaves);
         }});
  });
  for (const NormalizeBy by : {NormalizeBy::kDst, NormalizeBy::kSrc}) {
    runs.push_back({"edge_softmax", [=](const Topology& g, at::ScalarType dtype) {
                      const auto w = w_of(g, dtype);
                      return with_gradients(edge_softmax(g, w, by), {w});
                    }});
  }
  runs.push_back({"scaled_sum", [=](const Topology& g, at::ScalarType dtype) {
                    const auto x = x_of(g, dtype);
                    const auto w = leaf(operand(shape(g, Target::kEdge, {}), dtype, 2));
                    const auto accum = dtype == at::kDouble ? at::kDouble : at::kFloat;
                    const auto s = operand(shape(g, Target::kSrc, {}), accum, 4);
                    const auto d = operand(shape(g, Target::kDst, {}), accum, 5);
                    return with_gradients(scaled_sum(g, x, w, s, d), {x, w});
                  }});
  for_each(ReduceOps{}, [&]<class Reduce>() {
    runs.push_back({fmt::format("segment_reduce {}", Reduce::name),
                    [=](const Topology& g, at::ScalarType dtype) {
                      const auto x = leaf(operand(shape(g, Target::kEdge, {20}), dtype, 7));
                      return with_gradients(segment_reduce(Reduce::kind, g.in_degrees(), x), {x});
                    }});
  });
  runs.push_back(
      {"gat_attention", [=](const Topology& g, at::ScalarType dtype) {
         const auto x = x_of(g, dtype), w = w_of(g, dtype);
         const auto src = leaf(operand(shape(g, Target::kSrc, {4}), dtype, 8));
         const auto dst = leaf(operand(shape(g, Target::kDst, {4}), dtype, 9));
         at::manual_seed(10);
         return with_gradients(
             gat_attention(g, x, src, dst,
                           {.dropout = 0.5, .training = true, .edge_weight = w.squeeze(2)}),
             {x, src, dst, w});
       }});
  for (const std::int64_t features : {7, 64}) {
    runs.push_back(
        {"gatv2_scores", [=](const Topology& g, at::ScalarType dtype) {
           const auto src = leaf(operand(shape(g, Target::kSrc, {4, features}), dtype, 8));
           const auto dst = leaf(operand(shape(g, Target::kDst, {4, features}), dtype, 9));
           const auto attn = leaf(operand({4, features}, dtype, 10));
           return with_gradients(gatv2_scores(g, src, dst, attn), {src, dst, attn});
         }});
  }
  return runs;
}

testing::AssertionResult all_same_bits(const Tensors& a, const Tensors& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto one = same_bits(a[i], b[i]);
    if (!one) return testing::AssertionFailure() << "tensor " << i << ": " << one.message();
  }
  return testing::AssertionSuccess();
}

TEST(Numerics, same_bits_for_any_number_of_threads_and_from_run_to_run) {
  for (const DTypeInfo& dtype : dtypes()) {
    for (const NamedRun& one : all_runs()) {
      SCOPED_TRACE(dtype.name + " " + one.name);
      const auto on_threads = [&](int count) {
        const ThreadCount threads(count);
        EXPECT_EQ(at::get_num_threads(), count);
        return one.run(large_power_law(), dtype.scalar);
      };
      const Tensors on_one = on_threads(1);
      EXPECT_TRUE(all_same_bits(on_one, on_threads(2)));
      EXPECT_TRUE(all_same_bits(on_one, on_threads(3)));
      EXPECT_TRUE(all_same_bits(on_one, on_threads(3)));
    }
  }
}

TEST(Numerics, same_bits_for_narrow_and_wide_ids) {
  const Topology int32 = random_topology(60, 50, 500, 81, 3.0, IdWidth::kInt32);
  const Topology int64 = random_topology(60, 50, 500, 81, 3.0, IdWidth::kInt64);
  ASSERT_EQ(int32.id_dtype(), at::kInt);
  ASSERT_EQ(int64.id_dtype(), at::kLong);
  for (const DTypeInfo& dtype : dtypes()) {
    for (const NamedRun& one : all_runs()) {
      SCOPED_TRACE(dtype.name + " " + one.name);
      EXPECT_TRUE(all_same_bits(one.run(int32, dtype.scalar), one.run(int64, dtype.scalar)));
    }
  }
}

TEST(Numerics, the_same_edges_in_another_stored_form_give_the_same_bits) {
  const Topology& g = large_power_law();
  const Adjacency& rows = g.csr();
  const auto from_csr = Topology::from_csr(rows.indptr, rows.indices, g.num_dst(), rows.edge_ids);
  const auto through_reverse = g.reverse().reverse();
  for (const DTypeInfo& dtype : dtypes()) {
    const auto x = uniform({g.num_src(), 8}, dtype.scalar, 1);
    const auto w = uniform({g.num_edges(), 1}, dtype.scalar, 2);
    const auto sum = [&](const Topology& t) {
      return gspmm(t, BinaryOp::kMul, ReduceOp::kSum, x, w);
    };
    EXPECT_TRUE(same_bits(sum(g), sum(from_csr))) << dtype.name;
    EXPECT_TRUE(same_bits(sum(g), sum(through_reverse))) << dtype.name;
  }
}

TEST(Numerics, a_nan_reaches_exactly_the_nodes_it_is_sent_to) {
  // Edges 0->1, 0->2, 1->2, 3->2: messages of node 1 reach node 2 only.
  for (const DTypeInfo& dtype : dtypes()) {
    for_each(ReduceOps{}, [&]<class Reduce>() {
      for (std::int64_t width : {1, 3, 40}) {
        SCOPED_TRACE(fmt::format("{} {} width {}", dtype.name, Reduce::name, width));
        const auto column = numbers({1, kNaN, 3, 4}, dtype.scalar).unsqueeze(1);
        const auto x = column.expand({4, width});
        const auto w = at::ones({4, 1}, on_device(dtype.scalar));
        const auto expected = numbers({0, 1, kNaN, 0}).unsqueeze(1).expand({4, width});
        EXPECT_TRUE(exact(gspmm(four_nodes(), BinaryOp::kCopyLhs, Reduce::kind, x, std::nullopt),
                          expected));
        EXPECT_TRUE(exact(gspmm(four_nodes(), BinaryOp::kMul, Reduce::kind, x, w), expected));
      }
    });
  }
}

TEST(Numerics, a_nan_wins_max_and_min_wherever_it_stands_and_gets_the_gradient) {
  for (const DTypeInfo& dtype : dtypes()) {
    for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
      for (std::int64_t place = 0; place < 3; ++place) {
        SCOPED_TRACE(fmt::format("{} place {}", dtype.name, place));
        at::Tensor x = numbers({1, kInf, -kInf}, dtype.scalar);
        x[place] = kNaN;
        // Rows of 215 elements use blocks of every size.
        for (const std::int64_t width : {1, 215}) {
          const auto input = leaf(x.unsqueeze(1).repeat({1, width}));
          const auto out = gspmm(in_star(3), BinaryOp::kCopyLhs, op, input, std::nullopt);
          EXPECT_TRUE(exact(out, numbers({kNaN}).unsqueeze(1).expand({1, width})));
          out.backward(at::ones_like(out));
          at::Tensor expected = at::zeros({3, width}, on_device());
          expected[place] = 1;
          EXPECT_TRUE(exact(input.grad(), expected));
        }
      }
    }
  }
}

TEST(Numerics, infinities_survive_every_reducer) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto reduced = [&](ReduceOp op, const std::vector<double>& x) {
      const auto count = static_cast<std::int64_t>(x.size());
      return gspmm(in_star(count), BinaryOp::kCopyLhs, op, numbers(x, dtype.scalar), std::nullopt);
    };
    EXPECT_TRUE(exact(reduced(ReduceOp::kMax, {1, kInf}), numbers({kInf})));
    EXPECT_TRUE(exact(reduced(ReduceOp::kMax, {-kInf, -kInf}), numbers({-kInf})));
    EXPECT_TRUE(exact(reduced(ReduceOp::kMin, {1, -kInf}), numbers({-kInf})));
    EXPECT_TRUE(exact(reduced(ReduceOp::kMin, {kInf, kInf}), numbers({kInf})));
    EXPECT_TRUE(exact(reduced(ReduceOp::kSum, {1, -kInf}), numbers({-kInf})));
    EXPECT_TRUE(exact(reduced(ReduceOp::kSum, {kInf, -kInf}), numbers({kNaN})));
    EXPECT_TRUE(exact(reduced(ReduceOp::kMean, {1, kInf}), numbers({kInf})));
  }
}

TEST(Numerics, the_gradient_of_an_infinite_extreme_goes_to_its_edge) {
  for (const DTypeInfo& dtype : dtypes()) {
    const auto x = leaf(numbers({-kInf, -kInf, -kInf}, dtype.scalar));
    gspmm(in_star(3), BinaryOp::kCopyLhs, ReduceOp::kMax, x, std::nullopt).sum().backward();
    EXPECT_TRUE(exact(x.grad(), numbers({1, 0, 0}))) << dtype.name;
  }
}

TEST(Numerics, overflow_becomes_an_infinity_that_the_scaler_can_see) {
  const auto large = at::full({2, 1}, 60000, on_device()).to(at::kHalf);
  EXPECT_TRUE(exact(gspmm(in_star(2), BinaryOp::kCopyLhs, ReduceOp::kSum, large, std::nullopt),
                    at::full({1, 1}, kInf)));
  EXPECT_TRUE(exact(
      gsddmm(in_star(2), BinaryOp::kMul, large, at::full({1, 1}, 60000, on_device()).to(at::kHalf)),
      at::full({2, 1}, kInf)));
  const auto x = leaf(large);
  const auto w = at::full({2, 1}, 60000, on_device()).to(at::kHalf);
  const auto out = gspmm(in_star(2), BinaryOp::kMul, ReduceOp::kSum, x, w);
  out.backward(at::full({1, 1}, 2, on_device()).to(at::kHalf));
  EXPECT_TRUE(exact(x.grad(), at::full({2, 1}, kInf)));
}

TEST(Numerics, a_gradient_that_is_not_finite_passes_through) {
  const auto x = leaf(at::ones({4}, on_device(at::kFloat)));
  gspmm(four_nodes(), BinaryOp::kCopyLhs, ReduceOp::kSum, x, std::nullopt)
      .backward(numbers({5, kInf, kNaN, 7}, at::kFloat));
  EXPECT_TRUE(exact(x.grad(), numbers({kNaN, kNaN, 0, kNaN})));
}

TEST(Numerics, subnormal_numbers_are_kept) {
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto smallest = numbers({dtype.smallest, dtype.smallest}, dtype.scalar);
    EXPECT_TRUE(exact(gspmm(in_star(2), BinaryOp::kCopyLhs, ReduceOp::kSum, smallest, std::nullopt),
                      numbers({2 * dtype.smallest})));
    EXPECT_TRUE(exact(gspmm(in_star(2), BinaryOp::kCopyLhs, ReduceOp::kMax, smallest, std::nullopt),
                      numbers({dtype.smallest})));
  }
}

/// The peak memory of `run` in bytes, less the memory in use before it.
template <class Run>
std::int64_t extra_bytes(Run run) {
  reset_peak_memory(test_device());
  const std::int64_t before = peak_memory_bytes(test_device());
  run();
  return peak_memory_bytes(test_device()) - before;
}

TEST(Memory, the_peak_counts_what_lives_at_once) {
  constexpr std::int64_t bytes = std::int64_t{1} << 20;
  const auto both = extra_bytes([] {
    const auto a = at::empty({bytes}, on_device(at::kByte)),
               b = at::empty({bytes}, on_device(at::kByte));
  });
  const auto one_after_the_other = extra_bytes([] {
    at::empty({bytes}, on_device(at::kByte));
    at::empty({bytes}, on_device(at::kByte));
  });
  EXPECT_GE(both, 2 * bytes);
  EXPECT_GE(one_after_the_other, bytes);
  EXPECT_LT(one_after_the_other, 2 * bytes);
}

/// The options of an attention.
struct AttentionCase {
  std::string name;
  double dropout = 0;
  std::int64_t weights = 0;     ///< per edge: 0, 1, or one per head
  bool weights_wanted = false;  ///< whether they require a gradient
};

/// The peak number of accumulators per edge in the backward: one per head for the gradient of the
/// summed scores; for the weights their gradient in CSR order, and with it first the heads'
/// accumulators, then, after these are freed, the gradient in edge-id order.
std::int64_t numbers_of_edge(const AttentionCase& one, std::int64_t heads) {
  return one.weights_wanted ? one.weights + std::max(heads, one.weights) : heads;
}

/// Limits in bytes of the forward and of forward and backward of an attention on 50 nodes.
void expect_few_numbers(const AttentionCase& one, const DTypeInfo& dtype) {
  constexpr std::int64_t num_edges = 20000, heads = 4, width = 32;
  static const Topology g = random_topology(50, 50, num_edges, 83);
  const auto z = leaf(uniform({50, heads, width}, dtype.scalar, 1));
  const auto src = leaf(uniform({50, heads}, dtype.scalar, 2));
  const auto dst = leaf(uniform({50, heads}, dtype.scalar, 3));
  at::Tensor weight;
  if (one.weights == 1) weight = uniform({num_edges}, dtype.scalar, 4);
  if (one.weights == heads) weight = uniform({num_edges, heads}, dtype.scalar, 4);
  std::vector<at::Tensor> leaves = {z, src, dst};
  if (one.weights_wanted) leaves.push_back(weight.set_requires_grad(true));
  const auto run = [&] {
    return gat_attention(
        g, z, src, dst,
        {.negative_slope = 0.2, .dropout = one.dropout, .training = true, .edge_weight = weight});
  };
  run().sum().backward();  // builds what the topology caches
  for (const at::Tensor& t : leaves) t.mutable_grad() = at::Tensor();
  const std::int64_t number = dtype.scalar == at::kDouble ? 8 : 4;
  // Memory for nodes is less than half a number per edge and head.
  const std::int64_t of_nodes = num_edges * heads * number / 2;
  EXPECT_LT(extra_bytes(run), of_nodes);
  EXPECT_LT(extra_bytes([&] { run().sum().backward(); }),
            num_edges * number * numbers_of_edge(one, heads) + of_nodes);
}

TEST(Memory, attention_makes_numbers_of_edges_in_the_backward_alone_and_no_more_than_it_needs) {
  const ThreadCount threads(2);
  const std::vector<AttentionCase> cases = {
      {"plain", 0, 0, false},
      {"dropout", 0.5, 0, false},
      {"one weight an edge", 0, 1, false},
      {"a weight a head", 0, 4, false},
      {"one weight an edge, wanted", 0, 1, true},
      {"a weight a head, wanted", 0, 4, true},
      {"a weight a head, wanted, and dropout", 0.5, 4, true},
  };
  for (const AttentionCase& one : cases) {
    for (const DTypeInfo& dtype : dtypes()) {
      SCOPED_TRACE(dtype.name + " " + one.name);
      expect_few_numbers(one, dtype);
    }
  }
}

TEST(Memory, no_operation_makes_a_message_for_every_edge) {
  constexpr std::int64_t num_edges = 5000, heads = 4, width = 32;
  const Topology g = random_topology(50, 50, num_edges, 82);
  g.csr();
  g.csc();
  const ThreadCount threads(2);
  for (const DTypeInfo& dtype : dtypes()) {
    const auto x = leaf(uniform({50, heads, width}, dtype.scalar, 1));
    const auto w = leaf(uniform({num_edges, heads, 1}, dtype.scalar, 2, 0.5, 2));
    const auto y = leaf(uniform({50, heads, width}, dtype.scalar, 3, 0.5, 2));
    const std::int64_t message_bytes = num_edges * heads * width * x.element_size();
    const auto expect_small = [&](const std::string& what, const auto& run) {
      EXPECT_LT(extra_bytes([&] { run().sum().backward(); }), message_bytes / 2)
          << dtype.name << " " << what;
      for (const at::Tensor& one : {x, w, y}) one.mutable_grad() = at::Tensor();
    };
    for_each(BinaryOps{}, [&]<class Op>() {
      for_each(ReduceOps{}, [&]<class Reduce>() {
        const std::string name = std::string(Op::name) + " " + std::string(Reduce::name);
        if (Op::uses_lhs && Op::kind != BinaryOp::kDot) {
          expect_small("u_e " + name, [&] { return gspmm(g, Op::kind, Reduce::kind, x, w); });
        }
        if (Op::uses_lhs && Op::uses_rhs) {
          expect_small("u_v " + name, [&] {
            return gspmm(g, Op::kind, Reduce::kind, x, y, Target::kSrc, Target::kDst);
          });
        }
      });
    });
    expect_small("dot", [&] { return gsddmm(g, BinaryOp::kDot, x, y); });
    expect_small("softmax", [&] { return edge_softmax(g, w); });
    const auto weight = leaf(uniform({num_edges}, dtype.scalar, 2));
    expect_small("scaled_sum", [&] { return scaled_sum(g, x, weight, {}, {}); });
  }
}

// float32 edges beside 16-bit nodes.

TEST(MixedOperands, float32_edges_beside_narrow_nodes_are_not_rounded) {
  // 1 + 2^-12 does not fit 16 bits; times 4096 the difference is one.
  const Topology g = topology_of({0, 1}, {0, 0}, 2, 1);
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto x = numbers({4096, -4096}, dtype.scalar);
    const auto w = numbers({1 + 0x1p-12, 1}, at::kFloat);
    const auto out = gspmm(g, BinaryOp::kMul, ReduceOp::kSum, x, w);
    EXPECT_TRUE(exact(out, numbers({1})));
    EXPECT_EQ(out.scalar_type(), dtype.scalar);
  }
}

TEST(MixedOperands, have_the_values_and_gradients_of_the_definition) {
  for (const NamedTopology& g : topologies()) {
    for (const DTypeInfo& dtype : narrow_dtypes()) {
      for_each(BinaryOps{}, [&]<class Op>() {
        if (!Op::uses_lhs || !Op::uses_rhs) return;
        for_each(ReduceOps{}, [&]<class Reduce>() {
          for (const bool edge_first : {false, true}) {
            SCOPED_TRACE(fmt::format("{} {} {} on {}, edge first: {}", dtype.name, Op::name,
                                     Reduce::name, g.name, edge_first));
            const auto lhs_target = edge_first ? Target::kEdge : Target::kSrc;
            const auto rhs_target = edge_first ? Target::kSrc : Target::kEdge;
            const auto lhs_type = edge_first ? at::kFloat : dtype.scalar;
            const auto rhs_type = edge_first ? dtype.scalar : at::kFloat;
            const auto a = leaf(integers(shape(g.topology, lhs_target, {3, 2}), lhs_type, 1));
            const auto b = leaf(divisors(shape(g.topology, rhs_target, {1, 2}), rhs_type, 2));
            const auto out =
                gspmm(g.topology, Op::kind, Reduce::kind, a, b, lhs_target, rhs_target);
            EXPECT_EQ(out.scalar_type(), dtype.scalar);
            const auto expected =
                gspmm_reference(g.topology, Op::kind, Reduce::kind, a, b, lhs_target, rhs_target);
            const auto grad = integers(out.sizes(), dtype.scalar, 3);
            out.backward(grad);
            const auto gradients = gspmm_gradients(g.topology, Op::kind, Reduce::kind, a, b, grad,
                                                   lhs_target, rhs_target);
            const bool exactly = !rounds_between(Reduce::kind);
            EXPECT_TRUE(agrees(out, expected, exactly));
            expect_operand_gradients(a, b, gradients, exactly);
          }
        });
      });
    }
  }
}

TEST(MixedOperands, make_edge_values_of_both_too) {
  const Topology g = random_topology(20, 20, 80, 83);
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    const auto x = integers({20, 5}, dtype.scalar, 1);
    const auto w = integers({80, 5}, at::kFloat, 2);
    const auto out = gsddmm(g, BinaryOp::kMul, x, w, Target::kSrc, Target::kEdge);
    const auto expected = message(g, BinaryOp::kMul, x, w, Target::kSrc, Target::kEdge);
    EXPECT_TRUE(exact(out, expected.value)) << dtype.name;
  }
}

}  // namespace
}  // namespace mezzo::test
