// The operators: from checked tensors to kernels' arguments, and their results.
#include "mezzo/message_passing/operators.h"

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/core/parse.h"
#include "mezzo/message_passing/arguments.h"
#include "mezzo/message_passing/device.h"
#include "mezzo/message_passing/edge_order.h"
#include "mezzo/message_passing/schema.h"
#include "mezzo/message_passing/weighted_grad.h"

namespace mezzo {

namespace {

using OptionalTensor = std::optional<at::Tensor>;

std::vector<std::int64_t> with_rows(std::int64_t rows, const std::vector<std::int64_t>& trailing) {
  std::vector<std::int64_t> shape = {rows};
  shape.insert(shape.end(), trailing.begin(), trailing.end());
  return shape;
}

/// The result, and what its gradient needs (see op::gspmm).
template <class Device>
std::tuple<at::Tensor, at::Tensor, at::Tensor> reduced_on(const Topology& topology,
                                                          const Message& message, ReduceOp reduce) {
  const CheckedMessage checked("gspmm", topology, message);
  const Direction direction(topology, RowSide::kDst);
  const auto options = at::TensorOptions().device(topology.device());
  const auto shape = with_rows(topology.num_dst(), checked.broadcast().out_shape());
  at::Tensor out = at::empty(shape, options.dtype(checked.result_type()));
  const bool multiplies = traits_of(reduce).multiplies;
  const bool has_arg = traits_of(reduce).selects || multiplies;
  const std::vector<std::int64_t> none = {0};
  at::Tensor arg = at::empty(has_arg ? shape : none, options.dtype(topology.id_dtype()));
  at::Tensor product =
      at::empty(multiplies ? shape : none, options.dtype(accumulator_of(checked.result_type())));
  SpmmArgs args;
  args.slots = direction.slots;
  args.lhs = checked.lhs(direction);
  args.rhs = checked.rhs(direction);
  args.layout = Device::layout(checked.broadcast().layout(), direction.device);
  args.op = checked.broadcast().op();
  args.reduce = reduce;
  args.dtype = dtype_of("gspmm", checked.result_type());
  args.out = out.mutable_data_ptr();
  args.out_length = checked.broadcast().out_length();
  args.arg = has_arg ? arg.mutable_data_ptr() : nullptr;
  args.arg_wide = topology.id_dtype() == at::kLong;
  args.product = multiplies ? product.mutable_data_ptr() : nullptr;
  const at::Tensor weights = order_weights<Device>(topology, direction, args);
  Device::run(args, direction, args.out_length);
  return {out, arg, product};
}

template <class Device>
std::tuple<at::Tensor, at::Tensor, at::Tensor> gspmm_with_arg(
    const TopologyPtr& topology, c10::string_view op, c10::string_view reduce,
    const OptionalTensor& lhs, const OptionalTensor& rhs, c10::string_view lhs_target,
    c10::string_view rhs_target) {
  const Message message{parse(BinaryOps{}, "gspmm: op", op), lhs, rhs,
                        parse(Targets{}, "gspmm: lhs_target", lhs_target),
                        parse(Targets{}, "gspmm: rhs_target", rhs_target)};
  return reduced_on<Device>(topology->value, message, parse(ReduceOps{}, "gspmm: reduce", reduce));
}

template <class Device>
at::Tensor gspmm_on(const TopologyPtr& topology, c10::string_view op, c10::string_view reduce,
                    const OptionalTensor& lhs, const OptionalTensor& rhs,
                    c10::string_view lhs_target, c10::string_view rhs_target) {
  return std::get<0>(
      gspmm_with_arg<Device>(topology, op, reduce, lhs, rhs, lhs_target, rhs_target));
}

/// Whether the message is the dot product of a source's and a destination's row, nothing repeated.
bool is_plain_dot(const Message& m, const CheckedMessage& checked) {
  if (checked.broadcast().op() != BinaryOp::kDot || checked.broadcast().out_length() == 0) {
    return false;
  }
  const bool of_both = (m.lhs_target == Target::kSrc && m.rhs_target == Target::kDst) ||
                       (m.lhs_target == Target::kDst && m.rhs_target == Target::kSrc);
  return of_both && m.lhs->sizes().slice(1) == m.rhs->sizes().slice(1);
}

template <class Device>
at::Tensor gsddmm_on(const TopologyPtr& holder, c10::string_view op, const OptionalTensor& lhs,
                     const OptionalTensor& rhs, c10::string_view lhs_target,
                     c10::string_view rhs_target) {
  const Topology& topology = holder->value;
  const Message message{parse(BinaryOps{}, "gsddmm: op", op), lhs, rhs,
                        parse(Targets{}, "gsddmm: lhs_target", lhs_target),
                        parse(Targets{}, "gsddmm: rhs_target", rhs_target)};
  const CheckedMessage checked("gsddmm", topology, message);
  const auto shape = with_rows(topology.num_edges(), checked.broadcast().out_shape());
  if (is_plain_dot(message, checked)) {
    const bool src_first = message.lhs_target == Target::kSrc;
    return dots_by_edge<Device>(topology, (src_first ? *lhs : *rhs).contiguous(),
                                (src_first ? *rhs : *lhs).contiguous(),
                                checked.broadcast().out_length())
        .view(shape);
  }
  const Direction direction(topology, RowSide::kDst);
  const auto options = at::TensorOptions().device(topology.device());
  const EdgeResult<Device> out(topology, direction.side,
                               at::empty(shape, options.dtype(checked.result_type())));
  SddmmArgs args;
  args.slots = direction.slots;
  args.lhs = checked.lhs(direction);
  args.rhs = checked.rhs(direction);
  args.layout = Device::layout(checked.broadcast().layout(), direction.device);
  args.op = checked.broadcast().op();
  args.dtype = dtype_of("gsddmm", checked.result_type());
  args.out_ids = out.places();
  args.out = out.data();
  args.out_length = checked.broadcast().out_length();
  Device::run(args, direction, args.out_length);
  return out.in_edge_order();
}

/// Scales by node in the accumulator's type. Throws InvalidArgument unless one number a node.
at::Tensor checked_scale(const char* name, const OptionalTensor& scale, std::int64_t rows,
                         at::ScalarType type, at::Device device) {
  if (!scale || !scale->defined()) return {};
  const at::ScalarType accumulator = accumulator_of(type);
  MEZZO_CHECK(scale->dim() == 1 && scale->size(0) == rows && scale->scalar_type() == accumulator &&
                  scale->device() == device,
              "scaled_sum: expected {} {} [{}] on {}, got {} {} on {}", name,
              c10::toString(accumulator), rows, device.str(), c10::toString(scale->scalar_type()),
              c10::str(scale->sizes()), scale->device().str());
  return scale->contiguous();
}

/// With `transposed` the rows are the sources and x stands at the destinations; src_scale always
/// goes with x, dst_scale with the result.
template <class Device>
at::Tensor scaled_sum_transposed(const TopologyPtr& holder, const at::Tensor& x,
                                 const OptionalTensor& weight, const OptionalTensor& src_scale,
                                 const OptionalTensor& dst_scale, bool transposed) {
  const Topology& topology = holder->value;
  const Target from = transposed ? Target::kDst : Target::kSrc;
  const Target to = transposed ? Target::kSrc : Target::kDst;
  const bool weighted = weight && weight->defined();
  Message message{BinaryOp::kCopyLhs, x, std::nullopt, from, Target::kEdge};
  if (weighted) {
    MEZZO_CHECK(weight->numel() == topology.num_edges() && weight->dim() >= 1 &&
                    weight->size(0) == topology.num_edges(),
                "scaled_sum: expected weight [{}] or [{}, 1], one an edge, got {}",
                topology.num_edges(), topology.num_edges(), c10::str(weight->sizes()));
    message.op = BinaryOp::kMul;
    message.rhs = weight->reshape({-1, 1});
  }
  const CheckedMessage checked("scaled_sum", topology, message);
  const at::Tensor x_scale = checked_scale("src_scale", src_scale, rows_of(topology, from),
                                           x.scalar_type(), topology.device());
  const at::Tensor row_scale = checked_scale("dst_scale", dst_scale, rows_of(topology, to),
                                             x.scalar_type(), topology.device());
  const Direction direction(topology, transposed ? RowSide::kSrc : RowSide::kDst);
  at::Tensor out =
      at::empty(with_rows(rows_of(topology, to), x.sizes().slice(1).vec()), x.options());
  SpmmArgs args;
  args.slots = direction.slots;
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

template <class Device>
at::Tensor scaled_sum_on(const TopologyPtr& topology, const at::Tensor& x,
                         const OptionalTensor& weight, const OptionalTensor& src_scale,
                         const OptionalTensor& dst_scale) {
  return scaled_sum_transposed<Device>(topology, x, weight, src_scale, dst_scale, false);
}

void check_edge_tensor(const Topology& topology, const char* name, const at::Tensor& t) {
  MEZZO_CHECK(t.device() == topology.device(),
              "edge_softmax: expected {} on the graph's device {}, got {}", name,
              topology.device().str(), t.device().str());
  MEZZO_CHECK(t.dim() >= 1 && t.size(0) == topology.num_edges(),
              "edge_softmax: expected {} [{}, ...], one row an edge, got shape {}", name,
              topology.num_edges(), c10::str(t.sizes()));
}

template <class Device>
at::Tensor edge_softmax_on(const TopologyPtr& holder, const at::Tensor& logits,
                           c10::string_view by) {
  const Topology& topology = holder->value;
  const NormalizeBy side = parse(NormalizeBys{}, "edge_softmax: by", by);
  check_edge_tensor(topology, "logits", logits);
  const DType dtype = dtype_of("edge_softmax: dtype of logits", logits.scalar_type());
  const Direction direction(topology, side == NormalizeBy::kDst ? RowSide::kDst : RowSide::kSrc);
  const at::Tensor given = logits.contiguous();
  const EdgeResult<Device> out(topology, direction.side, at::empty_like(given));
  SoftmaxArgs args;
  args.slots = direction.slots;
  args.dtype = dtype;
  args.length = length_of(given.sizes());
  args.logits = given.const_data_ptr();
  args.out_ids = out.places();
  args.out = out.data();
  Device::run(args, direction, args.length);
  return out.in_edge_order();
}

template <class Device>
at::Tensor edge_softmax_grad_on(const TopologyPtr& holder, const at::Tensor& value,
                                const at::Tensor& grad, c10::string_view by) {
  const Topology& topology = holder->value;
  const NormalizeBy side = parse(NormalizeBys{}, "edge_softmax: by", by);
  const Direction direction(topology, side == NormalizeBy::kDst ? RowSide::kDst : RowSide::kSrc);
  const DType dtype = dtype_of("edge_softmax", value.scalar_type());
  const at::Tensor dy = grad.to(value.scalar_type()).contiguous();
  const EdgeResult<Device> out(topology, direction.side, at::empty_like(value));
  SoftmaxGradArgs args;
  args.slots = direction.slots;
  args.dtype = dtype;
  args.length = length_of(value.sizes());
  args.value = value.const_data_ptr();
  args.grad = dy.const_data_ptr();
  args.out_ids = out.places();
  args.out = out.data();
  Device::run(args, direction, args.length);
  return out.in_edge_order();
}

}  // namespace

template <class Device>
void declare_operators(torch::Library& m) {
  m.impl("gspmm", &gspmm_on<Device>);
  m.impl("_gspmm", &gspmm_with_arg<Device>);
  m.impl("gsddmm", &gsddmm_on<Device>);
  m.impl("scaled_sum", &scaled_sum_on<Device>);
  m.impl("_scaled_sum", &scaled_sum_transposed<Device>);
  m.impl("edge_softmax", &edge_softmax_on<Device>);
  m.impl("_edge_softmax_grad", &edge_softmax_grad_on<Device>);
}

template void declare_operators<OnCpu>(torch::Library&);
template void declare_operators<OnCuda>(torch::Library&);

}  // namespace mezzo
