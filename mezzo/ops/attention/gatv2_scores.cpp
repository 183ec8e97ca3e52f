// The attention scores of GATv2 and their gradients.
#include <array>
#include <tuple>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/ops/op.h"
#include "mezzo/ops/ops.h"

namespace mezzo::detail {
namespace {

struct PairInputs {
  TopologyArgument topology;
  at::Tensor src, dst, attn;

  static constexpr auto fields() {
    using A = PairInputs;
    return std::tuple(Field{"topology", &A::topology}, Field{"src", &A::src}, Field{"dst", &A::dst},
                      Field{"attn", &A::attn});
  }
};

/// The checked, contiguous operands; attn in the accumulator's type.
class CheckedPairs {
 public:
  CheckedPairs(const PairInputs& in, double negative_slope) : negative_slope_(negative_slope) {
    const Topology& topology = in.topology->value;
    const auto& [holder, src, dst, attn] = in;
    check_device_and_dtype(topology, "src", src);
    check_device_and_dtype(topology, "dst", dst);
    check_device_and_dtype(topology, "attn", attn);
    check_shapes(topology, src, dst, attn);
    MEZZO_CHECK(src.scalar_type() == dst.scalar_type() && src.scalar_type() == attn.scalar_type(),
                "gatv2_scores: expected src, dst and attn of one dtype, got {}, {} and {}",
                c10::toString(src.scalar_type()), c10::toString(dst.scalar_type()),
                c10::toString(attn.scalar_type()));
    check_negative_slope("gatv2_scores", negative_slope, accumulator_of(src.scalar_type()));
    src_ = src.contiguous();
    dst_ = dst.contiguous();
    attn_ = attn.reshape({heads(), features()}).to(accumulator_of(src.scalar_type())).contiguous();
  }

  std::int64_t heads() const { return src_.size(1); }
  std::int64_t features() const { return src_.size(2); }
  std::int64_t row_length() const { return heads() * features(); }
  DType dtype() const { return dtype_of("gatv2_scores", src_.scalar_type()); }
  at::TensorOptions accumulators() const { return attn_.options(); }

  /// The kernel's arguments for the rows of `side`.
  kernels::GATv2Pairs pairs(RowSide side) const {
    const bool of_dst = side == RowSide::kDst;
    return {.heads = heads(),
            .features = features(),
            .own = (of_dst ? dst_ : src_).const_data_ptr(),
            .other = (of_dst ? src_ : dst_).const_data_ptr(),
            .attn = attn_.const_data_ptr(),
            .negative_slope = negative_slope_};
  }

 private:
  static void check_device_and_dtype(const Topology& topology, const char* name,
                                     const at::Tensor& t) {
    MEZZO_CHECK(t.device() == topology.device(),
                "gatv2_scores: expected {} on the graph's device {}, got {}", name,
                topology.device().str(), t.device().str());
    dtype_of(fmt::format("gatv2_scores: dtype of {}", name).c_str(), t.scalar_type());
  }

  static void check_shapes(const Topology& topology, const at::Tensor& src, const at::Tensor& dst,
                           const at::Tensor& attn) {
    MEZZO_CHECK(src.dim() == 3 && src.size(0) == topology.num_src(),
                "gatv2_scores: expected src [{}, heads, features], one row a source node, got {}",
                topology.num_src(), c10::str(src.sizes()));
    const std::int64_t heads = src.size(1), features = src.size(2);
    MEZZO_CHECK(dst.sizes().equals({topology.num_dst(), heads, features}),
                "gatv2_scores: expected dst [{}, {}, {}], one row a destination node, got {}",
                topology.num_dst(), heads, features, c10::str(dst.sizes()));
    MEZZO_CHECK(attn.sizes().equals({heads, features}) || attn.sizes().equals({1, heads, features}),
                "gatv2_scores: expected attn [{}, {}] or [1, {}, {}], got {}", heads, features,
                heads, features, c10::str(attn.sizes()));
  }

  at::Tensor src_, dst_, attn_;
  double negative_slope_;
};

/// Writes the gradient of one side's rows to own_grad and adds that of attn to attn_grad, if they
/// are defined. grad: contiguous.
template <class Device>
void run_scores_grad(const Topology& topology, const CheckedPairs& checked, const at::Tensor& grad,
                     RowSide side, const at::Tensor& own_grad, const at::Tensor& attn_grad) {
  const auto data_of = [](const at::Tensor& t) {
    return t.defined() ? t.mutable_data_ptr() : nullptr;
  };
  const Direction direction(topology, side);
  kernels::GATv2ScoresGradArgs args;
  args.entries = direction.entries;
  args.dtype = checked.dtype();
  args.pairs = checked.pairs(side);
  args.grad = grad.const_data_ptr();
  args.own_grad = data_of(own_grad);
  args.attn_grad = data_of(attn_grad);
  Device::run(args, direction, checked.row_length());
}

/// The gradients of src, dst and attn; undefined unless needed.
struct PairGradients : PairInputs {
  at::Tensor grad;
  double negative_slope = 0;
  std::array<bool, 3> needs_grad = {};  ///< src, dst, attn

