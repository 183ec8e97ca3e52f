// The gradient of one operand of the messages. Where every element of the operand stands
// alone (no broadcasting) it is itself a sum of messages over the other direction of the graph and
// runs as a g-SpMM with accumulators in registers; else the general kernel sums in a scratch row.
#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/core/parse.h"
#include "mezzo/message_passing/arguments.h"
#include "mezzo/message_passing/device.h"
#include "mezzo/message_passing/edge_order.h"
#include "mezzo/message_passing/operators.h"
#include "mezzo/message_passing/schema.h"

namespace mezzo {

namespace {

using OptionalTensor = std::optional<at::Tensor>;

struct Request {
  const Topology& topology;
  Message message;
  MessageGrad grad;
  bool of_lhs;
  at::IntArrayRef shape, other_shape;
  at::ScalarType dtype;

  Target own_target() const { return of_lhs ? message.lhs_target : message.rhs_target; }
  Target other_target() const { return of_lhs ? message.rhs_target : message.lhs_target; }
};

at::IntArrayRef trailing(at::IntArrayRef shape) {
  return shape.empty() ? shape : shape.slice(1);
}

const void* data_of(const OptionalTensor& t) {
  return t && t->defined() ? t->const_data_ptr() : nullptr;
}

template <class Device>
class GradKernel {
 public:
  explicit GradKernel(const Request& r)
      : r_(r),
        grad_(r.grad.grad.contiguous()),
        kernel_type_(grad_.scalar_type()),
        broadcast_("message_grad", r.message.op, trailing(r.of_lhs ? r.shape : r.other_shape),
                   trailing(r.of_lhs ? r.other_shape : r.shape)),
        direction_(r.topology, r.own_target() == Target::kSrc ? RowSide::kSrc : RowSide::kDst) {
    if (r.message.lhs) lhs_ = r.message.lhs->contiguous();
    if (r.message.rhs) rhs_ = r.message.rhs->contiguous();
  }

  at::Tensor run() {
    out_ = at::empty(r_.shape, grad_.options().dtype(r_.dtype));
    if (!run_as_sum()) run_general();
    return out_;
  }

 private:
  Operand operand(const at::Tensor& t, Target target, std::int64_t length) const {
    return {.data = t.defined() ? t.const_data_ptr() : nullptr,
            .wide = t.defined() && t.scalar_type() != kernel_type_,
            .access = direction_.access(target),
            .length = length};
  }

  bool run_as_sum() {
    const Layout layout = Device::layout(broadcast_.layout(), direction_.device);
    const std::int64_t own_step = r_.of_lhs ? layout.lhs_step : layout.rhs_step;
    const bool alone = own_step == 1 && length_of(r_.shape) == layout.num_groups * layout.inner;
    const auto op = derivative(broadcast_.op(), r_.of_lhs).as_message;
    const bool node = r_.own_target() != Target::kEdge && r_.dtype == kernel_type_;
    if (!alone || !op || !node || r_.grad.arg || r_.grad.product || r_.grad.other_scale)
      return false;
    SpmmArgs args;
    args.layout = layout;
    args.layout.lhs_offset = layout.out_offset;
    args.layout.lhs_step = layout.out_step;
    args.layout.rhs_offset = r_.of_lhs ? layout.rhs_offset : layout.lhs_offset;
    args.layout.rhs_step = r_.of_lhs ? layout.rhs_step : layout.lhs_step;
    args.layout.out_offset = r_.of_lhs ? layout.lhs_offset : layout.rhs_offset;
    args.layout.out_step = 1;
    // The scale goes with the rows that are summed: those must be the gradient's, all of them.
    const bool scalable =
        args.layout.lhs_step == 1 &&
        (*op == BinaryOp::kCopyLhs || (*op == BinaryOp::kMul && args.layout.rhs_step == 0));
    if (r_.grad.grad_scale && !scalable) return false;
    args.slots = direction_.slots;
    args.lhs = operand(grad_, r_.grad.grad_target, broadcast_.out_length());
    if (*op != BinaryOp::kCopyLhs) {
      args.rhs = operand(r_.of_lhs ? rhs_ : lhs_, r_.other_target(), length_of(r_.other_shape));
    }
    args.op = *op;
    args.dtype = dtype_of("message_grad", kernel_type_);
    args.lhs_scale = data_of(r_.grad.grad_scale);
    args.out = out_.mutable_data_ptr();
    args.out_length = length_of(r_.shape);
    const at::Tensor weights = order_weights<Device>(r_.topology, direction_, args);
    Device::run(args, direction_, args.out_length);
    return true;
  }

  void run_general() {
    const std::int64_t own = length_of(r_.shape), other = length_of(r_.other_shape);
    MessageGradArgs args;
    args.slots = direction_.slots;
    args.layout = Device::layout(broadcast_.layout(), direction_.device);
    args.op = broadcast_.op();
    args.of_lhs = r_.of_lhs;
    args.lhs = operand(lhs_, r_.message.lhs_target, r_.of_lhs ? own : other);
    args.rhs = operand(rhs_, r_.message.rhs_target, r_.of_lhs ? other : own);
    args.grad = operand(grad_, r_.grad.grad_target, broadcast_.out_length());
    args.per_slot = r_.own_target() == Target::kEdge;
    args.dtype = dtype_of("message_grad", kernel_type_);
    args.arg = data_of(r_.grad.arg);
    args.arg_wide = r_.topology.id_dtype() == at::kLong;
    args.product = data_of(r_.grad.product);
    args.grad_scale = data_of(r_.grad.grad_scale);
    args.other_scale = data_of(r_.grad.other_scale);
    args.out = out_.mutable_data_ptr();
    args.out_wide = r_.dtype != kernel_type_;
    Device::run(args, direction_, broadcast_.out_length());
  }

  const Request& r_;
  at::Tensor grad_, lhs_, rhs_, out_;
  at::ScalarType kernel_type_;
  Broadcast broadcast_;
  Direction direction_;
};

template <class Device>
at::Tensor message_grad_on(const TopologyPtr& topology, c10::string_view op,
                           const OptionalTensor& lhs, const OptionalTensor& rhs,
                           c10::string_view lhs_target, c10::string_view rhs_target,
                           const at::Tensor& grad, c10::string_view grad_target,
                           const OptionalTensor& arg, const OptionalTensor& product,
                           const OptionalTensor& grad_scale, const OptionalTensor& other_scale,
                           bool of_lhs, at::IntArrayRef shape, at::IntArrayRef other_shape,
                           at::ScalarType dtype) {
  const Request request{.topology = topology->value,
                        .message = {parse(BinaryOps{}, "message_grad: op", op), lhs, rhs,
                                    parse(Targets{}, "message_grad: lhs_target", lhs_target),
                                    parse(Targets{}, "message_grad: rhs_target", rhs_target)},
                        .grad = {grad, parse(Targets{}, "message_grad: grad_target", grad_target),
                                 arg, product, grad_scale, other_scale},
                        .of_lhs = of_lhs,
                        .shape = shape,
                        .other_shape = other_shape,
                        .dtype = dtype};
  return GradKernel<Device>(request).run();
}

}  // namespace

template <class Device>
void declare_message_grad(torch::Library& m) {
  m.impl("_message_grad", &message_grad_on<Device>);
}

template void declare_message_grad<OnCpu>(torch::Library&);
template void declare_message_grad<OnCuda>(torch::Library&);

}  // namespace mezzo
