#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace mezzo::detail {

/// A placeholder for a column that a frame does not have: a defined tensor without shape and data.
/// It may be copied, moved and assigned; reading its shape, strides or device, and every operator
/// on it, throws InvalidArgument with `message`.
at::Tensor missing_column(std::string message);

/// Whether `tensor` is such a placeholder.
bool is_missing_column(const at::Tensor& tensor);

}  // namespace mezzo::detail
