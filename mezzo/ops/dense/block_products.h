#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "mezzo/ops/dense/blocked_product.h"

namespace mezzo::detail {

// Products of blocks of rows that stay in the cache, each computed by one thread: by Mezzo's
// kernels or libtorch's, as multiplies_blocks() says in the thread that constructs these objects.
// Call them below autograd and autocast. CPU.

/// Rows without gaps.
struct BlockRows {
  void* data = nullptr;
  std::int64_t rows = 0, columns = 0;
};

/// A weight [M, K] and a bias [M] of one dtype. Mezzo's kernels pack it once.
class BlockFactor {
 public:
  /// For x W^T + bias if `transposed`, else for x W, where the bias is [K]. block_rows: most rows
  /// of a block.
  BlockFactor(const at::Tensor& weight, const std::optional<at::Tensor>& bias, bool transposed,
              std::int64_t block_rows);
  /// float32 numbers that multiply() needs as scratch memory.
  std::int64_t scratch_numbers() const;
  /// Writes the product to `out`.
  void multiply(const BlockRows& x, const BlockRows& out, float* scratch) const;

 private:
  at::Tensor factor_;
  std::optional<at::Tensor> bias_;
  std::optional<PackedFactor> packed_;
};

/// Products a^T b of blocks of one dtype.
class TransposedBlocks {
 public:
  /// For at most `block_rows` rows of at most `length` numbers.
  TransposedBlocks(at::ScalarType type, std::int64_t block_rows, std::int64_t length);
  /// float32 numbers that add() needs as scratch memory.
  std::int64_t scratch_numbers() const;
  /// sums [M, K], of the accumulator's type, += a^T b, for a [N, M] and b [N, K].
  void add(const BlockRows& a, const BlockRows& b, void* sums, float* scratch) const;

 private:
  at::ScalarType type_;
  std::int64_t length_;
  bool by_kernels_;  ///< Mezzo's
};

}  // namespace mezzo::detail
