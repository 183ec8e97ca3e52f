#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/normalization.h>

#include "mezzo/core/export.h"

namespace mezzo::nn::detail {

/// norm(h) for rows h, [N, width], floating. On the CPU the gradients of the weight and the bias
/// are added in float32 (float64 for float64), with the same bits for any number of threads, and
/// can be differentiated once; libtorch's layer_norm adds them in the dtype of h, over all rows.
/// Returns the dtype of h there; on CUDA autocast makes it float32. The norm must have a weight and
/// a bias of [width].
MEZZO_API at::Tensor layer_norm(const torch::nn::LayerNormImpl& norm, const at::Tensor& h);

}  // namespace mezzo::nn::detail
