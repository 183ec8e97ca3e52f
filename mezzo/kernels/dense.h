#pragma once

#include <cstdint>

#include "mezzo/core/dtype.h"

namespace mezzo::kernels {

// Dense products of 16-bit rows in float32: numbers are widened a block at a time into memory that
// stays in the cache, added up in registers, and rounded once. After Goto and van de Geijn,
// "Anatomy of High-Performance Matrix Multiplication" (2008). A sum is added up in slices of the
// depth whose length depends on the depth alone, so that results do not depend on how rows are
// shared out.

using SixteenBits = TypeList<BFloat16, Float16>;

/// Rows that are worked on at a time: in a product of rows, and at most in a transposed one.
inline constexpr std::int64_t kDenseBlockRows = 240, kDenseBlockOfSum = 192;
/// The longest slice of the depth that a sum stays in registers for.
inline constexpr std::int64_t kDenseSlice = 320;
/// The most columns that are worked on at a time.
inline constexpr std::int64_t kDenseTileColumns = 512;
/// Packed columns are filled up with zeros to a multiple of at most this, widened rows as well.
inline constexpr std::int64_t kDensePadding = 32;

[[maybe_unused]] static constexpr std::int64_t dense_padded(std::int64_t count) {
  return (count + kDensePadding - 1) / kDensePadding * kDensePadding;
}

/// 16-bit numbers [rows, columns]; those of a row stand side by side.
struct DenseRows {
  const void* data = nullptr;
  std::int64_t rows = 0, columns = 0;
  std::int64_t stride = 0;  ///< numbers from one row to the next
};

/// `from`, a factor [depth, columns], widened to panels of columns as the product of rows reads
/// them. Ranges of columns that begin at a multiple of kDensePadding may be packed apart: the one
/// at column c goes to `to + c * depth`.
struct PackArgs {
  using DTypes = SixteenBits;
  DType dtype = DType::kBFloat16;
  DenseRows from;
  bool transposed = false;  ///< `from` holds the factor's columns: [columns, depth]
  float* to = nullptr;      ///< depth * dense_padded(columns) numbers
};

/// out = x times the packed factor [depth, columns], plus bias where there is one.
struct RowsProductArgs {
  using DTypes = SixteenBits;
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

/// sum = a^T b, for a [rows, heights] and b [rows, columns]; 0 of no rows.
struct TransposedProductArgs {
  using DTypes = SixteenBits;
  DType dtype = DType::kBFloat16;
  DenseRows a, b;
  float* sum = nullptr;  ///< [heights, columns]
  std::int64_t sum_stride = 0;
  float* scratch = nullptr;  ///< transposed_product_scratch() numbers
};

[[maybe_unused]] static constexpr std::int64_t transposed_product_scratch(std::int64_t heights,
                                                                          std::int64_t columns) {
  const std::int64_t tile = columns < kDenseTileColumns ? dense_padded(columns) : kDenseTileColumns;
  return kDenseBlockOfSum * (heights + kDensePadding + tile);
}

}  // namespace mezzo::kernels
