// Reordering of rows between CSR and edge-id order on the CPU.
#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "mezzo/ops/device.h"

namespace mezzo::detail {
namespace {

/// Copies a row of each edge between edge-id and CSR order: to[e] = from[entries[e]], or with
/// kToEntries to[entries[e]] = from[e]. Entries ascend with the edge id within a CSR row, so the
/// accesses to each row are sequential and most cache lines stay until their next use. kBytes:
/// bytes of a row, or 0 to use `bytes`.
template <bool kToEntries, std::size_t kBytes, class Id>
void copy(const char* from, const Id* entries, char* to, std::int64_t count, std::int64_t bytes) {
  constexpr std::int64_t kAhead = 64, kGrain = 1 << 13;
  at::parallel_for(0, count, kGrain, [=](std::int64_t begin, std::int64_t end) {
    const auto run = [=](std::int64_t first, std::int64_t last, std::int64_t ahead) {
      const std::int64_t size = kBytes != 0 ? static_cast<std::int64_t>(kBytes) : bytes;
      for (std::int64_t e = first; e < last; ++e) {
        const std::int64_t entry = static_cast<std::int64_t>(entries[e]) * size;
        const std::int64_t later = static_cast<std::int64_t>(entries[e + ahead]) * size;
        __builtin_prefetch((kToEntries ? to : from) + later, kToEntries ? 1 : 0);
        std::memcpy(kToEntries ? to + entry : to + e * size,
                    kToEntries ? from + e * size : from + entry, static_cast<std::size_t>(size));
      }
    };
    const std::int64_t prefetch_end = std::max(begin, end - kAhead);
    run(begin, prefetch_end, kAhead);
    run(prefetch_end, end, 0);
  });
}

template <bool kToEntries, class Id>
void copy_rows(const char* from, const Id* entries, char* to, std::int64_t count,
               std::int64_t bytes) {
  switch (bytes) {
    case 2:
      return copy<kToEntries, 2>(from, entries, to, count, bytes);
    case 4:
      return copy<kToEntries, 4>(from, entries, to, count, bytes);
    case 8:
      return copy<kToEntries, 8>(from, entries, to, count, bytes);
    case 16:
      return copy<kToEntries, 16>(from, entries, to, count, bytes);
    case 32:
      return copy<kToEntries, 32>(from, entries, to, count, bytes);
    default:
      return copy<kToEntries, 0>(from, entries, to, count, bytes);
  }
}

template <bool kToEntries>
at::Tensor ordered(const at::Tensor& rows, const at::Tensor& entries) {
  if (!entries.defined()) return rows;
  at::Tensor result = at::empty_like(rows);
  const std::int64_t count = rows.size(0);
  if (rows.numel() == 0) return result;
  const auto bytes = static_cast<std::int64_t>(rows.nbytes()) / count;
  const auto* from = static_cast<const char*>(rows.const_data_ptr());
  auto* to = static_cast<char*>(result.mutable_data_ptr());
  if (entries.scalar_type() == at::kInt) {
    copy_rows<kToEntries>(from, entries.const_data_ptr<std::int32_t>(), to, count, bytes);
  } else {
    copy_rows<kToEntries>(from, entries.const_data_ptr<std::int64_t>(), to, count, bytes);
  }
  return result;
}

}  // namespace

bool OnCpu::stores_in_csr_order(const at::Tensor& rows) {
  constexpr std::int64_t kLine = 64;
  return static_cast<std::int64_t>(rows.nbytes()) < kLine * rows.size(0);
}

at::Tensor OnCpu::to_edge_order(const at::Tensor& rows, const at::Tensor& entries) {
  return ordered</*kToEntries=*/false>(rows, entries);
}

at::Tensor OnCpu::to_csr_order(const at::Tensor& rows, const at::Tensor& entries) {
  return ordered</*kToEntries=*/true>(rows, entries);
}

bool OnCpu::reads_in_csr_order(const at::Tensor& rows) {
  // Fewer bytes stay in the L2 cache. A longer row costs a cache line in any order.
  constexpr std::size_t kLeastBytes = std::size_t{1} << 20, kMostBytesOfRow = 8;
  return rows.nbytes() >= kLeastBytes &&
         rows.nbytes() <= kMostBytesOfRow * static_cast<std::size_t>(rows.size(0));
}

}  // namespace mezzo::detail
