// An MLP on edges (the edge update of an interaction network): the operator and its composed form.
#include "mezzo/ops/dense/edge_mlp.h"

#include <vector>

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/ops/ops.h"

namespace mezzo::detail {
namespace {

using Tensors = std::vector<at::Tensor>;

Tensors tensors_of(const EdgeMlpInputs& in) {
  return {in.src,
          in.dst,
          in.edge,
          in.weight,
          tensor_of(in.hidden_weight),
          tensor_of(in.hidden_bias),
          in.out_weight,
          in.out_bias,
          in.norm_weight,
          in.norm_bias};
}

struct EdgeMlpGrad : EdgeMlpInputs {
  OptionalTensor edge_grad, sum_grad;
  bool needs_edge = true;

  static constexpr auto name = "_edge_mlp_grad";
  static constexpr bool is_repeatable = true;
  static constexpr auto fields() {
    using A = EdgeMlpGrad;
    return std::tuple_cat(EdgeMlpInputs::fields(), std::tuple(Field{"edge_grad", &A::edge_grad},
                                                              Field{"sum_grad", &A::sum_grad},
                                                              Field{"needs_edge", &A::needs_edge}));
  }
  using Result = EdgeMlpGradients;

  template <class Device>
  Result run() const {
    check_inputs();
    if constexpr (std::is_same_v<Device, OnCpu>) {
      return blocked_edge_mlp_grad(*this, {edge_grad, sum_grad}, needs_edge);
    } else {
      return composed_edge_mlp_grad(*this, {edge_grad, sum_grad}, needs_edge);
    }
  }
  Result meta() const {
    const auto like = [](const OptionalTensor& t) { return t ? shape_of(*t) : at::Tensor(); };
    return {shape_of(src),        shape_of(dst),       needs_edge ? shape_of(edge) : at::Tensor(),
            shape_of(weight),     like(hidden_weight), like(hidden_bias),
            shape_of(out_weight), shape_of(out_bias),  shape_of(norm_weight),
            shape_of(norm_bias)};
  }
};

struct EdgeMlp : EdgeMlpInputs {
  static constexpr auto name = "edge_mlp";
  static constexpr bool is_repeatable = true;
  using Result = EdgeMlpResult;

  template <class Device>
  Result run() const {
    check_inputs();
    if constexpr (std::is_same_v<Device, OnCpu>) {
      return blocked_edge_mlp(*this);
    } else {
      return composed_edge_mlp(*this);
    }
  }
  Result meta() const { return {shape_of(edge), shape_of(edge, 0, dst.sym_size(0))}; }

  void lower(at::DeviceType device) {
    for (at::Tensor* t : {&src, &dst, &edge, &weight, &out_weight, &out_bias}) {
      *t = lowered(*t, device);
    }
    for (OptionalTensor* t : {&hidden_weight, &hidden_bias}) {
      if (*t) *t = lowered(**t, device);
    }
  }

  static Result forward(const Saved<EdgeMlp>& saved) { return dispatch(saved.op); }

