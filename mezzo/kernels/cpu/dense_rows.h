#pragma once

#include <cstdint>
#include <type_traits>

#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/cpu/dense_panels.h"
#include "mezzo/kernels/dense.h"

namespace mezzo::kernels {

/// Rows of a tile: its sums, a panel's vectors and one number fit into the registers.
template <class V>
inline constexpr int kTileRows = V::max_blocks * 3 / 4;

/// Whether whole tiles stay within the memory that dense.h specifies.
template <class V>
inline constexpr bool kTilesFit = kDenseBlockRows % kTileRows<V> == 0 &&
                                  kTileRows<V> <= kDensePadding&& kDensePadding %
                                                      (kPanelVectors<V> * V::width) ==
                                      0;
static_assert(kDenseTileColumns % kDensePadding == 0);

/// Prefetches rows of T for a later step, in equal shares while the tiles of a product of `rows` x
/// `columns` are computed.
template <class V, class T>
class RowFetcher {
 public:
  RowFetcher(const DenseRows& later, std::int64_t rows, std::int64_t columns)
      : later_(later),
        steps_(divided_up(rows, kTileRows<V>) * divided_up(columns, kPanelVectors<V> * V::width)) {}

  [[gnu::always_inline]] void step() {
    constexpr int kSecondCache = 2;
    const std::int64_t target = later_.rows * ++done_ / steps_;
    for (; fetched_ < target; ++fetched_) {
      const auto* row =
          static_cast<const typename T::Storage*>(later_.data) + fetched_ * later_.stride;
      for (std::int64_t i = 0; i < later_.columns; i += kOfLine) {
        __builtin_prefetch(row + i, 0, kSecondCache);
      }
    }
  }

 private:
  static constexpr std::int64_t kOfLine = 64 / sizeof(typename T::Storage);

  DenseRows later_;
  std::int64_t steps_;
  std::int64_t done_ = 0, fetched_ = 0;
};

/// The numbers of a tile: row i at depth k is numbers[i * row_step + k * depth_step].
struct TileNumbers {
  const float* numbers;
  std::int64_t row_step, depth_step;
};

/// Multiplies kTileRows rows by a panel. Calls store(i, j, sum, count) for vector j of row i, for
/// the first `rows` rows and `columns` columns; the first `count` numbers of a vector are valid.
template <class V, int kVectors, class Store>
[[gnu::always_inline]] inline void multiply_tile(const TileNumbers& tile, const float* panel,
                                                 std::int64_t depth, std::int64_t rows,
                                                 std::int64_t columns, const Store& store) {
  constexpr std::int64_t kWidth = kVectors * V::width;
  // An address adds once or twice the step, so a third of the pointers suffices.
  constexpr std::int64_t kRowsOfPointer = 3;
  constexpr std::int64_t kPointers = kTileRows<V> / kRowsOfPointer;
  static_assert(kTileRows<V> % kRowsOfPointer == 0);
  V sum[kTileRows<V>][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows<V>; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) sum[i][j] = V::zero();
  }
  static_assert(kTilesFit<V>);
  const float* pointers[kPointers];
#pragma GCC unroll 8
  for (int p = 0; p < kPointers; ++p) {
    pointers[p] = tile.numbers + p * kRowsOfPointer * tile.row_step;
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    V factor[kVectors];
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      factor[j] = V::load_accum(panel + k * kWidth + j * V::width);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kTileRows<V>; ++i) {
      const float* row = pointers[i / kRowsOfPointer];
      const V number = V::set(row[i % kRowsOfPointer * tile.row_step]);
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) sum[i][j] = V::fma(number, factor[j], sum[i][j]);
    }
#pragma GCC unroll 8
    for (int p = 0; p < kPointers; ++p) pointers[p] += tile.depth_step;
  }
  if (rows == kTileRows<V> && columns == kWidth) {
#pragma GCC unroll 16
    for (int i = 0; i < kTileRows<V>; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) store(i, j, sum[i][j], V::width);
    }
    return;
  }
  alignas(64) typename V::Scalar edge[kTileRows<V> * kWidth];
#pragma GCC unroll 16
  for (int i = 0; i < kTileRows<V>; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) sum[i][j].store_accum(edge + i * kWidth + j * V::width);
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j * V::width < columns; ++j) {
      store(i, j, V::load_accum(edge + i * kWidth + j * V::width),
            smaller(V::width, columns - j * V::width));
    }
  }
}

/// float32 sums [rows, columns] of a tile.
struct TileSums {
  float* data;
  std::int64_t stride, rows, columns;
};

/// to = the tile's product, or with `add` to += the tile's product.
template <class V, int kVectors>
[[gnu::noinline]] void add_tile(const TileNumbers& tile, const float* panel, std::int64_t depth,
                                bool add, const TileSums& to) {
  if (add) {
    for (std::int64_t i = 0; i < to.rows; ++i) {
      prefetch(to.data + i * to.stride, to.columns * static_cast<std::int64_t>(sizeof(float)));
    }
  }
  const auto store = [to, add](std::int64_t i, std::int64_t j, V sum, std::int64_t count) {
    float* p = to.data + i * to.stride + j * V::width;
    if (count == V::width) {
      (add ? V::load_accum(p) + sum : sum).store_accum(p);
    } else {
      (add ? V::load_accum(p, count) + sum : sum).store_accum(p, count);
    }
  };
  multiply_tile<V, kVectors>(tile, panel, depth, to.rows, to.columns, store);
}

