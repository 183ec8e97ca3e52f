#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo::amp {

/// Counts of elements of floating tensors by their position in the range of the dtype. Shares are
/// fractions of `elements` in [0, 1], and 0 for no elements.
struct NumberCounts {
  std::int64_t elements = 0;
  std::int64_t zeros = 0;      ///< 0 or -0
  std::int64_t subnormal = 0;  ///< not 0, below the smallest normal number: less precise
  std::int64_t near_top = 0;   ///< finite, at least a sixteenth of the largest number
  std::int64_t inf = 0;
  std::int64_t nan = 0;
  double largest = 0.0;           ///< largest finite absolute value; 0 if all are 0
  double smallest_nonzero = 0.0;  ///< smallest nonzero finite absolute value; 0 if none

  /// Adds the counts of `other`, which may have another dtype.
  MEZZO_API NumberCounts& operator+=(const NumberCounts& other);

  std::int64_t non_finite() const { return inf + nan; }
  double share(std::int64_t count) const {
    return elements == 0 ? 0.0 : static_cast<double>(count) / static_cast<double>(elements);
  }

  bool operator==(const NumberCounts&) const = default;
};

/// Whether count_numbers() supports `tensor`: defined, float16, bfloat16, float32 or float64;
/// strided, or sparse COO, CSR or CSC.
MEZZO_API bool has_countable_numbers(const at::Tensor& tensor);

/// Counts the elements of `tensor` in one pass; for a sparse tensor, the stored values. Counts are
/// 0 for an unsupported tensor. An expanded tensor counts each repetition. Copies tensors that are
/// not dense. Tensors on other devices are counted there by a dozen operations, which synchronises.
/// Deterministic.
MEZZO_API NumberCounts count_numbers(const at::Tensor& tensor);

/// Same, by libtorch operations that exist on every device, including the CPU.
MEZZO_API NumberCounts count_numbers_by_operations(const at::Tensor& tensor);

}  // namespace mezzo::amp
