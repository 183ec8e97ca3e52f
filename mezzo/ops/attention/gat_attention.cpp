// Fused graph attention. The forward saves the maximum and the sum of exponentials of each row's
// softmax. The backward recomputes the attention from them in one pass over the sources
// (docs/decisions/0013-fused-attention.md).
#include <algorithm>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/ops/dropout.h"
#include "mezzo/ops/op.h"
#include "mezzo/ops/ops.h"

namespace mezzo::detail {
namespace {

constexpr auto kGatAttentionName = "gat_attention";

struct AttentionInputs {
  TopologyArgument topology;
  at::Tensor z, score_src, score_dst;
  OptionalTensor edge_weight;
  double negative_slope = 0, dropout = 0;
  std::int64_t seed = 0;
  OptionalTensor seed_offset;

  static constexpr auto fields() {
    using A = AttentionInputs;
    return std::tuple(Field{"topology", &A::topology}, Field{"z", &A::z},
                      Field{"score_src", &A::score_src}, Field{"score_dst", &A::score_dst},
                      Field{"edge_weight", &A::edge_weight},
                      Field{"negative_slope", &A::negative_slope}, Field{"dropout", &A::dropout},
                      Field{"seed", &A::seed}, Field{"seed_offset", &A::seed_offset, true});
  }
};

/// The checked, contiguous operands, and the kernels' arguments of them.
class AttentionOperands {
 public:
  explicit AttentionOperands(const AttentionInputs& in)
      : topology_(in.topology->value), type_(in.z.scalar_type()) {
    const Topology& topology = topology_;
    const at::Tensor& z = in.z;
    check_device("z", z);
    MEZZO_CHECK(
        z.dim() == 3 && z.size(0) == topology.num_src() && z.size(1) >= 1 && z.size(2) >= 1,
        "{}: expected z [{}, heads >= 1, features >= 1], one row a source node, got shape {}",
        kGatAttentionName, topology.num_src(), c10::str(z.sizes()));
    dtype = dtype_of("gat_attention: dtype of z", type_);
    heads = z.size(1);
    features = z.size(2);
    z_ = z.contiguous();
    score_src_ = scores_of("score_src", in.score_src, topology.num_src(), "source node");
    score_dst_ = scores_of("score_dst", in.score_dst, topology.num_dst(), "destination node");
    if (in.edge_weight) edge_weight_ = weights(*in.edge_weight);
    check_negative_slope(kGatAttentionName, in.negative_slope, accumulator_of(type_));
    scores.src = head_numbers(score_src_);
    scores.dst = head_numbers(score_dst_);
    if (edge_weight_.defined()) scores.edge_weight = head_numbers(edge_weight_);
    scores.negative_slope = in.negative_slope;
    scores.dropout =
        dropout_level(kGatAttentionName, in.dropout, in.seed, in.seed_offset, topology.device());
  }

  /// Arguments with what the forward and the backward kernel share.
  template <class Args>
  Args arguments(const kernels::Entries& entries) const {
    Args args;
    args.entries = entries;
    args.dtype = dtype;
    args.heads = heads;
    args.features = features;
    args.scores = scores;
    args.z = z_.const_data_ptr();
    return args;
  }
  at::TensorOptions accumulators() const {
    return at::TensorOptions().dtype(accumulator_of(type_)).device(topology_.device());
  }
  at::TensorOptions rows() const { return z_.options(); }

  std::int64_t heads = 1, features = 1;
  DType dtype = DType::kFloat32;
  kernels::AttentionScores scores;

 private:
  void check_device(const char* name, const at::Tensor& t) const {
    MEZZO_CHECK(t.device() == topology_.device(),
                "{}: expected {} on the graph's device {}, got {}", kGatAttentionName, name,
                topology_.device().str(), t.device().str());
  }

