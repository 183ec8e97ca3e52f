// Compares the functions that compute columns of all or selected edges and nodes with the
// definitions.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mezzo/graph/frame.h"
#include "mezzo/message_passing/update_all.h"
#include "mezzo/ops/ops.h"

#include "fuzz/checks.h"
#include "fuzz/functions.h"

namespace mezzo::test {
namespace {

/// The rows that a function computes.
struct SomeRows {
  at::Tensor mask;                  ///< bool, one per row
  std::optional<at::Tensor> names;  ///< the function's argument; absent: all rows
};

SomeRows random_rows(Draw& draw, std::int64_t count) {
  if (draw.coin()) return {at::ones({count}, on_device(at::kBool)), std::nullopt};
  const at::Tensor mask = random_mask(draw, count);
  return {mask, row_names(draw, mask)};
}

}  // namespace

void check_apply_edges(Draw& draw) {
  const Topology graph = random_graph(draw, draw.coin());
  const Values values = draw.coin() ? Values::kWhole : Values::kAny;
  const RandomMessage m = random_message(draw, graph, values);
  const bool custom = draw.coin() && !is_mixed(m);
  const SomeRows some = random_rows(draw, graph.num_edges());
  const std::string what =
      fmt::format("apply_edges of a {} message, {} edges, {}", custom ? "user-defined" : "built-in",
                  some.names ? "some" : "all", m.text());
  const Operand64 a = given(m.lhs, uses_lhs(m.op)), b = given(m.rhs, uses_rhs(m.op));
  Expected expected{message(graph, m.op, a, b, m.lhs_target, m.rhs_target), {}, {}};

  Frames frames(m);
  const double before = draw.coin() ? 7 : 0;  // in the other rows
  if (before != 0) {
    frames.edge["m"] = at::full(expected.out.value.sizes(), before, on_device(m.dtype));
  }
  apply_edges(graph, frames.src, frames.edge, frames.dst,
              custom ? custom_message(m) : MessageFunction(builtin_message(m)), some.names);
  const at::Tensor out = frames.edge["m"];
  if (!custom && !some.names) {
    const at::Tensor same = gsddmm(graph, m.op, m.lhs, m.rhs, m.lhs_target, m.rhs_target);
    require(same_bits(out, same), what);
  }

  const at::Tensor computed = aligned(some.mask, expected.out.value.dim());
  expected.out.value = at::where(computed, expected.out.value, before);
  if (out.requires_grad()) {
    const at::Tensor grad = random_gradient(draw, out, values);
    expected.gradients = gsddmm_gradients(graph, m.op, a, b, grad * computed.to(m.dtype),
                                          m.lhs_target, m.rhs_target);
    const bool holds = is_wide(m) || gradients_fit(expected.gradients, m, values);
    if (!custom || holds) expected.grad = grad;
  }
  // Two roundings of a message of half an epsilon; or, back, three of a quotient's gradient, one of
  // a sum over what broadcasts and one of a sum over the edges of a node.
  constexpr double kStored = 3;
  require_column(m, frames, out, expected, what, custom ? kStored * info(m.dtype).epsilon : 0);
}

void check_apply_nodes(Draw& draw) {
  const auto count = draw.one_of<std::int64_t>({0, 1, 2, 5, 20, 150});
  const at::ScalarType dtype = draw.one_of(dtypes()).scalar;
  auto sizes = draw.one_of<std::vector<std::int64_t>>({{}, {1}, {5}, {2, 3}, {33}, {0}});
  sizes.insert(sizes.begin(), count);
  const at::Tensor x = random_leaf(draw, integers(sizes, dtype, draw.seed()));
  const SomeRows some = random_rows(draw, count);
  const bool over = draw.coin();  // overwrite the input column
  const std::string column = over ? "x" : "out";
  const std::string what =
      fmt::format("apply_nodes of {} [{}], {} nodes, into '{}'", c10::toString(dtype),
                  fmt::join(sizes, ","), some.names ? "some" : "all", column);

  Frame nodes("node", count, test_device());
  nodes["x"] = x;
  const auto function = [&](const NodeBatch& batch) -> Columns {
    return {{column, batch.data("x") * -2}};
  };
  apply_nodes(nodes, function, some.names);
  const at::Tensor out = nodes[column], computed = aligned(some.mask, x.dim());
  const at::Tensor wide = x.detach().to(at::kDouble);
  const double rest = over ? 1 : 0;  // times x, in the other rows
  if (out.scalar_type() != dtype) throw Failure(what + ": result of another dtype");
  require(exact(out, at::where(computed, wide * -2, wide * rest)), what);
  if (out.requires_grad() != x.requires_grad()) throw Failure(what + ": gradient, or none");
  if (!out.requires_grad()) return;
  const at::Tensor grad = random_gradient(draw, out, Values::kWhole);
  out.backward(grad);
  const at::Tensor due = grad.to(at::kDouble);
  require(exact(x.grad(), at::where(computed, due * -2, due * rest)), "gradient, " + what);
}

}  // namespace mezzo::test
