#include "mezzo/ops/dense/blocked_product.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>

#include "mezzo/core/error.h"
#include "mezzo/kernels/backend.h"
#include "mezzo/ops/arguments.h"
#include "mezzo/runtime/sixteen_bits.h"

namespace mezzo::detail {
namespace {

/// The least work for a thread: multiplications, and conversions to and from float32.
constexpr std::int64_t kMinMultiplications = 1 << 17, kMinConversions = 1 << 14;

/// The number of items of `size` that make the least work.
std::int64_t grain_of(std::int64_t min_work, std::int64_t size) {
  return std::max<std::int64_t>(1, min_work / std::max<std::int64_t>(1, size));
}

DType dense_dtype(const at::Tensor& t) {
  const at::ScalarType type = t.scalar_type();
  MEZZO_CHECK(type == at::kFloat || is_16_bit(type), "linear: expected float32 or 16 bits, got {}",
              c10::toString(type));
  return dtype_of("linear", type);
}

void check_one_dtype(const at::Tensor& a, const at::Tensor& b) {
  MEZZO_CHECK(a.scalar_type() == b.scalar_type(),
              "linear: expected operands of one dtype, got {} "
              "and {}",
              c10::toString(a.scalar_type()), c10::toString(b.scalar_type()));
}

/// `t` with a stride of 1 within rows.
at::Tensor with_dense_rows(const at::Tensor& t) {
  return t.stride(1) == 1 || t.size(1) <= 1 ? t : t.contiguous();
}

/// `rows` rows of `t` from `row` on, in columns [column, column + columns).
kernels::DenseRows block_of(const at::Tensor& t, std::int64_t row, std::int64_t rows,
                            std::int64_t column, std::int64_t columns) {
  if (rows == 0 || columns == 0) return {nullptr, rows, columns, 0};
  const std::int64_t offset = row * t.stride(0) + column;
  const auto bytes = static_cast<std::int64_t>(t.element_size());
  return {static_cast<const char*>(t.const_data_ptr()) + offset * bytes, rows, columns,
          t.stride(0)};
}

/// Adds up sums[g], float32 [G, ...], in place of the first and rounds the total into `to`.
void round_total(const at::Tensor& sums, const at::Tensor& to) {
  const kernels::CpuBackend& backend = kernels::cpu_backend();
  const DType dtype = dense_dtype(to);
  const std::int64_t groups = sums.size(0), count = to.numel();
  auto* sum = sums.mutable_data_ptr<float>();
  auto* target = static_cast<char*>(to.mutable_data_ptr());
  const auto bytes = static_cast<std::int64_t>(to.element_size());
  constexpr std::int64_t kChunk = 1 << 11;
  at::parallel_for(0, count, kMinConversions, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = begin; first < end; first += kChunk) {
      const std::int64_t last = std::min(end, first + kChunk);
      for (std::int64_t g = 1; g < groups; ++g) {
        for (std::int64_t i = first; i < last; ++i) sum[i] += sum[g * count + i];
      }
      backend.narrow(dtype, sum + first, target + first * bytes, last - first);
    }
  });
}

/// `bias` in float32, padded with zeros.
Scratch padded_bias(const at::Tensor& bias) {
  const at::Tensor source = bias.contiguous();
  Scratch result(kernels::dense_padded(source.numel()));
  std::fill_n(result.numbers(), kernels::dense_padded(source.numel()), 0.0F);
  kernels::cpu_backend().widen(dense_dtype(source), source.const_data_ptr(), result.numbers(),
                               source.numel());
  return result;
}

/// A side of a product in at most `parts` tiles, whose size is a multiple of `granule` except for
/// the last.
struct Tiling {
  std::int64_t length, parts, tile, tiles;
  Tiling(std::int64_t side_length, std::int64_t max_tiles, std::int64_t granule)
      : length(side_length),
        parts(max_tiles),
        tile(divided_up(divided_up(length, parts), granule) * granule),
        tiles(divided_up(length, std::max<std::int64_t>(1, tile))) {}
  static std::int64_t divided_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
  std::int64_t begin(std::int64_t i) const { return i * tile; }
  std::int64_t count(std::int64_t i) const { return std::min(tile, length - begin(i)); }
  /// Compares the excess of a tile over an equal part, relative to the length.
  bool is_as_even_as(const Tiling& other) const {
    return tile * parts * other.length <= other.tile * other.parts * length;
  }
};

