#include "mezzo/nn/layer_norm.h"

#include <algorithm>
#include <array>
#include <tuple>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "mezzo/nn/layer_support.h"
#include "mezzo/runtime/second_derivative.h"

namespace mezzo::nn::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

/// Rows whose gradients are added at once: fixed, so that the order does not depend on threads.
constexpr std::int64_t kRowsOfPart = 1024;

/// The gradients of weight and bias: [2, width].
at::Tensor parameter_gradients(const at::Tensor& grad, const at::Tensor& h, const at::Tensor& mean,
                               const at::Tensor& rstd) {
  const std::int64_t num_rows = h.size(0), width = h.size(1);
  const std::int64_t num_parts = (num_rows + kRowsOfPart - 1) / kRowsOfPart;
  const at::Tensor sums = at::empty({num_parts, 2, width}, mean.options());
  at::parallel_for(0, num_parts, /*grain_size=*/1, [&](std::int64_t begin, std::int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView below;  // a thread may be new
    for (std::int64_t part = begin; part < end; ++part) {
      const auto rows_of = [&](const at::Tensor& t) {
        const std::int64_t first = part * kRowsOfPart;
        return t.narrow(0, first, std::min(kRowsOfPart, num_rows - first)).to(mean.scalar_type());
      };
      const at::Tensor upstream = rows_of(grad);
      const at::Tensor normalized = rows_of(h).sub(rows_of(mean)).mul_(rows_of(rstd));
      sums[part][0].copy_(normalized.mul_(upstream).sum(0));
      sums[part][1].copy_(upstream.sum(0));
    }
  });
  return sums.sum(0);
}

struct LayerNorm : Function<LayerNorm> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& h, const at::Tensor& weight,
                            const at::Tensor& bias, double eps) {
    const at::AutoDispatchBelowADInplaceOrView below;
    // libtorch keeps the means in the dtype of the weight.
    const at::ScalarType wide = scale_dtype(h);
    const auto [rows, mean, rstd] =
        at::native_layer_norm(h, {h.size(1)}, weight.to(wide), bias.to(wide), eps);
    ctx->save_for_backward({h, weight, bias, mean, rstd});
    return rows;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivative("layer normalization");
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &h = saved[0], &weight = saved[1], &bias = saved[2], &mean = saved[3],
                     &rstd = saved[4], grad = grads[0].contiguous();
    at::Tensor of_h, of_weight, of_bias;
    if (ctx->needs_input_grad(0)) {
      const at::ScalarType wide = mean.scalar_type();
      of_h = std::get<0>(at::native_layer_norm_backward(grad, h, {h.size(1)}, mean, rstd,
                                                        weight.to(wide), bias.to(wide),
                                                        std::array{true, false, false}));
    }
    if (ctx->needs_input_grad(1) || ctx->needs_input_grad(2)) {
      const at::Tensor sums = parameter_gradients(grad, h, mean, rstd);
      of_weight = sums[0].to(weight.scalar_type());
      of_bias = sums[1].to(bias.scalar_type());
    }
    return {of_h, of_weight, of_bias, at::Tensor()};
  }
};

}  // namespace

at::Tensor layer_norm(const torch::nn::LayerNormImpl& norm, const at::Tensor& h) {
  const double eps = norm.options.eps();
  if (!h.is_cpu()) return at::layer_norm(h, norm.weight.sizes(), norm.weight, norm.bias, eps);
  return LayerNorm::apply(h, norm.weight, norm.bias, eps);
}

}  // namespace mezzo::nn::detail
