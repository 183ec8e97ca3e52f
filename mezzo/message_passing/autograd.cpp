// The gradients of the operators, each written in terms of the operators themselves.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "mezzo/core/error.h"
#include "mezzo/core/parse.h"
#include "mezzo/message_passing/arguments.h"
#include "mezzo/message_passing/schema.h"
#include "mezzo/message_passing/second_derivative.h"
#include "mezzo/message_passing/weighted_grad.h"

namespace mezzo {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<at::Tensor>;

OptionalTensor optional(const at::Tensor& t) {
  return t.defined() ? OptionalTensor(t) : std::nullopt;
}

/// 1 / in-degree of each destination, in the accumulator's type; 0 in-edges count as one.
at::Tensor inverse_in_degree(const Topology& topology, at::ScalarType dtype) {
  const auto accumulator = dtype == at::kDouble ? at::kDouble : at::kFloat;
  return topology.in_degrees().clamp_min(1).to(accumulator).reciprocal();
}

/// The operands that the gradients read.
struct Kept {
  bool lhs = false, rhs = false;
};

Kept kept_operands(BinaryOp op, bool lhs_wanted, bool rhs_wanted) {
  Kept kept;
  for (const bool of_lhs : {true, false}) {
    if (!(of_lhs ? lhs_wanted : rhs_wanted)) continue;
    const Derivative read = derivative(op, of_lhs);
    kept.lhs |= read.reads_lhs;
    kept.rhs |= read.reads_rhs;
  }
  return kept;
}

/// A message as autograd keeps it between forward and backward.
class SavedMessage {
 public:
  static void save(AutogradContext* ctx, const TopologyPtr& topology, const Message& m,
                   variable_list extra, bool reads_messages = false) {
    const bool lhs_used = uses_lhs(m.op), rhs_used = uses_rhs(m.op);
    const auto wanted = [](const OptionalTensor& t, bool used) {
      return used && t->requires_grad();
    };
    const Kept kept = reads_messages
                          ? Kept{lhs_used, rhs_used}
                          : kept_operands(m.op, wanted(m.lhs, lhs_used), wanted(m.rhs, rhs_used));
    extra.push_back(kept.lhs ? *m.lhs : at::Tensor());
    extra.push_back(kept.rhs ? *m.rhs : at::Tensor());
    ctx->save_for_backward(std::move(extra));
    auto& data = ctx->saved_data;
    data["topology"] = topology;
    data["op"] = static_cast<std::int64_t>(m.op);
    data["lhs_target"] = static_cast<std::int64_t>(m.lhs_target);
    data["rhs_target"] = static_cast<std::int64_t>(m.rhs_target);
    // An operand that the op does not use has no shape: it takes no part in the broadcasting.
    for (const bool lhs : {true, false}) {
      const OptionalTensor* t = lhs ? &m.lhs : &m.rhs;
      const bool used = lhs ? lhs_used : rhs_used;
      const std::string name = lhs ? "lhs" : "rhs";
      data[name + "_shape"] = used ? (*t)->sizes().vec() : std::vector<std::int64_t>();
      data[name + "_dtype"] = static_cast<std::int64_t>(used ? (*t)->scalar_type() : at::kFloat);
      data[name + "_wanted"] = wanted(*t, used);
    }
  }

  explicit SavedMessage(AutogradContext* ctx) : data_(ctx->saved_data) {
    topology = data_["topology"].toCustomClass<TopologyHolder>();
    auto saved = ctx->get_saved_variables();
    message.op = static_cast<BinaryOp>(data_["op"].toInt());
    message.lhs_target = static_cast<Target>(data_["lhs_target"].toInt());
    message.rhs_target = static_cast<Target>(data_["rhs_target"].toInt());
    message.rhs = optional(saved.back());
    saved.pop_back();
    message.lhs = optional(saved.back());
    saved.pop_back();
    extra = std::move(saved);
  }

