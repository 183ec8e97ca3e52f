#pragma once

#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include "mezzo/core/type_list.h"
#include "mezzo/graph/topology.h"
#include "mezzo/ops/ops.h"

// What the registrations of the ops share; internal to message_passing.

namespace mezzo {

/// A Topology as libtorch passes it to operators ("torchbind").
struct TopologyHolder : torch::CustomClassHolder {
  explicit TopologyHolder(Topology topology) : value(std::move(topology)) {}
  Topology value;
};
using TopologyPtr = c10::intrusive_ptr<TopologyHolder>;

/// Makes TopologyHolder known to libtorch. Every registration of an operator that takes one calls
/// it first: the order of static initialisers over several files is not fixed.
void register_topology_class();

inline TopologyPtr hold(const Topology& topology) {
  return c10::make_intrusive<TopologyHolder>(topology);
}

/// The registered operator of this name, to be called through the dispatcher.
template <class Signature>
auto handle(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

/// States that a call of the operator may be repeated in float32 to find what underflowed in 16
/// bits, as amp::Watch does: it multiplies, divides or exponentiates, draws nothing and has no
/// state. name: without the namespace.
void declare_repeatable(const char* name);

/// Whether that was stated. name: "mezzo::gspmm".
bool is_repeatable(std::string_view name);

/// A message: two operands, where they are read from and the op that joins them.
struct Message {
  BinaryOp op = BinaryOp::kCopyLhs;
  std::optional<at::Tensor> lhs, rhs;
  Target lhs_target = Target::kSrc, rhs_target = Target::kEdge;
};

/// The loss's gradient with respect to every message, as it reaches the operands' gradient.
struct MessageGrad {
  at::Tensor grad;                             ///< rows of grad_target
  Target grad_target;                          ///< kDst for gspmm, kEdge for gsddmm
  std::optional<at::Tensor> arg = {};          ///< ids [num_dst, ...] of max, min and prod
  std::optional<at::Tensor> product = {};      ///< accumulator type, like grad; of prod
  std::optional<at::Tensor> grad_scale = {};   ///< accumulator type, by grad's row
  std::optional<at::Tensor> other_scale = {};  ///< accumulator type, by the other operand's row
};

struct NormalizeByDst {
  static constexpr NormalizeBy kind = NormalizeBy::kDst;
  static constexpr std::string_view name = "dst";
};
struct NormalizeBySrc {
  static constexpr NormalizeBy kind = NormalizeBy::kSrc;
  static constexpr std::string_view name = "src";
};
/// As the operators name them.
using NormalizeBys = TypeList<NormalizeByDst, NormalizeBySrc>;

// Parts that other operators call; each goes through the dispatcher.
namespace op {

/// x W^T + bias for strided x, or without transposition x W.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias, bool transposed);
/// a^T b.
at::Tensor transposed_product(const at::Tensor& a, const at::Tensor& b);

}  // namespace op
}  // namespace mezzo
