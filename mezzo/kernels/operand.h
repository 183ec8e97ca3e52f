#pragma once

#include <cstdint>

#include "mezzo/core/dtype.h"
#include "mezzo/kernels/binary_op.h"

namespace mezzo::kernels {

/// An array of int32 or int64 node or edge ids; null data means 0, 1, 2, ...
struct Ids {
  const void* data = nullptr;
  bool is_int64 = false;  ///< else int32
};

/// The CSR rows that a kernel loops over: row r has the entries (edges) [indptr[r], indptr[r + 1]),
/// or if indptr is null the one entry r. Each entry has two ids.
struct Entries {
  const std::int64_t* indptr = nullptr;
  Ids first, second;
  std::int64_t longest_row = -1;  ///< no row has more entries; -1 if unknown
};

/// Which row of an operand an entry reads: its own row, its first id or its second id.
enum class Access : std::uint8_t { kRow, kFirst, kSecond };

/// One operand of a message: rows of `length` elements. The layout may read fewer of a row.
struct Operand {
  const void* data = nullptr;  ///< null if the op does not use it
  bool is_accum = false;       ///< stored in the accumulator type, else in the kernel's dtype
  Access access = Access::kRow;
  std::int64_t length = 0;
};

/// How the trailing dimensions of two operands and the result align after broadcasting: a message
/// has num_groups runs of `inner` elements. Element d of run g reads lhs[lhs_offset[g] + d *
/// lhs_step] and rhs[rhs_offset[g] + d * rhs_step], and belongs to out[out_offset[g] + d *
/// out_step]. Steps are 0 or 1; out_step = 0 sums the run (dot). A null table means g * inner *
/// step.
struct Layout {
  std::int64_t num_groups = 1;
  std::int64_t inner = 1;
  const std::int64_t* lhs_offset = nullptr;
  const std::int64_t* rhs_offset = nullptr;
  const std::int64_t* out_offset = nullptr;
  std::int64_t lhs_step = 1, rhs_step = 1, out_step = 1;
};

}  // namespace mezzo::kernels