  static constexpr auto name = "_gatv2_scores_grad";
  static constexpr bool is_repeatable = true;
  static constexpr auto fields() {
    using A = PairGradients;
    return std::tuple_cat(
        PairInputs::fields(),
        std::tuple(Field{"grad", &A::grad}, Field{"negative_slope", &A::negative_slope},
                   Field{"needs_grad", &A::needs_grad}));
  }
  using Result = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

  template <class Device>
  Result run() const {
    const CheckedPairs checked(*this, negative_slope);
    const at::Tensor upstream = grad.contiguous();
    const auto [of_src, of_dst, of_attn] = needs_grad;
    const auto empty_for = [](const at::Tensor& rows) {
      return at::empty(rows.sizes(), rows.options());
    };
    at::Tensor src_grad, dst_grad, attn_grad;
    if (of_src) {
      src_grad = empty_for(src);
      run_scores_grad<Device>(topology->value, checked, upstream, RowSide::kSrc, src_grad, {});
    }
    if (of_dst) dst_grad = empty_for(dst);
    if (of_attn) attn_grad = at::zeros({checked.row_length()}, checked.accumulators());
    if (of_dst || of_attn) {
      run_scores_grad<Device>(topology->value, checked, upstream, RowSide::kDst, dst_grad,
                              attn_grad);
    }
    if (of_attn) attn_grad = attn_grad.to(attn.scalar_type()).view(attn.sizes());
    return {src_grad, dst_grad, attn_grad};
  }
  Result meta() const {
    const auto [of_src, of_dst, of_attn] = needs_grad;
    return {of_src ? shape_of(src) : at::Tensor(), of_dst ? shape_of(dst) : at::Tensor(),
            of_attn ? shape_of(attn) : at::Tensor()};
  }
};

struct PairScores : PairInputs {
  double negative_slope = 0;

  static constexpr auto name = "gatv2_scores";
  static constexpr auto fields() {
    return std::tuple_cat(PairInputs::fields(),
                          std::tuple(Field{"negative_slope", &PairScores::negative_slope}));
  }
  using Result = at::Tensor;

  template <class Device>
  Result run() const {
    const CheckedPairs checked(*this, negative_slope);
    const Direction direction(topology->value, RowSide::kDst);
    at::Tensor scores =
        at::empty({topology->value.num_edges(), checked.heads()}, checked.accumulators());
    kernels::GATv2ScoresArgs args;
    args.entries = direction.entries;
    args.dtype = checked.dtype();
    args.pairs = checked.pairs(RowSide::kDst);
    args.scores = scores.mutable_data_ptr();
    Device::run(args, direction, checked.row_length());
    return scores;
  }
  Result meta() const {
    return meta_tensor({topology.rows(Target::kEdge), src.sym_size(1)},
                       accumulator_of(src.scalar_type()));
  }

  void lower(at::DeviceType device) {
    for (at::Tensor* operand : {&src, &dst, &attn}) *operand = lowered(*operand, device);
  }

  static at::Tensor forward(const Saved<PairScores>& saved) { return dispatch(saved.op); }

  static PairScores backward(const Saved<PairScores>& saved, const at::Tensor& grad) {
    const auto needed = [&](const char* operand) { return saved.needs_grad.contains(operand); };
    PairScores gradients;
    std::tie(gradients.src, gradients.dst, gradients.attn) = dispatch(PairGradients{
        {saved.op}, grad, saved.op.negative_slope, {needed("src"), needed("dst"), needed("attn")}});
    return gradients;
  }
};

const Registration<PairScores, PairGradients> kPairRegistration;

}  // namespace
}  // namespace mezzo::detail

namespace mezzo {

at::Tensor gatv2_scores(const Topology& topology, const at::Tensor& src, const at::Tensor& dst,
                        const at::Tensor& attn, double negative_slope) {
  detail::check_strided("gatv2_scores", "src", src);
  detail::check_strided("gatv2_scores", "dst", dst);
  detail::check_strided("gatv2_scores", "attn", attn);
  return detail::dispatch(
      detail::PairScores{{detail::hold(topology), src, dst, attn}, negative_slope});
}

}  // namespace mezzo
