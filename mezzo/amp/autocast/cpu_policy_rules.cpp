// The policy's kernels for libtorch's operators. They run before the AutocastCPU kernels. If a
// class computes in float32, they cast floating arguments to float32 and the result to the region's
// 16-bit dtype, so output dtypes are the same as autocast's. All other calls go to autocast
// unchanged.
#include <tuple>

#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <torch/library.h>

#include "mezzo/amp/autocast/cpu_policy_region.h"
#include "mezzo/runtime/sixteen_bits.h"

namespace mezzo::amp {
namespace {

bool is_eligible(const at::Tensor& argument) {
  return at::autocast::is_eligible(argument, at::kCPU);
}
bool is_eligible(const std::optional<at::Tensor>& argument) {
  return argument && is_eligible(*argument);
}
template <class T>
bool is_eligible(const T& /*argument*/) {
  return false;
}

at::Tensor rounded(at::Tensor result, at::ScalarType dtype) {
  return result.defined() && result.scalar_type() == at::kFloat ? result.to(dtype) : result;
}
template <class... Results>
std::tuple<Results...> rounded(const std::tuple<Results...>& results, at::ScalarType dtype) {
  return std::apply([&](const auto&... r) { return std::tuple(rounded(r, dtype)...); }, results);
}

template <OpClass kClass, class Operator, class Schema = typename Operator::schema>
struct Rule;

template <OpClass kClass, class Operator, class Result, class... Args>
struct Rule<kClass, Operator, Result(Args...)> {
  static Result call(Args... args) {
    const c10::impl::ExcludeDispatchKeyGuard no_policy(kCpuPolicyKey);
    const auto dtype = (is_eligible(args) || ...) ? float32_output_dtype(kClass) : std::nullopt;
    if (!dtype) return Operator::call(args...);
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
    return rounded(Operator::call(at::autocast::cached_cast(at::kFloat, args, at::kCPU)...),
                   *dtype);
  }
};

template <OpClass kClass, class... Operators>
void register_class(torch::Library& library) {
  const auto name = [](std::string_view base, std::string_view overload) {
    return overload.empty() ? std::string(base) : fmt::format("{}.{}", base, overload);
  };
  (library.impl(name(Operators::name, Operators::overload_name).c_str(),
                &Rule<kClass, Operators>::call),
   ...);
}

/// Of 16-bit rows: libtorch would add the gradients of weight and bias in 16 bits, over all rows.
at::Tensor layer_norm(const at::Tensor& input, c10::SymIntArrayRef shape,
                      const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, double eps, bool cudnn_enable) {
  const c10::impl::ExcludeDispatchKeyGuard no_policy(kCpuPolicyKey);
  const at::ScalarType dtype = input.scalar_type();
  const auto call = at::_ops::layer_norm::call;
  if (!input.is_cpu() || !is_16_bit(dtype) || !region_dtype())
    return call(input, shape, weight, bias, eps, cudnn_enable);
  const auto wide = [](const std::optional<at::Tensor>& t) {
    return t ? std::optional(t->to(at::kFloat)) : std::nullopt;
  };
  return call(input.to(at::kFloat), shape, wide(weight), wide(bias), eps, cudnn_enable).to(dtype);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

// libtorch's list of 16-bit operators on the CPU, without two memory-bound operators (prelu,
// linalg_vecdot).
TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, m) {
  namespace ops = at::_ops;
  register_class<OpClass::kConvolution, ops::conv1d, ops::conv1d_padding, ops::conv2d,
                 ops::conv2d_padding, ops::conv3d, ops::conv3d_padding, ops::conv_transpose1d,
                 ops::conv_transpose2d_input, ops::conv_transpose3d_input, ops::conv_tbc,
                 ops::_convolution_deprecated>(m);
  register_class<OpClass::kMatrixProduct, ops::linear, ops::matmul, ops::mm, ops::bmm, ops::addmm,
                 ops::baddbmm, ops::addbmm, ops::_addmm_activation, ops::mkldnn_rnn_layer>(m);
  register_class<OpClass::kAttention, ops::scaled_dot_product_attention,
                 ops::_native_multi_head_attention>(m);
  m.impl("layer_norm", &layer_norm);
}

}  // namespace mezzo::amp
