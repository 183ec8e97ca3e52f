#include <cmath>
#include <limits>

#include "mezzo/ops/ops.h"

#include "support/gradcheck.h"
#include "support/reference.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

constexpr double kThird = 1.0 / 3;

Target side_of(NormalizeBy by) {
  return by == NormalizeBy::kDst ? Target::kDst : Target::kSrc;
}

/// Edges (0,0) (0,1) (0,2) (1,1) (1,2) (2,2).
Topology upper_triangle() {
  return topology_of({0, 0, 0, 1, 1, 2}, {0, 1, 2, 1, 2, 2}, 3, 3);
}

/// Compares `got`, the softmax of the logits, with the definition, within its bound.
testing::AssertionResult right(const at::Tensor& got, const Topology& g, const at::Tensor& logits,
                               NormalizeBy by) {
  if (got.scalar_type() != logits.scalar_type()) return testing::AssertionFailure() << "dtype";
  const auto expected = softmax_reference(g, logits, side_of(by));
  const at::Tensor x = logits.to(at::kDouble);
  const double range = x.numel() == 0 ? 0 : (x.max() - x.min()).item<double>();
  return near(got, expected.value,
              softmax_bound(expected.value, internal::max_degree(g), range, logits.scalar_type()));
}

TEST(EdgeSoftmax, equal_logits_share_equally) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const at::Tensor ones = at::ones({6}, on_device(dtype.scalar));
    const Topology g = upper_triangle();
    EXPECT_TRUE(
        exact_rounded(edge_softmax(g, ones), numbers({1, 0.5, kThird, 0.5, kThird, kThird})));
    EXPECT_TRUE(exact_rounded(edge_softmax(g, ones, NormalizeBy::kSrc),
                              numbers({kThird, kThird, kThird, 0.5, 0.5, 1})));
  }
}

/// The nodes of `g` and, as edge i, its edge edges[i].
Topology part_of(const Topology& g, const at::Tensor& edges) {
  return Topology::from_coo(row_ids(g, Target::kSrc).index_select(0, edges),
                            row_ids(g, Target::kDst).index_select(0, edges), g.num_src(),
                            g.num_dst());
}

/// Every third edge, in descending order.
at::Tensor every_third(const Topology& g) {
  return at::arange(0, g.num_edges(), 3, on_device(at::kLong)).flip(0);
}

TEST(EdgeSoftmax, of_some_of_the_edges_leaves_the_others_out) {
  const Topology g = upper_triangle();
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const at::Tensor ones = at::ones({4}, on_device(dtype.scalar));
    const at::Tensor some = ids({5, 1, 0, 3});
    EXPECT_TRUE(exact(edge_softmax(g, ones, NormalizeBy::kDst, some), numbers({1, 0.5, 1, 0.5})));
    EXPECT_TRUE(exact(edge_softmax(g, ones, NormalizeBy::kSrc, some), numbers({1, 0.5, 0.5, 1})));
    EXPECT_TRUE(exact(edge_softmax(g, ones, NormalizeBy::kDst, some.to(at::kInt)),
                      numbers({1, 0.5, 1, 0.5})));
    const at::Tensor mask = numbers({1, 1, 0, 1, 0, 1}).to(at::kBool);
    EXPECT_TRUE(exact(edge_softmax(g, ones, NormalizeBy::kDst, mask), numbers({1, 0.5, 0.5, 1})));
  }
}

TEST(EdgeSoftmax, of_some_of_the_edges_is_the_definition_of_the_graph_of_these_edges) {
  for (const NamedTopology& g : topologies()) {
    const at::Tensor edges = every_third(g.topology);
    const Topology part = part_of(g.topology, edges);
    for (const DTypeInfo& dtype : dtypes()) {
      for (const NormalizeBy by : {NormalizeBy::kDst, NormalizeBy::kSrc}) {
        SCOPED_TRACE(dtype.name + " on " + g.name);
        const at::Tensor logits = uniform({edges.size(0), 2, 3}, dtype.scalar, 1, -5, 5);
        EXPECT_TRUE(right(edge_softmax(g.topology, logits, by, edges), part, logits, by));
      }
    }
  }
}

TEST(EdgeSoftmax, of_all_the_edges_named_has_the_bits_of_that_of_the_graph) {
  for (const NamedTopology& g : topologies()) {
    SCOPED_TRACE(g.name);
    const at::Tensor logits = uniform(shape(g.topology, Target::kEdge, {3}), at::kFloat, 1);
    const at::Tensor all = at::arange(g.topology.num_edges(), on_device(at::kLong));
    EXPECT_TRUE(same_bits(edge_softmax(g.topology, logits, NormalizeBy::kDst, all),
                          edge_softmax(g.topology, logits)));
  }
}

