// g-SpMM and g-SDDMM, their gradients and their autocast rules.
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/ops/op.h"
#include "mezzo/ops/ops.h"
#include "mezzo/ops/sparse/edge_order.h"
#include "mezzo/ops/sparse/message_grad.h"
#include "mezzo/ops/sparse/weighted_grad.h"

namespace mezzo::detail {
namespace {

std::vector<std::int64_t> with_rows(std::int64_t rows, const std::vector<std::int64_t>& trailing) {
  std::vector<std::int64_t> shape = {rows};
  shape.insert(shape.end(), trailing.begin(), trailing.end());
  return shape;
}

// ---- operators

struct GspmmInputs : Message {
  TopologyArgument topology;
  ReduceOp reduce = ReduceOp::kSum;

  static constexpr auto fields() {
    using A = GspmmInputs;
    return std::tuple(Field{"topology", &A::topology}, Field{"op", &A::op},
                      Field{"reduce", &A::reduce}, Field{"lhs", &A::lhs}, Field{"rhs", &A::rhs},
                      Field{"lhs_target", &A::lhs_target}, Field{"rhs_target", &A::rhs_target});
  }
};

/// The messages of `rows` rows, as a meta tensor.
at::Tensor meta_messages(const char* what, const Message& m, c10::SymInt rows) {
  const at::ScalarType type = result_type_of(what, m);
  const auto trailing = [](bool is_used, const OptionalTensor& t) {
    auto sizes = is_used ? row_sizes(*t) : std::vector<std::int64_t>();
    if (!sizes.empty()) sizes.erase(sizes.begin());
    return sizes;
  };
  const Broadcast broadcast(what, m.op, trailing(uses_lhs(m.op), m.lhs),
                            trailing(uses_rhs(m.op), m.rhs));
  std::vector<c10::SymInt> shape = {std::move(rows)};
  for (const std::int64_t size : broadcast.out_shape()) shape.emplace_back(size);
  return meta_tensor(shape, type);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> meta_of_reduced(const GspmmInputs& in) {
  const at::Tensor out = meta_messages("gspmm", in, in.topology.rows(Target::kDst));
  const bool multiplies = traits_of(in.reduce).multiplies;
  const bool has_arg = traits_of(in.reduce).selects || multiplies;
  const auto shape_if = [&](bool is_needed, at::ScalarType type) {
    return is_needed ? meta_tensor(out.sym_sizes(), type) : meta_tensor({0}, type);
  };
  return {out, shape_if(has_arg, in.topology.id_dtype()),
          shape_if(multiplies, accumulator_of(out.scalar_type()))};
}

template <class Device>
std::tuple<at::Tensor, at::Tensor, at::Tensor> reduced_on(const GspmmInputs& in) {
  const Topology& topology = in.topology->value;
  const CheckedMessage checked("gspmm", topology, in);
  const Direction direction(topology, RowSide::kDst);
  const auto options = at::TensorOptions().device(topology.device());
  const auto shape = with_rows(topology.num_dst(), checked.broadcast().out_shape());
  at::Tensor out = at::empty(shape, options.dtype(checked.result_type()));
  const bool multiplies = traits_of(in.reduce).multiplies;
  const bool has_arg = traits_of(in.reduce).selects || multiplies;
  const std::vector<std::int64_t> empty = {0};
  at::Tensor arg = at::empty(has_arg ? shape : empty, options.dtype(topology.id_dtype()));
  at::Tensor product =
      at::empty(multiplies ? shape : empty, options.dtype(accumulator_of(checked.result_type())));
  kernels::SpmmArgs args;
  args.entries = direction.entries;
  args.lhs = checked.lhs(direction);
  args.rhs = checked.rhs(direction);
  args.layout = Device::layout(checked.broadcast().layout(), direction.device);
  args.op = checked.broadcast().op();
  args.reduce = in.reduce;
  args.dtype = dtype_of("gspmm", checked.result_type());
  args.out = out.mutable_data_ptr();
  args.out_length = checked.broadcast().out_length();
  args.arg = has_arg ? arg.mutable_data_ptr() : nullptr;
  args.arg_is_int64 = topology.id_dtype() == at::kLong;
  args.product = multiplies ? product.mutable_data_ptr() : nullptr;
  const at::Tensor weights = order_weights<Device>(topology, direction, args);
  Device::run(args, direction, args.out_length);
  return {out, arg, product};
}

/// Whether the message is the dot product of a source's and a destination's row without
/// broadcasting.
bool is_plain_dot(const Message& m, const CheckedMessage& checked) {
  if (checked.broadcast().op() != BinaryOp::kDot || checked.broadcast().out_length() == 0) {
    return false;
  }
  const bool of_both = (m.lhs_target == Target::kSrc && m.rhs_target == Target::kDst) ||
                       (m.lhs_target == Target::kDst && m.rhs_target == Target::kSrc);
  return of_both && m.lhs->sizes().slice(1) == m.rhs->sizes().slice(1);
}

template <class Device>
at::Tensor gsddmm_on(const TopologyArgument& holder, const Message& in) {
  const Topology& topology = holder->value;
  const CheckedMessage checked("gsddmm", topology, in);
  const auto shape = with_rows(topology.num_edges(), checked.broadcast().out_shape());
  if (is_plain_dot(in, checked)) {
    const bool src_first = in.lhs_target == Target::kSrc;
    return edge_dots<Device>(topology, (src_first ? *in.lhs : *in.rhs).contiguous(),
                             (src_first ? *in.rhs : *in.lhs).contiguous(),
                             checked.broadcast().out_length())
        .view(shape);
  }
  const Direction direction(topology, RowSide::kDst);
  const auto options = at::TensorOptions().device(topology.device());
  const EdgeResult<Device> out(topology, direction.side,
                               at::empty(shape, options.dtype(checked.result_type())));
  kernels::SddmmArgs args;
  args.entries = direction.entries;
  args.lhs = checked.lhs(direction);
  args.rhs = checked.rhs(direction);
  args.layout = Device::layout(checked.broadcast().layout(), direction.device);
  args.op = checked.broadcast().op();
  args.dtype = dtype_of("gsddmm", checked.result_type());
  args.out_ids = out.row_ids();
  args.out = out.data();
  args.out_length = checked.broadcast().out_length();
  Device::run(args, direction, args.out_length);
  return out.in_edge_order();
}

// ---- gradients

/// Keeps only shape and dtype of operands whose values the gradients do not read.
void drop_unread_operands(Message& m, const std::set<std::string_view>& needs_grad,
                          bool reads_messages) {
  bool reads_lhs = reads_messages && uses_lhs(m.op), reads_rhs = reads_messages && uses_rhs(m.op);
  for (const bool of_lhs : {true, false}) {
    if (reads_messages || !needs_grad.contains(of_lhs ? "lhs" : "rhs")) continue;
    const Derivative read = derivative(m.op, of_lhs);
    reads_lhs |= read.reads_lhs;
    reads_rhs |= read.reads_rhs;
  }
  if (m.lhs && !reads_lhs) m.lhs = shape_of(*m.lhs);
  if (m.rhs && !reads_rhs) m.rhs = shape_of(*m.rhs);
}

/// The gradients of the operands of a message after drop_unread_operands().
class OperandGradients {
 public:
  OperandGradients(const TopologyArgument& topology, const Message& message,
                   const std::set<std::string_view>& needs_grad, const MessageGrad& grad)
      : topology_(topology), m_(message), needs_grad_(needs_grad), grad_(grad) {}

  std::pair<at::Tensor, at::Tensor> get() const {
    if (const auto both = weighted()) return *both;
    if (!is_sum_of_edges()) return {of(true), of(false)};
    const at::Tensor of_edges = of(false);
    const Message copy{BinaryOp::kCopyLhs, {}, {}, m_.lhs_target};
    const MessageGrad grad{.grad = of_edges, .grad_target = Target::kEdge};
    return {dispatch(MessageGradient{copy,
                                     grad,
                                     topology_,
                                     /*of_lhs=*/true,
                                     m_.lhs->sym_sizes(),
                                     {},
                                     of_edges.scalar_type()}),
            of_edges};
  }

 private:
  static OptionalTensor with_values(const OptionalTensor& t) {
    return t && !t->is_meta() ? t : std::nullopt;
  }

  /// Whether the lhs's gradient is the sum of the rhs's, which is of edges: a fast pass takes the
  /// general kernel's place. A mean's is rounded at the edges, so it is not.
  bool is_sum_of_edges() const {
    return m_.op == BinaryOp::kAddRelu && m_.lhs_target != Target::kEdge &&
           m_.rhs_target == Target::kEdge && needs_grad_.size() == 2 && !grad_.product &&
           !grad_.grad_scale && m_.lhs->scalar_type() == m_.rhs->scalar_type() &&
           m_.lhs->sym_sizes().slice(1) == m_.rhs->sym_sizes().slice(1);
  }

  at::Tensor of(bool lhs) const {
    const bool used = lhs ? uses_lhs(m_.op) : uses_rhs(m_.op);
    if (!used || !needs_grad_.contains(lhs ? "lhs" : "rhs")) return {};
    // An unused operand has no shape, because it is not broadcast.
    const auto shape_of_used = [](bool is_used, const OptionalTensor& t) {
      return is_used ? t->sym_sizes() : c10::SymIntArrayRef();
    };
    const c10::SymIntArrayRef lhs_shape = shape_of_used(uses_lhs(m_.op), m_.lhs),
                              rhs_shape = shape_of_used(uses_rhs(m_.op), m_.rhs);
    Message message = m_;
    message.lhs = with_values(m_.lhs);
    message.rhs = with_values(m_.rhs);
    return dispatch(MessageGradient{message, grad_, topology_, lhs, lhs ? lhs_shape : rhs_shape,
                                    lhs ? rhs_shape : lhs_shape,
                                    (lhs ? m_.lhs : m_.rhs)->scalar_type()});
  }

  /// Both gradients in one pass, if the message is a source's row weighted by edge and head, the
  /// reduction is a sum and the weight needs a gradient; else nullopt.
  std::optional<std::pair<at::Tensor, at::Tensor>> weighted() const {
    const bool x_is_lhs = m_.lhs_target == Target::kSrc && m_.rhs_target == Target::kEdge;
    const bool x_is_rhs = m_.lhs_target == Target::kEdge && m_.rhs_target == Target::kSrc;
    const bool is_sum = grad_.grad_target == Target::kDst && !grad_.arg && !grad_.product;
    if (m_.op != BinaryOp::kMul || !is_sum || !(x_is_lhs || x_is_rhs)) return std::nullopt;
    if (!needs_grad_.contains(x_is_lhs ? "rhs" : "lhs")) return std::nullopt;
    const at::Tensor &x = x_is_lhs ? *m_.lhs : *m_.rhs, &weight = x_is_lhs ? *m_.rhs : *m_.lhs;
    const auto heads = weighted_heads(row_sizes(x), row_sizes(weight));
    if (!heads) return std::nullopt;
    const auto [x_grad, flat] = weighted_grad(
        topology_,
        {.x = x,
         .weight = with_values(weight),
         .heads = *heads,
         .grad_scale = grad_.grad_scale,
         .x_scale = {}},
        grad_.grad, needs_grad_.contains(x_is_lhs ? "lhs" : "rhs"), weight.scalar_type());
    const at::Tensor weight_grad = flat.view_symint(weight.sym_sizes());
    return x_is_lhs ? std::pair(x_grad, weight_grad) : std::pair(weight_grad, x_grad);
  }

  const TopologyArgument& topology_;
  const Message& m_;
  const std::set<std::string_view>& needs_grad_;
  const MessageGrad& grad_;
};

/// The inverse in-degrees as an operator of traced graphs, which have no edges. Returns a copy,
/// because a compiled graph reuses the memory of results.
struct InverseInDegrees {
  TopologyArgument topology;
  at::ScalarType dtype = at::kFloat;

  static constexpr auto name = "_inverse_in_degrees";
  static constexpr auto fields() {
    using A = InverseInDegrees;
    return std::tuple(Field{"topology", &A::topology}, Field{"dtype", &A::dtype});
  }
  using Result = at::Tensor;

  template <class Device>
  Result run() const {
    return topology->value.in_degree_factors(DegreePower::kInverse, dtype).clone();
  }
  Result meta() const { return meta_tensor({topology.rows(Target::kDst)}, dtype); }
};

at::Tensor inverse_in_degrees(const TopologyArgument& topology, at::ScalarType dtype) {
  if (topology.is_tensor()) return dispatch(InverseInDegrees{topology, dtype});
  return topology->value.in_degree_factors(DegreePower::kInverse, dtype);
}

/// Casts operands of nodes, but not of edges: they may be float32 beside 16-bit nodes. If one of
/// two edge operands is float32, both are cast to float32, as libtorch promotes them.
void lower_message(Message& m, at::DeviceType device) {
  if (m.lhs && m.lhs_target != Target::kEdge) m.lhs = lowered(*m.lhs, device);
  if (m.rhs && m.rhs_target != Target::kEdge) m.rhs = lowered(*m.rhs, device);
  const bool both_of_edges = m.lhs_target == Target::kEdge && m.rhs_target == Target::kEdge;
  if (!both_of_edges || !m.lhs || !m.rhs) return;
  const at::ScalarType left = m.lhs->scalar_type(), right = m.rhs->scalar_type();
  if ((left == at::kFloat && at::isReducedFloatingType(right)) ||
      (right == at::kFloat && at::isReducedFloatingType(left))) {
    m.lhs = m.lhs->to(at::kFloat);
    m.rhs = m.rhs->to(at::kFloat);
  }
}

// ---- declarations

/// Returns the reduced messages and what the gradient reads (else empty): the chosen edges for max
/// and min; for prod the number of messages that are 0 and the product of the others.
struct GspmmForward : GspmmInputs {
  static constexpr auto name = "_gspmm";
  static constexpr bool is_repeatable = true;
  using Result = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

  template <class Device>
  Result run() const {
    return reduced_on<Device>(*this);
  }
  Result meta() const { return meta_of_reduced(*this); }
};

struct Gspmm : GspmmInputs {
  static constexpr auto name = "gspmm";
  static constexpr bool is_repeatable = true;
  using Result = at::Tensor;

  template <class Device>
  Result run() const {
    return std::get<0>(reduced_on<Device>(*this));
  }
  Result meta() const { return std::get<0>(meta_of_reduced(*this)); }

  void lower(at::DeviceType device) { lower_message(*this, device); }

  static at::Tensor forward(Saved<Gspmm>& saved) {
    auto [out, arg, product] = dispatch(GspmmForward{saved.op});
    const auto unless_empty = [](const at::Tensor& t) {
      return t.sym_numel() > 0 ? t : at::Tensor();
    };
    saved.more = {unless_empty(arg), unless_empty(product)};
    drop_unread_operands(saved.op, saved.needs_grad, traits_of(saved.op.reduce).multiplies);
    return out;
  }

  static Gspmm backward(const Saved<Gspmm>& saved, const at::Tensor& grad) {
    const auto optional = [](const at::Tensor& t) {
      return t.defined() ? OptionalTensor(t) : std::nullopt;
    };
    MessageGrad of_messages{.grad = grad, .grad_target = Target::kDst};
    of_messages.arg = optional(saved.more[0]);
    of_messages.product = optional(saved.more[1]);
    if (traits_of(saved.op.reduce).divides) {
      of_messages.grad_scale =
          inverse_in_degrees(saved.op.topology, accumulator_of(grad.scalar_type()));
    }
    Gspmm gradients;
    std::tie(gradients.lhs, gradients.rhs) =
        OperandGradients(saved.op.topology, saved.op, saved.needs_grad, of_messages).get();
    return gradients;
  }
};

struct Gsddmm : Message {
  TopologyArgument topology;

  static constexpr auto name = "gsddmm";
  static constexpr bool is_repeatable = true;
  static constexpr auto fields() {
    using A = Gsddmm;
    return std::tuple(Field{"topology", &A::topology}, Field{"op", &A::op}, Field{"lhs", &A::lhs},
                      Field{"rhs", &A::rhs}, Field{"lhs_target", &A::lhs_target},
                      Field{"rhs_target", &A::rhs_target});
  }
  using Result = at::Tensor;

  template <class Device>
  Result run() const {
    return gsddmm_on<Device>(topology, *this);
  }
  Result meta() const { return meta_messages(name, *this, topology.rows(Target::kEdge)); }

  void lower(at::DeviceType device) { lower_message(*this, device); }

  static at::Tensor forward(Saved<Gsddmm>& saved) {
    const at::Tensor out = dispatch(saved.op);
    drop_unread_operands(saved.op, saved.needs_grad, /*reads_messages=*/false);
    return out;
  }

  static Gsddmm backward(const Saved<Gsddmm>& saved, const at::Tensor& grad) {
    const MessageGrad of_messages{.grad = grad, .grad_target = Target::kEdge};
    Gsddmm gradients;
    std::tie(gradients.lhs, gradients.rhs) =
        OperandGradients(saved.op.topology, saved.op, saved.needs_grad, of_messages).get();
    return gradients;
  }
};

const Registration<Gspmm, GspmmForward, Gsddmm, InverseInDegrees> kMessageRegistration;

}  // namespace

at::Tensor copy_reduce(const TopologyArgument& topology, ReduceOp reduce, const at::Tensor& x) {
  return dispatch(Gspmm{{{BinaryOp::kCopyLhs, x, std::nullopt}, topology, reduce}});
}

}  // namespace mezzo::detail

namespace mezzo {

at::Tensor gspmm(const Topology& topology, BinaryOp op, ReduceOp reduce,
                 const std::optional<at::Tensor>& lhs, const std::optional<at::Tensor>& rhs,
                 Target lhs_target, Target rhs_target) {
  MEZZO_CHECK((lhs && lhs->defined()) || (rhs && rhs->defined()),
              "gspmm: expected at least one operand, got none");
  detail::check_strided("gspmm", "lhs", lhs);
  detail::check_strided("gspmm", "rhs", rhs);
  return detail::dispatch(
      detail::Gspmm{{{op, lhs, rhs, lhs_target, rhs_target}, detail::hold(topology), reduce}});
}

at::Tensor gsddmm(const Topology& topology, BinaryOp op, const std::optional<at::Tensor>& lhs,
                  const std::optional<at::Tensor>& rhs, Target lhs_target, Target rhs_target) {
  MEZZO_CHECK((lhs && lhs->defined()) || (rhs && rhs->defined()),
              "gsddmm: expected at least one operand, got none");
  detail::check_strided("gsddmm", "lhs", lhs);
  detail::check_strided("gsddmm", "rhs", rhs);
  return detail::dispatch(
      detail::Gsddmm{{op, lhs, rhs, lhs_target, rhs_target}, detail::hold(topology)});
}

}  // namespace mezzo
