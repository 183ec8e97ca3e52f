// Compares reductions of messages, by gspmm and by the functions on frames, along all or selected
// edges, with the definitions.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/graph/graph.h"
#include "mezzo/message_passing/update_all.h"
#include "mezzo/ops/ops.h"

#include "fuzz/checks.h"
#include "fuzz/functions.h"

namespace mezzo::test {
namespace {

/// Checks that gspmm and its gradients have the same bits on another number of threads.
void require_same_on_threads(Draw& draw, const Reduction& r, const at::Tensor& out,
                             const std::optional<at::Tensor>& grad) {
  const RandomMessage& m = r.m;
  const std::string what = r.text() + ", on other threads";
  const auto again = [](const std::optional<at::Tensor>& operand) {
    if (!operand) return std::optional<at::Tensor>();
    return std::optional<at::Tensor>(operand->detach().set_requires_grad(operand->requires_grad()));
  };
  const std::optional<at::Tensor> lhs = again(m.lhs), rhs = again(m.rhs);
  const ThreadCount threads(1 + static_cast<int>(draw.below(3)));
  const at::Tensor got = gspmm(r.graph, m.op, r.op, lhs, rhs, m.lhs_target, m.rhs_target);
  require(same_bits(got.detach(), out.detach()), what);
  if (!grad) return;
  got.backward(*grad);
  const auto require_same = [&](const std::optional<at::Tensor>& one,
                                const std::optional<at::Tensor>& before, const char* side) {
    if (!before || !before->grad().defined()) return;
    require(same_bits(one->grad(), before->grad()), std::string(side) + what);
  };
  require_same(lhs, m.lhs, "gradient to the lhs, ");
  require_same(rhs, m.rhs, "gradient to the rhs, ");
}

/// Checks update_all and its gradients: with built-in functions bitwise equal to gspmm, with
/// user-defined ones equal up to the rounding of stored intermediates.
void check_update_all(Draw& draw, const Reduction& r, const at::Tensor& out,
                      const Expected& expected) {
  const RandomMessage& m = r.m;
  const BuiltinReduce reduction{r.op, "m", "out"};
  const std::string builtin = "update_all of built-in functions, " + r.text();
  Frames frames(m);
  update_all(m.graph, frames.src, frames.edge, frames.dst, builtin_message(m), reduction);
  require(same_bits(frames.dst["out"], out), builtin);
  require_column(m, frames, frames.dst["out"], expected, builtin, 0);
  if (m.graph.num_src() == m.graph.num_dst()) {
    Graph graph(m.graph);
    for (const char* name : {"lhs", "rhs"}) {
      if (frames.src.contains(name)) graph.ndata()[name] = frames.src[name];
      if (frames.dst.contains(name)) graph.ndata()[name] = frames.dst[name];
      if (frames.edge.contains(name)) graph.edata()[name] = frames.edge[name];
    }
    graph.update_all(builtin_message(m), reduction);
    require(same_bits(graph.ndata()["out"], out), "Graph::update_all, " + r.text());
  }
  const Forms forms = random_forms(draw, r);
  if (!forms.any()) return;
  Frames own(m);
  update_all(m.graph, own.src, own.edge, own.dst, forms.message_of(r), forms.reduce_of(r));
  Expected wanted = expected;
  if (wanted.grad && !gradients_hold(r, wanted.gradients)) wanted.grad.reset();
  require_column(m, own, own.dst["out"], wanted, "update_all of " + forms.text() + r.text(),
                 stored_epsilon(r, forms));
}

}  // namespace

void check_reduction(Draw& draw) {
  const Topology graph = random_graph(draw, draw.below(3) != 0);
  const ReduceOp reduce = random_reduce(draw, graph);
  const Values values = random_values(draw, reduce);
  const RandomMessage m = random_message(draw, graph, values);
  const Reduction r{
      m, graph, reduce, values, given(m.lhs, uses_lhs(m.op)), given(m.rhs, uses_rhs(m.op))};
  const std::string what = r.text();
  const at::Tensor out = gspmm(graph, m.op, reduce, m.lhs, m.rhs, m.lhs_target, m.rhs_target);
  if (out.scalar_type() != m.dtype) throw Failure(what + ": result of another dtype");
  Expected all{r.out(), {}, {}};
  require_near(out, all.out, what);
  all.grad = backward(draw, out, values);
  if (all.grad) {
    all.gradients = r.gradients(*all.grad);
    require_gradient(m.lhs, uses_lhs(m.op), all.gradients.lhs, "gradient to the lhs, " + what);
    require_gradient(m.rhs, uses_rhs(m.op), all.gradients.rhs, "gradient to the rhs, " + what);
  }
  require_same_on_threads(draw, r, out, all.grad);
  check_update_all(draw, r, out, all);
}

namespace {

/// How the function selects edges.
enum class Way : std::uint8_t { kSendAndRecv, kPull, kPush };

/// A selection of edges.
struct SomeEdges {
  at::Tensor names;      ///< the function's argument
  at::Tensor edges;      ///< int64, ascending
  at::Tensor receivers;  ///< bool [num_dst]: the destinations whose rows are written
};

SomeEdges some_edges(Draw& draw, const Topology& graph, Way way) {
  const Target named = way == Way::kSendAndRecv ? Target::kEdge
                       : way == Way::kPull      ? Target::kDst
                                                : Target::kSrc;
  const at::Tensor mask = random_mask(draw, num_rows(graph, named));
  SomeEdges some;
  some.names = row_names(draw, mask);
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
         const MessageFunction& message, const ReduceFunction& reduction) {
  switch (way) {
    case Way::kSendAndRecv:
      return send_and_recv(graph, f.src, f.edge, f.dst, names, message, reduction);
    case Way::kPull:
      return pull(graph, f.src, f.edge, f.dst, names, message, reduction);
    case Way::kPush:
      return push(graph, f.src, f.edge, f.dst, names, message, reduction);
  }
}

/// The nodes of `graph` with these edges only.
Topology part_of(const Topology& graph, const at::Tensor& edges) {
  return Topology::from_coo(row_ids(graph, Target::kSrc).index_select(0, edges),
                            row_ids(graph, Target::kDst).index_select(0, edges), graph.num_src(),
                            graph.num_dst());
}

/// The operand's rows that `edges` read.
Operand64 rows_of(const Operand64& operand, Target target, const at::Tensor& edges) {
  const bool by_edge = operand && target == Target::kEdge;
  return by_edge ? Operand64(operand->index_select(0, edges)) : operand;
}

/// Extends rows of selected edges to all edges, with 0 for the others.
Reference spread(const Reference& rows, Target target, const at::Tensor& edges,
                 std::int64_t num_edges) {
  if (target != Target::kEdge || !rows.value.defined()) return rows;
  auto sizes = rows.value.sizes().vec();
  sizes[0] = num_edges;
  const auto wide = [&](const at::Tensor& t) {
    return at::zeros(sizes, t.options()).index_copy(0, edges.to(t.device()), t);
  };
  Reference all = rows;
  all.value = wide(rows.value);
  all.abs_sum = wide(rows.abs_sum);
  return all;
}

/// The operands' gradients, for all edges, from the gradient of the receivers' rows.
GradientReference gradients_of(const Reduction& r, const SomeEdges& some, const at::Tensor& grad) {
  GradientReference both = r.gradients(grad);
  both.lhs = spread(both.lhs, r.m.lhs_target, some.edges, r.m.graph.num_edges());
  both.rhs = spread(both.rhs, r.m.rhs_target, some.edges, r.m.graph.num_edges());
  return both;
}

}  // namespace

void check_some_edges(Draw& draw) {
  const Topology graph = random_graph(draw, draw.coin());
  const Way way = draw.one_of<Way>({Way::kSendAndRecv, Way::kPull, Way::kPush});
  const SomeEdges some = some_edges(draw, graph, way);
  const Topology part = part_of(graph, some.edges);
  const ReduceOp reduce = random_reduce(draw, part);
  const Values values = random_values(draw, reduce);
  const RandomMessage m = random_message(draw, graph, values);
  const Reduction r{m,
                    part,
                    reduce,
                    values,
                    rows_of(given(m.lhs, uses_lhs(m.op)), m.lhs_target, some.edges),
                    rows_of(given(m.rhs, uses_rhs(m.op)), m.rhs_target, some.edges)};
  const Forms forms = random_forms(draw, r);
  const char* names[] = {"send_and_recv", "pull", "push"};
  const std::string what =
      std::string(names[static_cast<int>(way)]) + " of " + forms.text() + r.text();
  Expected expected{r.out(), {}, {}};

  constexpr double kBefore = 7;  // in the other rows
  Frames frames(m);
  frames.dst["out"] = at::full(expected.out.value.sizes(), kBefore, on_device(m.dtype));
  const at::Tensor written = aligned(some.receivers, expected.out.value.dim());
  expected.out.value = at::where(written, expected.out.value, kBefore);
  run(way, graph, frames, some.names, forms.message_of(r), forms.reduce_of(r));

  const at::Tensor out = frames.dst["out"];
  if (out.requires_grad() && !r.selects()) {  // ties are resolved by the order of the ids
    const at::Tensor grad = random_gradient(draw, out, values);
    expected.gradients = gradients_of(r, some, grad * written.to(m.dtype));
    if (!forms.any() || gradients_hold(r, expected.gradients)) expected.grad = grad;
  }
  require_column(m, frames, out, expected, what, stored_epsilon(r, forms));
}

}  // namespace mezzo::test
