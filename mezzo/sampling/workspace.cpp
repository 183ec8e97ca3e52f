#include "mezzo/sampling/workspace.h"

#include <cstring>
#include <new>
#include <utility>

#include "mezzo/sampling/workspace_state.h"

namespace mezzo {
namespace detail {

void ScratchBuffer::grow(std::int64_t used_bytes, std::int64_t bytes) {
  if (bytes <= bytes_) return;
  constexpr std::size_t kLine = 64, kHugePage = std::size_t{2} << 20;
  const auto needed_bytes = static_cast<std::size_t>(std::max(bytes, bytes_ + bytes_ / 2));
  const std::size_t alignment = needed_bytes < 2 * kHugePage ? kLine : kHugePage;
  const std::size_t capacity = (needed_bytes + alignment - 1) / alignment * alignment;
  std::unique_ptr<std::byte, Free> memory(
      static_cast<std::byte*>(std::aligned_alloc(alignment, capacity)));
  if (memory == nullptr) throw std::bad_alloc();
  advise_huge_pages(memory.get(), capacity);
  if (used_bytes > 0)
    std::memcpy(memory.get(), memory_.get(), static_cast<std::size_t>(used_bytes));
  memory_ = std::move(memory);
  bytes_ = static_cast<std::int64_t>(capacity);
}

void NodeNumbers::begin(std::int64_t num_nodes) {
  table_.base = static_cast<std::int32_t>(table_.base + size_);
  size_ = 0;
  num_nodes_ = num_nodes;
  if (num_nodes <= table_nodes_) return;
  table_.stamps = stamps_.reserve<std::int32_t>(num_nodes);
  table_nodes_ = num_nodes;
  clear(0);
}

void NodeNumbers::clear(std::int64_t needed) {
  MEZZO_CHECK(needed < kLargest,
              "sample: expected a batch of fewer than 2^31 - 1 nodes, got up to {}", needed);
  table_.base = 1;
  std::fill(table_.stamps, table_.stamps + table_nodes_, 0);
}

}  // namespace detail

Workspace::Workspace() : state_(std::make_unique<State>()) {}
Workspace::~Workspace() = default;
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;

std::int64_t Workspace::table_bytes() const {
  const at::Tensor& on_device = state_->device_table.first_at;
  const std::size_t device_bytes = on_device.defined() ? on_device.nbytes() : 0;
  return state_->numbers.table_bytes() + static_cast<std::int64_t>(device_bytes);
}

std::int64_t Workspace::buffer_bytes() const {
  return state_->buffer_bytes();
}

}  // namespace mezzo