/// Output rows of a tile's product.
template <class T>
struct TileOut {
  typename T::Storage* data;
  std::int64_t stride, rows, columns;
  const float* bias;     ///< or null
  const float* earlier;  ///< sums of earlier slices in whole vectors; or null
  std::int64_t earlier_stride;
};

template <class V, class T, int kVectors>
[[gnu::noinline]] void finish_tile(const TileNumbers& tile, const float* panel, std::int64_t depth,
                                   const TileOut<T>& to) {
  const auto store = [to](std::int64_t i, std::int64_t j, V sum, std::int64_t count) {
    const std::int64_t first = j * V::width;
    if (to.earlier != nullptr) {
      sum = V::load_accum(to.earlier + i * to.earlier_stride + first) + sum;
    }
    if (to.bias != nullptr) sum = sum + V::load_accum(to.bias + first);
    auto* p = to.data + i * to.stride + first;
    count == V::width ? sum.store(T{}, p) : sum.store(T{}, p, count);
  };
  multiply_tile<V, kVectors>(tile, panel, depth, to.rows, to.columns, store);
}

/// Multiplies rows by a packed factor, one block of rows and columns at a time.
template <class V, class T>
class RowsProduct {
 public:
  explicit RowsProduct(const RowsProductArgs& a)
      : a_(a),
        x_(static_cast<const typename T::Storage*>(a.x.data)),
        slices_(a.x.columns > kDenseSlice ? divided_up(a.x.columns, kDenseSlice) : 1) {}

  void run() const {
    for (std::int64_t row = 0; row < a_.x.rows; row += kDenseBlockRows) {
      for (std::int64_t first = 0; first < a_.columns; first += kDenseTileColumns) {
        multiply_block(row, first);
      }
    }
  }

 private:
  std::int64_t slice_begin(std::int64_t s) const { return a_.x.columns * s / slices_; }
  std::int64_t slice_length(std::int64_t s) const { return slice_begin(s + 1) - slice_begin(s); }
  std::int64_t rows_from(std::int64_t row) const {
    return smaller(kDenseBlockRows, a_.x.rows - row);
  }

  void multiply_block(std::int64_t row, std::int64_t first) const {
    const std::int64_t count = smaller(kDenseTileColumns, a_.columns - first);
    for (std::int64_t s = 0; s < slices_; ++s) {
      widen_slice(row, s);
      multiply_slice(row, first, count, s);
    }
  }

  /// The rows of a block that tiles read where they are: float32 in whole tiles, and so close to
  /// each other that those of a tile do not evict each other from the first cache.
  std::int64_t rows_in_place(std::int64_t row) const {
    const bool in_place = std::is_same_v<T, Float32> && a_.x.stride <= kDenseSlice;
    return in_place ? rows_from(row) / kTileRows<V> * kTileRows<V> : 0;
  }

  /// Copies the other rows and pads the last tile with rows of zeros.
  void widen_slice(std::int64_t row, std::int64_t s) const {
    const std::int64_t length = slice_length(s), rows = rows_from(row);
    for (std::int64_t r = rows_in_place(row); r < rows; ++r) {
      widen_row<V, T>(x_ + (row + r) * a_.x.stride + slice_begin(s), length, length,
                      a_.scratch + r * kDenseSlice);
    }
    for (std::int64_t r = rows; r % kTileRows<V> != 0; ++r) {
      for (std::int64_t i = 0; i < length; ++i) a_.scratch[r * kDenseSlice + i] = 0;
    }
  }

  /// The numbers of a slice from row `r` of a block on.
  TileNumbers tile_at(std::int64_t row, std::int64_t r, std::int64_t s) const {
    if constexpr (std::is_same_v<T, Float32>) {
      if (r < rows_in_place(row)) {
        return {x_ + (row + r) * a_.x.stride + slice_begin(s), a_.x.stride, 1};
      }
    }
    return {a_.scratch + r * kDenseSlice, kDenseSlice, 1};
  }

  /// What is read next: the next slice of these rows, or the first slice of the next rows. (Further
  /// blocks of columns read the same rows again, from the cache.)
  DenseRows next(std::int64_t row, std::int64_t s) const {
    const bool last = s + 1 == slices_;
    const std::int64_t next_row = last ? row + kDenseBlockRows : row, slice = last ? 0 : s + 1;
    if (next_row >= a_.x.rows) return {};
    return {x_ + next_row * a_.x.stride + slice_begin(slice), rows_from(next_row),
            slice_length(slice), a_.x.stride};
  }

