#include "mezzo/sampling/gather.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include "mezzo/core/huge_pages.h"
#include "mezzo/data/csr_rows.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/ops/device.h"

namespace mezzo {
namespace {

constexpr std::int64_t kGatherLine = 64;        ///< bytes of a cache line
constexpr std::int64_t kGatherLinesAhead = 32;  ///< about the outstanding misses of a core
constexpr std::int64_t kGatherMostPrefetched =
    16;  ///< lines of a row; the hardware prefetches the rest
constexpr std::int64_t kGatherBytesPerThread = 1 << 16;

/// Consecutive rows of `bytes` bytes each.
struct RowTable {
  const std::byte* rows;
  std::int64_t bytes;
};

template <class Id>
void copy_rows(RowTable table, const Id* ids, std::int64_t begin, std::int64_t end,
               std::byte* out) {
  const std::int64_t lines =
      std::min((table.bytes + kGatherLine - 1) / kGatherLine, kGatherMostPrefetched);
  const std::int64_t ahead = std::max<std::int64_t>(1, kGatherLinesAhead / lines);
  for (std::int64_t i = begin; i < end; ++i) {
    if (i + ahead < end) {
      const std::byte* row = table.rows + static_cast<std::int64_t>(ids[i + ahead]) * table.bytes;
      for (std::int64_t line = 0; line < lines; ++line) {
        __builtin_prefetch(row + line * kGatherLine);
      }
    }
    std::memcpy(out + i * table.bytes, table.rows + static_cast<std::int64_t>(ids[i]) * table.bytes,
                static_cast<std::size_t>(table.bytes));
  }
}

at::Tensor allocate_rows(at::IntArrayRef sizes, at::ScalarType dtype, RowMemory memory) {
  const bool is_pinned = memory == RowMemory::kPinned;
  at::Tensor rows = at::empty(sizes, at::dtype(dtype).pinned_memory(is_pinned));
  if (!is_pinned) advise_huge_pages(rows.mutable_data_ptr(), rows.nbytes());
  return rows;
}

/// table: contiguous, on the CPU.
at::Tensor gather_dense(const at::Tensor& table, const at::Tensor& ids, RowMemory memory) {
  std::vector<std::int64_t> sizes = table.sizes().vec();
  sizes[0] = ids.numel();
  at::Tensor gathered = allocate_rows(sizes, table.scalar_type(), memory);
  if (gathered.numel() == 0) return gathered;
  const std::int64_t row_bytes = static_cast<std::int64_t>(gathered.nbytes()) / ids.numel();
  const RowTable rows = {static_cast<const std::byte*>(table.const_data_ptr()), row_bytes};
  auto* out = static_cast<std::byte*>(gathered.mutable_data_ptr());
  const std::int64_t grain = std::max<std::int64_t>(1, kGatherBytesPerThread / row_bytes);
  detail::visit(detail::IdTypes{}, ids.scalar_type(), [&]<class Id>() {
    const auto* id = ids.const_data_ptr<typename Id::Type>();
    at::parallel_for(0, ids.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
      copy_rows(rows, id, begin, end, out);
    });
  });
  return gathered;
}

/// table: sparse CSR.
at::Tensor gather_sparse(const at::Tensor& table, const at::Tensor& ids, RowMemory memory) {
  const at::Tensor rows = data::csr_rows(table, ids.to(table.device()));
  if (memory != RowMemory::kPinned || !table.is_cpu()) return rows;
  return at::_sparse_csr_tensor_unsafe(rows.crow_indices().pin_memory(),
                                       rows.col_indices().pin_memory(), rows.values().pin_memory(),
                                       rows.sizes(), rows.options());
}

}  // namespace

at::Tensor gather_rows(const at::Tensor& table, const at::Tensor& ids, RowMemory memory) {
  const c10::NoGradGuard no_grad;
  if (table.layout() == at::kSparseCsr) return gather_sparse(table, ids, memory);
  const bool is_plain = table.is_contiguous() && !table.is_conj() && !table.is_neg();
  if (is_plain && table.is_cpu()) return gather_dense(table, ids, memory);
  if (is_plain && table.is_cuda() && cuda_kernels() != nullptr) {
    return mezzo::detail::OnCuda::gathered(table, ids.to(table.device()));
  }
  return table.index_select(0, ids.to(table.device()));
}

}  // namespace mezzo