  at::Tensor grad_of(bool lhs, const MessageGrad& grad) {
    const std::string own = lhs ? "lhs" : "rhs", other = lhs ? "rhs" : "lhs";
    if (!data_[own + "_wanted"].toBool()) return {};
    return op::message_grad(topology, message, grad, lhs, data_[own + "_shape"].toIntVector(),
                            data_[other + "_shape"].toIntVector(),
                            static_cast<at::ScalarType>(data_[own + "_dtype"].toInt()));
  }

  /// Of lhs and rhs in one pass, where the message is a source's row weighted by edge and head, the
  /// messages are added up and the weight's gradient is wanted; else nullopt.
  std::optional<std::pair<at::Tensor, at::Tensor>> weighted_grads(const MessageGrad& grad) {
    const Message& m = message;
    const bool x_is_lhs = m.lhs_target == Target::kSrc && m.rhs_target == Target::kEdge;
    const bool x_is_rhs = m.lhs_target == Target::kEdge && m.rhs_target == Target::kSrc;
    const bool added_up = !grad.arg && !grad.product;
    if (m.op != BinaryOp::kMul || !added_up || !(x_is_lhs || x_is_rhs)) return std::nullopt;
    const std::string x = x_is_lhs ? "lhs" : "rhs", weight = x_is_lhs ? "rhs" : "lhs";
    if (!data_[weight + "_wanted"].toBool()) return std::nullopt;
    const auto weight_shape = data_[weight + "_shape"].toIntVector();
    const auto heads = weighted_heads(data_[x + "_shape"].toIntVector(), weight_shape);
    if (!heads) return std::nullopt;
    const auto [x_grad, flat] =
        op::weighted_grad(topology,
                          {.x = x_is_lhs ? *m.lhs : *m.rhs,
                           .weight = x_is_lhs ? m.rhs : m.lhs,
                           .heads = *heads,
                           .grad_scale = grad.grad_scale,
                           .x_scale = {}},
                          grad.grad, data_[x + "_wanted"].toBool(),
                          static_cast<at::ScalarType>(data_[weight + "_dtype"].toInt()));
    const at::Tensor weight_grad = flat.view(weight_shape);
    return x_is_lhs ? std::pair(x_grad, weight_grad) : std::pair(weight_grad, x_grad);
  }

  TopologyPtr topology;
  Message message;
  variable_list extra;

