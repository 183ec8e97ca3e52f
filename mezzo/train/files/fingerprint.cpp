#include "mezzo/train/files/fingerprint.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/core/fnv.h"

namespace mezzo {
namespace {

/// By words of 64 bits. Folding can be undone as well, so a difference in one word always shows.
std::uint64_t hash_of(const at::Tensor& values) {
  const at::Tensor dense = values.contiguous();
  const auto* bytes = static_cast<const char*>(dense.const_data_ptr());
  std::uint64_t hash = kFnvBasis;
  const auto mix = [&](std::size_t at, std::size_t size) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, size);
    hash = fnv_step(hash, word);
    hash ^= hash >> 32;
  };
  const std::size_t size = dense.nbytes(), rest = size % sizeof(std::uint64_t);
  for (std::size_t at = 0; at < size - rest; at += sizeof(std::uint64_t)) {
    mix(at, sizeof(std::uint64_t));
  }
  if (rest > 0) mix(size - rest, rest);
  return hash;
}

}  // namespace

std::string fingerprint(const at::Tensor& values) {
  if (!values.defined()) return "nothing";
  if (values.layout() == at::kSparseCsr) {
    return fingerprint(values.crow_indices()) + fingerprint(values.col_indices()) +
           fingerprint(values.values());
  }
  return fmt::format("{} [{}] {:016x}", c10::toString(values.scalar_type()),
                     fmt::join(values.sizes(), ", "), hash_of(values));
}

}  // namespace mezzo
