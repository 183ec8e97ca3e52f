// What autocast does to the operators, for CUDA and the CPU alike: node operands and dense factors
// are cast to the 16-bit type, edge operands stay as they come (kernels take float32 ones beside
// 16-bit nodes) or meet in float32 where both are of edges, and edge_softmax has no entry: it
// computes in float32 whatever it is given.
#include <torch/library.h>

#include "mezzo/core/error.h"
#include "mezzo/message_passing/lowered.h"
#include "mezzo/message_passing/schema.h"

namespace mezzo {

namespace {

using OptionalTensor = std::optional<at::Tensor>;

template <at::DeviceType kDevice>
struct Rules {
  static constexpr auto kKey =
      kDevice == at::kCUDA ? c10::DispatchKey::Autocast : c10::DispatchKey::AutocastCPU;

  static at::Tensor lower(const at::Tensor& t) { return lowered(t, kDevice); }
  /// The operands of a message as the kernels take them. Two operands of edges, neither of which is
  /// lowered, meet in the wider type, as libtorch's own operations do under autocast.
  struct Operands {
    Operands(const OptionalTensor& l, const OptionalTensor& r, c10::string_view lhs_target,
             c10::string_view rhs_target)
        : lhs(lower_node(l, lhs_target)), rhs(lower_node(r, rhs_target)) {
      const bool by_edge = lhs_target == "e" && rhs_target == "e";
      if (!by_edge || !lhs || !rhs || !lhs->defined() || !rhs->defined()) return;
      const at::ScalarType left = lhs->scalar_type(), right = rhs->scalar_type();
      if ((left == at::kFloat && at::isReducedFloatingType(right)) ||
          (right == at::kFloat && at::isReducedFloatingType(left))) {
        lhs = lhs->to(at::kFloat);
        rhs = rhs->to(at::kFloat);
      }
    }

    static OptionalTensor lower_node(const OptionalTensor& t, c10::string_view target) {
      return t && t->defined() && target != "e" ? OptionalTensor(lower(*t)) : t;
    }

    OptionalTensor lhs, rhs;
  };

  template <class Signature, class... Args>
  static at::Tensor redispatch(const char* name, const Args&... args) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(kKey);
    return handle<Signature>(name).call(args...);
  }

  static at::Tensor gspmm(const TopologyPtr& topology, c10::string_view op, c10::string_view reduce,
                          const OptionalTensor& lhs, const OptionalTensor& rhs,
                          c10::string_view lhs_target, c10::string_view rhs_target) {
    const Operands in(lhs, rhs, lhs_target, rhs_target);
    return redispatch<at::Tensor(const TopologyPtr&, c10::string_view, c10::string_view,
                                 const OptionalTensor&, const OptionalTensor&, c10::string_view,
                                 c10::string_view)>("mezzo::gspmm", topology, op, reduce, in.lhs,
                                                    in.rhs, lhs_target, rhs_target);
  }

  static at::Tensor gsddmm(const TopologyPtr& topology, c10::string_view op,
                           const OptionalTensor& lhs, const OptionalTensor& rhs,
                           c10::string_view lhs_target, c10::string_view rhs_target) {
    const Operands in(lhs, rhs, lhs_target, rhs_target);
    return redispatch<at::Tensor(const TopologyPtr&, c10::string_view, const OptionalTensor&,
                                 const OptionalTensor&, c10::string_view, c10::string_view)>(
        "mezzo::gsddmm", topology, op, in.lhs, in.rhs, lhs_target, rhs_target);
  }

  static at::Tensor scaled_sum(const TopologyPtr& topology, const at::Tensor& x,
                               const OptionalTensor& weight, const OptionalTensor& src_scale,
                               const OptionalTensor& dst_scale) {
    return redispatch<at::Tensor(const TopologyPtr&, const at::Tensor&, const OptionalTensor&,
                                 const OptionalTensor&, const OptionalTensor&)>(
        "mezzo::scaled_sum", topology, lower(x), weight, src_scale, dst_scale);
  }

  static at::Tensor linear(const at::Tensor& x, const at::Tensor& weight,
                           const OptionalTensor& bias) {
    const OptionalTensor low_bias =
        bias && bias->defined() ? OptionalTensor(lower(*bias)) : std::nullopt;
    return redispatch<at::Tensor(const at::Tensor&, const at::Tensor&, const OptionalTensor&)>(
        "mezzo::linear", lower(x), lower(weight), low_bias);
  }

  static void declare(torch::Library& m) {
    register_topology_class();
    m.impl("gspmm", &gspmm);
    m.impl("gsddmm", &gsddmm);
    m.impl("scaled_sum", &scaled_sum);
    m.impl("linear", &linear);
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(mezzo, Autocast, m) {
  Rules<at::kCUDA>::declare(m);
}
TORCH_LIBRARY_IMPL(mezzo, AutocastCPU, m) {
  Rules<at::kCPU>::declare(m);
}

}  // namespace mezzo