 private:
  ska::flat_hash_map<std::string, at::IValue>& data_;
};

struct Gspmm : Function<Gspmm> {
  static at::Tensor forward(AutogradContext* ctx, const TopologyPtr& topology, BinaryOp op,
                            ReduceOp reduce, const OptionalTensor& lhs, const OptionalTensor& rhs,
                            Target lhs_target, Target rhs_target) {
    const Message message{op, lhs, rhs, lhs_target, rhs_target};
    at::AutoDispatchBelowADInplaceOrView below;
    auto [out, arg, product] = op::gspmm(topology, message, reduce);
    const auto kept = [](const at::Tensor& t) { return t.numel() > 0 ? t : at::Tensor(); };
    SavedMessage::save(ctx, topology, message, {kept(arg), kept(product)},
                       traits_of(reduce).multiplies);
    ctx->saved_data["reduce"] = static_cast<std::int64_t>(reduce);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivative("gspmm");
    SavedMessage saved(ctx);
    MessageGrad grad{.grad = grads[0], .grad_target = Target::kDst};
    grad.arg = optional(saved.extra[0]);
    grad.product = optional(saved.extra[1]);
    if (traits_of(static_cast<ReduceOp>(ctx->saved_data["reduce"].toInt())).divides) {
      grad.grad_scale = inverse_in_degree(saved.topology->value, grads[0].scalar_type());
    }
    if (const auto both = saved.weighted_grads(grad)) {
      return {{}, {}, {}, both->first, both->second, {}, {}};
    }
    const at::Tensor lhs = saved.grad_of(true, grad), rhs = saved.grad_of(false, grad);
    return {{}, {}, {}, lhs, rhs, {}, {}};
  }
};

struct Gsddmm : Function<Gsddmm> {
  static at::Tensor forward(AutogradContext* ctx, const TopologyPtr& topology, BinaryOp op,
                            const OptionalTensor& lhs, const OptionalTensor& rhs, Target lhs_target,
                            Target rhs_target) {
    const Message message{op, lhs, rhs, lhs_target, rhs_target};
    at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor out = op::gsddmm(topology, message);  // checks what is saved next
    SavedMessage::save(ctx, topology, message, {});
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivative("gsddmm");
    SavedMessage saved(ctx);
    const MessageGrad grad{.grad = grads[0], .grad_target = Target::kEdge};
    const at::Tensor lhs = saved.grad_of(true, grad), rhs = saved.grad_of(false, grad);
    return {{}, {}, lhs, rhs, {}, {}};
  }
};

struct ScaledSum : Function<ScaledSum> {
  static at::Tensor forward(AutogradContext* ctx, const TopologyPtr& topology, const at::Tensor& x,
                            const OptionalTensor& weight, const OptionalTensor& src_scale,
                            const OptionalTensor& dst_scale) {
    at::AutoDispatchBelowADInplaceOrView below;
    const bool weighted = weight && weight->defined();
    const bool weight_wanted = weighted && weight->requires_grad();
    const auto given = [](const OptionalTensor& t) { return t ? *t : at::Tensor(); };
    ctx->save_for_backward({weight_wanted ? x : at::Tensor(),
                            x.requires_grad() ? given(weight) : at::Tensor(), given(src_scale),
                            given(dst_scale)});
    ctx->saved_data["topology"] = topology;
    ctx->saved_data["x_wanted"] = x.requires_grad();
    ctx->saved_data["weight_wanted"] = weight_wanted;
    if (weight_wanted) {
      ctx->saved_data["weight_shape"] = weight->sizes();
      ctx->saved_data["weight_dtype"] = weight->scalar_type();
    }
    return op::scaled_sum(topology, x, weight, src_scale, dst_scale, false);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivative("scaled_sum");
    const auto topology = ctx->saved_data["topology"].toCustomClass<TopologyHolder>();
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &src_scale = saved[2],
                     &dst_scale = saved[3];
    const bool x_wanted = ctx->saved_data["x_wanted"].toBool();
    if (ctx->saved_data["weight_wanted"].toBool()) {
      const auto [x_grad, weight_grad] =
          op::weighted_grad(topology,
                            {.x = x,
                             .weight = optional(weight),
                             .heads = 1,
                             .grad_scale = optional(dst_scale),
                             .x_scale = optional(src_scale)},
                            grads[0], x_wanted, ctx->saved_data["weight_dtype"].toScalarType());
      const auto shape = ctx->saved_data["weight_shape"].toIntVector();
      return {{}, x_grad, weight_grad.view(shape), {}, {}};
    }
    at::Tensor x_grad;
    if (x_wanted) {
      x_grad = op::scaled_sum(topology, grads[0], optional(weight), optional(dst_scale),
                              optional(src_scale), true);
    }
    return {{}, x_grad, {}, {}, {}};
  }
};

struct EdgeSoftmax : Function<EdgeSoftmax> {
  static at::Tensor forward(AutogradContext* ctx, const TopologyPtr& topology,
                            const at::Tensor& logits, NormalizeBy by) {
    at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor out = op::edge_softmax(topology, logits, by);
    ctx->save_for_backward({out});
    ctx->saved_data["topology"] = topology;
    ctx->saved_data["by"] = static_cast<std::int64_t>(by);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivative("edge_softmax");
    const auto topology = ctx->saved_data["topology"].toCustomClass<TopologyHolder>();
    const auto by = static_cast<NormalizeBy>(ctx->saved_data["by"].toInt());
    return {{}, op::edge_softmax_grad(topology, ctx->get_saved_variables()[0], grads[0], by), {}};
  }
};

struct Linear : Function<Linear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const OptionalTensor& bias) {
    at::AutoDispatchBelowADInplaceOrView below;
    ctx->save_for_backward(
        {weight.requires_grad() ? x : at::Tensor(), x.requires_grad() ? weight : at::Tensor()});
    ctx->saved_data["bias_wanted"] = bias && bias->defined() && bias->requires_grad();
    return op::linear(x, weight, bias, true);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivative("linear");
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &grad = grads[0], &x = saved[0], &weight = saved[1];
    at::Tensor x_grad, weight_grad, bias_grad;
    if (weight.defined()) x_grad = op::linear(grad, weight, std::nullopt, false);
    // Not reshape(-1, n): libtorch cannot infer rows of no elements.
    const auto as_rows = [](const at::Tensor& t) {
      return t.dim() == 1 ? t.unsqueeze(0) : t.flatten(0, -2);
    };
    const at::Tensor rows = as_rows(grad);
    if (x.defined()) weight_grad = op::transposed_product(rows, as_rows(x));
    // libtorch's sum accumulates in float32 and rounds once.
    if (ctx->saved_data["bias_wanted"].toBool()) bias_grad = rows.sum(0);
    return {x_grad, weight_grad, bias_grad};
  }
};

