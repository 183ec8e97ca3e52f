#include <functional>
#include <variant>

#include "mezzo/message_passing/update_all.h"

#include "message_passing/update_all_support.h"
#include "support/reference.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

/// Frames of both sides and of the edges of one topology, with the columns "x", "y" and "w".
struct Frames {
  Frame src, dst, edge;
};

Frames make_frames(const Topology& g, at::ScalarType dtype, bool whole) {
  Frames frames{Frame("node", g.num_src(), test_device()),
                Frame("node", g.num_dst(), test_device()),
                Frame("edge", g.num_edges(), test_device())};
  const auto make = [&](Target target, std::uint64_t seed) {
    // +-1 and +-2 divide and multiply exactly as either operand.
    return leaf(whole ? divisors(shape(g, target, {3}), dtype, seed).clamp(-2, 2)
                      : uniform(shape(g, target, {3}), dtype, seed, 0.5, 2));
  };
  frames.src["x"] = make(Target::kSrc, 1);
  frames.dst["y"] = make(Target::kDst, 2);
  frames.edge["w"] = make(Target::kEdge, 3);
  return frames;
}

/// Runs a message and a reduce function over the frames.
using Way =
    std::function<void(const Topology&, Frames&, const MessageFunction&, const ReduceFunction&)>;

void along_all_edges(const Topology& g, Frames& frames, const MessageFunction& message,
                     const ReduceFunction& reduce_function) {
  update_all(g, frames.src, frames.edge, frames.dst, message, reduce_function);
}

/// The result and the gradients of the three columns.
struct Outcome {
  at::Tensor out, x, y, w;
  at::Tensor grad;  ///< of the result
};

Outcome outcome(const Topology& g, Frames frames, const MessageFunction& message,
                const ReduceFunction& reduce_function, bool whole, const Way& way) {
  way(g, frames, message, reduce_function);
  Outcome result{frames.dst["out"], {}, {}, {}, {}};
  const auto dtype = result.out.scalar_type();
  result.grad =
      whole ? integers(result.out.sizes(), dtype, 4) : uniform(result.out.sizes(), dtype, 4);
  if (result.out.requires_grad()) result.out.backward(result.grad);
  result.x = frames.src["x"].grad();
  result.y = frames.dst["y"].grad();
  result.w = frames.edge["w"].grad();
  return result;
}

/// A column that a message does not read has no gradient, or one of zeros.
at::Tensor or_zeros(const at::Tensor& gradient, const at::Tensor& like) {
  return gradient.defined() ? gradient : at::zeros_like(like);
}

/// User-defined functions round each stored intermediate result, by half an epsilon: in the forward
/// at most twice for a dot's message and once for the reduction; in the backward once for a mean's
/// division, three times for a quotient's gradient and once for the sum of the gathered rows. Five
/// of these errors and their products are below three epsilons.
constexpr double kStoredEpsilons = 3;

/// The bound between the built-in and the user-defined functions: both are within the bound of the
/// definition's sums, and user-defined functions round stored results. In column order; undefined
/// for a column that the message does not read.
struct Bounds {
  SumBound out, x, y, w;
};

Bounds bounds(const Topology& g, Frames& frames, const NamedMessage& message,
              const NamedReduce& reducer, const at::Tensor& grad) {
  const auto m = std::get<BuiltinMessage>(message.builtin.value());
  const ReduceOp reduce = std::get<BuiltinReduce>(reducer.builtin.value()).op;
  const auto column = [&](Target target) {
    Frame& frame = target == Target::kSrc   ? frames.src
                   : target == Target::kDst ? frames.dst
                                            : frames.edge;
    return frame[column_name(target)].detach();
  };
  const Operand64 lhs = m.lhs.empty() ? std::nullopt : Operand64(column(m.lhs_target));
  const Operand64 rhs = m.rhs.empty() ? std::nullopt : Operand64(column(m.rhs_target));
  const DTypeInfo& dtype = info(grad.scalar_type());
  // For float32 and float64 these are epsilons of the accumulator.
  const bool is_16_bit = dtype.epsilon > dtype.accum_epsilon;
  const auto of_two = [&](const Reference& one) {
    SumBound bound = sum_bound(one.abs_sum, 2 * one.terms, dtype.scalar);
    bound.operand_epsilon = is_16_bit ? kStoredEpsilons * dtype.epsilon : 0;
    return bound;
  };
  Bounds all;
  all.out = of_two(gspmm_reference(g, m.op, reduce, lhs, rhs, m.lhs_target, m.rhs_target));
  const auto gradients =
      gspmm_gradients(g, m.op, reduce, lhs, rhs, grad, m.lhs_target, m.rhs_target);
  const auto put = [&](Target target, const Reference& gradient) {
    SumBound& bound = target == Target::kSrc ? all.x : target == Target::kDst ? all.y : all.w;
    bound = of_two(gradient);
  };
  if (lhs) put(m.lhs_target, gradients.lhs);
  if (rhs) put(m.rhs_target, gradients.rhs);
  return all;
}

