// Rows with more edges than one chunk (2^15), whose sums are split and merged.
#include <cmath>

#include "mezzo/ops/ops.h"

#include "support/reference.h"
#include "support/special_numbers.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

constexpr std::int64_t kSources = 40, kHubEdges = 100001;

/// Destination 1 has most edges, the others a few, the last none.
Topology hub_topology() {
  const at::Tensor src = at::arange(kHubEdges + 60, on_device(at::kLong)).remainder(kSources);
  at::Tensor dst = at::ones({kHubEdges + 60}, on_device(at::kLong));
  for (std::int64_t i = 0; i < 60; ++i) dst[i * 7] = i % 4;
  return Topology::from_coo(src, dst, kSources, 6);
}

struct Case {
  BinaryOp op;
  ReduceOp reduce;
  std::vector<std::int64_t> lhs, rhs;
};

std::vector<Case> cases() {
  return {{BinaryOp::kCopyLhs, ReduceOp::kSum, {19}, {1}},
          {BinaryOp::kCopyLhs, ReduceOp::kMean, {16}, {1}},
          {BinaryOp::kMul, ReduceOp::kSum, {3, 16}, {3, 1}},
          {BinaryOp::kMul, ReduceOp::kMean, {5}, {1}},
          {BinaryOp::kAdd, ReduceOp::kSum, {5}, {5}},
          {BinaryOp::kCopyLhs, ReduceOp::kMax, {5}, {1}},
          {BinaryOp::kCopyLhs, ReduceOp::kMin, {19}, {1}},
          {BinaryOp::kMul, ReduceOp::kMax, {3, 4}, {3, 1}},
          {BinaryOp::kCopyLhs, ReduceOp::kProd, {5}, {1}},
          {BinaryOp::kMul, ReduceOp::kProd, {5}, {1}},
          {BinaryOp::kCopyRhs, ReduceOp::kProd, {1}, {7}}};
}

at::Tensor with_rows(std::int64_t rows, std::vector<std::int64_t> trailing, at::ScalarType dtype,
                     std::uint64_t seed) {
  trailing.insert(trailing.begin(), rows);
  return integers(trailing, dtype, seed);
}

std::string text_of(const Case& c, const DTypeInfo& dtype) {
  return fmt::format("{} {} {}", dtype.name, name_of(BinaryOps{}, c.op),
                     name_of(ReduceOps{}, c.reduce));
}

/// The operands of a case on hub_topology(), float64.
struct HubOperands {
  at::Tensor x, y;
};

/// 1 and -1.
at::Tensor random_signs(const at::Tensor& like, std::uint64_t seed) {
  return integers(like.sizes(), at::kDouble, seed, 0, 1) * 2 - 1;
}

/// Integers; for a product 1 and -1, and a 2 on six of the edges.
HubOperands whole_operands(const Case& c, std::int64_t num_edges) {
  HubOperands operands{with_rows(kSources, c.lhs, at::kDouble, 1),
                       with_rows(num_edges, c.rhs, at::kDouble, 2)};
  if (c.reduce != ReduceOp::kProd) return operands;
  operands = {random_signs(operands.x, 1), random_signs(operands.y, 2)};
  operands.y.slice(0, 0, num_edges, kHubEdges / 5).mul_(2);
  return operands;
}

/// Real numbers; for a product 1 and -1 at the sources and numbers near 1 at the edges, so that the
/// product of 10^5 of them stays in range.
HubOperands any_operands(const Case& c, std::int64_t num_edges) {
  const HubOperands like = whole_operands(c, num_edges);
  if (c.reduce == ReduceOp::kProd) {
    return {random_signs(like.x, 3), uniform(like.y.sizes(), at::kDouble, 4, 0.99, 1.01)};
  }
  return {uniform(like.x.sizes(), at::kDouble, 3), uniform(like.y.sizes(), at::kDouble, 4)};
}

TEST(HubRows, are_the_definition) {
  const Topology g = hub_topology();
  for (const Case& c : cases()) {
    const HubOperands in = whole_operands(c, g.num_edges());
    const Reference expected = gspmm_reference(g, c.op, c.reduce, in.x, in.y);
    for (const DTypeInfo& dtype : dtypes()) {
      SCOPED_TRACE(text_of(c, dtype));
      const at::Tensor got = gspmm(g, c.op, c.reduce, in.x.to(dtype.scalar), in.y.to(dtype.scalar));
      EXPECT_TRUE(agrees(got, expected, /*exactly=*/c.reduce != ReduceOp::kMean));
      if (c.reduce == ReduceOp::kProd) {
        EXPECT_TRUE(got[1].ne(0).all().item<bool>());
      }
    }
  }
}

