#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo::amp {

/// Where the elements of floating tensors lie in the range of their dtype. Shares are in [0, 1] of
/// `elements`, 0 where there are none.
struct NumberCounts {
  std::int64_t elements = 0;
  std::int64_t zeros = 0;      ///< 0 or -0, whatever the reason
  std::int64_t subnormal = 0;  ///< not 0, below the smallest normal number: few digits are left
  std::int64_t near_top = 0;   ///< finite, at least a sixteenth of the largest number
  std::int64_t inf = 0;
  std::int64_t nan = 0;
  double largest = 0.0;           ///< largest finite absolute value; 0 if there is none but 0
  double smallest_nonzero = 0.0;  ///< smallest finite absolute value that is not 0; 0 if none

  /// Adds the counts of `other`, which may be of another dtype.
  MEZZO_API NumberCounts& operator+=(const NumberCounts& other);

  std::int64_t non_finite() const { return inf + nan; }
  double share(std::int64_t count) const {
    return elements == 0 ? 0.0 : static_cast<double>(count) / static_cast<double>(elements);
  }

  bool operator==(const NumberCounts&) const = default;
};

/// Whether count_numbers() reads `tensor`: defined, float16, bfloat16, float32 or float64; strided,
/// or sparse COO, CSR or CSC (of which the stored values).
MEZZO_API bool has_countable_numbers(const at::Tensor& tensor);

/// Counts the elements of `tensor` in one pass, of a sparse tensor the stored ones; none for a
/// tensor that has no countable numbers. An expanded tensor counts each repetition. Copies tensors
/// that are not dense; counts those of other devices there, by a dozen operations, and
/// synchronises. Deterministic.
MEZZO_API NumberCounts count_numbers(const at::Tensor& tensor);

/// The same by the operations that every device has, the CPU too.
MEZZO_API NumberCounts count_numbers_by_operations(const at::Tensor& tensor);

}  // namespace mezzo::amp