/// Results and gradients within `bound`; equal if it is undefined.
void expect_agree(const Outcome& a, const Outcome& b, Frames& like, const Bounds& bound) {
  const auto agree = [](const at::Tensor& x, const at::Tensor& y, const SumBound& allowed) {
    return allowed.abs_sum.defined() ? near(x, y, allowed) : exact(x, y);
  };
  EXPECT_EQ(a.out.scalar_type(), b.out.scalar_type());
  EXPECT_TRUE(agree(a.out, b.out, bound.out));
  const auto expect_gradient = [&](const at::Tensor& x, const at::Tensor& y,
                                   const at::Tensor& column, const SumBound& allowed) {
    EXPECT_TRUE(agree(or_zeros(x, column), or_zeros(y, column), allowed));
  };
  expect_gradient(a.x, b.x, like.src["x"], bound.x);
  expect_gradient(a.y, b.y, like.dst["y"], bound.y);
  expect_gradient(a.w, b.w, like.edge["w"], bound.w);
}

/// Compares the built-in pair with pairs of one or two user-defined functions; exactly if `whole`
/// is set.
void expect_twins_of(const Topology& g, at::ScalarType dtype, bool whole,
                     const NamedMessage& message, const NamedReduce& reducer, const Way& way) {
  const auto run = [&](const MessageFunction& m, const ReduceFunction& r) {
    return outcome(g, make_frames(g, dtype, whole), m, r, whole, way);
  };
  const Outcome builtin = run(message.builtin, reducer.builtin);
  const bool halves = g.in_degrees().max().item<std::int64_t>() <= 2;
  const bool exactly = whole && (reducer.name != "mean" || halves);
  Frames like = make_frames(g, dtype, whole);
  const Bounds bound = exactly ? Bounds{} : bounds(g, like, message, reducer, builtin.grad);
  const auto expect_same = [&](const char* which, const Outcome& other) {
    SCOPED_TRACE(which);
    expect_agree(builtin, other, like, bound);
  };
  expect_same("both user-defined", run(message.custom, reducer.custom));
  expect_same("user-defined message", run(message.custom, reducer.builtin));
  expect_same("user-defined reduction", run(message.builtin, reducer.custom));
}

/// Every built-in message with each of `reducers` and its user-defined counterparts on one
/// topology.
void expect_twins(const Topology& g, at::ScalarType dtype, bool whole,
                  const std::vector<NamedReduce>& reducers = all_reducers(),
                  const Way& way = along_all_edges) {
  for (const NamedMessage& message : all_messages()) {
    for (const NamedReduce& reducer : reducers) {
      // The bound of a difference depends on its two terms, so a product of differences has none.
      const bool differences = message.name.find("_sub_") != std::string::npos;
      if (!whole && differences && reducer.name == "prod") continue;
      SCOPED_TRACE(fmt::format("{} {} {}", c10::toString(dtype), message.name, reducer.name));
      expect_twins_of(g, dtype, whole, message, reducer, way);
    }
  }
}

std::vector<NamedReduce> reducers_and_product() {
  std::vector<NamedReduce> reducers = all_reducers();
  reducers.push_back(product_reducer());
  return reducers;
}

TEST(BuiltinFunctions, equal_their_user_defined_twins_in_value_and_gradient) {
  for (const NamedTopology& g : topologies()) {
    if (g.topology.num_edges() == 0)
      continue;  // user-defined functions create no columns without edges
    SCOPED_TRACE(g.name);
    expect_twins(g.topology, at::kFloat, /*whole=*/true);
  }
}

TEST(BuiltinFunctions, equal_their_twins_on_a_random_graph_of_a_hundred_nodes) {
  const Topology g = random_topology(100, 100, 1000, 61);
  expect_twins(g, at::kFloat, /*whole=*/false);
  expect_twins(g, at::kDouble, /*whole=*/false);
}

