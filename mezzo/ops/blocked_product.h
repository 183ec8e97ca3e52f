#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo {

/// 16-bit x [N, K] times factor [K, M] plus bias [M], where there is one, all of one dtype: added
/// up in float32, rounded once. CPU, any strides. The bits depend on the sizes alone, not on
/// threads. Allocates the product, the factor in float32 and up to 0.8 MiB a thread.
MEZZO_API at::Tensor blocked_product(const at::Tensor& x, const at::Tensor& factor,
                                     const std::optional<at::Tensor>& bias);

/// a^T b [M, K] in the 16-bit dtype of a [N, M] and b [N, K], as blocked_product(): rows are added
/// up in float32 in groups that depend on the sizes alone. Threads share groups and the longer side
/// of the result. Allocates the sums of the groups, up to 64 MiB or one of M x K float32 where that
/// is more, and up to 1.2 MiB a thread.
MEZZO_API at::Tensor blocked_transposed_product(const at::Tensor& a, const at::Tensor& b);

}  // namespace mezzo