  void check_type(const char* name, const at::Tensor& t) const {
    const at::ScalarType accumulator = accumulator_of(type_);
    if (t.scalar_type() == type_ || t.scalar_type() == accumulator) return;
    const std::string other =
        accumulator == type_ ? "" : fmt::format(" or {}", c10::toString(accumulator));
    raise<InvalidArgument>("{}: expected {} of z's dtype {}{}, got {}", kGatAttentionName, name,
                           c10::toString(type_), other, c10::toString(t.scalar_type()));
  }

  at::Tensor scores_of(const char* name, const at::Tensor& t, std::int64_t rows,
                       const char* row) const {
    check_device(name, t);
    MEZZO_CHECK(t.dim() == 2 && t.size(0) == rows && t.size(1) == heads,
                "{}: expected {} [{}, {}], one row a {}, got shape {}", kGatAttentionName, name,
                rows, heads, row, c10::str(t.sizes()));
    check_type(name, t);
    return t.contiguous();
  }

  /// [E, 1] or [E, heads].
  at::Tensor weights(const at::Tensor& t) const {
    check_device("edge_weight", t);
    const std::int64_t rows = topology_.num_edges();
    const bool single = t.dim() == 1 || (t.dim() == 2 && t.size(1) == 1);
    MEZZO_CHECK((single || (t.dim() == 2 && t.size(1) == heads)) && t.size(0) == rows,
                "{}: expected edge_weight [{}], [{}, 1] or [{}, {}], one number an edge, got shape "
                "{}",
                kGatAttentionName, rows, rows, rows, heads, c10::str(t.sizes()));
    check_type("edge_weight", t);
    return (single ? t.reshape({rows, 1}) : t).contiguous();
  }

  kernels::HeadNumbers head_numbers(const at::Tensor& t) const {
    return {.data = t.const_data_ptr(), .is_accum = t.scalar_type() != type_, .length = t.size(1)};
  }

  const Topology& topology_;
  at::ScalarType type_;
  at::Tensor z_, score_src_, score_dst_, edge_weight_;
};

/// The result, and the row maximum and sum of exponentials of each destination and head.
template <class Device>
std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_on(const AttentionInputs& in) {
  const Topology& topology = in.topology->value;
  const AttentionOperands operands(in);
  const Direction direction(topology, RowSide::kDst);
  const std::int64_t num_dst = topology.num_dst();
  at::Tensor out = at::empty({num_dst, operands.heads, operands.features}, operands.rows());
  at::Tensor row_max = at::empty({num_dst, operands.heads}, operands.accumulators());
  at::Tensor exp_sum = at::empty_like(row_max);
  auto args = operands.arguments<kernels::AttentionArgs>(direction.entries);
  args.out = out.mutable_data_ptr();
  args.top = row_max.mutable_data_ptr();
  args.sum = exp_sum.mutable_data_ptr();
  Device::run(args, direction, args.heads * args.features);
  return {out, row_max, exp_sum};
}

struct AttentionGradInputs : AttentionInputs {
  at::Tensor out, row_max, exp_sum, grad;
  bool weight_needs_grad = false;

