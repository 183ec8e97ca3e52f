#include "mezzo/message_passing/weighted_grad.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "mezzo/message_passing/arguments.h"
#include "mezzo/message_passing/broadcast.h"
#include "mezzo/message_passing/device.h"
#include "mezzo/message_passing/edge_order.h"
#include "mezzo/message_passing/operators.h"

namespace mezzo {

namespace {

using OptionalTensor = std::optional<at::Tensor>;

const void* data_of(const at::Tensor& t) {
  return t.defined() ? t.const_data_ptr() : nullptr;
}

at::Tensor contiguous(const OptionalTensor& t) {
  return t && t->defined() ? t->contiguous() : at::Tensor();
}

/// Rows are sources where x's gradient is a sum over their edges. For the products alone either
/// side will do: the destinations' rows are there from the forward.
template <class Device>
std::tuple<at::Tensor, at::Tensor> weighted_grad_on(
    const TopologyPtr& holder, const at::Tensor& given_x, const OptionalTensor& given_weight,
    const at::Tensor& given_grad, const OptionalTensor& given_grad_scale,
    const OptionalTensor& given_x_scale, std::int64_t heads, bool x_wanted,
    at::ScalarType weight_dtype) {
  const Topology& topology = holder->value;
  const at::Tensor x = given_x.contiguous(), grad = given_grad.contiguous();
  const at::Tensor weight = contiguous(given_weight);
  const at::Tensor grad_scale = contiguous(given_grad_scale), x_scale = contiguous(given_x_scale);
  const Direction direction(topology, x_wanted ? RowSide::kSrc : RowSide::kDst);
  at::Tensor x_grad = x_wanted ? at::empty_like(x) : at::empty({0}, x.options());
  at::Tensor weight_grad =
      at::empty({topology.num_edges(), heads}, x.options().dtype(weight_dtype));
  if (x.numel() == 0) return {x_wanted ? at::zeros_like(x) : x_grad, weight_grad.zero_()};
  WeightedGradArgs args;
  args.slots = direction.slots;
  args.dtype = dtype_of("weighted_grad", x.scalar_type());
  args.heads = heads;
  args.features = length_of(x.sizes()) / heads;
  args.own = data_of(x_wanted ? x : grad);
  args.other = data_of(x_wanted ? grad : x);
  args.own_scale = data_of(x_wanted ? x_scale : grad_scale);
  args.other_scale = data_of(x_wanted ? grad_scale : x_scale);
  at::Tensor weights;
  if (x_wanted) {
    weights = weights_in_order<Device>(topology, direction.side, weight, args.slots);
    args.weight = {weights.const_data_ptr(), weight.scalar_type() != x.scalar_type(), heads};
    args.own_grad = x_grad.mutable_data_ptr();
  }
  args.weight_grad = weight_grad.mutable_data_ptr();
  args.weight_grad_wide = weight_dtype != x.scalar_type();
  Device::run(args, direction, heads * args.features);
  return {x_grad,
          Device::by_edge(weight_grad, x_wanted ? topology.csr_slots() : topology.csc_slots())};
}

}  // namespace

// The dot products are what the weights' gradient is made of, with a destination's row in registers
// while those of its sources pass by.
template <class Device>
at::Tensor dots_by_edge(const Topology& topology, const at::Tensor& src, const at::Tensor& dst,
                        std::int64_t heads) {
  return std::get<1>(weighted_grad_on<Device>(hold(topology), src, std::nullopt, dst, std::nullopt,
                                              std::nullopt, heads, /*x_wanted=*/false,
                                              src.scalar_type()));
}

template at::Tensor dots_by_edge<OnCpu>(const Topology&, const at::Tensor&, const at::Tensor&,
                                        std::int64_t);
template at::Tensor dots_by_edge<OnCuda>(const Topology&, const at::Tensor&, const at::Tensor&,
                                         std::int64_t);

std::optional<std::int64_t> weighted_heads(at::IntArrayRef x, at::IntArrayRef weight) {
  const Broadcast broadcast("weighted_grad", BinaryOp::kMul, x.slice(1), weight.slice(1));
  const Layout layout = broadcast.layout();
  if (broadcast.out_length() == 0 || length_of(x) != broadcast.out_length()) return std::nullopt;
  if (layout.rhs_step != 0 && layout.inner > 1) return std::nullopt;
  if (length_of(weight) != layout.num_groups) return std::nullopt;
  for (std::int64_t g = 0; g < layout.num_groups; ++g) {
    if (layout.rhs_offset != nullptr && layout.rhs_offset[g] != g) return std::nullopt;
  }
  return layout.num_groups;
}

std::tuple<at::Tensor, at::Tensor> op::weighted_grad(const TopologyPtr& topology,
                                                     const WeightedSum& sum, const at::Tensor& grad,
                                                     bool x_wanted, at::ScalarType weight_dtype) {
  static const auto op = handle<std::tuple<at::Tensor, at::Tensor>(
      const TopologyPtr&, const at::Tensor&, const OptionalTensor&, const at::Tensor&,
      const OptionalTensor&, const OptionalTensor&, std::int64_t, bool, at::ScalarType)>(
      "mezzo::_weighted_grad");
  const auto [x_grad, weight_grad] = op.call(topology, sum.x, sum.weight, grad, sum.grad_scale,
                                             sum.x_scale, sum.heads, x_wanted, weight_dtype);
  return {x_wanted ? x_grad : at::Tensor(), weight_grad};
}

TORCH_LIBRARY_FRAGMENT(mezzo, m) {
  register_topology_class();
  m.def(
      "_weighted_grad(__torch__.torch.classes.mezzo.Topology topology, Tensor x, Tensor? weight, "
      "Tensor grad, Tensor? grad_scale, Tensor? x_scale, int heads, bool x_wanted, ScalarType "
      "weight_dtype) -> (Tensor, Tensor)");
}

template <class Device>
void declare_weighted_grad(torch::Library& m) {
  m.impl("_weighted_grad", &weighted_grad_on<Device>);
}

template void declare_weighted_grad<OnCpu>(torch::Library&);
template void declare_weighted_grad<OnCuda>(torch::Library&);

}  // namespace mezzo
