#pragma once

#include <cstdint>

#include "mezzo/kernels/operand.h"

namespace mezzo::kernels {

/// Copies rows of a table on the GPU: out[i] = table[ids[i]], bit for bit.
struct CudaGatherArgs {
  const void* table = nullptr;  ///< [rows of the table, row_bytes]
  Ids ids;                      ///< [num_rows]; null data: 0, 1, ...
  std::int64_t num_rows = 0;
  std::int64_t row_bytes = 0;
  void* out = nullptr;  ///< [num_rows, row_bytes]
};

}  // namespace mezzo::kernels