  void multiply_slice(std::int64_t row, std::int64_t first, std::int64_t columns,
                      std::int64_t s) const {
    const std::int64_t depth = a_.x.columns, length = slice_length(s), rows = rows_from(row);
    const std::int64_t stride = dense_padded(columns);
    float* sums = a_.scratch + kDenseBlockRows * kDenseSlice;
    const bool last = s + 1 == slices_;
    auto* out = static_cast<typename T::Storage*>(a_.out) + row * a_.out_stride + first;
    RowFetcher<V, T> fetcher(next(row, s), rows, columns);
    const auto multiply = [&]<int kVectors>(std::int64_t c, std::int64_t count) {
      const float* panel = a_.panels + (first + c) * depth;
      const float* slice = panel + slice_begin(s) * kVectors * V::width;
      for (std::int64_t r = 0; r < rows; r += kTileRows<V>) {
        fetcher.step();
        const TileNumbers tile = tile_at(row, r, s);
        const std::int64_t tile_rows = smaller(kTileRows<V>, rows - r);
        float* sum = sums + r * stride + c;
        if (last) {
          finish_tile<V, T, kVectors>(tile, slice, length,
                                      {.data = out + r * a_.out_stride + c,
                                       .stride = a_.out_stride,
                                       .rows = tile_rows,
                                       .columns = count,
                                       .bias = a_.bias == nullptr ? nullptr : a_.bias + first + c,
                                       .earlier = s > 0 ? sum : nullptr,
                                       .earlier_stride = stride});
        } else {
          // The last slice reads whole vectors.
          add_tile<V, kVectors>(tile, slice, length, s > 0,
                                {sum, stride, tile_rows, kVectors * V::width});
        }
      }
    };
    visit_panels<V>(columns, multiply);
  }

  const RowsProductArgs& a_;
  const typename T::Storage* x_;
  std::int64_t slices_;
};

template <class V, class T>
void compute(const RowsProductArgs& a) {
  RowsProduct<V, T>(a).run();
}

/// a^T b, one block of rows and columns of `b` at a time.
template <class V, class T>
class TransposedProduct {
 public:
  explicit TransposedProduct(const TransposedProductArgs& p)
      : p_(p),
        block_rows_(even_share(p.a.rows)),
        padded_(divided_up(p.a.columns, kTileRows<V>) * kTileRows<V>),
        panels_(p.scratch + kDenseBlockOfSum * padded_) {}

  void run() const {
    if (p_.a.rows == 0 && !p_.add) clear();
    const auto* a = static_cast<const typename T::Storage*>(p_.a.data);
    for (std::int64_t row = 0; row < p_.a.rows; row += block_rows_) {
      for (std::int64_t r = 0; r < rows_from(row); ++r) {
        widen_row<V, T>(a + (row + r) * p_.a.stride, p_.a.columns, padded_,
                        p_.scratch + r * padded_);
      }
      for (std::int64_t first = 0; first < p_.b.columns; first += kDenseTileColumns) {
        multiply_block(row, first);
      }
    }
  }

 private:
  static std::int64_t even_share(std::int64_t rows) {
    return rows == 0 ? 0 : divided_up(rows, divided_up(rows, kDenseBlockOfSum));
  }
  void clear() const {
    for (std::int64_t h = 0; h < p_.a.columns; ++h) {
      for (std::int64_t c = 0; c < p_.b.columns; ++c) p_.sum[h * p_.sum_stride + c] = 0;
    }
  }
  std::int64_t rows_from(std::int64_t row) const { return smaller(block_rows_, p_.a.rows - row); }

  DenseRows block(std::int64_t row, std::int64_t first) const {
    if (row >= p_.a.rows) return {};
    return {static_cast<const typename T::Storage*>(p_.b.data) + row * p_.b.stride + first,
            rows_from(row), smaller(kDenseTileColumns, p_.b.columns - first), p_.b.stride};
  }

  void multiply_block(std::int64_t row, std::int64_t first) const {
    const DenseRows b = block(row, first);
    pack_rows<V, T>({.dtype = p_.dtype, .from = b, .to = panels_});
    const bool last = first + kDenseTileColumns >= p_.b.columns;
    const DenseRows next =
        last ? block(row + block_rows_, 0) : block(row, first + kDenseTileColumns);
    const std::int64_t heights = p_.a.columns;
    RowFetcher<V, T> fetcher(next, heights, b.columns);
    const auto multiply = [&]<int kVectors>(std::int64_t c, std::int64_t count) {
      const float* panel = panels_ + c * b.rows;
      for (std::int64_t h = 0; h < heights; h += kTileRows<V>) {
        fetcher.step();
        add_tile<V, kVectors>({p_.scratch + h, 1, padded_}, panel, b.rows, row > 0 || p_.add,
                              {p_.sum + h * p_.sum_stride + first + c, p_.sum_stride,
                               smaller(kTileRows<V>, heights - h), count});
      }
    };
    visit_panels<V>(b.columns, multiply);
  }

  const TransposedProductArgs& p_;
  std::int64_t block_rows_;  ///< equal shares of the rows
  std::int64_t padded_;
  float* panels_;
};

template <class V, class T>
void compute(const TransposedProductArgs& p) {
  TransposedProduct<V, T>(p).run();
}

}  // namespace mezzo::kernels
