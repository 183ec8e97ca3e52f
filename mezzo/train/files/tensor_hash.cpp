#include "mezzo/train/files/tensor_hash.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/core/fnv.h"

namespace mezzo {
namespace {

/// Hashes words of 64 bits. Each step is invertible, so a difference in one word always shows.
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

/// Of features [N, F].
std::string features_hash(const at::Tensor& features) {
  constexpr std::size_t kMostBytes = std::size_t{64} << 20;
  constexpr std::int64_t kRows = 4096;
  const bool is_large =
      features.defined() && features.layout() == at::kStrided && features.nbytes() > kMostBytes;
  if (!is_large) return tensor_hash(features);
  const std::int64_t nodes = features.size(0);
  return tensor_hash(features.slice(0, 0, nodes, (nodes + kRows - 1) / kRows));
}

}  // namespace

std::string tensor_hash(const at::Tensor& values) {
  if (!values.defined()) return "nothing";
  if (values.layout() == at::kSparseCsr) {
    return tensor_hash(values.crow_indices()) + tensor_hash(values.col_indices()) +
           tensor_hash(values.values());
  }
  return fmt::format("{} [{}] {:016x}", c10::toString(values.scalar_type()),
                     fmt::join(values.sizes(), ", "), hash_of(values));
}

std::map<std::string, std::string> content_hashes(const Dataset& dataset) {
  const auto hash_all = [](std::initializer_list<at::Tensor> tensors) {
    std::string hashes;
    for (const at::Tensor& values : tensors) hashes += tensor_hash(values) + " ";
    return hashes;
  };
  const auto hash_pairs = [&](const NegativePairs& pairs) {
    return hash_all({pairs.pairs, pairs.src, pairs.dst});
  };
  const LinkNegatives& negatives = dataset.negatives;
  return {{"edges", hash_all({dataset.src, dataset.dst, dataset.indptr, dataset.indices})},
          {"edge weights", tensor_hash(dataset.edge_weights)},
          {"edge features", tensor_hash(dataset.edge_features)},
          {"edge types", tensor_hash(dataset.edge_types)},
          {"graphs", tensor_hash(dataset.graph_offsets)},
          {"features", features_hash(dataset.features)},
          {"labels", tensor_hash(dataset.labels)},
          {"masks", hash_all({dataset.train_masks, dataset.val_masks, dataset.test_masks,
                              dataset.message_mask})},
          {"negative pairs",
           hash_pairs(negatives.train) + hash_pairs(negatives.val) + hash_pairs(negatives.test)}};
}

}  // namespace mezzo
