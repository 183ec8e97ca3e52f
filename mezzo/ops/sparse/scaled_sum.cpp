// A weighted sum of rows with scales of nodes, and its gradient.
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/ops/op.h"
#include "mezzo/ops/ops.h"
#include "mezzo/ops/sparse/edge_order.h"
#include "mezzo/ops/sparse/weighted_grad.h"

namespace mezzo::detail {
namespace {

struct ScaledSumInputs {
  TopologyArgument topology;
  at::Tensor x;
  OptionalTensor weight, src_scale, dst_scale;

  static constexpr auto fields() {
    using A = ScaledSumInputs;
    return std::tuple(Field{"topology", &A::topology}, Field{"x", &A::x},
                      Field{"weight", &A::weight}, Field{"src_scale", &A::src_scale},
                      Field{"dst_scale", &A::dst_scale});
  }
};

/// The contiguous scale, or an undefined tensor. Throws InvalidArgument unless it has one number a
/// node in the accumulator's type.
at::Tensor checked_scale(const char* name, const OptionalTensor& scale, std::int64_t rows,
                         at::ScalarType type, at::Device device) {
  if (!scale) return {};
  const at::ScalarType accumulator = accumulator_of(type);
  MEZZO_CHECK(scale->dim() == 1 && scale->size(0) == rows && scale->scalar_type() == accumulator &&
                  scale->device() == device,
              "scaled_sum: expected {} {} [{}] on {}, got {} {} on {}", name,
              c10::toString(accumulator), rows, device.str(), c10::toString(scale->scalar_type()),
              c10::str(scale->sizes()), scale->device().str());
  return scale->contiguous();
}

/// If `transposed`, x belongs to the destinations and the result to the sources. src_scale always
/// scales x, dst_scale the result.
template <class Device>
at::Tensor scaled_sum_on(const ScaledSumInputs& in, bool transposed) {
  const Topology& topology = in.topology->value;
  const at::Tensor& x = in.x;
  const Target from = transposed ? Target::kDst : Target::kSrc;
  const Target to = transposed ? Target::kSrc : Target::kDst;
  Message message{BinaryOp::kCopyLhs, x, std::nullopt, from, Target::kEdge};
  if (in.weight) {
    const at::Tensor& weight = *in.weight;
    MEZZO_CHECK(weight.numel() == topology.num_edges() && weight.dim() >= 1 &&
                    weight.size(0) == topology.num_edges(),
                "scaled_sum: expected weight [{}] or [{}, 1], one an edge, got {}",
                topology.num_edges(), topology.num_edges(), c10::str(weight.sizes()));
    message.op = BinaryOp::kMul;
    message.rhs = weight.reshape({-1, 1});
  }
  const CheckedMessage checked("scaled_sum", topology, message);
  const at::Tensor x_scale = checked_scale("src_scale", in.src_scale, rows_of(topology, from),
                                           x.scalar_type(), topology.device());
  const at::Tensor row_scale = checked_scale("dst_scale", in.dst_scale, rows_of(topology, to),
                                             x.scalar_type(), topology.device());
  const Direction direction(topology, transposed ? RowSide::kSrc : RowSide::kDst);
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape[0] = rows_of(topology, to);
  at::Tensor out = at::empty(shape, x.options());
  kernels::SpmmArgs args;
  args.entries = direction.entries;
  args.lhs = checked.lhs(direction);
  args.rhs = checked.rhs(direction);
  args.layout.inner = checked.broadcast().out_length();
  args.layout.rhs_step = 0;
  args.op = message.op;
  args.reduce = ReduceOp::kSum;
  args.dtype = dtype_of("scaled_sum", x.scalar_type());
  args.lhs_scale = x_scale.defined() ? x_scale.const_data_ptr() : nullptr;
  args.row_scale = row_scale.defined() ? row_scale.const_data_ptr() : nullptr;
  args.out = out.mutable_data_ptr();
  args.out_length = args.layout.inner;
  const at::Tensor weights = order_weights<Device>(topology, direction, args);
  Device::run(args, direction, args.out_length);
  return out;
}

struct DirectedScaledSum : ScaledSumInputs {
  bool transposed = false;

