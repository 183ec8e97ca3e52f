#include "mezzo/message_passing/ops.h"

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/selection.h"
#include "mezzo/message_passing/arguments.h"
#include "mezzo/message_passing/schema.h"
#include "mezzo/message_passing/sparse_linear.h"

namespace mezzo {

namespace {

void check_strided(const char* operation, const char* name,
                   const std::optional<at::Tensor>& tensor) {
  MEZZO_CHECK(!tensor || !tensor->defined() || tensor->layout() == at::kStrided,
              "{}: expected a strided {}, got {}", operation, name, c10::str(tensor->layout()));
}

/// The same nodes and, as edge i, edge ids[i] (int64).
Topology of_some_edges(const Topology& topology, const at::Tensor& ids) {
  return Topology::from_coo(topology.src().index_select(0, ids),
                            topology.dst().index_select(0, ids), topology.num_src(),
                            topology.num_dst());
}

}  // namespace

at::Tensor gspmm(const Topology& topology, BinaryOp op, ReduceOp reduce,
                 const std::optional<at::Tensor>& lhs, const std::optional<at::Tensor>& rhs,
                 Target lhs_target, Target rhs_target) {
  static const auto registered = handle<at::Tensor(
      const TopologyPtr&, c10::string_view, c10::string_view, const std::optional<at::Tensor>&,
      const std::optional<at::Tensor>&, c10::string_view, c10::string_view)>("mezzo::gspmm");
  MEZZO_CHECK((lhs && lhs->defined()) || (rhs && rhs->defined()),
              "gspmm: expected at least one operand, got none");
  check_strided("gspmm", "lhs", lhs);
  check_strided("gspmm", "rhs", rhs);
  return registered.call(hold(topology), name_of(BinaryOps{}, op), name_of(ReduceOps{}, reduce),
                         lhs, rhs, name_of(Targets{}, lhs_target), name_of(Targets{}, rhs_target));
}

at::Tensor gsddmm(const Topology& topology, BinaryOp op, const std::optional<at::Tensor>& lhs,
                  const std::optional<at::Tensor>& rhs, Target lhs_target, Target rhs_target) {
  MEZZO_CHECK((lhs && lhs->defined()) || (rhs && rhs->defined()),
              "gsddmm: expected at least one operand, got none");
  check_strided("gsddmm", "lhs", lhs);
  check_strided("gsddmm", "rhs", rhs);
  return op::gsddmm(hold(topology), {op, lhs, rhs, lhs_target, rhs_target});
}

at::Tensor scaled_sum(const Topology& topology, const at::Tensor& x,
                      const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& src_scale,
                      const std::optional<at::Tensor>& dst_scale) {
  static const auto registered =
      handle<at::Tensor(const TopologyPtr&, const at::Tensor&, const std::optional<at::Tensor>&,
                        const std::optional<at::Tensor>&, const std::optional<at::Tensor>&)>(
          "mezzo::scaled_sum");
  check_defined("scaled_sum", "x", x);
  check_strided("scaled_sum", "x", x);
  check_strided("scaled_sum", "weight", weight);
  check_strided("scaled_sum", "src_scale", src_scale);
  check_strided("scaled_sum", "dst_scale", dst_scale);
  return registered.call(hold(topology), x, weight, src_scale, dst_scale);
}

at::Tensor edge_softmax(const Topology& topology, const at::Tensor& logits, NormalizeBy by,
                        const std::optional<at::Tensor>& edges) {
  constexpr const char* kOperation = "edge_softmax";
  check_defined(kOperation, "logits", logits);
  check_strided(kOperation, "logits", logits);
  if (!edges) return op::edge_softmax(hold(topology), logits, by);
  const at::Tensor ids =
      detail::selected_ids(kOperation, "edges", *edges, topology.num_edges(), topology.device());
  detail::check_distinct(kOperation, "edges", ids);
  return op::edge_softmax(hold(of_some_edges(topology, ids)), logits, by);
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  static const auto registered =
      handle<at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&)>(
          "mezzo::linear");
  check_defined("linear", "x", x);
  check_defined("linear", "weight", weight);
  MEZZO_CHECK(x.dim() >= 1 && weight.dim() == 2 && x.size(-1) == weight.size(1),
              "linear: expected x [N, in] and weight [out, in], got x {} and weight {}",
              detail::describe(x), detail::describe(weight));
  MEZZO_CHECK(!bias.defined() || (bias.dim() == 1 && bias.size(0) == weight.size(0)),
              "linear: expected bias [{}], got {}", weight.size(0), c10::str(bias.sizes()));
  const std::optional<at::Tensor> optional_bias =
      bias.defined() ? std::optional(bias) : std::nullopt;
  check_strided("linear", "weight", weight);
  check_strided("linear", "bias", optional_bias);
  if (x.layout() == at::kSparseCsr) return sparse_linear(x, weight, optional_bias);
  MEZZO_CHECK(x.layout() == at::kStrided, "linear: expected x strided or sparse CSR, got {}",
              c10::str(x.layout()));
  return registered.call(x, weight, optional_bias);
}

}  // namespace mezzo