/// x times a factor. Threads share ranges of rows or columns; ranges of columns begin at multiples
/// of kDensePadding.
class ThreadedProduct {
 public:
  ThreadedProduct(const at::Tensor& x, const at::Tensor& factor,
                  const std::optional<at::Tensor>& bias)
      : x_(with_dense_rows(x)),
        factor_(factor, bias),
        depth_(factor_.depth()),
        columns_(factor_.columns()),
        out_(at::empty({x.size(0), columns_}, x.options())),
        out_data_(static_cast<char*>(out_.mutable_data_ptr())) {}

  at::Tensor run() const {
    if (x_.size(0) == 0) return out_;
    const std::int64_t panels = kernels::dense_padded(columns_) / kernels::kDensePadding;
    const std::int64_t panel_size = depth_ * kernels::kDensePadding;
    const std::int64_t pack_grain = grain_of(kMinConversions, panel_size);
    if (shares_columns(panels)) {
      const std::int64_t grain = grain_of(kMinMultiplications, x_.size(0) * panel_size);
      at::parallel_for(0, panels, std::min(pack_grain, grain),
                       [&](std::int64_t begin, std::int64_t end) {
                         const Range columns = columns_of(begin, end);
                         factor_.pack(columns);
                         multiply({0, x_.size(0)}, columns);
                       });
      return out_;
    }
    at::parallel_for(0, panels, pack_grain, [&](std::int64_t begin, std::int64_t end) {
      factor_.pack(columns_of(begin, end));
    });
    at::parallel_for(0, x_.size(0), grain_of(kMinMultiplications, depth_ * columns_),
                     [&](std::int64_t begin, std::int64_t end) {
                       multiply({begin, end}, {0, columns_});
                     });
    return out_;
  }

 private:
  /// Whether threads share columns rather than rows. With few rows, packing the factor is much of
  /// the work, and threads do not wait for each other if each multiplies by the columns that it
  /// packed; but then each converts all rows.
  bool shares_columns(std::int64_t panels) const {
    constexpr std::int64_t kFewRows = 512,
                           kManyPanels = 4;  // a thread; then a short one matters little
    const std::int64_t threads = at::get_num_threads();
    const bool even = columns_ % kernels::kDensePadding == 0 || panels >= kManyPanels * threads;
    return x_.size(0) <= kFewRows && panels % threads == 0 && even;
  }

  Range columns_of(std::int64_t first_panel, std::int64_t last_panel) const {
    return {first_panel * kernels::kDensePadding,
            std::min(columns_, last_panel * kernels::kDensePadding)};
  }

  void multiply(Range rows, Range columns) const {
    const Scratch scratch(kernels::rows_product_scratch(columns.count()));
    const std::int64_t offset = rows.begin * columns_ + columns.begin;
    factor_.multiply(block_of(x_, rows.begin, rows.count(), 0, depth_), columns,
                     out_data_ + offset * static_cast<std::int64_t>(out_.element_size()), columns_,
                     scratch.numbers());
  }

  at::Tensor x_;
  PackedFactor factor_;
  std::int64_t depth_, columns_;
  at::Tensor out_;
  char* out_data_;
};

}  // namespace

Scratch::Scratch(std::int64_t count)
    : memory_(c10::GetCPUAllocator()->allocate(static_cast<std::size_t>(count) * sizeof(float))) {}

PackedFactor::PackedFactor(const at::Tensor& factor, const std::optional<at::Tensor>& bias)
    : transposed_(factor.stride(1) != 1 && factor.stride(0) == 1),
      factor_(transposed_ ? factor.t() : with_dense_rows(factor)),
      depth_(factor.size(0)),
      columns_(factor.size(1)),
      dtype_(dense_dtype(factor)),
      panels_(depth_ * kernels::dense_padded(columns_)),
      bias_(bias ? padded_bias(*bias) : Scratch(0)),
      has_bias_(bias.has_value()) {}

void PackedFactor::pack(Range columns) const {
  const kernels::DenseRows from =
      transposed_ ? block_of(factor_, columns.begin, columns.count(), 0, depth_)
                  : block_of(factor_, 0, depth_, columns.begin, columns.count());
  kernels::cpu_backend().run(kernels::PackArgs{.dtype = dtype_,
                                               .from = from,
                                               .transposed = transposed_,
                                               .to = panels_.numbers() + columns.begin * depth_});
}

