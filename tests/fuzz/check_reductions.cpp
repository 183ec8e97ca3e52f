// Reductions of messages, by gspmm and by the functions on frames, along all edges and along some,
// against the definitions.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/graph/frame.h"
#include "mezzo/graph/graph.h"
#include "mezzo/message_passing/functions.h"
#include "mezzo/message_passing/ops.h"
#include "mezzo/message_passing/update_all.h"

#include "fuzz/checks.h"
#include "support/combined.h"

namespace mezzo::test {
namespace {

// The functions.

BuiltinMessage builtin_message(const RandomMessage& m) {
  return {.op = m.op,
          .lhs_target = m.lhs_target,
          .rhs_target = m.rhs_target,
          .lhs = uses_lhs(m.op) ? "lhs" : "",
          .rhs = uses_rhs(m.op) ? "rhs" : "",
          .out = "m"};
}

/// Rows of one edge each with ones in front of the trailing dimensions, so that libtorch's
/// broadcasting aligns them as the library does.
at::Tensor aligned(const at::Tensor& rows, std::int64_t rank) {
  auto sizes = rows.sizes().vec();
  sizes.insert(sizes.begin() + 1, static_cast<std::size_t>(rank - rows.dim()), 1);
  return rows.reshape(sizes);
}

/// The user-defined form of a message; both operands have the result's dtype.
MessageFunction custom_message(const RandomMessage& m) {
  return [&m](const EdgeBatch& edges) -> Columns {
    const auto rows = [&](Target target, const std::string& column) {
      return target == Target::kSrc   ? edges.src(column)
             : target == Target::kDst ? edges.dst(column)
                                      : edges.data(column);
    };
    const at::Tensor a = uses_lhs(m.op) ? rows(m.lhs_target, "lhs") : at::Tensor();
    const at::Tensor b = uses_rhs(m.op) ? rows(m.rhs_target, "rhs") : at::Tensor();
    const std::int64_t rank = std::max(a.defined() ? a.dim() : 1, b.defined() ? b.dim() : 1);
    return {{"m", combined(m.op, a.defined() ? aligned(a, rank) : a,
                           b.defined() ? aligned(b, rank) : b)}};
  };
}

/// Of equal messages the first is chosen, as by the built-in functions.
ReduceFunction custom_reduce(ReduceOp op) {
  return [op](const NodeBatch& nodes) -> Columns {
    const at::Tensor& m = nodes.mailbox("m");
    const auto chosen = [&](const at::Tensor& place) { return m.gather(1, place).squeeze(1); };
    switch (op) {
      case ReduceOp::kSum:
        return {{"out", m.sum(1)}};
      case ReduceOp::kMean:
        return {{"out", m.mean(1)}};
      case ReduceOp::kMax:
        return {{"out", chosen(m.argmax(1, /*keepdim=*/true))}};
      case ReduceOp::kMin:
        return {{"out", chosen(m.argmin(1, /*keepdim=*/true))}};
      case ReduceOp::kProd:
        return {{"out", m.prod(1)}};
    }
    return {};
  };
}

/// libtorch multiplies and adds up 16-bit numbers in 16 bits on the way.
bool is_wide(const RandomMessage& m) {
  return m.dtype == at::kFloat || m.dtype == at::kDouble;
}

/// Of operands of two dtypes libtorch's operations make a third.
bool is_mixed(const RandomMessage& m) {
  return uses_lhs(m.op) && uses_rhs(m.op) && m.lhs->scalar_type() != m.rhs->scalar_type();
}

/// Frames of both sides and of the edges, with the operands as the columns "lhs" and "rhs".
struct Frames {
  explicit Frames(const RandomMessage& m)
      : src("node", m.graph.num_src(), test_device()),
        dst("node", m.graph.num_dst(), test_device()),
        edge("edge", m.graph.num_edges(), test_device()) {
    const auto put = [&](Target target, const char* name, const std::optional<at::Tensor>& one) {
      if (!one) return std::optional<at::Tensor>();
      const at::Tensor column = one->detach().set_requires_grad(one->requires_grad());
      of(target)[name] = column;
      return std::optional<at::Tensor>(column);
    };
    lhs = put(m.lhs_target, "lhs", m.lhs);
    rhs = put(m.rhs_target, "rhs", m.rhs);
  }
  Frame& of(Target target) {
    return target == Target::kSrc ? src : target == Target::kDst ? dst : edge;
  }

