#pragma once

#include <cstdint>

#include "mezzo/core/dtype.h"
#include "mezzo/kernels/binary_op.h"

namespace mezzo::kernels {

/// An array of node or edge ids of either width; null stands for 0, 1, 2, ...
struct Ids {
  const void* data = nullptr;
  bool wide = false;  ///< int64 rather than int32
};

/// The rows a kernel loops over, each with its slots (edges): slots [indptr[r], indptr[r + 1])
/// belong to row r; without indptr slot r is row r's only one. Two ids go with each slot.
struct Slots {
  const std::int64_t* indptr = nullptr;
  Ids first, second;
};

/// Which id of the current slot picks an operand's row.
enum class Access : std::uint8_t { kRow, kFirst, kSecond };

/// One operand of a message: rows of `length` elements.
struct Operand {
  const void* data = nullptr;  ///< null: the op does not use it
  bool wide = false;           ///< stored in the accumulator's type instead of the kernel's dtype
  Access access = Access::kRow;
  std::int64_t length = 0;
};

/// How the trailing elements of two operands and the result line up after broadcasting: a message
/// has num_groups runs of `inner` elements. Element d of run g reads lhs[lhs_offset[g] + d *
/// lhs_step], rhs likewise, and belongs to out[out_offset[g] + d * out_step]. Steps are 0 or 1; an
/// out_step of 0 sums the run (dot). A null offset table stands for g * inner * step.
struct Layout {
  std::int64_t num_groups = 1;
  std::int64_t inner = 1;
  const std::int64_t* lhs_offset = nullptr;
  const std::int64_t* rhs_offset = nullptr;
  const std::int64_t* out_offset = nullptr;
  std::int64_t lhs_step = 1, rhs_step = 1, out_step = 1;
};

}  // namespace mezzo::kernels
