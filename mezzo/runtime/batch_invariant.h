#pragma once

#include "mezzo/core/export.h"

namespace mezzo {

/// While an object lives, each row of mezzo::linear() on the CPU, in this thread and in float32,
/// bfloat16 and float16, has bits that depend on that row, the weight and the bias alone: not on
/// the number of rows. Without it the product is chosen by the sizes, and libtorch's may add in
/// another order for another number of rows. Objects may nest. Costs up to 1.6 times the time for a
/// single float32 row, and for large 16-bit products what MEZZO_LINEAR=float32 costs. No effect on
/// float64, CUDA and libtorch's own operations.
class MEZZO_API BatchInvariant {
 public:
  BatchInvariant();
  ~BatchInvariant();
  BatchInvariant(const BatchInvariant&) = delete;
  BatchInvariant& operator=(const BatchInvariant&) = delete;

  /// Whether an object lives in this thread.
  static bool is_enabled();
};

}  // namespace mezzo
