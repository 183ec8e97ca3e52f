#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo {

/// Where gathered rows are put.
enum class RowMemory : std::uint8_t {
  kPageable,
  kPinned,  ///< from which a CUDA device copies directly; needs one; of a table on the CPU
};

/// The rows `ids` of `table`: [n, ...] in fresh memory, of the table's dtype, layout and bits.
/// table: [N, ...] of any dtype, also mapped from a file, on any device; or sparse CSR [N, F]. The
/// rows are on its device. ids: int32 or int64 [n] in [0, N), contiguous, on the CPU or the table's
/// device; not checked. No gradient flows through. Cost: the rows' bytes once; a contiguous table
/// on the CPU is copied by libtorch's threads (in a loader's worker: by the worker alone). Of a
/// sparse table on CUDA it synchronises.
MEZZO_API at::Tensor gather_rows(const at::Tensor& table, const at::Tensor& ids,
                                 RowMemory memory = RowMemory::kPageable);

}  // namespace mezzo
