#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo::detail {

/// x [N, K] times factor [K, M], plus bias [M] if given, all float32 or all of one 16-bit dtype:
/// summed in float32, rounded once. CPU, any strides. The bits depend on the sizes, not on threads.
/// Allocates the product, the factor in float32 and up to 0.8 MiB a thread.
MEZZO_API at::Tensor blocked_product(const at::Tensor& x, const at::Tensor& factor,
                                     const std::optional<at::Tensor>& bias);

/// a^T b [M, K] in the dtype of a [N, M] and b [N, K], as blocked_product(). Rows are summed
/// in groups that depend on the sizes only; threads share the groups and the longer side of the
/// result. Allocates a float32 M x K sum for each group (at most 64 MiB if several) and up to
/// 1.2 MiB a thread.
MEZZO_API at::Tensor blocked_transposed_product(const at::Tensor& a, const at::Tensor& b);

}  // namespace mezzo::detail
