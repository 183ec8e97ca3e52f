// The scores of GATv2: schema, operators, gradient and autocast rule.
#include <array>
#include <tuple>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "mezzo/core/error.h"
#include "mezzo/message_passing/arguments.h"
#include "mezzo/message_passing/attention_scores.h"
#include "mezzo/message_passing/device.h"
#include "mezzo/message_passing/lowered.h"
#include "mezzo/message_passing/operators.h"
#include "mezzo/message_passing/schema.h"
#include "mezzo/message_passing/second_derivative.h"

namespace mezzo {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// The operands, checked and contiguous; attn in the accumulator's type.
class CheckedPairs {
 public:
  CheckedPairs(const Topology& topology, const at::Tensor& src, const at::Tensor& dst,
               const at::Tensor& attn, double negative_slope)
      : negative_slope_(negative_slope) {
    check_kind(topology, "src", src);
    check_kind(topology, "dst", dst);
    check_kind(topology, "attn", attn);
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

  /// With `side` as the rows.
  GATv2Pairs pairs(RowSide side) const {
    const bool of_dst = side == RowSide::kDst;
    return {.heads = heads(),
            .features = features(),
            .own = (of_dst ? dst_ : src_).const_data_ptr(),
            .other = (of_dst ? src_ : dst_).const_data_ptr(),
            .attn = attn_.const_data_ptr(),
            .negative_slope = negative_slope_};
  }

 private:
  static void check_kind(const Topology& topology, const char* name, const at::Tensor& t) {
    check_defined("gatv2_scores", name, t);
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

template <class Device>
at::Tensor scores_on(const TopologyPtr& holder, const at::Tensor& src, const at::Tensor& dst,
                     const at::Tensor& attn, double negative_slope) {
  const Topology& topology = holder->value;
  const CheckedPairs checked(topology, src, dst, attn, negative_slope);
  const Direction direction(topology, RowSide::kDst);
  at::Tensor scores = at::empty({topology.num_edges(), checked.heads()}, checked.accumulators());
  GATv2ScoresArgs args;
  args.slots = direction.slots;
  args.dtype = checked.dtype();
  args.pairs = checked.pairs(RowSide::kDst);
  args.scores = scores.mutable_data_ptr();
  Device::run(args, direction, checked.row_length());
  return scores;
}

/// Writes the gradient of one side's rows into own_grad and adds that of attn, accumulated, to
/// attn_grad; neither where it is undefined. grad: contiguous.
template <class Device>
void run_scores_grad(const Topology& topology, const CheckedPairs& checked, const at::Tensor& grad,
                     RowSide side, const at::Tensor& own_grad, const at::Tensor& attn_grad) {
  const auto written = [](const at::Tensor& t) {
    return t.defined() ? t.mutable_data_ptr() : nullptr;
  };
  const Direction direction(topology, side);
  GATv2ScoresGradArgs args;
  args.slots = direction.slots;
  args.dtype = checked.dtype();
  args.pairs = checked.pairs(side);
  args.grad = grad.const_data_ptr();
  args.own_grad = written(own_grad);
  args.attn_grad = written(attn_grad);
  Device::run(args, direction, checked.row_length());
}

/// The gradients of src, dst and attn, as far as wanted.
template <class Device>
Gradients scores_grad_on(const TopologyPtr& holder, const at::Tensor& src, const at::Tensor& dst,
                         const at::Tensor& attn, const at::Tensor& grad, double negative_slope,
                         std::array<bool, 3> wanted) {
  const Topology& topology = holder->value;
  const CheckedPairs checked(topology, src, dst, attn, negative_slope);
  const at::Tensor given = grad.contiguous();
  const auto [of_src, of_dst, of_attn] = wanted;
  const auto room = [](const at::Tensor& rows) { return at::empty(rows.sizes(), rows.options()); };
  Gradients gradients;
  auto& [src_grad, dst_grad, attn_grad] = gradients;
  if (of_src) {
    src_grad = room(src);
    run_scores_grad<Device>(topology, checked, given, RowSide::kSrc, src_grad, {});
  }
  if (of_dst) dst_grad = room(dst);
  if (of_attn) attn_grad = at::zeros({checked.row_length()}, checked.accumulators());
  if (of_dst || of_attn) {
    run_scores_grad<Device>(topology, checked, given, RowSide::kDst, dst_grad, attn_grad);
  }
  if (of_attn) attn_grad = attn_grad.to(attn.scalar_type()).view(attn.sizes());
  return gradients;
}

at::Tensor call(const TopologyPtr& topology, const at::Tensor& src, const at::Tensor& dst,
                const at::Tensor& attn, double negative_slope) {
  static const auto op = handle<at::Tensor(const TopologyPtr&, const at::Tensor&, const at::Tensor&,
                                           const at::Tensor&, double)>("mezzo::gatv2_scores");
  return op.call(topology, src, dst, attn, negative_slope);
}

Gradients call_grad(const TopologyPtr& topology, const variable_list& operands,
                    const at::Tensor& grad, double negative_slope, std::array<bool, 3> wanted) {
  static const auto op =
      handle<Gradients(const TopologyPtr&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                       const at::Tensor&, double, std::array<bool, 3>)>(
          "mezzo::_gatv2_scores_grad");
  return op.call(topology, operands[0], operands[1], operands[2], grad, negative_slope, wanted);
}

struct GATv2Scores : Function<GATv2Scores> {
  static at::Tensor forward(AutogradContext* ctx, const TopologyPtr& topology,
                            const at::Tensor& src, const at::Tensor& dst, const at::Tensor& attn,
                            double negative_slope) {
    at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor scores = call(topology, src, dst, attn, negative_slope);
    ctx->save_for_backward({src, dst, attn});
    ctx->saved_data["topology"] = topology;
    ctx->saved_data["negative_slope"] = negative_slope;
    return scores;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivative("gatv2_scores");
    const auto [src, dst, attn] = call_grad(
        ctx->saved_data["topology"].toCustomClass<TopologyHolder>(), ctx->get_saved_variables(),
        grads[0], ctx->saved_data["negative_slope"].toDouble(),
        {ctx->needs_input_grad(0), ctx->needs_input_grad(1), ctx->needs_input_grad(2)});
    return {{}, src, dst, attn, {}};
  }
};

at::Tensor scores_autograd(const TopologyPtr& topology, const at::Tensor& src,
                           const at::Tensor& dst, const at::Tensor& attn, double negative_slope) {
  return GATv2Scores::apply(topology, src, dst, attn, negative_slope);
}

template <at::DeviceType kDevice>
at::Tensor scores_autocast(const TopologyPtr& topology, const at::Tensor& src,
                           const at::Tensor& dst, const at::Tensor& attn, double negative_slope) {
  constexpr auto kKey =
      kDevice == at::kCUDA ? c10::DispatchKey::Autocast : c10::DispatchKey::AutocastCPU;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(kKey);
  return call(topology, lowered(src, kDevice), lowered(dst, kDevice), lowered(attn, kDevice),
              negative_slope);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(mezzo, m) {
  register_topology_class();
#define MEZZO_PAIRS \
  "__torch__.torch.classes.mezzo.Topology topology, Tensor src, Tensor dst, Tensor attn, "
  m.def("gatv2_scores(" MEZZO_PAIRS "float negative_slope) -> Tensor");
  m.def("_gatv2_scores_grad(" MEZZO_PAIRS
        "Tensor grad, float negative_slope, bool[3] wanted) -> (Tensor, Tensor, Tensor)");
#undef MEZZO_PAIRS
}
TORCH_LIBRARY_IMPL(mezzo, Autograd, m) {
  register_topology_class();
  m.impl("gatv2_scores", &scores_autograd);
}
TORCH_LIBRARY_IMPL(mezzo, Autocast, m) {
  register_topology_class();
  m.impl("gatv2_scores", &scores_autocast<at::kCUDA>);
}
TORCH_LIBRARY_IMPL(mezzo, AutocastCPU, m) {
  register_topology_class();
  m.impl("gatv2_scores", &scores_autocast<at::kCPU>);
}

template <class Device>
void declare_gatv2_scores(torch::Library& m) {
  m.impl("gatv2_scores", &scores_on<Device>);
  m.impl("_gatv2_scores_grad", &scores_grad_on<Device>);
}

template void declare_gatv2_scores<OnCpu>(torch::Library&);
template void declare_gatv2_scores<OnCuda>(torch::Library&);

at::Tensor gatv2_scores(const Topology& topology, const at::Tensor& src, const at::Tensor& dst,
                        const at::Tensor& attn, double negative_slope) {
  // Before the dispatcher, which has no kernel for other layouts.
  const auto check_strided = [](const char* name, const at::Tensor& t) {
    MEZZO_CHECK(t.defined() && t.layout() == at::kStrided,
                "gatv2_scores: expected a strided {}, got {}", name,
                t.defined() ? c10::str(t.layout()) : "an undefined tensor");
  };
  check_strided("src", src);
  check_strided("dst", dst);
  check_strided("attn", attn);
  return call(hold(topology), src, dst, attn, negative_slope);
}

}  // namespace mezzo
