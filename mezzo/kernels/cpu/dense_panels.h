#pragma once

#include <cstdint>

#include "mezzo/core/dtype.h"
#include "mezzo/kernels/dense.h"

// Converts factors to float32 panels of columns for dense_rows.h.

namespace mezzo::kernels {

/// Vectors of a panel's columns. For vectors of width 1 the compiler combines several.
template <class V>
inline constexpr int kPanelVectors = V::width == 1 ? 8 : 2;

[[maybe_unused]] static constexpr std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
[[maybe_unused]] static constexpr std::int64_t divided_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// Calls visit.operator()<kVectors>(column, count) for each panel of a factor. The last panel has
/// one vector if its columns fit. The panel of column c begins at number c * depth of the panels.
template <class V, class Visit>
[[gnu::always_inline]] inline void visit_panels(std::int64_t columns, const Visit& visit) {
  constexpr std::int64_t kWidth = kPanelVectors<V> * V::width;
  for (std::int64_t c = 0; c < columns; c += kWidth) {
    const std::int64_t left = columns - c;
    if (left <= V::width) {
      visit.template operator()<1>(c, left);
    } else {
      visit.template operator()<kPanelVectors<V>>(c, smaller(left, kWidth));
    }
  }
}

/// Converts `count` numbers of `from` and pads with zeros up to `padded`.
template <class V, class T>
void widen_row(const typename T::Storage* from, std::int64_t count, std::int64_t padded,
               float* to) {
  std::int64_t i = 0;
  for (; count - i >= V::width; i += V::width) V::load(T{}, from + i).store_accum(to + i);
  if (i < count) {
    V::load(T{}, from + i, count - i).store_accum(to + i, count - i);
    i = count;
  }
  for (; i < padded; ++i) to[i] = 0;
}

/// The panels of a factor with contiguous rows.
template <class V, class T>
void pack_rows(const PackArgs& a) {
  const auto* from = static_cast<const typename T::Storage*>(a.from.data);
  for (std::int64_t k = 0; k < a.from.rows; ++k) {
    const auto pack = [&]<int kVectors>(std::int64_t c, std::int64_t count) {
      constexpr std::int64_t kWidth = kVectors * V::width;
      widen_row<V, T>(from + k * a.from.stride + c, count, kWidth,
                      a.to + c * a.from.rows + k * kWidth);
    };
    visit_panels<V>(a.from.columns, pack);
  }
}

/// The panels of a factor with contiguous columns: transposes square tiles.
template <class V, class T>
void pack_columns(const PackArgs& a) {
  const std::int64_t depth = a.from.columns, stride = a.from.stride;
  const auto* from = static_cast<const typename T::Storage*>(a.from.data);
  const auto pack = [&]<int kVectors>(std::int64_t c, std::int64_t count) {
    constexpr std::int64_t kWidth = kVectors * V::width;
    for (std::int64_t first = 0; first < kWidth; first += V::width) {
      const std::int64_t columns = smaller(V::width, count - first);
      for (std::int64_t k = 0; k < depth; k += V::width) {
        const std::int64_t rows = smaller(V::width, depth - k);
        const auto* corner = from + (c + first) * stride + k;
        float* to = a.to + c * depth + k * kWidth + first;
        V square[V::width];
        if (columns == V::width && rows == V::width) {
#pragma GCC unroll 16
          for (int i = 0; i < V::width; ++i) square[i] = V::load(T{}, corner + i * stride);
          V::transpose(square);
#pragma GCC unroll 16
          for (int i = 0; i < V::width; ++i) square[i].store_accum(to + i * kWidth);
        } else {
          for (std::int64_t i = 0; i < V::width; ++i) {
            square[i] = i < columns ? V::load(T{}, corner + i * stride, rows) : V::zero();
          }
          V::transpose(square);
          for (std::int64_t i = 0; i < rows; ++i) square[i].store_accum(to + i * kWidth);
        }
      }
    }
  };
  visit_panels<V>(a.from.rows, pack);
}

template <class V, class T>
void compute(const PackArgs& a) {
  a.transposed ? pack_columns<V, T>(a) : pack_rows<V, T>(a);
}

}  // namespace mezzo::kernels
