// Fused graph attention: the operator, its gradient and what autocast does to it. The forward keeps
// the maximum and the sum of each row's softmax; the backward recomputes the attention from them in
// one pass over the sources (docs/decisions/0013-fused-attention.md).
#include <algorithm>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "mezzo/core/error.h"
#include "mezzo/message_passing/arguments.h"
#include "mezzo/message_passing/device.h"
#include "mezzo/message_passing/dropout.h"
#include "mezzo/message_passing/lowered.h"
#include "mezzo/message_passing/operators.h"
#include "mezzo/message_passing/ops.h"
#include "mezzo/message_passing/schema.h"
#include "mezzo/message_passing/second_derivative.h"

namespace mezzo {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<at::Tensor>;

constexpr auto kGatAttentionName = "gat_attention";

/// The operands, checked and made contiguous, and what the kernels are told of them.
class Operands {
 public:
  Operands(const Topology& topology, const at::Tensor& z, const at::Tensor& score_src,
           const at::Tensor& score_dst, const OptionalTensor& edge_weight, double negative_slope,
           double dropout, std::int64_t seed, const OptionalTensor& seed_offset)
      : topology_(topology), type_(z.scalar_type()) {
    check_place("z", z);
    MEZZO_CHECK(
        z.dim() == 3 && z.size(0) == topology.num_src() && z.size(1) >= 1 && z.size(2) >= 1,
        "{}: expected z [{}, heads >= 1, features >= 1], one row a source node, got shape {}",
        kGatAttentionName, topology.num_src(), c10::str(z.sizes()));
    dtype = dtype_of("gat_attention: dtype of z", type_);
    heads = z.size(1);
    features = z.size(2);
    z_ = z.contiguous();
    score_src_ = numbers("score_src", score_src, topology.num_src(), "source node");
    score_dst_ = numbers("score_dst", score_dst, topology.num_dst(), "destination node");
    if (edge_weight && edge_weight->defined()) edge_weight_ = weights(*edge_weight);
    check_negative_slope(kGatAttentionName, negative_slope, accumulator_of(type_));
    scores.src = described(score_src_);
    scores.dst = described(score_dst_);
    if (edge_weight_.defined()) scores.edge_weight = described(edge_weight_);
    scores.negative_slope = negative_slope;
    scores.dropout =
        dropout_level(kGatAttentionName, dropout, seed, seed_offset, topology.device());
  }

  const void* z() const { return z_.const_data_ptr(); }
  at::TensorOptions accumulators() const {
    return at::TensorOptions().dtype(accumulator_of(type_)).device(topology_.device());
  }
  at::TensorOptions rows() const { return z_.options(); }

  std::int64_t heads = 1, features = 1;
  DType dtype = DType::kFloat32;
  AttentionScores scores;

 private:
  void check_place(const char* name, const at::Tensor& t) const {
    check_defined(kGatAttentionName, name, t);
    MEZZO_CHECK(t.device() == topology_.device(),
                "{}: expected {} on the graph's device {}, got {}", kGatAttentionName, name,
                topology_.device().str(), t.device().str());
  }

  void check_type(const char* name, const at::Tensor& t) const {
    const at::ScalarType wide = accumulator_of(type_);
    if (t.scalar_type() == type_ || t.scalar_type() == wide) return;
    const std::string other = wide == type_ ? "" : fmt::format(" or {}", c10::toString(wide));
    detail::raise<InvalidArgument>("{}: expected {} of z's dtype {}{}, got {}", kGatAttentionName,
                                   name, c10::toString(type_), other,
                                   c10::toString(t.scalar_type()));
  }

  at::Tensor numbers(const char* name, const at::Tensor& t, std::int64_t rows,
                     const char* row) const {
    check_place(name, t);
    MEZZO_CHECK(t.dim() == 2 && t.size(0) == rows && t.size(1) == heads,
                "{}: expected {} [{}, {}], one row a {}, got shape {}", kGatAttentionName, name,
                rows, heads, row, c10::str(t.sizes()));
    check_type(name, t);
    return t.contiguous();
  }

