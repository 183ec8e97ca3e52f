#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace mezzo {

/// Dtype, shape and a hash of all bytes, by which tensors on the CPU are told apart that differ by
/// accident; "nothing" for an undefined one. Strided or sparse CSR; about a nanosecond a word.
std::string fingerprint(const at::Tensor& values);

}  // namespace mezzo
