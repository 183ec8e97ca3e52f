#pragma once

#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace mezzo::detail {

/// Describes a tensor for error messages: "int64 [3, 2]". The tensor may be undefined.
std::string describe(const at::Tensor& tensor);

/// The end of an error message for a tensor that should be strided: "; convert it with .to_dense()"
/// for a sparse tensor, else empty.
std::string_view dense_hint(const at::Tensor& tensor);
/// Throws InvalidArgument that names the column if it is sparse: libtorch cannot gather sparse
/// rows.
void check_gathers_rows(const std::string& name, const at::Tensor& column);

/// Returns `device` with its index ("cuda" becomes the current CUDA device). Throws InvalidArgument
/// that starts with `what` unless it is a CPU or CUDA device.
at::Device resolve_device(std::string_view what, at::Device device);

}  // namespace mezzo::detail