void PackedFactor::multiply(const kernels::DenseRows& x, Range columns, void* out,
                            std::int64_t out_stride, float* scratch) const {
  kernels::cpu_backend().run(
      kernels::RowsProductArgs{.dtype = dtype_,
                               .x = x,
                               .panels = panels_.numbers() + columns.begin * depth_,
                               .bias = has_bias_ ? bias_.numbers() + columns.begin : nullptr,
                               .columns = columns.count(),
                               .out = out,
                               .out_stride = out_stride,
                               .scratch = scratch});
}

at::Tensor blocked_product(const at::Tensor& x, const at::Tensor& factor,
                           const std::optional<at::Tensor>& bias) {
  check_one_dtype(x, factor);
  return ThreadedProduct(x, factor, bias).run();
}

at::Tensor blocked_transposed_product(const at::Tensor& a, const at::Tensor& b) {
  constexpr std::int64_t kMostGroups = 8, kSums = 1 << 24;  // float32: 64 MiB
  constexpr std::int64_t kRowsOfGroup = 1024;  // fewer do not pay for a sum of their own
  constexpr std::int64_t kMostHeights = 1024;
  constexpr std::int64_t kHeightsOfTile = 12;  // AVX-512's height, twice AVX2's
  check_one_dtype(a, b);
  const at::Tensor left = with_dense_rows(a), right = with_dense_rows(b);
  const std::int64_t rows = left.size(0), heights = left.size(1), columns = right.size(1);
  // Rows are summed in groups. Their number is a power of 2, which most numbers of threads divide.
  const std::int64_t fit = kSums / std::max<std::int64_t>(1, heights * columns);
  const std::int64_t most = std::min({fit, kMostGroups, rows / kRowsOfGroup});
  std::int64_t groups = 1;
  while (2 * groups <= most) groups *= 2;
  // If threads do not divide the groups, they also share a side, which does not change any sum: the
  // longer side, because each thread converts the shorter side, unless its tiles are less even.
  const std::int64_t threads = at::get_num_threads();
  const std::int64_t shares = threads / std::gcd(threads, groups);
  const std::int64_t slabs = std::max<std::int64_t>(1, Tiling::divided_up(heights, kMostHeights));
  const Tiling heights_shared(heights, Tiling::divided_up(slabs, shares) * shares, kHeightsOfTile);
  const Tiling columns_shared(columns, shares, kernels::kDensePadding);
  const bool by_columns = columns > heights && columns_shared.is_as_even_as(heights_shared);
  const Tiling by_height = by_columns ? Tiling(heights, slabs, kHeightsOfTile) : heights_shared;
  const Tiling by_column = by_columns ? columns_shared : Tiling(columns, 1, kernels::kDensePadding);
  const std::int64_t tiles = by_height.tiles * by_column.tiles;
  const at::Tensor sums = at::empty({groups, heights, columns}, left.options().dtype(at::kFloat));
  const std::int64_t of_tile = rows / groups * by_height.tile * by_column.tile;
  const std::int64_t grain = grain_of(kMinMultiplications, of_tile);
  at::parallel_for(0, groups * tiles, grain, [&](std::int64_t first, std::int64_t last) {
    const Scratch scratch(kernels::transposed_product_scratch(by_height.tile, by_column.tile));
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t group = i / tiles, h = i % tiles % by_height.tiles;
      const std::int64_t c = i % tiles / by_height.tiles;
      const std::int64_t begin = rows * group / groups, count = rows * (group + 1) / groups - begin;
      const std::int64_t height = by_height.begin(h), column = by_column.begin(c);
      kernels::cpu_backend().run(kernels::TransposedProductArgs{
          .dtype = dense_dtype(left),
          .a = block_of(left, begin, count, height, by_height.count(h)),
          .b = block_of(right, begin, count, column, by_column.count(c)),
          .sum = sums.mutable_data_ptr<float>() + (group * heights + height) * columns + column,
          .sum_stride = columns,
          .scratch = scratch.numbers()});
    }
  });
  at::Tensor out = at::empty({heights, columns}, left.options());
  round_total(sums, out);
  return out;
}

}  // namespace mezzo::detail
