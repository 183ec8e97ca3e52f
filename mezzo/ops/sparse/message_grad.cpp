// The gradient of one operand of the messages. If the operand is not broadcast, the gradient is a
// sum of messages in the other direction of the graph and runs as a g-SpMM with accumulators in
// registers; else the general kernel sums in a scratch row.
#include "mezzo/ops/sparse/message_grad.h"

#include <ATen/ATen.h>

#include "mezzo/ops/sparse/edge_order.h"

namespace mezzo::detail {
namespace {

at::IntArrayRef trailing(at::IntArrayRef shape) {
  return shape.empty() ? shape : shape.slice(1);
}

const void* data_of(const OptionalTensor& t) {
  return t ? t->const_data_ptr() : nullptr;
}

template <class Device>
class GradKernel {
 public:
  explicit GradKernel(const MessageGradient& r)
      : r_(r),
        shape_(C10_AS_INTARRAYREF_SLOW(r.shape)),
        other_shape_(C10_AS_INTARRAYREF_SLOW(r.other_shape)),
        grad_(r.grad.contiguous()),
        kernel_type_(grad_.scalar_type()),
        broadcast_("message_grad", r.op, trailing(r.of_lhs ? shape_ : other_shape_),
                   trailing(r.of_lhs ? other_shape_ : shape_)),
        direction_(r.topology->value,
                   r.own_target() == Target::kSrc ? RowSide::kSrc : RowSide::kDst) {
    if (r.lhs) lhs_ = r.lhs->contiguous();
    if (r.rhs) rhs_ = r.rhs->contiguous();
  }

  at::Tensor run() {
    out_ = at::empty(shape_, grad_.options().dtype(r_.dtype));
    if (!run_as_sum()) run_general();
    return out_;
  }

 private:
  kernels::Operand operand(const at::Tensor& t, Target target, std::int64_t length) const {
    return {.data = t.defined() ? t.const_data_ptr() : nullptr,
            .is_accum = t.defined() && t.scalar_type() != kernel_type_,
            .access = direction_.access(target),
            .length = length};
  }

  bool run_as_sum() {
    const kernels::Layout layout = Device::layout(broadcast_.layout(), direction_.device);
    const std::int64_t own_step = r_.of_lhs ? layout.lhs_step : layout.rhs_step;
    const bool not_broadcast =
        own_step == 1 && length_of(shape_) == layout.num_groups * layout.inner;
    const auto op = derivative(broadcast_.op(), r_.of_lhs).as_message;
    const bool node = r_.own_target() != Target::kEdge && r_.dtype == kernel_type_;
    if (!not_broadcast || !op || !node || r_.arg || r_.product || r_.other_scale) return false;
    kernels::SpmmArgs args;
    args.layout = layout;
    args.layout.lhs_offset = layout.out_offset;
    args.layout.lhs_step = layout.out_step;
    args.layout.rhs_offset = r_.of_lhs ? layout.rhs_offset : layout.lhs_offset;
    args.layout.rhs_step = r_.of_lhs ? layout.rhs_step : layout.lhs_step;
    args.layout.out_offset = r_.of_lhs ? layout.lhs_offset : layout.rhs_offset;
    args.layout.out_step = 1;
    // lhs_scale scales whole rows, so the summed rows must be whole rows of the gradient.
    const bool scalable =
        args.layout.lhs_step == 1 &&
        (*op == BinaryOp::kCopyLhs || (*op == BinaryOp::kMul && args.layout.rhs_step == 0));
    if (r_.grad_scale && !scalable) return false;
    args.entries = direction_.entries;
    args.lhs = operand(grad_, r_.grad_target, broadcast_.out_length());
    if (*op != BinaryOp::kCopyLhs) {
      args.rhs = operand(r_.of_lhs ? rhs_ : lhs_, r_.other_target(), length_of(other_shape_));
    }
    args.op = *op;
    args.dtype = dtype_of("message_grad", kernel_type_);
    args.lhs_scale = data_of(r_.grad_scale);
    args.out = out_.mutable_data_ptr();
    args.out_length = length_of(shape_);
    const at::Tensor weights = order_weights<Device>(r_.topology->value, direction_, args);
    Device::run(args, direction_, args.out_length);
    return true;
  }

  void run_general() {
    const std::int64_t own = length_of(shape_), other = length_of(other_shape_);
    kernels::MessageGradArgs args;
    args.entries = direction_.entries;
    args.layout = Device::layout(broadcast_.layout(), direction_.device);
    args.op = broadcast_.op();
    args.of_lhs = r_.of_lhs;
    args.lhs = operand(lhs_, r_.lhs_target, r_.of_lhs ? own : other);
    args.rhs = operand(rhs_, r_.rhs_target, r_.of_lhs ? other : own);
    args.grad = operand(grad_, r_.grad_target, broadcast_.out_length());
    args.per_entry = r_.own_target() == Target::kEdge;
    args.dtype = dtype_of("message_grad", kernel_type_);
    args.arg = data_of(r_.arg);
    args.arg_is_int64 = r_.topology->value.id_dtype() == at::kLong;
    args.product = data_of(r_.product);
    args.grad_scale = data_of(r_.grad_scale);
    args.other_scale = data_of(r_.other_scale);
    args.out = out_.mutable_data_ptr();
    args.out_is_accum = r_.dtype != kernel_type_;
    Device::run(args, direction_, broadcast_.out_length());
  }

  const MessageGradient& r_;
  at::IntArrayRef shape_, other_shape_;
  at::Tensor grad_, lhs_, rhs_, out_;
  at::ScalarType kernel_type_;
  Broadcast broadcast_;
  Direction direction_;
};

}  // namespace

template <class Device>
at::Tensor MessageGradient::run() const {
  return GradKernel<Device>(*this).run();
}

static const Registration<MessageGradient> kMessageGradRegistration;

}  // namespace mezzo::detail
