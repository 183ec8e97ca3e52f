#pragma once

#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/Reduction.h>

#include "support/devices.h"

/// The operations on libtorch's autocast lists for the CPU, one call each.
namespace mezzo::test::autocast_operations {

using at::Tensor;

/// An operation on operands derived from a floating tensor [4, 4].
struct Operation {
  std::string name;
  std::function<Tensor(const Tensor&)> run;
};

inline Tensor matrix(at::ScalarType dtype) {
  return (at::eye(4, on_device()) * 0.5 + 0.25)
      .to(dtype);  // in (0, 1), symmetric, positive definite
}

inline Tensor image(const Tensor& x) {
  return x.reshape({1, 1, 4, 4});
}
inline Tensor volume(const Tensor& x) {
  return x.reshape({1, 1, 2, 2, 4});
}
inline Tensor batch(const Tensor& x) {
  return x.reshape({1, 4, 4});
}

/// The numbers 0 to 15, as pooling indices.
inline Tensor places() {
  return at::arange(16, on_device());
}

/// Cast to the region's dtype.
inline const std::vector<Operation> kLowered = {
    {"mm", [](const Tensor& x) { return at::mm(x, x); }},
    {"matmul", [](const Tensor& x) { return at::matmul(x, x); }},
    {"linear", [](const Tensor& x) { return at::linear(x, x, x[0]); }},
    {"addmm", [](const Tensor& x) { return at::addmm(x, x, x); }},
    {"bmm", [](const Tensor& x) { return at::bmm(batch(x), batch(x)); }},
    {"baddbmm", [](const Tensor& x) { return at::baddbmm(batch(x), batch(x), batch(x)); }},
    {"addbmm", [](const Tensor& x) { return at::addbmm(x, batch(x), batch(x)); }},
    {"linalg_vecdot", [](const Tensor& x) { return at::linalg_vecdot(x, x); }},
    {"conv1d", [](const Tensor& x) { return at::conv1d(batch(x), x.unsqueeze(2)); }},
    {"conv2d", [](const Tensor& x) { return at::conv2d(image(x), image(x)); }},
    {"conv3d", [](const Tensor& x) { return at::conv3d(volume(x), volume(x)); }},
    {"conv_transpose1d",
     [](const Tensor& x) { return at::conv_transpose1d(batch(x), x.unsqueeze(2)); }},
    {"conv_transpose2d", [](const Tensor& x) { return at::conv_transpose2d(image(x), image(x)); }},
    {"prelu", [](const Tensor& x) { return at::prelu(x, x[0]); }},
    {"scaled_dot_product_attention",
     [](const Tensor& x) {
       return at::scaled_dot_product_attention(image(x), image(x), image(x));
     }},
    {"conv_transpose3d",
     [](const Tensor& x) { return at::conv_transpose3d(volume(x), volume(x)); }},
    {"conv_tbc", [](const Tensor& x) { return at::conv_tbc(batch(x), batch(x), x[0]); }},
};

/// Cast to float32.
inline const std::vector<Operation> kFloat32 = {
    {"mse_loss", [](const Tensor& x) { return at::mse_loss(x, x); }},
    {"l1_loss", [](const Tensor& x) { return at::l1_loss(x, x); }},
    {"smooth_l1_loss", [](const Tensor& x) { return at::smooth_l1_loss(x, x); }},
    {"huber_loss", [](const Tensor& x) { return at::huber_loss(x, x); }},
    {"nll_loss", [](const Tensor& x) { return at::nll_loss(x, at::arange(4, on_device())); }},
    {"cross_entropy_loss",
     [](const Tensor& x) { return at::cross_entropy_loss(x, at::arange(4, on_device())); }},
    {"kl_div", [](const Tensor& x) { return at::kl_div(x, x); }},
    {"poisson_nll_loss",
     [](const Tensor& x) { return at::poisson_nll_loss(x, x, true, false, 1e-8, 1); }},
    {"soft_margin_loss", [](const Tensor& x) { return at::soft_margin_loss(x, x); }},
    {"binary_cross_entropy", [](const Tensor& x) { return at::binary_cross_entropy(x, x); }},
    {"binary_cross_entropy_with_logits",
     [](const Tensor& x) { return at::binary_cross_entropy_with_logits(x, x); }},
    {"cdist", [](const Tensor& x) { return at::cdist(x, x); }},
    {"prod", [](const Tensor& x) { return at::prod(x); }},
    {"trace", [](const Tensor& x) { return at::trace(x); }},
    {"quantile", [](const Tensor& x) { return at::quantile(x, 0.5); }},
    {"avg_pool3d", [](const Tensor& x) { return at::avg_pool3d(volume(x), 2); }},
    {"reflection_pad1d",
     [](const Tensor& x) {
       return at::reflection_pad1d(x, {1, 1});
     }},
    {"grid_sampler",
     [](const Tensor& x) {
       return at::grid_sampler(image(x), x.reshape({1, 2, 4, 2}), 0, 0, false);
     }},
    {"inverse", [](const Tensor& x) { return at::inverse(x); }},
    {"linalg_inv", [](const Tensor& x) { return at::linalg_inv(x); }},
    {"linalg_cholesky", [](const Tensor& x) { return at::linalg_cholesky(x); }},
    {"svd", [](const Tensor& x) { return std::get<1>(at::svd(x)); }},
    {"fft_fft", [](const Tensor& x) { return at::real(at::fft_fft(x)); }},
    {"max_pool3d", [](const Tensor& x) { return at::max_pool3d(volume(x), 2); }},
    {"adaptive_avg_pool3d",
     [](const Tensor& x) {
       return at::adaptive_avg_pool3d(volume(x), {1, 1, 1});
     }},
    {"adaptive_max_pool3d",
     [](const Tensor& x) {
       return std::get<0>(at::adaptive_max_pool3d(volume(x), {1, 1, 1}));
     }},
    {"max_unpool2d",
     [](const Tensor& x) {
       return at::max_unpool2d(image(x), places().view({1, 1, 4, 4}), {4, 4});
     }},
    {"max_unpool3d",
     [](const Tensor& x) {
       return at::max_unpool3d(volume(x), places().view({1, 1, 2, 2, 4}), {2, 2, 4}, {1, 1, 1},
                               {0, 0, 0});
     }},
    {"fractional_max_pool2d",
     [](const Tensor& x) {
       return std::get<0>(at::fractional_max_pool2d(image(x), {2, 2}, {2, 2},
                                                    at::full({1, 1, 2}, 0.5, x.options())));
     }},
    {"fractional_max_pool3d",
     [](const Tensor& x) {
       return std::get<0>(at::fractional_max_pool3d(volume(x), {1, 1, 1}, {1, 1, 2},
                                                    at::full({1, 1, 3}, 0.5, x.options())));
     }},
    {"reflection_pad2d",
     [](const Tensor& x) {
       return at::reflection_pad2d(image(x), {1, 1, 1, 1});
     }},
    {"replication_pad1d",
     [](const Tensor& x) {
       return at::replication_pad1d(x, {1, 1});
     }},
    {"replication_pad2d",
     [](const Tensor& x) {
       return at::replication_pad2d(image(x), {1, 1, 1, 1});
     }},
    {"replication_pad3d",
     [](const Tensor& x) {
       return at::replication_pad3d(volume(x), {1, 1, 1, 1, 1, 1});
     }},
    {"grid_sampler_2d",
     [](const Tensor& x) {
       return at::grid_sampler_2d(image(x), x.reshape({1, 2, 4, 2}), 0, 0, false);
     }},
    {"_grid_sampler_2d_cpu_fallback",
     [](const Tensor& x) {
       return at::_grid_sampler_2d_cpu_fallback(image(x), x.reshape({1, 2, 4, 2}), 0, 0, false);
     }},
    {"grid_sampler_3d",
     [](const Tensor& x) {
       return at::grid_sampler_3d(volume(x), x.flatten().narrow(0, 0, 12).view({1, 1, 2, 2, 3}), 0,
                                  0, false);
     }},
    {"polar", [](const Tensor& x) { return at::real(at::polar(x, x)); }},
    {"view_as_complex",
     [](const Tensor& x) {
       return at::real(at::view_as_complex(x.reshape({8, 2})));
     }},
    {"stft",
     [](const Tensor& x) {
       return at::real(at::stft(x.flatten(), 4, std::nullopt, std::nullopt, std::nullopt,
                                /*normalized=*/false, /*onesided=*/true, /*return_complex=*/true));
     }},
    {"nanquantile", [](const Tensor& x) { return at::nanquantile(x, 0.5); }},
    {"nll_loss2d",
     [](const Tensor& x) {
       return at::nll_loss2d(x.reshape({1, 2, 2, 4}), at::zeros({1, 2, 4}, on_device(at::kLong)));
     }},
    {"cosine_embedding_loss",
     [](const Tensor& x) { return at::cosine_embedding_loss(x, x, at::ones_like(x[0])); }},
    {"hinge_embedding_loss",
     [](const Tensor& x) { return at::hinge_embedding_loss(x, at::ones_like(x)); }},
    {"margin_ranking_loss",
     [](const Tensor& x) { return at::margin_ranking_loss(x, x, at::ones_like(x)); }},
    {"triplet_margin_loss", [](const Tensor& x) { return at::triplet_margin_loss(x, x, x); }},
    {"multi_margin_loss",
     [](const Tensor& x) { return at::multi_margin_loss(x, at::arange(4, on_device())); }},
    {"multilabel_margin_loss",
     [](const Tensor& x) {
       return at::multilabel_margin_loss(x, at::zeros({4, 4}, on_device(at::kLong)));
     }},
    {"multilabel_margin_loss_forward",
     [](const Tensor& x) {
       return std::get<0>(at::multilabel_margin_loss_forward(
           x, at::zeros({4, 4}, on_device(at::kLong)), at::Reduction::Mean));
     }},
    {"ctc_loss",
     [](const Tensor& x) {
       return at::ctc_loss(x.log().reshape({4, 1, 4}), at::ones({1, 2}, on_device(at::kLong)),
                           at::IntArrayRef({4}), at::IntArrayRef({2}));
     }},
    {"fake_quantize_per_tensor_affine",
     [](const Tensor& x) { return at::fake_quantize_per_tensor_affine(x, 0.125, 0, 0, 255); }},
    {"cholesky", [](const Tensor& x) { return at::cholesky(x); }},
    {"cholesky_inverse", [](const Tensor& x) { return at::cholesky_inverse(x); }},
    {"cholesky_solve", [](const Tensor& x) { return at::cholesky_solve(x, x); }},
    {"lu_solve",
     [](const Tensor& x) { return at::lu_solve(x, x, at::arange(1, 5, on_device(at::kInt))); }},
    {"orgqr", [](const Tensor& x) { return at::orgqr(x, x[0]); }},
    {"ormqr", [](const Tensor& x) { return at::ormqr(x, x[0], x); }},
    {"pinverse", [](const Tensor& x) { return at::pinverse(x); }},
    {"qr", [](const Tensor& x) { return std::get<0>(at::qr(x)); }},
    {"geqrf", [](const Tensor& x) { return std::get<0>(at::geqrf(x)); }},
    {"triangular_solve", [](const Tensor& x) { return std::get<0>(at::triangular_solve(x, x)); }},
    {"_lu_with_info", [](const Tensor& x) { return std::get<0>(at::_lu_with_info(x)); }},
    {"linalg_cholesky_ex", [](const Tensor& x) { return std::get<0>(at::linalg_cholesky_ex(x)); }},
    {"linalg_cond", [](const Tensor& x) { return at::linalg_cond(x); }},
    {"linalg_eig", [](const Tensor& x) { return at::real(std::get<0>(at::linalg_eig(x))); }},
    {"linalg_eigvals", [](const Tensor& x) { return at::real(at::linalg_eigvals(x)); }},
    {"linalg_eigh", [](const Tensor& x) { return std::get<0>(at::linalg_eigh(x)); }},
    {"linalg_eigvalsh", [](const Tensor& x) { return at::linalg_eigvalsh(x); }},
    {"linalg_householder_product",
     [](const Tensor& x) { return at::linalg_householder_product(x, x[0]); }},
    {"linalg_inv_ex", [](const Tensor& x) { return std::get<0>(at::linalg_inv_ex(x)); }},
    {"linalg_lstsq", [](const Tensor& x) { return std::get<0>(at::linalg_lstsq(x, x)); }},
    {"linalg_qr", [](const Tensor& x) { return std::get<0>(at::linalg_qr(x)); }},
    {"linalg_solve", [](const Tensor& x) { return at::linalg_solve(x, x); }},
    {"linalg_svd", [](const Tensor& x) { return std::get<1>(at::linalg_svd(x)); }},
    {"linalg_svdvals", [](const Tensor& x) { return at::linalg_svdvals(x); }},
    {"linalg_tensorinv", [](const Tensor& x) { return at::linalg_tensorinv(x, 1); }},
    {"linalg_tensorsolve", [](const Tensor& x) { return at::linalg_tensorsolve(x, x[0]); }},
    {"fft_ifft", [](const Tensor& x) { return at::real(at::fft_ifft(x)); }},
    {"fft_fft2", [](const Tensor& x) { return at::real(at::fft_fft2(x)); }},
    {"fft_ifft2", [](const Tensor& x) { return at::real(at::fft_ifft2(x)); }},
    {"fft_fftn", [](const Tensor& x) { return at::real(at::fft_fftn(x)); }},
    {"fft_ifftn", [](const Tensor& x) { return at::real(at::fft_ifftn(x)); }},
    {"fft_rfft", [](const Tensor& x) { return at::real(at::fft_rfft(x)); }},
    {"fft_rfft2", [](const Tensor& x) { return at::real(at::fft_rfft2(x)); }},
    {"fft_rfftn", [](const Tensor& x) { return at::real(at::fft_rfftn(x)); }},
    {"fft_ihfft", [](const Tensor& x) { return at::real(at::fft_ihfft(x)); }},
    {"fft_irfft", [](const Tensor& x) { return at::fft_irfft(x); }},
    {"fft_irfft2", [](const Tensor& x) { return at::fft_irfft2(x); }},
    {"fft_irfftn", [](const Tensor& x) { return at::fft_irfftn(x); }},
    {"fft_hfft", [](const Tensor& x) { return at::fft_hfft(x); }},
};

/// Cast to the widest argument dtype.
inline const std::vector<std::string> kPromoted = {"cat", "stack", "index_copy"};

/// Listed operations that are not called here: parts of libtorch's layers, and one with an integer
/// result.
inline const std::vector<std::string> kNotCalled = {"_addmm_activation", "_convolution",
                                                    "_native_multi_head_attention",
                                                    "mkldnn_rnn_layer", "linalg_matrix_rank"};

}  // namespace mezzo::test::autocast_operations
