#pragma once

#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace mezzo::detail {

/// "int64 [3, 2]", for errors; the tensor may be undefined.
std::string describe(const at::Tensor& tensor);

/// `device` with its index where it has one ("cuda" becomes the current CUDA device). Throws
/// InvalidArgument, which opens with `what`, unless it is a CPU or CUDA device.
at::Device resolve_device(std::string_view what, at::Device device);

}  // namespace mezzo::detail