  /// [E, 1] or [E, heads].
  at::Tensor weights(const at::Tensor& t) const {
    check_place("edge_weight", t);
    const std::int64_t rows = topology_.num_edges();
    const bool single = t.dim() == 1 || (t.dim() == 2 && t.size(1) == 1);
    MEZZO_CHECK((single || (t.dim() == 2 && t.size(1) == heads)) && t.size(0) == rows,
                "{}: expected edge_weight [{}], [{}, 1] or [{}, {}], one number an edge, got shape "
                "{}",
                kGatAttentionName, rows, rows, rows, heads, c10::str(t.sizes()));
    check_type("edge_weight", t);
    return (single ? t.reshape({rows, 1}) : t).contiguous();
  }

  HeadNumbers described(const at::Tensor& t) const {
    return {.data = t.const_data_ptr(), .wide = t.scalar_type() != type_, .length = t.size(1)};
  }

  const Topology& topology_;
  at::ScalarType type_;
  at::Tensor z_, score_src_, score_dst_, edge_weight_;
};

template <class Device>
std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_on(
    const TopologyPtr& holder, const at::Tensor& z, const at::Tensor& score_src,
    const at::Tensor& score_dst, const OptionalTensor& edge_weight, double negative_slope,
    double dropout, std::int64_t seed, const OptionalTensor& seed_offset) {
  const Topology& topology = holder->value;
  const Operands operands(topology, z, score_src, score_dst, edge_weight, negative_slope, dropout,
                          seed, seed_offset);
  const Direction direction(topology, RowSide::kDst);
  const std::int64_t num_dst = topology.num_dst();
  at::Tensor out = at::empty({num_dst, operands.heads, operands.features}, operands.rows());
  at::Tensor top = at::empty({num_dst, operands.heads}, operands.accumulators());
  at::Tensor sum = at::empty_like(top);
  AttentionArgs args;
  args.slots = direction.slots;
  args.dtype = operands.dtype;
  args.heads = operands.heads;
  args.features = operands.features;
  args.scores = operands.scores;
  args.z = operands.z();
  args.out = out.mutable_data_ptr();
  args.top = top.mutable_data_ptr();
  args.sum = sum.mutable_data_ptr();
  Device::run(args, direction, args.heads * args.features);
  return {out, top, sum};
}

template <class Device>
at::Tensor attention_only_on(const TopologyPtr& topology, const at::Tensor& z,
                             const at::Tensor& score_src, const at::Tensor& score_dst,
                             const OptionalTensor& edge_weight, double negative_slope,
                             double dropout, std::int64_t seed, const OptionalTensor& seed_offset) {
  return std::get<0>(attention_on<Device>(topology, z, score_src, score_dst, edge_weight,
                                          negative_slope, dropout, seed, seed_offset));
}

/// What the backward reads of each destination: [num_dst, kStateNumbers, heads].
template <class Device>
at::Tensor destination_state(const Topology& topology, const Operands& operands,
                             const at::Tensor& out, const at::Tensor& top, const at::Tensor& sum,
                             const at::Tensor& grad) {
  const Direction direction(topology, RowSide::kDst);
  at::Tensor state =
      at::empty({topology.num_dst(), kStateNumbers, operands.heads}, operands.accumulators());
  AttentionStateArgs args;
  args.dtype = operands.dtype;
  args.heads = operands.heads;
  args.features = operands.features;
  args.score_dst = operands.scores.dst;
  args.top = top.const_data_ptr();
  args.sum = sum.const_data_ptr();
  args.out = out.const_data_ptr();
  args.grad = grad.const_data_ptr();
  args.state = state.mutable_data_ptr();
  Device::run(args, direction, args.heads * args.features);
  return state;
}

/// The sum over the edges into each destination of what stands by csr() slot, [E, n]: [num_dst, n].
template <class Device>
at::Tensor sum_by_destination(const Topology& topology, const at::Tensor& by_slot) {
  const Direction direction(topology, RowSide::kDst);
  const at::Tensor& places = topology.csr_slots_by_csc();
  at::Tensor sum = at::empty({topology.num_dst(), by_slot.size(1)}, by_slot.options());
  SpmmArgs args;
  args.slots = {direction.indptr, direction.slots.first, ids_of(places)};
  args.rhs = {.data = by_slot.const_data_ptr(),
              .wide = false,
              .access = Access::kSecond,
              .length = by_slot.size(1)};
  args.layout.inner = by_slot.size(1);
  args.op = BinaryOp::kCopyRhs;
  args.reduce = ReduceOp::kSum;
  args.dtype = dtype_of(kGatAttentionName, by_slot.scalar_type());
  args.out = sum.mutable_data_ptr();
  args.out_length = by_slot.size(1);
  Device::run(args, direction, args.out_length);
  return sum;
}

/// Runs the backward's kernel, complete but for sum_grad and its heads, on some heads after the
/// other, so that sum_grad is of these alone. Returns the gradient of score_dst: [num_dst, heads].
template <class Device>
at::Tensor grad_by_heads(const Topology& topology, const at::TensorOptions& accumulators,
                         AttentionGradArgs args) {
  const Direction direction(topology, RowSide::kSrc);
  const std::int64_t num_edges = topology.num_edges();
  const std::int64_t of_pass = Device::heads_of_pass(
      args.heads, num_edges * static_cast<std::int64_t>(accumulators.dtype().itemsize()));
  const at::Tensor sum_grad = at::empty({num_edges * of_pass}, accumulators);
  args.sum_grad = sum_grad.mutable_data_ptr();
  std::vector<at::Tensor> by_destination;
  for (args.head_begin = 0; args.head_begin < args.heads; args.head_begin = args.head_end) {
    args.head_end = std::min(args.head_begin + of_pass, args.heads);
    const std::int64_t heads = args.head_end - args.head_begin;
    Device::run(args, direction, heads * args.features);
    by_destination.push_back(sum_by_destination<Device>(
        topology, sum_grad.narrow(0, 0, num_edges * heads).view({num_edges, heads})));
  }
  return by_destination.size() == 1 ? by_destination[0] : at::cat(by_destination, 1);
}

/// The gradients of z, score_src, score_dst and the edge weight (empty unless wanted).
template <class Device>
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_grad_on(
    const TopologyPtr& holder, const at::Tensor& z, const at::Tensor& score_src,
    const at::Tensor& score_dst, const OptionalTensor& edge_weight, double negative_slope,
    double dropout, std::int64_t seed, const OptionalTensor& seed_offset, const at::Tensor& out,
    const at::Tensor& top, const at::Tensor& sum, const at::Tensor& grad, bool weight_wanted) {
  const Topology& topology = holder->value;
  const Operands operands(topology, z, score_src, score_dst, edge_weight, negative_slope, dropout,
                          seed, seed_offset);
  const at::Tensor given = grad.contiguous();
  const at::Tensor state = destination_state<Device>(topology, operands, out, top, sum, given);
  const Direction direction(topology, RowSide::kSrc);
  const std::int64_t num_edges = topology.num_edges();
  at::Tensor z_grad = at::empty(z.sizes(), operands.rows());
  at::Tensor src_grad = at::empty({topology.num_src(), operands.heads}, operands.accumulators());
  at::Tensor weight_grad =
      weight_wanted
          ? at::empty({num_edges, operands.scores.edge_weight.length}, operands.accumulators())
          : at::empty({0}, operands.accumulators());
  AttentionGradArgs args;
  args.slots = direction.slots;
  args.dtype = operands.dtype;
  args.heads = operands.heads;
  args.features = operands.features;
  args.scores = operands.scores;
  args.z = operands.z();
  args.grad = given.const_data_ptr();
  args.state = state.const_data_ptr();
  args.z_grad = z_grad.mutable_data_ptr();
  args.score_grad = src_grad.mutable_data_ptr();
  args.weight_grad = weight_wanted ? weight_grad.mutable_data_ptr() : nullptr;
  const at::Tensor dst_grad = grad_by_heads<Device>(topology, operands.accumulators(), args);
  if (weight_wanted) {
    weight_grad = Device::by_edge(weight_grad, topology.csr_slots());
    weight_grad = weight_grad.view(edge_weight->sizes()).to(*edge_weight);
  }
  return {z_grad, src_grad.to(score_src.scalar_type()), dst_grad.to(score_dst.scalar_type()),
          weight_grad};
}

struct Attention : Function<Attention> {
  static at::Tensor forward(AutogradContext* ctx, const TopologyPtr& topology, const at::Tensor& z,
                            const at::Tensor& score_src, const at::Tensor& score_dst,
                            const OptionalTensor& edge_weight, double negative_slope,
                            double dropout, std::int64_t seed, const OptionalTensor& seed_offset) {
    static const auto op = handle<std::tuple<at::Tensor, at::Tensor, at::Tensor>(
        const TopologyPtr&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
        const OptionalTensor&, double, double, std::int64_t, const OptionalTensor&)>(
        "mezzo::_gat_attention");
    at::AutoDispatchBelowADInplaceOrView below;
    const auto [out, top, sum] = op.call(topology, z, score_src, score_dst, edge_weight,
                                         negative_slope, dropout, seed, seed_offset);
    const bool weighted = edge_weight && edge_weight->defined();
    ctx->save_for_backward({z, score_src, score_dst, weighted ? *edge_weight : at::Tensor(), out,
                            top, sum, seed_offset.value_or(at::Tensor())});
    ctx->saved_data["topology"] = topology;
    ctx->saved_data["negative_slope"] = negative_slope;
    ctx->saved_data["dropout"] = dropout;
    ctx->saved_data["seed"] = seed;
    ctx->saved_data["weight_wanted"] = weighted && edge_weight->requires_grad();
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivative(kGatAttentionName);
    static const auto op = handle<std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>(
        const TopologyPtr&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
        const OptionalTensor&, double, double, std::int64_t, const OptionalTensor&,
        const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, bool)>(
        "mezzo::_gat_attention_grad");
    const auto saved = ctx->get_saved_variables();
    auto& data = ctx->saved_data;
    const bool weight_wanted = data["weight_wanted"].toBool();
    const auto [z, src, dst, weight] =
        op.call(data["topology"].toCustomClass<TopologyHolder>(), saved[0], saved[1], saved[2],
                saved[3].defined() ? OptionalTensor(saved[3]) : std::nullopt,
                data["negative_slope"].toDouble(), data["dropout"].toDouble(), data["seed"].toInt(),
                saved[7], saved[4], saved[5], saved[6], grads[0], weight_wanted);
    return {{}, z, src, dst, weight_wanted ? weight : at::Tensor(), {}, {}, {}, {}};
  }
};

at::Tensor attention_autograd(const TopologyPtr& topology, const at::Tensor& z,
                              const at::Tensor& score_src, const at::Tensor& score_dst,
                              const OptionalTensor& edge_weight, double negative_slope,
                              double dropout, std::int64_t seed,
                              const OptionalTensor& seed_offset) {
  return Attention::apply(topology, z, score_src, score_dst, edge_weight, negative_slope, dropout,
                          seed, seed_offset);
}

at::Tensor call(const TopologyPtr& topology, const at::Tensor& z, const at::Tensor& score_src,
                const at::Tensor& score_dst, const OptionalTensor& edge_weight,
                double negative_slope, double dropout, std::int64_t seed,
                const OptionalTensor& seed_offset) {
  static const auto op =
      handle<at::Tensor(const TopologyPtr&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                        const OptionalTensor&, double, double, std::int64_t,
                        const OptionalTensor&)>("mezzo::gat_attention");
  return op.call(topology, z, score_src, score_dst, edge_weight, negative_slope, dropout, seed,
                 seed_offset);
}

template <at::DeviceType kDevice>
at::Tensor attention_autocast(const TopologyPtr& topology, const at::Tensor& z,
                              const at::Tensor& score_src, const at::Tensor& score_dst,
                              const OptionalTensor& edge_weight, double negative_slope,
                              double dropout, std::int64_t seed,
                              const OptionalTensor& seed_offset) {
  constexpr auto kKey =
      kDevice == at::kCUDA ? c10::DispatchKey::Autocast : c10::DispatchKey::AutocastCPU;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(kKey);
  return call(topology, lowered(z, kDevice), score_src, score_dst, edge_weight, negative_slope,
              dropout, seed, seed_offset);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(mezzo, m) {
  register_topology_class();
#define MEZZO_ATTENTION                                                                  \
  "__torch__.torch.classes.mezzo.Topology topology, Tensor z, Tensor score_src, Tensor " \
  "score_dst, Tensor? edge_weight, float negative_slope, float dropout, int seed, "      \
  "Tensor? seed_offset"
  m.def("gat_attention(" MEZZO_ATTENTION "=None) -> Tensor");
  m.def("_gat_attention(" MEZZO_ATTENTION ") -> (Tensor, Tensor, Tensor)");
  m.def("_gat_attention_grad(" MEZZO_ATTENTION
        ", Tensor out, Tensor top, Tensor sum, Tensor grad, bool weight_wanted) -> (Tensor, "
        "Tensor, Tensor, Tensor)");
#undef MEZZO_ATTENTION
}
TORCH_LIBRARY_IMPL(mezzo, Autograd, m) {
  m.impl("gat_attention", &attention_autograd);
}
TORCH_LIBRARY_IMPL(mezzo, Autocast, m) {
  m.impl("gat_attention", &attention_autocast<at::kCUDA>);
}
TORCH_LIBRARY_IMPL(mezzo, AutocastCPU, m) {
  m.impl("gat_attention", &attention_autocast<at::kCPU>);
}

template <class Device>
void declare_gat_attention(torch::Library& m) {
  m.impl("gat_attention", &attention_only_on<Device>);
  m.impl("_gat_attention", &attention_on<Device>);
  m.impl("_gat_attention_grad", &attention_grad_on<Device>);
}

template void declare_gat_attention<OnCpu>(torch::Library&);
template void declare_gat_attention<OnCuda>(torch::Library&);

at::Tensor gat_attention(const Topology& topology, const at::Tensor& z, const at::Tensor& score_src,
                         const at::Tensor& score_dst, const AttentionOptions& options) {
  // Before the dispatcher, which has no kernel for other layouts.
  const auto check_strided = [](const char* name, const at::Tensor& t) {
    MEZZO_CHECK(t.defined() && t.layout() == at::kStrided, "{}: expected a strided {}, got {}",
                kGatAttentionName, name,
                t.defined() ? c10::str(t.layout()) : "an undefined tensor");
  };
  check_strided("z", z);
  check_strided("score_src", score_src);
  check_strided("score_dst", score_dst);
  if (options.edge_weight.defined()) check_strided("edge_weight", options.edge_weight);
  check_dropout(kGatAttentionName, options.dropout);
  const bool drops = options.training && options.dropout > 0;
  const OptionalTensor edge_weight =
      options.edge_weight.defined() ? OptionalTensor(options.edge_weight) : std::nullopt;
  const DropoutSeed seed = drops ? draw_dropout_seed(z.device()) : DropoutSeed{};
  return call(hold(topology), z, score_src, score_dst, edge_weight, options.negative_slope,
              drops ? options.dropout : 0, seed.number, seed.offset);
}

}  // namespace mezzo