  Frame src, dst, edge;
  std::optional<at::Tensor> lhs, rhs;  ///< the columns, leaves
};

/// What a reduction should be.
struct Expected {
  Reference out;
  std::optional<at::Tensor> grad;  ///< of the result, where the gradients are compared
  GradientReference gradients;
};

/// The column "out" of the destinations, and what its gradient gives the operands.
void require_column(const RandomMessage& m, Frames& frames, const Expected& expected,
                    const std::string& what, double stored = 0) {
  const at::Tensor out = frames.dst["out"];
  if (out.scalar_type() != m.dtype) throw Failure(what + ": result of another dtype");
  require_near(out, expected.out, what, stored);
  if (!expected.grad) return;
  // An operand that the op does not use is no argument of the functions.
  const auto is_due = [](const std::optional<at::Tensor>& column, bool used) {
    return used && column && column->requires_grad();
  };
  const bool due = is_due(frames.lhs, uses_lhs(m.op)) || is_due(frames.rhs, uses_rhs(m.op));
  if (out.requires_grad() != due) throw Failure(what + ": no gradient, or one not due");
  if (!due) return;
  out.backward(*expected.grad);
  require_gradient(frames.lhs, uses_lhs(m.op), expected.gradients.lhs,
                   "gradient to the lhs, " + what, stored);
  require_gradient(frames.rhs, uses_rhs(m.op), expected.gradients.rhs,
                   "gradient to the rhs, " + what, stored);
}

/// update_all with built-in functions has the bits of gspmm, with user-defined ones the same
/// numbers up to the rounding of what they store in between; gradients likewise.
void check_update_all(Draw& draw, const RandomMessage& m, ReduceOp reduce, const at::Tensor& out,
                      const Expected& expected) {
  const BuiltinReduce reduction{reduce, "m", "out"};
  const std::string which = std::string(name_of(ReduceOps{}, reduce)) + " of " + m.text();
  Frames frames(m);
  update_all(m.graph, frames.src, frames.edge, frames.dst, builtin_message(m), reduction);
  require(same_bits(frames.dst["out"], out), "update_all of built-in functions, " + which);
  require_column(m, frames, expected, "update_all of built-in functions, " + which);
  if (m.graph.num_src() == m.graph.num_dst()) {
    Graph graph(m.graph);
    for (const char* name : {"lhs", "rhs"}) {
      if (frames.src.contains(name)) graph.ndata()[name] = frames.src[name];
      if (frames.dst.contains(name)) graph.ndata()[name] = frames.dst[name];
      if (frames.edge.contains(name)) graph.edata()[name] = frames.edge[name];
    }
    graph.update_all(builtin_message(m), reduction);
    require(same_bits(graph.ndata()["out"], out), "Graph::update_all, " + which);
  }
  if (m.graph.num_edges() == 0 || is_mixed(m)) return;  // there are no columns to return
  Frames own(m);
  const ReduceFunction reducer =
      is_wide(m) && draw.coin() ? custom_reduce(reduce) : ReduceFunction(reduction);
  update_all(m.graph, own.src, own.edge, own.dst, custom_message(m), reducer);
  Expected wanted = expected;
  if (!is_wide(m)) wanted.grad.reset();
  // A stored rounding a message, one of the result and as many on the way back; a product
  // multiplies those of its factors.
  const double roundings = reduce == ReduceOp::kProd ? detail::max_degree(m.graph) : 1;
  require_column(m, own, wanted, "update_all of custom functions, " + which, roundings + 4);
}

/// Products of many messages leave the range in which the definition and float32 agree.
constexpr double kMostFactors = 8;

}  // namespace

void check_reduction(Draw& draw) {
  const Topology graph = random_graph(draw, draw.below(3) != 0);
  std::vector<ReduceOp> reducers;
  for_each(ReduceOps{}, [&]<class Reduce>() { reducers.push_back(Reduce::kind); });
  ReduceOp reduce = draw.one_of(reducers);
  if (reduce == ReduceOp::kProd && detail::max_degree(graph) > kMostFactors) {
    reduce = ReduceOp::kSum;
  }
  const bool selects = reduce == ReduceOp::kMax || reduce == ReduceOp::kMin;
  // The edge that max and min choose is only defined where messages are not rounded.
  const Values values = selects || draw.coin() ? Values::kWhole : Values::kAny;
  const RandomMessage m = random_message(draw, graph, values);
  const std::string what = std::string(name_of(ReduceOps{}, reduce)) + " of " + m.text();
  const at::Tensor out = gspmm(graph, m.op, reduce, m.lhs, m.rhs, m.lhs_target, m.rhs_target);
  if (out.scalar_type() != m.dtype) throw Failure(what + ": result of another dtype");
  const Operand64 a = given(m.lhs, uses_lhs(m.op)), b = given(m.rhs, uses_rhs(m.op));
  const Reference expected = gspmm_reference(graph, m.op, reduce, a, b, m.lhs_target, m.rhs_target);
  require_near(out, expected, what);
  {
    const ThreadCount threads(1 + static_cast<int>(draw.below(3)));
    const at::Tensor again = gspmm(graph, m.op, reduce, m.lhs, m.rhs, m.lhs_target, m.rhs_target);
    require(same_bits(again.detach(), out.detach()), what + ", on other threads");
  }
  Expected all{expected, backward(draw, out, values), {}};
  if (all.grad) {
    all.gradients =
        gspmm_gradients(graph, m.op, reduce, a, b, *all.grad, m.lhs_target, m.rhs_target);
    require_gradient(m.lhs, uses_lhs(m.op), all.gradients.lhs, "gradient to the lhs, " + what);
    require_gradient(m.rhs, uses_rhs(m.op), all.gradients.rhs, "gradient to the rhs, " + what);
  }
  check_update_all(draw, m, reduce, out, all);
}

namespace {

/// How the edges are named along which messages run.
enum class Way : std::uint8_t { kSendAndRecv, kPull, kPush };

/// The same edges in other words.
struct SomeEdges {
  at::Tensor names;      ///< what the function is given
  at::Tensor edges;      ///< int64, ascending
  at::Tensor receivers;  ///< bool [num_dst]: the destinations whose rows are written
};

SomeEdges some_edges(Draw& draw, const Topology& graph, Way way) {
  const Target named = way == Way::kSendAndRecv ? Target::kEdge
                       : way == Way::kPull      ? Target::kDst
                                                : Target::kSrc;
  const double share = draw.one_of<double>({0, 0.2, 0.7, 1});
  const at::Tensor mask =
      uniform({num_rows(graph, named)}, at::kDouble, draw.seed(), 0, 1).lt(share);
  SomeEdges some;
  const at::Tensor ascending = mask.nonzero().squeeze(1);
  some.names = draw.coin() ? mask : draw.coin() ? ascending : ascending.flip(0);
  some.edges = mask.index_select(0, row_ids(graph, named)).nonzero().squeeze(1);
  some.receivers = mask;
  if (way != Way::kPull) {
    const at::Tensor dst = row_ids(graph, Target::kDst).index_select(0, some.edges);
    some.receivers =
        at::zeros({graph.num_dst()}, on_device(at::kDouble)).index_fill(0, dst, 1).to(at::kBool);
  }
  return some;
}

void run(Way way, const Topology& graph, Frames& f, const at::Tensor& names,
         const MessageFunction& message, const BuiltinReduce& reduction) {
  switch (way) {
    case Way::kSendAndRecv:
      return send_and_recv(graph, f.src, f.edge, f.dst, names, message, reduction);
    case Way::kPull:
      return pull(graph, f.src, f.edge, f.dst, names, message, reduction);
    case Way::kPush:
      return push(graph, f.src, f.edge, f.dst, names, message, reduction);
  }
}

/// Of some edges' rows, those of all edges: 0 for the others.
Reference spread(const Reference& rows, Target target, const at::Tensor& edges,
                 std::int64_t num_edges) {
  if (target != Target::kEdge || !rows.value.defined()) return rows;
  auto sizes = rows.value.sizes().vec();
  sizes[0] = num_edges;
  const auto wide = [&](const at::Tensor& t) {
    return at::zeros(sizes, t.options()).index_copy(0, edges.to(t.device()), t);
  };
  return {wide(rows.value), wide(rows.abs_sum), rows.terms};
}

}  // namespace

void check_some_edges(Draw& draw) {
  const Topology graph = random_graph(draw, draw.coin());
  const ReduceOp reduce =
      draw.one_of<ReduceOp>({ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax, ReduceOp::kMin});
  const bool selects = reduce == ReduceOp::kMax || reduce == ReduceOp::kMin;
  const Values values = selects || draw.coin() ? Values::kWhole : Values::kAny;
  const RandomMessage m = random_message(draw, graph, values);
  const Way way = draw.one_of<Way>({Way::kSendAndRecv, Way::kPull, Way::kPush});
  const SomeEdges some = some_edges(draw, graph, way);
  const bool custom = is_wide(m) && !is_mixed(m) && some.edges.numel() > 0 && draw.coin();
  const char* names[] = {"send_and_recv", "pull", "push"};
  const std::string what = std::string(names[static_cast<int>(way)]) +
                           (custom ? " of a custom message, " : ", ") +
                           std::string(name_of(ReduceOps{}, reduce)) + " of " + m.text();

  const Topology part = Topology::from_coo(row_ids(graph, Target::kSrc).index_select(0, some.edges),
                                           row_ids(graph, Target::kDst).index_select(0, some.edges),
                                           graph.num_src(), graph.num_dst());
  const auto of_part = [&](Operand64 operand, Target target) {
    const bool by_edge = operand && target == Target::kEdge;
    return by_edge ? Operand64(operand->index_select(0, some.edges)) : operand;
  };
  const Operand64 a = of_part(given(m.lhs, uses_lhs(m.op)), m.lhs_target);
  const Operand64 b = of_part(given(m.rhs, uses_rhs(m.op)), m.rhs_target);
  Expected expected{gspmm_reference(part, m.op, reduce, a, b, m.lhs_target, m.rhs_target), {}, {}};

  constexpr double kBefore = 7;  // in the rows that are not written
  Frames frames(m);
  frames.dst["out"] = at::full(expected.out.value.sizes(), kBefore, on_device(m.dtype));
  std::vector<std::int64_t> column(static_cast<std::size_t>(expected.out.value.dim()), 1);
  column[0] = graph.num_dst();
  const at::Tensor written = some.receivers.reshape(column);
  expected.out.value = at::where(written, expected.out.value, kBefore);
  run(way, graph, frames, some.names,
      custom ? custom_message(m) : MessageFunction(builtin_message(m)), {reduce, "m", "out"});

  const at::Tensor out = frames.dst["out"];
  if (out.requires_grad() && !selects) {  // which of equal messages is chosen goes by the names
    const at::Tensor grad = random_gradient(draw, out, values);
    expected.grad = grad;
    expected.gradients = gspmm_gradients(part, m.op, reduce, a, b, grad * written.to(m.dtype),
                                         m.lhs_target, m.rhs_target);
    GradientReference& both = expected.gradients;
    both.lhs = spread(both.lhs, m.lhs_target, some.edges, graph.num_edges());
    both.rhs = spread(both.rhs, m.rhs_target, some.edges, graph.num_edges());
  }
  require_column(m, frames, expected, what, custom ? 5 : 0);
}

}  // namespace mezzo::test
