#pragma once

#include <cstdint>

#include "mezzo/core/dtype.h"

namespace mezzo::kernels {

// Dense products in float32: blocks of 16-bit or float32 matrices are converted into memory that
// stays in the cache, accumulated in registers, and rounded once. After Goto and van de Geijn,
// "Anatomy of High-Performance Matrix Multiplication" (2008). Sums are split into slices of the
// depth whose length depends on the depth alone, so results do not depend on how rows are split
// over threads.

/// The dtypes of dense products.
using DenseDTypes = TypeList<Float32, BFloat16, Float16>;

/// Rows of a block in a product of rows, and at most in a transposed product.
inline constexpr std::int64_t kDenseBlockRows = 240, kDenseBlockOfSum = 192;
/// The longest slice of the depth that is accumulated in registers.
inline constexpr std::int64_t kDenseSlice = 320;
/// The most columns of a block.
inline constexpr std::int64_t kDenseTileColumns = 512;
/// Packed columns and converted rows are padded with zeros to at most a multiple of this.
inline constexpr std::int64_t kDensePadding = 32;

[[maybe_unused]] static constexpr std::int64_t dense_padded(std::int64_t count) {
  return (count + kDensePadding - 1) / kDensePadding * kDensePadding;
}

/// Numbers [rows, columns]; rows are contiguous.
struct DenseRows {
  const void* data = nullptr;
  std::int64_t rows = 0, columns = 0;
  std::int64_t stride = 0;  ///< numbers from one row to the next
};

/// Converts `from`, a factor [depth, columns], to float32 panels of columns for RowsProductArgs.
/// Ranges of columns that begin at a multiple of kDensePadding may be packed separately: the range
/// from column c goes to `to + c * depth`.
struct PackArgs {
  using DTypes = DenseDTypes;
  DType dtype = DType::kBFloat16;
  DenseRows from;
  bool transposed = false;  ///< `from` holds the factor's columns: [columns, depth]
  float* to = nullptr;      ///< depth * dense_padded(columns) numbers
};

/// out = x times the packed factor [depth, columns], plus bias unless null.
struct RowsProductArgs {
  using DTypes = DenseDTypes;
  DType dtype = DType::kBFloat16;  ///< of x and out
  DenseRows x;
  const float* panels = nullptr;
  const float* bias = nullptr;  ///< [dense_padded(columns)] or null
  std::int64_t columns = 0;     ///< of the factor and of out
  void* out = nullptr;
  std::int64_t out_stride = 0;
  float* scratch = nullptr;  ///< rows_product_scratch() numbers
};

[[maybe_unused]] static constexpr std::int64_t rows_product_scratch(std::int64_t columns) {
  const std::int64_t tile = columns < kDenseTileColumns ? dense_padded(columns) : kDenseTileColumns;
  return kDenseBlockRows * (kDenseSlice + tile);
}

/// sum = a^T b, or with `add` sum += a^T b, for a [rows, heights] and b [rows, columns].
struct TransposedProductArgs {
  using DTypes = DenseDTypes;
  DType dtype = DType::kBFloat16;
  DenseRows a, b;
  float* sum = nullptr;  ///< [heights, columns]
  std::int64_t sum_stride = 0;
  bool add = false;
  float* scratch = nullptr;  ///< transposed_product_scratch() numbers
};

[[maybe_unused]] static constexpr std::int64_t transposed_product_scratch(std::int64_t heights,
                                                                          std::int64_t columns) {
  const std::int64_t tile = columns < kDenseTileColumns ? dense_padded(columns) : kDenseTileColumns;
  return kDenseBlockOfSum * (heights + kDensePadding + tile);
}

}  // namespace mezzo::kernels
