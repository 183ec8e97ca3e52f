// Compares edge messages and edge softmax with the definitions.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mezzo/ops/ops.h"

#include "fuzz/checks.h"

namespace mezzo::test {

void check_edge_message(Draw& draw) {
  const Topology graph = random_graph(draw, draw.coin());
  const Values values = draw.coin() ? Values::kWhole : Values::kAny;
  const RandomMessage m = random_message(draw, graph, values);
  const std::string what = "edge message " + m.text();
  const at::Tensor out = gsddmm(graph, m.op, m.lhs, m.rhs, m.lhs_target, m.rhs_target);
  if (out.scalar_type() != m.dtype) throw Failure(what + ": result of another dtype");
  const Operand64 a = given(m.lhs, uses_lhs(m.op)), b = given(m.rhs, uses_rhs(m.op));
  require_near(out, message(graph, m.op, a, b, m.lhs_target, m.rhs_target), what);
  if (const auto grad = backward(draw, out, values)) {
    const auto gradients = gsddmm_gradients(graph, m.op, a, b, *grad, m.lhs_target, m.rhs_target);
    require_gradient(m.lhs, uses_lhs(m.op), gradients.lhs, "gradient to the lhs, " + what);
    require_gradient(m.rhs, uses_rhs(m.op), gradients.rhs, "gradient to the rhs, " + what);
  }
}

void require_softmax(Draw& draw, const Topology& graph, Target side, const at::Tensor& logits,
                     const at::Tensor& out, double range, const std::string& what) {
  const DTypeInfo& dtype = info(logits.scalar_type());
  if (out.scalar_type() != dtype.scalar) throw Failure(what + ": result of another dtype");
  const Reference expected = softmax_reference(graph, logits, side);
  const double degree = internal::max_degree(graph);
  require(near(out, expected.value, softmax_bound(expected.value, degree, range, dtype.scalar)),
          what);
  const at::Tensor grad = *backward(draw, out, Values::kAny);
  const Reference gradient = softmax_gradient(graph, logits, grad, side);
  // The backward reads stored probabilities, subnormal ones have an error of `smallest`.
  const at::Tensor size =
      gradient.abs_sum + (expected.value * degree + 1) * (dtype.smallest / dtype.epsilon);
  require(near(logits.grad(), gradient.value,
               softmax_gradient_bound(size, degree, range, dtype.scalar)),
          "gradient of the " + what);
}

void check_softmax(Draw& draw) {
  const Topology graph = random_graph(draw, draw.coin());
  // Selected edges form a separate graph.
  std::optional<at::Tensor> edges;
  Topology part = graph;
  if (draw.one_in(3)) {
    std::vector<std::int64_t> some;
    const std::int64_t every = 1 + draw.below(4);
    for (std::int64_t e = draw.below(every); e < graph.num_edges(); e += every) some.push_back(e);
    edges = draw.coin() ? ids(some) : ids(some).flip(0);
    part = Topology::from_coo(row_ids(graph, Target::kSrc).index_select(0, *edges),
                              row_ids(graph, Target::kDst).index_select(0, *edges), graph.num_src(),
                              graph.num_dst());
  }
  const auto by = draw.coin() ? NormalizeBy::kDst : NormalizeBy::kSrc;
  const DTypeInfo& dtype = draw.one_of(dtypes());
  auto sizes = shape(part, Target::kEdge, {});
  if (draw.coin()) sizes.push_back(draw.below(5));
  if (draw.coin()) sizes.push_back(1 + draw.below(40));
  const double range = draw.one_of<double>({0, 1, 20, 200});
  const at::Tensor random = uniform(sizes, dtype.scalar, draw.seed(), -range / 2, range / 2);
  const at::Tensor logits = leaf(in_some_layout(draw, random + draw.one_of<double>({0, 1000, -7})));
  const std::string what =
      fmt::format("softmax of {} [{}] on {} of {} edges, range {}", dtype.name,
                  fmt::join(sizes, ","), part.num_edges(), graph.num_edges(), range);
  require_softmax(draw, part, by == NormalizeBy::kDst ? Target::kDst : Target::kSrc, logits,
                  edge_softmax(graph, logits, by, edges), range, what);
}

}  // namespace mezzo::test