TEST(BuiltinFunctions, products_equal_their_twins_on_a_random_graph_of_a_hundred_nodes) {
  // Some twenty messages of at most 12 = 3 * 2 * 2: their product is below 2^128.
  const Topology g = random_topology(100, 100, 1000, 61);
  ASSERT_LT(max_in_degree(g), 30);
  expect_twins(g, at::kFloat, /*whole=*/false, {product_reducer()});
  expect_twins(g, at::kDouble, /*whole=*/false, {product_reducer()});
}

TEST(BuiltinFunctions, equal_their_twins_in_sixteen_bits_where_every_step_is_exact) {
  // In-degrees of at most 2: the user-defined one, which rounds each step, is exact too. A product
  // of two messages is at most 144 = 12 * 12, a gradient 192 = 4 * 12 * 2 of each of two edges.
  const Topology g = topology_of({0, 1, 0, 3, 3, 1}, {1, 1, 2, 2, 0, 3}, 4, 5);
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    expect_twins(g, dtype.scalar, /*whole=*/true, reducers_and_product());
  }
}

TEST(BuiltinFunctions, equal_their_twins_in_sixteen_bits_on_a_random_graph_of_a_hundred_nodes) {
  const Topology g = random_topology(100, 100, 1000, 61);
  // The largest of real messages may depend on their rounding.
  std::vector<NamedReduce> sums = all_reducers();
  std::erase_if(sums, [](const NamedReduce& r) { return r.name == "max" || r.name == "min"; });
  ASSERT_EQ(sums.size(), 2U);
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    expect_twins(g, dtype.scalar, /*whole=*/true);
    expect_twins(g, dtype.scalar, /*whole=*/false, sums);
  }
}

TEST(BuiltinFunctions, products_equal_their_user_defined_twins_in_value_and_gradient) {
  constexpr std::int64_t kFewMessages = 4;  // 12^4 and the gradients are below 2^24
  for (const NamedTopology& g : topologies()) {
    if (g.topology.num_edges() == 0) continue;
    if (g.topology.in_degrees().max().item<std::int64_t>() > kFewMessages) continue;
    SCOPED_TRACE(g.name);
    expect_twins(g.topology, at::kFloat, /*whole=*/true, {product_reducer()});
    expect_twins(g.topology, at::kDouble, /*whole=*/true, {product_reducer()});
  }
}

TEST(BuiltinFunctions, equal_their_twins_along_some_of_the_edges) {
  // The selected edges also have in-degrees of at most 2.
  const Topology g = topology_of({0, 1, 0, 3, 3, 1}, {1, 1, 2, 2, 0, 3}, 4, 5);
  const std::vector<Way> ways = {
      [](const Topology& t, Frames& f, const auto& message, const auto& reduce_function) {
        send_and_recv(t, f.src, f.edge, f.dst, ids({4, 1, 0, 3}), message, reduce_function);
      },
      [](const Topology& t, Frames& f, const auto& message, const auto& reduce_function) {
        pull(t, f.src, f.edge, f.dst, ids({4, 2, 1}), message, reduce_function);
      },
      [](const Topology& t, Frames& f, const auto& message, const auto& reduce_function) {
        push(t, f.src, f.edge, f.dst, ids({3, 0}), message, reduce_function);
      },
  };
  for (std::size_t i = 0; i < ways.size(); ++i) {
    SCOPED_TRACE(fmt::format("way {}", i));
    for (const DTypeInfo& dtype : dtypes()) {
      expect_twins(g, dtype.scalar, /*whole=*/true, reducers_and_product(), ways[i]);
    }
  }
}

TEST(BuiltinFunctions, apply_edges_equals_its_user_defined_twin) {
  for (const NamedTopology& g : topologies()) {
    for (const DTypeInfo& dtype : dtypes()) {
      for (const NamedMessage& message : all_messages()) {
        SCOPED_TRACE(fmt::format("{} {} on {}", dtype.name, message.name, g.name));
        Frames builtin = make_frames(g.topology, dtype.scalar, true);
        Frames custom = make_frames(g.topology, dtype.scalar, true);
        apply_edges(g.topology, builtin.src, builtin.edge, builtin.dst, message.builtin);
        apply_edges(g.topology, custom.src, custom.edge, custom.dst, message.custom);
        EXPECT_TRUE(exact(builtin.edge["m"], custom.edge["m"]));
        EXPECT_EQ(builtin.edge["m"].scalar_type(), dtype.scalar);
      }
    }
  }
}

}  // namespace
}  // namespace mezzo::test