  static constexpr auto fields() {
    using A = AttentionGradInputs;
    return std::tuple_cat(AttentionInputs::fields(),
                          std::tuple(Field{"out", &A::out}, Field{"row_max", &A::row_max},
                                     Field{"exp_sum", &A::exp_sum}, Field{"grad", &A::grad},
                                     Field{"weight_needs_grad", &A::weight_needs_grad}));
  }
};

/// The values of each destination that the backward reads: [num_dst, kStateNumbers, heads].
template <class Device>
at::Tensor destination_state(const Topology& topology, const AttentionOperands& operands,
                             const AttentionGradInputs& in, const at::Tensor& grad) {
  const Direction direction(topology, RowSide::kDst);
  at::Tensor state = at::empty({topology.num_dst(), kernels::kStateNumbers, operands.heads},
                               operands.accumulators());
  kernels::AttentionStateArgs args;
  args.dtype = operands.dtype;
  args.heads = operands.heads;
  args.features = operands.features;
  args.score_dst = operands.scores.dst;
  args.top = in.row_max.const_data_ptr();
  args.sum = in.exp_sum.const_data_ptr();
  args.out = in.out.const_data_ptr();
  args.grad = grad.const_data_ptr();
  args.state = state.mutable_data_ptr();
  Device::run(args, direction, args.heads * args.features);
  return state;
}

/// Sums values of edges in csr() order, [E, n], over the edges into each destination: [num_dst, n].
template <class Device>
at::Tensor sum_by_destination(const Topology& topology, const at::Tensor& values) {
  const Direction direction(topology, RowSide::kDst);
  const at::Tensor& csr_entries = topology.csr_entries_by_csc();
  at::Tensor sum = at::empty({topology.num_dst(), values.size(1)}, values.options());
  kernels::SpmmArgs args;
  args.entries = direction.entries;
  args.entries.second = ids_of(csr_entries);
  args.rhs = {.data = values.const_data_ptr(),
              .is_accum = false,
              .access = kernels::Access::kSecond,
              .length = values.size(1)};
  args.layout.inner = values.size(1);
  args.op = BinaryOp::kCopyRhs;
  args.reduce = ReduceOp::kSum;
  args.dtype = dtype_of(kGatAttentionName, values.scalar_type());
  args.out = sum.mutable_data_ptr();
  args.out_length = values.size(1);
  Device::run(args, direction, args.out_length);
  return sum;
}

/// Runs the backward's kernel on a few heads at a time, so that sum_grad holds only these. args:
/// without sum_grad and the range of heads. Returns the gradient of score_dst: [num_dst, heads].
template <class Device>
at::Tensor grad_by_heads(const Topology& topology, const at::TensorOptions& accumulators,
                         kernels::AttentionGradArgs args) {
  const Direction direction(topology, RowSide::kSrc);
  const std::int64_t num_edges = topology.num_edges();
  const std::int64_t heads_per_pass = Device::heads_of_pass(
      args.heads, num_edges * static_cast<std::int64_t>(accumulators.dtype().itemsize()));
  const at::Tensor sum_grad = at::empty({num_edges * heads_per_pass}, accumulators);
  args.sum_grad = sum_grad.mutable_data_ptr();
  std::vector<at::Tensor> by_destination;
  for (args.head_begin = 0; args.head_begin < args.heads; args.head_begin = args.head_end) {
    args.head_end = std::min(args.head_begin + heads_per_pass, args.heads);
    const std::int64_t heads = args.head_end - args.head_begin;
    Device::run(args, direction, heads * args.features);
    by_destination.push_back(sum_by_destination<Device>(
        topology, sum_grad.narrow(0, 0, num_edges * heads).view({num_edges, heads})));
  }
  return by_destination.size() == 1 ? by_destination[0] : at::cat(by_destination, 1);
}

/// The gradients of z, score_src, score_dst and the edge weight (empty unless needed).
template <class Device>
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_grad_on(
    const AttentionGradInputs& in) {
  const Topology& topology = in.topology->value;
  const AttentionOperands operands(in);
  const at::Tensor grad = in.grad.contiguous();
  const at::Tensor state = destination_state<Device>(topology, operands, in, grad);
  const Direction direction(topology, RowSide::kSrc);
  const std::int64_t num_edges = topology.num_edges();
  at::Tensor z_grad = at::empty(in.z.sizes(), operands.rows());
  at::Tensor src_grad = at::empty({topology.num_src(), operands.heads}, operands.accumulators());
  at::Tensor weight_grad =
      in.weight_needs_grad
          ? at::empty({num_edges, operands.scores.edge_weight.length}, operands.accumulators())
          : at::empty({0}, operands.accumulators());
  auto args = operands.arguments<kernels::AttentionGradArgs>(direction.entries);
  args.grad = grad.const_data_ptr();
  args.state = state.const_data_ptr();
  args.z_grad = z_grad.mutable_data_ptr();
  args.score_grad = src_grad.mutable_data_ptr();
  args.weight_grad = in.weight_needs_grad ? weight_grad.mutable_data_ptr() : nullptr;
  const at::Tensor dst_grad = grad_by_heads<Device>(topology, operands.accumulators(), args);
  if (in.weight_needs_grad) {
    weight_grad = Device::to_edge_order(weight_grad, topology.csr_entries());
    weight_grad = weight_grad.view(in.edge_weight->sizes()).to(*in.edge_weight);
  }
  return {z_grad, src_grad.to(in.score_src.scalar_type()), dst_grad.to(in.score_dst.scalar_type()),
          weight_grad};
}

struct AttentionForward : AttentionInputs {
  static constexpr auto name = "_gat_attention";
  static constexpr bool is_repeatable = true;
  using Result = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
  template <class Device>
  Result run() const {
    return attention_on<Device>(*this);
  }
  Result meta() const {
    const c10::SymInt rows = topology.rows(Target::kDst);
    const at::Tensor row_max = meta_tensor({rows, z.sym_size(1)}, accumulator_of(z.scalar_type()));
    return {shape_of(z, 0, rows), row_max, shape_of(row_max)};
  }
};

struct AttentionGrad : AttentionGradInputs {
  static constexpr auto name = "_gat_attention_grad";
  static constexpr bool is_repeatable = true;
  using Result = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
  template <class Device>
  Result run() const {
    return attention_grad_on<Device>(*this);
  }
  Result meta() const {
    return {shape_of(z), shape_of(score_src), shape_of(score_dst),
            weight_needs_grad ? shape_of(*edge_weight)
                              : meta_tensor({0}, accumulator_of(z.scalar_type()))};
  }
};

struct Attention : AttentionInputs {
  static constexpr auto name = kGatAttentionName;
  static constexpr bool is_repeatable = true;
  using Result = at::Tensor;
  template <class Device>
  Result run() const {
    return std::get<0>(attention_on<Device>(*this));
  }
  Result meta() const { return shape_of(z, 0, topology.rows(Target::kDst)); }
  void lower(at::DeviceType device) { z = lowered(z, device); }