TEST(HubRows, and_their_gradients_have_the_same_bits_for_any_number_of_threads) {
  const Topology g = hub_topology();
  for (const Case& c : cases()) {
    const HubOperands in = any_operands(c, g.num_edges());
    for (const DTypeInfo& dtype : dtypes()) {
      SCOPED_TRACE(text_of(c, dtype));
      const auto run = [&](int threads) {
        const ThreadCount count(threads);
        const at::Tensor x = leaf(in.x.to(dtype.scalar)), y = leaf(in.y.to(dtype.scalar));
        const at::Tensor out = gspmm(g, c.op, c.reduce, x, y);
        out.backward(uniform(out.sizes(), dtype.scalar, 5));
        return std::vector<at::Tensor>{out.detach(), x.grad(), y.grad()};
      };
      const std::vector<at::Tensor> alone = run(1);
      EXPECT_TRUE(alone[0][1].isfinite().all().item<bool>());
      EXPECT_TRUE(alone[0][1].ne(0).all().item<bool>());
      for (const int threads : {2, 3}) {
        const std::vector<at::Tensor> others = run(threads);
        for (std::size_t i = 0; i < alone.size(); ++i) {
          ASSERT_EQ(others[i].defined(), alone[i].defined()) << "tensor " << i;
          if (!alone[i].defined()) continue;  // an operand that the op does not use
          EXPECT_TRUE(same_bits(others[i], alone[i])) << "tensor " << i << ", threads " << threads;
        }
      }
    }
  }
}

TEST(HubRows, of_sources_give_the_gradient) {
  const Topology g = hub_topology().reverse();  // source 1 has most of the edges
  const at::Tensor x = leaf(with_rows(6, {7}, at::kFloat, 1));
  const at::Tensor out = gspmm(g, BinaryOp::kCopyLhs, ReduceOp::kSum, x, std::nullopt);
  const at::Tensor grad = with_rows(kSources, {7}, at::kFloat, 2);
  out.backward(grad);
  const Reference expected =
      gspmm_reference(g.reverse(), BinaryOp::kCopyLhs, ReduceOp::kSum, grad, std::nullopt);
  EXPECT_TRUE(exact_rounded(x.grad(), expected.value));
}

TEST(HubRows, take_the_scales_of_a_scaled_sum) {
  const Topology g = hub_topology();
  const at::Tensor x = with_rows(kSources, {9}, at::kFloat, 1);
  const at::Tensor src_scale = at::full({kSources}, 0.5, on_device()),
                   dst_scale = at::full({6}, 0.25, on_device());
  const at::Tensor got = scaled_sum(g, x, std::nullopt, src_scale, dst_scale);
  const Reference expected =
      gspmm_reference(g, BinaryOp::kCopyLhs, ReduceOp::kSum, x, std::nullopt);
  EXPECT_TRUE(exact_rounded(got, expected.value * 0.125));
}

TEST(HubRows, of_equal_extremes_choose_the_first_edge_and_of_any_the_first_nan) {
  const at::Tensor ids = at::arange(kHubEdges, on_device(at::kLong));
  const Topology star = Topology::from_coo(ids, at::zeros_like(ids), kHubEdges, 1);
  constexpr std::int64_t kNan = 70'000, kLast = kHubEdges - 1;
  for (const ReduceOp reduce : {ReduceOp::kMax, ReduceOp::kMin}) {
    for (const DTypeInfo& dtype : dtypes()) {
      SCOPED_TRACE(fmt::format("{} {}", dtype.name, name_of(ReduceOps{}, reduce)));
      // Column 0 is constant, column 1 has its extreme at the last edge, column 2 has two NaNs.
      at::Tensor x = at::ones({kHubEdges, 3}, on_device(dtype.scalar));
      x[kLast][1] = reduce == ReduceOp::kMax ? 2 : -2;
      x[kNan][2] = x[kLast][2] = kNaN;
      x = leaf(x);
      const at::Tensor got = gspmm(star, BinaryOp::kCopyLhs, reduce, x, std::nullopt);
      EXPECT_TRUE(at::equal(got.select(1, 0), at::ones_like(got.select(1, 0))));
      EXPECT_EQ(got[0][1].item<double>(), reduce == ReduceOp::kMax ? 2 : -2);
      EXPECT_TRUE(std::isnan(got[0][2].item<double>()));
      got.backward(at::ones_like(got));
      at::Tensor expected = at::zeros_like(x.grad());
      expected[0][0] = expected[kLast][1] = expected[kNan][2] = 1;
      EXPECT_TRUE(at::equal(x.grad(), expected));
    }
  }
}