TEST(EdgeSoftmax, refuses_edges_that_are_not_there_come_twice_or_do_not_fit_the_logits) {
  const Topology g = upper_triangle();
  const auto attempt = [&](const at::Tensor& edges, std::int64_t rows) {
    edge_softmax(g, at::ones({rows}, on_device(at::kFloat)), NormalizeBy::kDst, edges);
  };
  for (const std::int64_t missing : {-1, 6}) {
    EXPECT_ERROR(fragments("edge_softmax", "edges", "got" + std::to_string(missing)),
                 attempt(ids({0, missing}), 2));
  }
  EXPECT_ERROR("4morethanonce", attempt(ids({4, 0, 4}), 3));
  EXPECT_ERROR("edges", attempt(numbers({0, 1}), 2));
  EXPECT_ERROR("[1,2]", attempt(ids({0, 1}).reshape({1, 2}), 2));
  EXPECT_ERROR("maskof6", attempt(numbers({1, 0}).to(at::kBool), 1));
  EXPECT_ERROR("edges", attempt(at::Tensor(), 1));
  EXPECT_ERROR("logits[2,...]", attempt(ids({0, 1}), 6));
}

TEST(EdgeSoftmax, normalises_across_edges_of_two_kinds_of_sources) {
  // Sources 0-2 have logit 2, sources 3-5 logit 1.
  std::vector<std::int64_t> src, dst;
  for (std::int64_t u = 0; u < 6; ++u) {
    for (std::int64_t v = 0; v < 3; ++v) {
      src.push_back(u);
      dst.push_back(v);
    }
  }
  const Topology g = topology_of(src, dst, 6, 3);
  const double e = std::exp(1.0), first = e / (3 * (e + 1)), second = 1 / (3 * (e + 1));
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto logits = at::cat({at::full({9}, 2.0, on_device()), at::full({9}, 1.0, on_device())})
                            .to(dtype.scalar);
    const auto expected = at::cat({at::full({9}, first, on_device(at::kDouble)),
                                   at::full({9}, second, on_device(at::kDouble))});
    EXPECT_TRUE(
        near(edge_softmax(g, logits), expected, softmax_bound(expected, 6, 1, dtype.scalar)));
  }
}

TEST(EdgeSoftmax, is_the_definition_on_every_graph_and_shape) {
  for (const NamedTopology& g : topologies()) {
    for (const DTypeInfo& dtype : dtypes()) {
      for (const NormalizeBy by : {NormalizeBy::kDst, NormalizeBy::kSrc}) {
        for (const std::vector<std::int64_t>& trailing :
             std::vector<std::vector<std::int64_t>>{{}, {1}, {1, 3}, {3, 4, 5}, {33}}) {
          const auto sizes = shape(g.topology, Target::kEdge, trailing);
          SCOPED_TRACE(
              fmt::format("{} on {}, logits [{}]", dtype.name, g.name, fmt::join(sizes, ",")));
          const at::Tensor logits = uniform(sizes, dtype.scalar, 1, -5, 5);
          EXPECT_TRUE(right(edge_softmax(g.topology, logits, by), g.topology, logits, by));
        }
      }
    }
  }
}

TEST(EdgeSoftmax, of_a_complete_graph_is_the_dense_softmax) {
  constexpr std::int64_t n = 13;
  const auto node = at::arange(n, on_device(at::kLong));
  const auto g = Topology::from_coo(node.repeat({n}), node.repeat_interleave(n), n, n);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto logits = uniform({n, n}, dtype.scalar, 2);  // [destination, source]
    const auto expected = logits.to(at::kDouble).softmax(1).reshape({n * n});
    const auto got = edge_softmax(g, logits.reshape({n * n}));
    EXPECT_EQ(got.scalar_type(), dtype.scalar);
    EXPECT_TRUE(near(got, expected, softmax_bound(expected, n, 2, dtype.scalar)));
  }
}

TEST(EdgeSoftmax, extreme_logits_stay_finite_and_sum_to_one) {
  struct Extreme {
    at::ScalarType dtype;
    double logit;
  };
  for (const Extreme& one :
       {Extreme{at::kFloat, 1000}, Extreme{at::kDouble, 1e6}, Extreme{at::kHalf, 60000},
        Extreme{at::kBFloat16, 1e30}, Extreme{at::kFloat, -1000}, Extreme{at::kHalf, -60000},
        Extreme{at::kBFloat16, -200}, Extreme{at::kBFloat16, -1e30}}) {
    SCOPED_TRACE(fmt::format("{} {}", c10::toString(one.dtype), one.logit));
    const auto logits = at::full({6, 2}, one.logit, on_device()).to(one.dtype);
    const auto expected = numbers({1, 0.5, kThird, 0.5, kThird, kThird});
    EXPECT_TRUE(exact_rounded(edge_softmax(upper_triangle(), logits),
                              expected.reshape({6, 1}).expand({6, 2})));
  }
}

