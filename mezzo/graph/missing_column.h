#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace mezzo::detail {

/// Returns a placeholder for a missing column: a defined tensor without shape and data. It can be
/// copied, moved and assigned. Reading its shape, strides or device, or calling an operator on it,
/// throws InvalidArgument with `message`.
at::Tensor missing_column(std::string message);

/// Whether `tensor` is such a placeholder.
bool is_missing_column(const at::Tensor& tensor);

}  // namespace mezzo::detail
