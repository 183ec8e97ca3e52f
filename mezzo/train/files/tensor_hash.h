#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "mezzo/data/dataset.h"

namespace mezzo {

/// Dtype, shape and a (not cryptographic) hash of all bytes of a CPU tensor, strided or sparse CSR;
/// "nothing" if undefined. About a nanosecond a word.
std::string tensor_hash(const at::Tensor& values);

/// Hashes of the edges, their columns, features, labels, masks and negative pairs of a data set. Of
/// features of more than 64 MiB, which may be a mapped file, only rows at equal distances are
/// hashed.
std::map<std::string, std::string> content_hashes(const Dataset& dataset);

}  // namespace mezzo
