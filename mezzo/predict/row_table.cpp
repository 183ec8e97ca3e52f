#include "mezzo/predict/row_table.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include <ATen/ATen.h>

namespace mezzo::detail {

RowTable::RowTable(at::Tensor rows)
    : rows_(std::move(rows)), stale_(static_cast<std::size_t>(rows_.size(0))) {}

bool RowTable::is_stale(std::int32_t node) const {
  // atomic_ref takes no const number before C++26
  auto& stale = const_cast<std::uint8_t&>(stale_[static_cast<std::size_t>(node)]);
  return std::atomic_ref(stale).load(std::memory_order_acquire) != 0;
}

bool RowTable::make_stale(std::int32_t node) {
  return std::exchange(stale_[static_cast<std::size_t>(node)], 1) == 0;
}

void RowTable::refresh(std::span<const std::int32_t> nodes, const at::Tensor& rows) {
  const auto bytes = static_cast<std::size_t>(rows.size(1)) * rows.element_size();
  const auto* from = static_cast<const char*>(rows.const_data_ptr());
  auto* to = static_cast<char*>(rows_.mutable_data_ptr());
  for (const std::int32_t node : nodes) {
    const auto place = static_cast<std::size_t>(node);
    std::memcpy(to + place * bytes, from, bytes);
    std::atomic_ref(stale_[place]).store(0, std::memory_order_release);
    from += bytes;
  }
}

void RowTable::grow(std::int64_t num_nodes) {
  const std::int64_t size = rows_.size(0);
  if (num_nodes <= size) return;
  at::Tensor larger = at::zeros({std::max(num_nodes, 2 * size), rows_.size(1)}, rows_.options());
  larger.narrow(0, 0, size).copy_(rows_);
  stale_.resize(static_cast<std::size_t>(larger.size(0)));
  rows_ = std::move(larger);
}

std::int64_t RowTable::memory_bytes() const {
  return static_cast<std::int64_t>(rows_.nbytes() + stale_.capacity());
}

}  // namespace mezzo::detail