/// The maximum relative error of `got`.
double relative_error(const at::Tensor& got, double expected) {
  return (got.detach().to(at::kDouble) - expected).abs().max().item<double>() / expected;
}

TEST(HubRows, keep_their_digits_however_long_they_are) {
  constexpr std::int64_t kEdges = 1'000'000;
  const at::Tensor ids = at::arange(kEdges, on_device(at::kLong)), one = at::zeros_like(ids);
  const Topology star = Topology::from_coo(ids, one, kEdges, 1);
  const Topology spread = star.reverse();  // one source, whose gradient is the long sum
  // A sequential float32 sum of 0.1f gives 100958.
  const double tenth = static_cast<double>(0.1F), sum = tenth * kEdges;
  // Each chunk of 2^15 numbers is one float32 sum; a single sum has an error of 1e-2.
  constexpr double kAllowed = 0x1p15 * 0x1p-24;
  const at::Tensor x = at::full({kEdges, 1, 2}, 0.1, on_device(at::kFloat));

  const at::Tensor flat = at::zeros({kEdges, 1}, on_device(at::kFloat));
  const at::Tensor logit = at::zeros({1, 1}, on_device(at::kFloat));
  EXPECT_LT(relative_error(gat_attention(star, x, flat, logit), tenth), kAllowed);

  const at::Tensor own = at::zeros({1, 2}, on_device(at::kFloat));
  EXPECT_LT(relative_error(gspmm(star, BinaryOp::kAdd, ReduceOp::kSum, x.select(1, 0), own,
                                 Target::kSrc, Target::kDst),
                           sum),
            kAllowed);

  const at::Tensor logits = at::zeros({kEdges, 20}, on_device(at::kFloat));
  EXPECT_LT(relative_error(edge_softmax(star, logits), 1.0 / kEdges), kAllowed);

  for (const bool weighs : {false, true}) {
    const at::Tensor h = leaf(at::ones({1, 2}, on_device(at::kFloat)));
    at::Tensor w = at::full({kEdges, 1}, 0.1, on_device(at::kFloat));
    w.set_requires_grad(weighs);
    gspmm(spread, BinaryOp::kMul, ReduceOp::kSum, h, w).sum().backward();
    EXPECT_LT(relative_error(h.grad(), sum), kAllowed) << "weights' gradient: " << weighs;
  }

  const at::Tensor v = leaf(at::zeros({1, 2}, on_device(at::kFloat)));
  gspmm(star, BinaryOp::kSub, ReduceOp::kSum, x.select(1, 0), v, Target::kSrc, Target::kDst)
      .backward(at::full({1, 2}, 0.1, on_device(at::kFloat)));
  EXPECT_LT(relative_error(-v.grad(), sum), kAllowed);

  const at::Tensor dst = leaf(at::zeros({1, 1, 2}, on_device(at::kFloat)));
  const at::Tensor attn = leaf(at::ones({1, 2}, on_device(at::kFloat)));
  gatv2_scores(star, at::ones({kEdges, 1, 2}, on_device(at::kFloat)), dst, attn, 0.2)
      .backward(at::full({kEdges, 1}, 0.1, on_device(at::kFloat)));
  EXPECT_LT(relative_error(dst.grad(), sum), kAllowed);
  EXPECT_LT(relative_error(attn.grad(), sum), kAllowed);
}

/// One long row among so many that stores of the result bypass the caches; stores of half the
/// result do not.
TEST(HubRows, stand_between_streamed_rows) {
  constexpr std::int64_t kRows = 40000;
  const at::Tensor places = at::arange(3 * kRows, on_device(at::kLong));
  const at::Tensor dst = at::where(places < 2 * kRows, places.remainder(kRows), 7);
  const Topology g = Topology::from_coo(places.remainder(501), dst, 501, kRows);
  for (const DTypeInfo& dtype : dtypes()) {
    for (const BinaryOp op : {BinaryOp::kCopyLhs, BinaryOp::kMul}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype.name, name_of(BinaryOps{}, op)));
      const at::Tensor x = integers({501, 128}, dtype.scalar, 1);
      const at::Tensor weight = integers({g.num_edges(), 1}, dtype.scalar, 2);
      const at::Tensor whole = gspmm(g, op, ReduceOp::kSum, x, weight);
      for (std::int64_t first = 0; first < 128; first += 8) {
        const at::Tensor part = x.slice(1, first, first + 8).contiguous();
        EXPECT_TRUE(at::equal(whole.slice(1, first, first + 8),
                              gspmm(g, op, ReduceOp::kSum, part, weight)));
      }
    }
  }
}

}  // namespace
}  // namespace mezzo::test
