#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo {

/// A 16-bit `t` as float32 [same shape], contiguous; a float32 one as it is. CPU.
at::Tensor widened(const at::Tensor& t);

/// 16-bit x [N, K] times `factor` [K, M] in float32, plus bias [M] of x's dtype where there is one:
/// accumulated in float32, rounded once to x's dtype. CPU, any strides. Works on tiles of x that
/// stay in a core's caches, the tiles of different rows on different threads; tiles and the order
/// of their sums depend on the sizes alone. Allocates the product and a few MiB a thread.
MEZZO_API at::Tensor blocked_product(const at::Tensor& x, const at::Tensor& factor,
                                     const std::optional<at::Tensor>& bias);

/// a^T b [M, K] in the 16-bit dtype of a [N, M] and b [N, K], as blocked_product(): rows are added
/// up in float32 in a fixed number of groups, which different threads take. Allocates the sums of
/// the groups: up to 64 MiB, or one of M x K float32 where that is more.
MEZZO_API at::Tensor blocked_transposed_product(const at::Tensor& a, const at::Tensor& b);

}  // namespace mezzo
