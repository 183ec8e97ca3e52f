#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace mezzo {

/// Dtype, shape and a (not cryptographic) hash of all bytes of a CPU tensor, strided or sparse CSR;
/// "nothing" if undefined. About a nanosecond a word.
std::string tensor_hash(const at::Tensor& values);

/// The hash of features [N, F]; if they have more than 64 MiB, which may be a mapped file, of rows
/// at equal distances.
std::string features_hash(const at::Tensor& features);

}  // namespace mezzo