  static EdgeMlp backward(const Saved<EdgeMlp>& saved, const Tensors& grads) {
    const auto optional = [](const at::Tensor& t) {
      return t.defined() ? OptionalTensor(t) : std::nullopt;
    };
    EdgeMlp gradients;
    at::Tensor hidden_weight, hidden_bias;
    std::tie(gradients.src, gradients.dst, gradients.edge, gradients.weight, hidden_weight,
             hidden_bias, gradients.out_weight, gradients.out_bias, gradients.norm_weight,
             gradients.norm_bias) = dispatch(EdgeMlpGrad{
        {saved.op}, optional(grads[0]), optional(grads[1]), saved.needs_grad.contains("edge")});
    gradients.hidden_weight = hidden_weight;
    gradients.hidden_bias = hidden_bias;
    return gradients;
  }
};

const Registration<EdgeMlp, EdgeMlpGrad> kEdgeMlpRegistration;

}  // namespace

void EdgeMlpInputs::check_inputs() const {
  const Topology& graph = topology->value;
  MEZZO_CHECK(edge.dim() == 2 && weight.dim() == 2,
              "edge_mlp: expected edge [{}, features] and weight [hidden, features], got {} and {}",
              graph.num_edges(), describe(edge), describe(weight));
  const std::int64_t hidden = weight.size(0), features = edge.size(1);
  const std::int64_t layers =
      hidden_weight && hidden_weight->dim() > 0 ? hidden_weight->size(0) : 0;
  const auto check = [&](const char* name, const at::Tensor& t, at::IntArrayRef shape,
                         bool of_norm = false) {
    const at::ScalarType type = edge.scalar_type();
    MEZZO_CHECK(t.sizes() == shape, "edge_mlp: expected {} {}, got {}", name, c10::str(shape),
                describe(t));
    MEZZO_CHECK(
        t.device() == graph.device() &&
            (t.scalar_type() == type || (of_norm && t.scalar_type() == accumulator_of(type))),
        "edge_mlp: expected {} of edge's dtype {} on the graph's device {}, got {} on {}", name,
        c10::toString(type), graph.device().str(), c10::toString(t.scalar_type()),
        t.device().str());
  };
  dtype_of("edge_mlp: dtype of edge", edge.scalar_type());
  check("edge", edge, {graph.num_edges(), features});
  check("src", src, {graph.num_src(), hidden});
  check("dst", dst, {graph.num_dst(), hidden});
  check("weight", weight, {hidden, features});
  MEZZO_CHECK(hidden_weight.has_value() == hidden_bias.has_value(),
              "edge_mlp: expected both hidden_weight and hidden_bias, or neither");
  if (hidden_weight) {
    check("hidden_weight", *hidden_weight, {layers, hidden, hidden});
    check("hidden_bias", *hidden_bias, {layers, hidden});
  }
  check("out_weight", out_weight, {features, hidden});
  check("out_bias", out_bias, {features});
  check("norm_weight", norm_weight, {features}, /*of_norm=*/true);
  check("norm_bias", norm_bias, {features}, /*of_norm=*/true);
}

EdgeMlpResult composed_edge_mlp(const EdgeMlpInputs& in) {
  const Topology& graph = in.topology->value;
  const at::Tensor ends = gsddmm(graph, BinaryOp::kAdd, in.src, in.dst, Target::kSrc, Target::kDst);
  at::Tensor hidden = at::relu(ends + mezzo::linear(in.edge, in.weight));
  for (std::int64_t i = 0; in.hidden_weight && i < in.hidden_weight->size(0); ++i) {
    hidden = at::relu(
        mezzo::linear(hidden, in.hidden_weight->select(0, i), in.hidden_bias->select(0, i)));
  }
  const at::ScalarType wide = accumulator_of(in.edge.scalar_type());
  const at::Tensor out = mezzo::linear(hidden, in.out_weight, in.out_bias).to(wide);
  const at::Tensor update = at::layer_norm(out, {out.size(1)}, in.norm_weight.to(wide),
                                           in.norm_bias.to(wide), kEdgeMlpEps);
  const at::Tensor edge = (in.edge + update).to(in.edge.scalar_type());
  return {edge, gspmm(graph, BinaryOp::kCopyRhs, ReduceOp::kSum, std::nullopt, edge)};
}

EdgeMlpGradients composed_edge_mlp_grad(const EdgeMlpInputs& in, const EdgeMlpUpstream& upstream,
                                        bool needs_edge) {
  const at::AutoGradMode record(true);
  // The operators below must reach autograd also if the caller is below it.
  const c10::impl::ForceDispatchKeyGuard all_keys(
      c10::default_included_set, c10::default_excluded_set | c10::autocast_dispatch_keyset);
  EdgeMlpInputs leaves = in;
  const auto make_leaf = [](at::Tensor& t) { t = t.detach().requires_grad_(); };
  for (at::Tensor* t : {&leaves.src, &leaves.dst, &leaves.weight, &leaves.out_weight,
                        &leaves.out_bias, &leaves.norm_weight, &leaves.norm_bias}) {
    make_leaf(*t);
  }
  leaves.edge = in.edge.detach().requires_grad_(needs_edge);
  for (OptionalTensor* t : {&leaves.hidden_weight, &leaves.hidden_bias}) {
    if (*t) make_leaf(**t);
  }
  const auto [edge, sum] = composed_edge_mlp(leaves);
  Tensors outputs, grads, inputs;
  const auto add_output = [&](const at::Tensor& output, const OptionalTensor& grad) {
    if (!grad) return;
    outputs.push_back(output);
    grads.push_back(*grad);
  };
  add_output(edge, upstream.edge);
  add_output(sum, upstream.sum);
  Tensors result = tensors_of(leaves);
  for (const at::Tensor& t : result) {
    if (t.defined() && t.requires_grad()) inputs.push_back(t);
  }
  const Tensors of_inputs = torch::autograd::grad(outputs, inputs, grads);
  auto next = of_inputs.begin();
  for (at::Tensor& t : result) t = t.defined() && t.requires_grad() ? *next++ : at::Tensor();
  EdgeMlpGradients gradients;
  std::apply([from = result.begin()](auto&... one) mutable { ((one = *from++), ...); }, gradients);
  return gradients;
}

EdgeMlpResult edge_mlp(const EdgeMlpInputs& in) {
  return dispatch(EdgeMlp{in});
}

}  // namespace mezzo::detail
