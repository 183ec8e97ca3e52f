#include "mezzo/ops/broadcast.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "mezzo/core/error.h"

namespace mezzo::detail {
namespace {

/// The size of dimension `i` if `shape` is padded with ones on the left to `rank` dimensions.
std::int64_t padded_size(c10::IntArrayRef shape, std::size_t rank, std::size_t i) {
  const std::size_t missing = rank - shape.size();
  return i < missing ? 1 : shape[i - missing];
}

std::string show(c10::IntArrayRef shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

}  // namespace

Broadcast::Broadcast(const char* what, BinaryOp op, c10::IntArrayRef lhs, c10::IntArrayRef rhs)
    : op_(op) {
  const std::size_t rank = std::max(lhs.size(), rhs.size());
  std::vector<Dimension> dimensions(rank);
  std::int64_t lhs_stride = 1, rhs_stride = 1;
  out_shape_.resize(rank);
  for (std::size_t i = rank; i-- > 0;) {
    const std::int64_t l = padded_size(lhs, rank, i), r = padded_size(rhs, rank, i);
    const bool is_dot = op == BinaryOp::kDot && i + 1 == rank;
    MEZZO_CHECK(l == r || (!is_dot && (l == 1 || r == 1)),
                "{}: expected trailing dimensions that {}, got {} and {}", what,
                is_dot ? "end alike for a dot product" : "broadcast", show(lhs), show(rhs));
    const std::int64_t size = l == 1 ? r : l;
    out_shape_[i] = is_dot ? 1 : size;
    dimensions[i] = {size, l == 1 ? 0 : lhs_stride, r == 1 ? 0 : rhs_stride,
                     is_dot ? 0 : out_length_};
    lhs_stride *= l;
    rhs_stride *= r;
    out_length_ *= out_shape_[i];
  }
  if (op == BinaryOp::kDot && (rank == 0 || dimensions.back().size == 1)) op_ = BinaryOp::kMul;
  std::erase_if(dimensions, [](const Dimension& d) { return d.size == 1; });
  merge(std::move(dimensions));
}

void Broadcast::merge(std::vector<Dimension> dimensions) {
  std::vector<Dimension> merged;
  for (const Dimension& d : dimensions) {
    const bool joins = !merged.empty() && merged.back().lhs == d.lhs * d.size &&
                       merged.back().rhs == d.rhs * d.size && merged.back().out == d.out * d.size;
    if (joins) {
      merged.back() = {merged.back().size * d.size, d.lhs, d.rhs, d.out};
    } else {
      merged.push_back(d);
    }
  }
  if (merged.empty()) return;
  const Dimension& last = merged.back();
  inner_ = last.size;
  lhs_step_ = last.lhs;
  rhs_step_ = last.rhs;
  out_step_ = last.out;
  merged.pop_back();
  if (!merged.empty()) tabulate(merged);
}

void Broadcast::tabulate(const std::vector<Dimension>& outer) {
  lhs_offset_ = rhs_offset_ = out_offset_ = {0};
  const auto extend = [](std::vector<std::int64_t>& table, std::int64_t size, std::int64_t stride) {
    std::vector<std::int64_t> longer;
    longer.reserve(table.size() * static_cast<std::size_t>(size));
    for (const std::int64_t base : table) {
      for (std::int64_t i = 0; i < size; ++i) longer.push_back(base + i * stride);
    }
    table = std::move(longer);
  };
  for (const Dimension& d : outer) {
    extend(lhs_offset_, d.size, d.lhs);
    extend(rhs_offset_, d.size, d.rhs);
    extend(out_offset_, d.size, d.out);
  }
}

kernels::Layout Broadcast::layout() const {
  const bool tables = !lhs_offset_.empty();
  kernels::Layout layout;
  layout.num_groups = tables ? static_cast<std::int64_t>(lhs_offset_.size()) : 1;
  if (out_length_ == 0) layout.num_groups = 0;
  layout.inner = inner_;
  layout.lhs_offset = tables ? lhs_offset_.data() : nullptr;
  layout.rhs_offset = tables ? rhs_offset_.data() : nullptr;
  layout.out_offset = tables ? out_offset_.data() : nullptr;
  layout.lhs_step = lhs_step_;
  layout.rhs_step = rhs_step_;
  layout.out_step = out_step_;
  return layout;
}

}  // namespace mezzo::detail