  static at::Tensor forward(Saved<Attention>& saved) {
    const auto [out, row_max, exp_sum] = dispatch(AttentionForward{saved.op});
    saved.more = {out, row_max, exp_sum};
    return out;
  }
  static Attention backward(const Saved<Attention>& saved, const at::Tensor& grad) {
    const bool weight_needs_grad = saved.needs_grad.contains("edge_weight");
    Attention gradients;
    at::Tensor weight;
    std::tie(gradients.z, gradients.score_src, gradients.score_dst, weight) =
        dispatch(AttentionGrad{
            {saved.op, saved.more[0], saved.more[1], saved.more[2], grad, weight_needs_grad}});
    if (weight_needs_grad) gradients.edge_weight = weight;
    return gradients;
  }
};

const Registration<AttentionForward, AttentionGrad, Attention> kAttentionRegistration;

}  // namespace
}  // namespace mezzo::detail

namespace mezzo {

at::Tensor gat_attention(const Topology& topology, const at::Tensor& z, const at::Tensor& score_src,
                         const at::Tensor& score_dst, const AttentionOptions& options) {
  constexpr auto kOperation = detail::kGatAttentionName;
  const detail::OptionalTensor edge_weight =
      options.edge_weight.defined() ? std::optional(options.edge_weight) : std::nullopt;
  detail::check_strided(kOperation, "z", z);
  detail::check_strided(kOperation, "score_src", score_src);
  detail::check_strided(kOperation, "score_dst", score_dst);
  detail::check_strided(kOperation, "edge_weight", edge_weight);
  detail::check_dropout(kOperation, options.dropout);
  const bool drops = options.training && options.dropout > 0;
  detail::DropoutSeed seed;
  if (drops) seed = detail::draw_dropout_seed(z.device());
  return detail::dispatch(detail::Attention{
      {detail::hold(topology), z, score_src, score_dst, edge_weight, options.negative_slope,
       drops ? options.dropout : 0, seed.number, seed.offset}});
}

}  // namespace mezzo
