// Fused graph attention: the operator, its gradient and what autocast does to it. The forward keeps
// the maximum and the sum of each row's softmax; the backward recomputes the attention from them in
// one pass over the sources (docs/decisions/0013-fused-attention.md).
#include <algorithm>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/ops/dropout.h"
#include "mezzo/ops/lowered.h"
#include "mezzo/ops/op.h"
#include "mezzo/ops/ops.h"

namespace mezzo {

namespace {

constexpr auto kGatAttentionName = "gat_attention";

struct AttentionInputs {
  TopologyPtr topology;
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

/// The operands, checked and made contiguous, and what the kernels are told of them.
class Operands {
 public:
  explicit Operands(const AttentionInputs& in)
      : topology_(in.topology->value), type_(in.z.scalar_type()) {
    const Topology& topology = topology_;
    const at::Tensor& z = in.z;
    check_place("z", z);
    MEZZO_CHECK(
        z.dim() == 3 && z.size(0) == topology.num_src() && z.size(1) >= 1 && z.size(2) >= 1,
        "{}: expected z [{}, heads >= 1, features >= 1], one row a source node, got shape {}",
        kGatAttentionName, topology.num_src(), c10::str(z.sizes()));
    dtype = dtype_of("gat_attention: dtype of z", type_);
    heads = z.size(1);
    features = z.size(2);
    z_ = z.contiguous();
    score_src_ = numbers("score_src", in.score_src, topology.num_src(), "source node");
    score_dst_ = numbers("score_dst", in.score_dst, topology.num_dst(), "destination node");
    if (in.edge_weight) edge_weight_ = weights(*in.edge_weight);
    check_negative_slope(kGatAttentionName, in.negative_slope, accumulator_of(type_));
    scores.src = described(score_src_);
    scores.dst = described(score_dst_);
    if (edge_weight_.defined()) scores.edge_weight = described(edge_weight_);
    scores.negative_slope = in.negative_slope;
    scores.dropout =
        dropout_level(kGatAttentionName, in.dropout, in.seed, in.seed_offset, topology.device());
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

/// The result, and of each destination and head the largest logit and the sum of exponentials.
template <class Device>
std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_on(const AttentionInputs& in) {
  const Topology& topology = in.topology->value;
  const Operands operands(in);
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

struct AttentionGradInputs : AttentionInputs {
  at::Tensor out, top, sum, grad;
  bool weight_wanted = false;

  static constexpr auto fields() {
    using A = AttentionGradInputs;
    return std::tuple_cat(
        AttentionInputs::fields(),
        std::tuple(Field{"out", &A::out}, Field{"top", &A::top}, Field{"sum", &A::sum},
                   Field{"grad", &A::grad}, Field{"weight_wanted", &A::weight_wanted}));
  }
};

/// What the backward reads of each destination: [num_dst, kStateNumbers, heads].
template <class Device>
at::Tensor destination_state(const Topology& topology, const Operands& operands,
                             const AttentionGradInputs& in, const at::Tensor& grad) {
  const Direction direction(topology, RowSide::kDst);
  at::Tensor state =
      at::empty({topology.num_dst(), kStateNumbers, operands.heads}, operands.accumulators());
  AttentionStateArgs args;
  args.dtype = operands.dtype;
  args.heads = operands.heads;
  args.features = operands.features;
  args.score_dst = operands.scores.dst;
  args.top = in.top.const_data_ptr();
  args.sum = in.sum.const_data_ptr();
  args.out = in.out.const_data_ptr();
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
    const AttentionGradInputs& in) {
  const Topology& topology = in.topology->value;
  const Operands operands(in);
  const at::Tensor given = in.grad.contiguous();
  const at::Tensor state = destination_state<Device>(topology, operands, in, given);
  const Direction direction(topology, RowSide::kSrc);
  const std::int64_t num_edges = topology.num_edges();
  at::Tensor z_grad = at::empty(in.z.sizes(), operands.rows());
  at::Tensor src_grad = at::empty({topology.num_src(), operands.heads}, operands.accumulators());
  at::Tensor weight_grad =
      in.weight_wanted
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
  args.weight_grad = in.weight_wanted ? weight_grad.mutable_data_ptr() : nullptr;
  const at::Tensor dst_grad = grad_by_heads<Device>(topology, operands.accumulators(), args);
  if (in.weight_wanted) {
    weight_grad = Device::by_edge(weight_grad, topology.csr_slots());
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
};

struct AttentionGrad : AttentionGradInputs {
  static constexpr auto name = "_gat_attention_grad";
  static constexpr bool is_repeatable = true;
  using Result = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
  template <class Device>
  Result run() const {
    return attention_grad_on<Device>(*this);
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
  void lower(at::DeviceType device) { z = lowered(z, device); }

  static at::Tensor forward(Saved<Attention>& saved) {
    const auto [out, top, sum] = dispatch(AttentionForward{saved.op});
    saved.more = {out, top, sum};
    return out;
  }
  static Attention backward(const Saved<Attention>& saved, const at::Tensor& grad) {
    const bool weight_wanted = saved.wanted.contains("edge_weight");
    Attention gradients;
    at::Tensor weight;
    std::tie(gradients.z, gradients.score_src, gradients.score_dst, weight) =
        dispatch(AttentionGrad{
            {saved.op, saved.more[0], saved.more[1], saved.more[2], grad, weight_wanted}});
    if (weight_wanted) gradients.edge_weight = weight;
    return gradients;
  }
};

const Registration<AttentionForward, AttentionGrad, Attention> kAttentionRegistration;

}  // namespace

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
  return dispatch(
      Attention{{hold(topology), z, score_src, score_dst, edge_weight, options.negative_slope,
                 drops ? options.dropout : 0, seed.number, seed.offset}});
}

}  // namespace mezzo
