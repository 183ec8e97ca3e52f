#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo {

/// The memory of gathered rows.
enum class RowMemory : std::uint8_t {
  kPageable,
  kPinned,  ///< for fast copies to a CUDA device, which must exist; only from tables on the CPU
};

/// The rows `ids` of `table`: [n, ...] in new memory, with the table's dtype, layout, device and
/// bits. table: [N, ...] of any dtype, also memory-mapped, on any device; or sparse CSR [N, F].
/// ids: int32 or int64 [n] in [0, N), contiguous, on the CPU or the table's device; not checked. No
/// gradient. Cost: the rows' bytes once; a contiguous table on the CPU is copied by libtorch's
/// threads (in a loader, by the worker only). Synchronises for a sparse table on CUDA.
MEZZO_API at::Tensor gather_rows(const at::Tensor& table, const at::Tensor& ids,
                                 RowMemory memory = RowMemory::kPageable);

}  // namespace mezzo
