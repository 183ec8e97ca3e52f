// Results of the CPU's kernels in the order of the edges.
#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "mezzo/message_passing/device.h"

namespace mezzo {

namespace {

/// kBytes 0: as many as `bytes` says.
template <std::size_t kBytes, class Id>
void gather(const char* from, const Id* slots, char* to, std::int64_t count, std::int64_t bytes) {
  constexpr std::int64_t kAhead = 64, kGrain = 1 << 13;
  const std::int64_t size = kBytes != 0 ? static_cast<std::int64_t>(kBytes) : bytes;
  at::parallel_for(0, count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t e = begin; e < end; ++e) {
      const std::int64_t ahead = std::min(e + kAhead, end - 1);
      __builtin_prefetch(from + static_cast<std::int64_t>(slots[ahead]) * size);
      std::memcpy(to + e * size, from + static_cast<std::int64_t>(slots[e]) * size,
                  static_cast<std::size_t>(size));
    }
  });
}

template <class Id>
void gather_rows(const char* from, const Id* slots, char* to, std::int64_t count,
                 std::int64_t bytes) {
  switch (bytes) {
    case 2:
      return gather<2>(from, slots, to, count, bytes);
    case 4:
      return gather<4>(from, slots, to, count, bytes);
    case 8:
      return gather<8>(from, slots, to, count, bytes);
    case 16:
      return gather<16>(from, slots, to, count, bytes);
    case 32:
      return gather<32>(from, slots, to, count, bytes);
    default:
      return gather<0>(from, slots, to, count, bytes);
  }
}

}  // namespace

bool OnCpu::stores_by_slot(const at::Tensor& rows) {
  constexpr std::int64_t kLine = 64;
  return static_cast<std::int64_t>(rows.nbytes()) < kLine * rows.size(0);
}

at::Tensor OnCpu::by_edge(const at::Tensor& rows, const at::Tensor& slots) {
  if (!slots.defined()) return rows;
  at::Tensor ordered = at::empty_like(rows);
  const std::int64_t count = rows.size(0);
  if (rows.numel() == 0) return ordered;
  const auto bytes = static_cast<std::int64_t>(rows.nbytes()) / count;
  const auto* from = static_cast<const char*>(rows.const_data_ptr());
  auto* to = static_cast<char*>(ordered.mutable_data_ptr());
  if (slots.scalar_type() == at::kInt) {
    gather_rows(from, slots.const_data_ptr<std::int32_t>(), to, count, bytes);
  } else {
    gather_rows(from, slots.const_data_ptr<std::int64_t>(), to, count, bytes);
  }
  return ordered;
}

}  // namespace mezzo