TEST(EdgeSoftmax, is_invariant_to_a_shift_of_the_logits) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto logits = integers({500, 3}, dtype.scalar, 3);  // shifting whole numbers is exact
    const Topology g = random_topology(60, 60, 500, 44, 3.0);
    EXPECT_TRUE(same_bits(edge_softmax(g, logits), edge_softmax(g, logits + 64)));
    EXPECT_TRUE(same_bits(edge_softmax(g, logits), edge_softmax(g, logits - 128)));
  }
}

TEST(EdgeSoftmax, far_apart_logits_are_zero_and_one) {
  const Topology g = in_star(2);
  for (const DTypeInfo& dtype : dtypes()) {
    EXPECT_TRUE(exact(edge_softmax(g, numbers({-30000, 30000}, dtype.scalar)), numbers({0, 1})))
        << dtype.name;
  }
}

TEST(EdgeSoftmax, hubs_of_equal_logits_sum_to_one) {
  for (const DTypeInfo& dtype : dtypes()) {
    for (const std::int64_t degree : {900, 70000}) {
      for (const double logit : {0.0, 10.0, -200.0}) {
        SCOPED_TRACE(fmt::format("{} degree {} logit {}", dtype.name, degree, logit));
        const auto got =
            edge_softmax(in_star(degree), at::full({degree}, logit, on_device()).to(dtype.scalar));
        const auto expected =
            at::full({degree}, 1.0 / static_cast<double>(degree), on_device(at::kDouble));
        EXPECT_TRUE(near(got, expected,
                         softmax_bound(expected, static_cast<double>(degree), 0, dtype.scalar)));
      }
    }
  }
}

TEST(EdgeSoftmax, masked_edges_get_zero_and_a_nan_spoils_its_own_node_only) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const Topology g = topology_of({0, 1, 2, 0}, {0, 0, 0, 1}, 3, 2);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    EXPECT_TRUE(
        exact(edge_softmax(g, numbers({1, -inf, 1, 7}, dtype.scalar)), numbers({0.5, 0, 0.5, 1})));
    const auto spoiled = edge_softmax(g, numbers({1, std::nan(""), 1, 7}, dtype.scalar));
    EXPECT_TRUE(exact(spoiled.isnan(), numbers({1, 1, 1, 0})));
    const auto overflown = edge_softmax(g, numbers({1, inf, 1, 7}, dtype.scalar));
    EXPECT_TRUE(overflown[1].isnan().item<bool>());
    EXPECT_EQ(overflown[3].item<double>(), 1.0);
  }
}

TEST(EdgeSoftmaxGradient, of_all_or_some_of_the_edges_is_that_of_the_definition) {
  for (const NamedTopology& g : topologies()) {
    const at::Tensor edges = every_third(g.topology);
    for (const DTypeInfo& dtype : dtypes()) {
      for (const NormalizeBy by : {NormalizeBy::kDst, NormalizeBy::kSrc}) {
        for (const bool all : {true, false}) {
          SCOPED_TRACE(fmt::format("{} on {}, all: {}", dtype.name, g.name, all));
          const Topology part = all ? g.topology : part_of(g.topology, edges);
          const auto sizes = shape(part, Target::kEdge, {2, 9});
          const auto logits = leaf(uniform(sizes, dtype.scalar, 4, -3, 3));
          const auto grad = uniform(sizes, dtype.scalar, 5);
          (all ? edge_softmax(part, logits, by) : edge_softmax(g.topology, logits, by, edges))
              .backward(grad);
          const auto expected = softmax_gradient(part, logits, grad, side_of(by));
          EXPECT_TRUE(near(logits.grad(), expected.value,
                           softmax_gradient_bound(expected.abs_sum, internal::max_degree(part), 6,
                                                  dtype.scalar)));
          EXPECT_EQ(logits.grad().scalar_type(), dtype.scalar);
        }
      }
    }
  }
}

TEST(EdgeSoftmaxGradient, agrees_with_finite_differences) {
  const Topology g = random_topology(5, 4, 14, 45);
  for (const NormalizeBy by : {NormalizeBy::kDst, NormalizeBy::kSrc}) {
    EXPECT_TRUE(
        gradcheck([&](const std::vector<at::Tensor>& in) { return edge_softmax(g, in[0], by); },
                  {uniform({14, 2, 3}, at::kDouble, 6)}));
  }
}

TEST(EdgeSoftmaxGradient, of_each_nodes_edges_sums_to_zero) {
  // Equal powers of two make every step exact: 4 edges a node, p = 1/4.
  const Topology g = topology_of({0, 1, 2, 3, 0, 1, 2, 3}, {0, 0, 0, 0, 1, 1, 1, 1}, 4, 2);
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    const auto logits = leaf(at::full({8}, 3, on_device()).to(dtype.scalar));
    edge_softmax(g, logits).backward(integers({8}, dtype.scalar, 7));
    const auto sums = logits.grad().to(at::kDouble).reshape({2, 4}).sum(1);
    EXPECT_TRUE(exact(sums, at::zeros({2})));
  }
}

}  // namespace
}  // namespace mezzo::test