/// The kernels of the Autograd key; a namespace of their own, for the public functions share their
/// names.
namespace differentiable {

at::Tensor gspmm(const TopologyPtr& topology, c10::string_view op, c10::string_view reduce,
                 const OptionalTensor& lhs, const OptionalTensor& rhs, c10::string_view lhs_target,
                 c10::string_view rhs_target) {
  return Gspmm::apply(topology, parse(BinaryOps{}, "gspmm: op", op),
                      parse(ReduceOps{}, "gspmm: reduce", reduce), lhs, rhs,
                      parse(Targets{}, "gspmm: lhs_target", lhs_target),
                      parse(Targets{}, "gspmm: rhs_target", rhs_target));
}

at::Tensor gsddmm(const TopologyPtr& topology, c10::string_view op, const OptionalTensor& lhs,
                  const OptionalTensor& rhs, c10::string_view lhs_target,
                  c10::string_view rhs_target) {
  return Gsddmm::apply(topology, parse(BinaryOps{}, "gsddmm: op", op), lhs, rhs,
                       parse(Targets{}, "gsddmm: lhs_target", lhs_target),
                       parse(Targets{}, "gsddmm: rhs_target", rhs_target));
}

at::Tensor scaled_sum(const TopologyPtr& topology, const at::Tensor& x,
                      const OptionalTensor& weight, const OptionalTensor& src_scale,
                      const OptionalTensor& dst_scale) {
  check_defined("scaled_sum", "x", x);
  for (const auto& [name, scale] :
       {std::pair{"src_scale", &src_scale}, std::pair{"dst_scale", &dst_scale}}) {
    MEZZO_CHECK(
        !at::GradMode::is_enabled() || !*scale || !(*scale)->requires_grad(),
        "scaled_sum: expected {} without a gradient, for scales are constants, got one that "
        "requires it",
        name);
  }
  return ScaledSum::apply(topology, x, weight, src_scale, dst_scale);
}

at::Tensor edge_softmax(const TopologyPtr& topology, const at::Tensor& logits,
                        c10::string_view by) {
  check_defined("edge_softmax", "logits", logits);
  return EdgeSoftmax::apply(topology, logits, parse(NormalizeBys{}, "edge_softmax: by", by));
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias) {
  check_defined("linear", "x", x);
  check_defined("linear", "weight", weight);
  return Linear::apply(x, weight, bias);
}

}  // namespace differentiable
}  // namespace

TORCH_LIBRARY_IMPL(mezzo, Autograd, m) {
  register_topology_class();
  m.impl("gspmm", &differentiable::gspmm);
  m.impl("gsddmm", &differentiable::gsddmm);
  m.impl("scaled_sum", &differentiable::scaled_sum);
  m.impl("edge_softmax", &differentiable::edge_softmax);
  m.impl("linear", &differentiable::linear);
}

}  // namespace mezzo
