#include "mezzo/ops/sparse/weighted_grad.h"

#include <ATen/ATen.h>

#include "mezzo/ops/broadcast.h"
#include "mezzo/ops/op.h"
#include "mezzo/ops/sparse/edge_order.h"

namespace mezzo::detail {
namespace {

const void* data_of(const at::Tensor& t) {
  return t.defined() ? t.const_data_ptr() : nullptr;
}

at::Tensor contiguous(const OptionalTensor& t) {
  return t ? t->contiguous() : at::Tensor();
}

struct WeightedGrad {
  TopologyArgument topology;
  at::Tensor x;
  OptionalTensor weight;
  at::Tensor grad;
  OptionalTensor grad_scale, x_scale;
  std::int64_t heads = 1;
  bool x_needs_grad = false;
  at::ScalarType weight_dtype = at::kFloat;

  static constexpr auto name = "_weighted_grad";
  static constexpr bool is_repeatable = true;
  static constexpr auto fields() {
    using A = WeightedGrad;
    return std::tuple(Field{"topology", &A::topology}, Field{"x", &A::x},
                      Field{"weight", &A::weight}, Field{"grad", &A::grad},
                      Field{"grad_scale", &A::grad_scale}, Field{"x_scale", &A::x_scale},
                      Field{"heads", &A::heads}, Field{"x_needs_grad", &A::x_needs_grad},
                      Field{"weight_dtype", &A::weight_dtype});
  }
  using Result = std::tuple<at::Tensor, at::Tensor>;

  template <class Device>
  Result run() const;
  Result meta() const {
    return {x_needs_grad ? shape_of(x) : meta_tensor({0}, x.scalar_type()),
            meta_tensor({topology.rows(Target::kEdge), heads}, weight_dtype)};
  }
};

/// The kernel's rows are sources if x needs a gradient, which is a sum over their edges. Else they
/// are destinations, whose CSR exists since the forward.
template <class Device>
std::tuple<at::Tensor, at::Tensor> weighted_grad_on(const WeightedGrad& in) {
  const Topology& topology = in.topology->value;
  const at::Tensor x = in.x.contiguous(), grad = in.grad.contiguous();
  const at::Tensor weight = contiguous(in.weight);
  const at::Tensor grad_scale = contiguous(in.grad_scale), x_scale = contiguous(in.x_scale);
  const Direction direction(topology, in.x_needs_grad ? RowSide::kSrc : RowSide::kDst);
  at::Tensor x_grad = in.x_needs_grad ? at::empty_like(x) : at::empty({0}, x.options());
  at::Tensor weight_grad =
      at::empty({topology.num_edges(), in.heads}, x.options().dtype(in.weight_dtype));
  if (x.numel() == 0) return {in.x_needs_grad ? at::zeros_like(x) : x_grad, weight_grad.zero_()};
  kernels::WeightedGradArgs args;
  args.entries = direction.entries;
  args.dtype = dtype_of("weighted_grad", x.scalar_type());
  args.heads = in.heads;
  args.features = length_of(x.sizes()) / in.heads;
  args.own = data_of(in.x_needs_grad ? x : grad);
  args.other = data_of(in.x_needs_grad ? grad : x);
  args.own_scale = data_of(in.x_needs_grad ? x_scale : grad_scale);
  args.other_scale = data_of(in.x_needs_grad ? grad_scale : x_scale);
  at::Tensor weights;
  if (in.x_needs_grad) {
    weights = weights_in_order<Device>(topology, direction.side, weight, args.entries);
    args.weight = {weights.const_data_ptr(), weight.scalar_type() != x.scalar_type(), in.heads};
    args.own_grad = x_grad.mutable_data_ptr();
  }
  args.weight_grad = weight_grad.mutable_data_ptr();
  args.weight_grad_is_accum = in.weight_dtype != x.scalar_type();
  Device::run(args, direction, in.heads * args.features);
  return {x_grad, Device::to_edge_order(weight_grad, in.x_needs_grad ? topology.csr_entries()
                                                                     : topology.csc_entries())};
}

template <class Device>
std::tuple<at::Tensor, at::Tensor> WeightedGrad::run() const {
  return weighted_grad_on<Device>(*this);
}

}  // namespace

// The gradient of the weights consists of these dot products; the kernel keeps a destination's row
// in registers.
template <class Device>
at::Tensor edge_dots(const Topology& topology, const at::Tensor& src, const at::Tensor& dst,
                     std::int64_t heads) {
  return std::get<1>(
      WeightedGrad{hold(topology), src, {}, dst, {}, {}, heads, false, src.scalar_type()}
          .run<Device>());
}

template at::Tensor edge_dots<OnCpu>(const Topology&, const at::Tensor&, const at::Tensor&,
                                     std::int64_t);
template at::Tensor edge_dots<OnCuda>(const Topology&, const at::Tensor&, const at::Tensor&,
                                      std::int64_t);

std::optional<std::int64_t> weighted_heads(at::IntArrayRef x, at::IntArrayRef weight) {
  const Broadcast broadcast("weighted_grad", BinaryOp::kMul, x.slice(1), weight.slice(1));
  const kernels::Layout layout = broadcast.layout();
  if (broadcast.out_length() == 0 || length_of(x) != broadcast.out_length()) return std::nullopt;
  if (layout.rhs_step != 0 && layout.inner > 1) return std::nullopt;
  if (length_of(weight) != layout.num_groups) return std::nullopt;
  for (std::int64_t g = 0; g < layout.num_groups; ++g) {
    if (layout.rhs_offset != nullptr && layout.rhs_offset[g] != g) return std::nullopt;
  }
  return layout.num_groups;
}

std::tuple<at::Tensor, at::Tensor> weighted_grad(const TopologyArgument& topology,
                                                 const WeightedSum& sum, const at::Tensor& grad,
                                                 bool x_needs_grad, at::ScalarType weight_dtype) {
  const auto [x_grad, weight_grad] =
      dispatch(WeightedGrad{topology, sum.x, sum.weight, grad, sum.grad_scale, sum.x_scale,
                            sum.heads, x_needs_grad, weight_dtype});
  return {x_needs_grad ? x_grad : at::Tensor(), weight_grad};
}

static const Registration<WeightedGrad> kWeightedGradRegistration;

}  // namespace mezzo::detail
