#include "mezzo/message_passing/blocked_product.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>

#include "mezzo/core/error.h"
#include "mezzo/kernels/backend.h"
#include "mezzo/message_passing/arguments.h"

namespace mezzo {

namespace {

/// float32 numbers of one thread.
class Scratch {
 public:
  explicit Scratch(std::int64_t count)
      : memory_(c10::GetCPUAllocator()->allocate(static_cast<std::size_t>(count) * sizeof(float))) {
  }
  float* numbers() const { return static_cast<float*>(memory_.get()); }

 private:
  c10::DataPtr memory_;
};

/// Products of numbers that are worth a thread.
constexpr std::int64_t kGrain = 1 << 17;

std::int64_t grain_of(std::int64_t products) {
  return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, products));
}

DType narrow_dtype(const at::Tensor& t) {
  MEZZO_CHECK(at::isReducedFloatingType(t.scalar_type()), "linear: expected 16-bit rows, got {}",
              c10::toString(t.scalar_type()));
  return dtype_of("linear", t.scalar_type());
}

void check_one_dtype(const at::Tensor& a, const at::Tensor& b) {
  MEZZO_CHECK(a.scalar_type() == b.scalar_type(),
              "linear: expected operands of one dtype, got {} "
              "and {}",
              c10::toString(a.scalar_type()), c10::toString(b.scalar_type()));
}

/// The rows of t, each dense in memory.
at::Tensor with_dense_rows(const at::Tensor& t) {
  return t.stride(1) == 1 || t.size(1) <= 1 ? t : t.contiguous();
}

/// `t` from `row` on, in columns [column, column + columns).
DenseRows rows_of(const at::Tensor& t, std::int64_t row, std::int64_t rows, std::int64_t column,
                  std::int64_t columns) {
  if (columns == 0) return {nullptr, rows, 0, 0};
  const std::int64_t offset = row * t.stride(0) + column;
  const auto bytes = static_cast<std::int64_t>(t.element_size());
  return {static_cast<const char*>(t.const_data_ptr()) + offset * bytes, rows, columns,
          t.stride(0)};
}

void narrow(const at::Tensor& from, const at::Tensor& to) {
  const CpuBackend& backend = cpu_backend();
  const DType dtype = narrow_dtype(to);
  const float* source = from.const_data_ptr<float>();
  auto* target = static_cast<char*>(to.mutable_data_ptr());
  const auto bytes = static_cast<std::int64_t>(to.element_size());
  constexpr std::int64_t kNumbers = 1 << 14;  // that are worth a thread
  at::parallel_for(0, from.numel(), kNumbers, [&](std::int64_t begin, std::int64_t end) {
    backend.narrow(dtype, source + begin, target + begin * bytes, end - begin);
  });
}

/// `factor` as panels of columns in float32.
Scratch packed(const at::Tensor& factor) {
  const at::Tensor given = with_dense_rows(factor);
  const std::int64_t depth = given.size(0), columns = given.size(1);
  Scratch panels(depth * dense_padded(columns));
  const std::int64_t pieces = dense_padded(columns) / kDensePadding;
  at::parallel_for(0, pieces, grain_of(depth * kDensePadding),
                   [&](std::int64_t begin, std::int64_t end) {
                     const std::int64_t first = begin * kDensePadding;
                     const std::int64_t count = std::min(columns, end * kDensePadding) - first;
                     cpu_backend().pack_panels({.dtype = narrow_dtype(given),
                                                .from = rows_of(given, 0, depth, first, count),
                                                .to = panels.numbers() + first * depth});
                   });
  return panels;
}

/// `bias` in float32, zeros behind it.
Scratch padded(const at::Tensor& bias) {
  const at::Tensor given = bias.contiguous();
  Scratch wide(dense_padded(given.numel()));
  std::fill_n(wide.numbers(), dense_padded(given.numel()), 0.0F);
  cpu_backend().widen(narrow_dtype(given), given.const_data_ptr(), wide.numbers(), given.numel());
  return wide;
}

}  // namespace

at::Tensor blocked_product(const at::Tensor& x, const at::Tensor& factor,
                           const std::optional<at::Tensor>& bias) {
  check_one_dtype(x, factor);
  const at::Tensor given = with_dense_rows(x);
  const std::int64_t depth = given.size(1), columns = factor.size(1);
  const at::Tensor out = at::empty({given.size(0), columns}, given.options());
  const Scratch panels = packed(factor), wide_bias = bias ? padded(*bias) : Scratch(0);
  at::parallel_for(
      0, given.size(0), grain_of(depth * columns), [&](std::int64_t begin, std::int64_t end) {
        const Scratch scratch(rows_product_scratch(columns));
        auto* rows = static_cast<char*>(out.mutable_data_ptr());
        cpu_backend().rows_product(
            {.dtype = narrow_dtype(given),
             .x = rows_of(given, begin, end - begin, 0, depth),
             .panels = panels.numbers(),
             .bias = bias ? wide_bias.numbers() : nullptr,
             .columns = columns,
             .out = rows + begin * columns * static_cast<std::int64_t>(out.element_size()),
             .out_stride = columns,
             .scratch = scratch.numbers()});
      });
  return out;
}

at::Tensor blocked_transposed_product(const at::Tensor& a, const at::Tensor& b) {
  constexpr std::int64_t kMostGroups = 8, kSums = 1 << 24;  // float32: 64 MiB
  constexpr std::int64_t kMostHeights = 1024;
  check_one_dtype(a, b);
  const at::Tensor left = with_dense_rows(a), right = with_dense_rows(b);
  const std::int64_t rows = left.size(0), heights = left.size(1), columns = right.size(1);
  // Rows are added up in groups, a power of 2 of them, which mostly divides among threads.
  const std::int64_t blocks = (rows + kDenseBlockOfSum - 1) / kDenseBlockOfSum;
  const std::int64_t fit = kSums / std::max<std::int64_t>(1, heights * columns);
  const std::int64_t most = std::min({fit, kMostGroups, blocks});
  std::int64_t groups = 1;
  while (2 * groups <= most) groups *= 2;
  // Where groups do not divide among the threads, these share the heights, which no sum depends on.
  const std::int64_t threads = at::get_num_threads();
  const std::int64_t shares = threads / std::gcd(threads, groups);
  const std::int64_t share = (heights + shares - 1) / shares;
  const std::int64_t tile = std::clamp<std::int64_t>(share, kDensePadding, kMostHeights);
  const std::int64_t tiles = (heights + tile - 1) / tile;
  const at::Tensor sums = at::zeros({groups, heights, columns}, left.options().dtype(at::kFloat));
  at::parallel_for(0, groups * tiles, 1, [&](std::int64_t first, std::int64_t last) {
    const Scratch scratch(transposed_product_scratch(tile, columns));
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t group = i / tiles, height = i % tiles * tile;
      const std::int64_t begin = blocks * group / groups * kDenseBlockOfSum;
      const std::int64_t end = std::min(rows, blocks * (group + 1) / groups * kDenseBlockOfSum);
      cpu_backend().transposed_product(
          {.dtype = narrow_dtype(left),
           .a = rows_of(left, begin, end - begin, height, std::min(tile, heights - height)),
           .b = rows_of(right, begin, end - begin, 0, columns),
           .sum = sums.mutable_data_ptr<float>() + (group * heights + height) * columns,
           .sum_stride = columns,
           .scratch = scratch.numbers()});
    }
  });
  at::Tensor out = at::empty({heights, columns}, left.options());
  narrow(groups == 1 ? sums[0] : sums.sum(0), out);
  return out;
}

}  // namespace mezzo