  static constexpr auto name = "_scaled_sum";
  static constexpr bool is_repeatable = true;
  static constexpr auto fields() {
    return std::tuple_cat(ScaledSumInputs::fields(),
                          std::tuple(Field{"transposed", &DirectedScaledSum::transposed}));
  }
  using Result = at::Tensor;

  template <class Device>
  Result run() const {
    return scaled_sum_on<Device>(*this, transposed);
  }
  Result meta() const {
    return shape_of(x, 0, topology.rows(transposed ? Target::kSrc : Target::kDst));
  }
};

struct ScaledSum : ScaledSumInputs {
  static constexpr auto name = "scaled_sum";
  static constexpr bool is_repeatable = true;
  using Result = at::Tensor;

  template <class Device>
  Result run() const {
    return scaled_sum_on<Device>(*this, /*transposed=*/false);
  }
  Result meta() const { return shape_of(x, 0, topology.rows(Target::kDst)); }

  void lower(at::DeviceType device) { x = lowered(x, device); }

  void check() const {
    for (const auto& [scale, tensor] :
         {std::pair{"src_scale", &src_scale}, std::pair{"dst_scale", &dst_scale}}) {
      MEZZO_CHECK(!at::GradMode::is_enabled() || !*tensor || !(*tensor)->requires_grad(),
                  "scaled_sum: expected {} without a gradient, for scales are constants, got one "
                  "that requires it",
                  scale);
    }
  }

  static at::Tensor forward(Saved<ScaledSum>& saved) {
    const at::Tensor out = dispatch(DirectedScaledSum{{saved.op}, /*transposed=*/false});
    if (!saved.needs_grad.contains("weight")) saved.op.x.reset();
    if (saved.op.weight && !saved.needs_grad.contains("x")) {
      saved.op.weight = shape_of(*saved.op.weight);
    }
    return out;
  }

  static ScaledSum backward(const Saved<ScaledSum>& saved, const at::Tensor& grad) {
    const auto& [topology, x, weight, src_scale, dst_scale] =
        static_cast<const ScaledSumInputs&>(saved.op);
    ScaledSum gradients;
    if (saved.needs_grad.contains("weight")) {
      const bool x_needs_grad = saved.needs_grad.contains("x");
      const auto [x_grad, weight_grad] =
          weighted_grad(topology,
                        {.x = x,
                         .weight = x_needs_grad ? weight : std::nullopt,
                         .heads = 1,
                         .grad_scale = dst_scale,
                         .x_scale = src_scale},
                        grad, x_needs_grad, weight->scalar_type());
      gradients.x = x_grad;
      gradients.weight = weight_grad.view_symint(weight->sym_sizes());
    } else if (saved.needs_grad.contains("x")) {
      gradients.x = dispatch(
          DirectedScaledSum{{topology, grad, weight, dst_scale, src_scale}, /*transposed=*/true});
    }
    return gradients;
  }
};

const Registration<ScaledSum, DirectedScaledSum> kScaledSumRegistration;

}  // namespace
}  // namespace mezzo::detail

namespace mezzo {

at::Tensor scaled_sum(const Topology& topology, const at::Tensor& x,
                      const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& src_scale,
                      const std::optional<at::Tensor>& dst_scale) {
  detail::check_strided("scaled_sum", "x", x);
  detail::check_strided("scaled_sum", "weight", weight);
  detail::check_strided("scaled_sum", "src_scale", src_scale);
  detail::check_strided("scaled_sum", "dst_scale", dst_scale);
  return detail::dispatch(
      detail::ScaledSum{{detail::hold(topology), x, weight, src_scale, dst_scale}});
}

}  // namespace mezzo
