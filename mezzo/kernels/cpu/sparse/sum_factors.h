#pragma once

#include <cstdint>
#include <type_traits>

#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/spmm.h"

namespace mezzo::kernels {

/// A weighted sum of operand rows, the most frequent case in training: which operand has the rows
/// and which one the weights.
template <class Accum>
struct RowSum {
  Operand x = {}, weight = {};  ///< every weight is 1 if weight.data is null
  RowPicker x_rows = {}, weight_rows = {};
  const std::int64_t *x_offset = nullptr, *weight_offset = nullptr;
  const Accum* scale = nullptr;  ///< by row of x, or null
  std::int64_t last = 0;         ///< end of the entries that may be prefetched
};

/// The weights of a block of columns: none, one per entry, or one per entry and vector.
enum class Weights : std::uint8_t { kNone, kOne, kPerVector };

template <class V, class T>
typename T::Accum weight_at(const Operand& weight, std::int64_t at) {
  if (weight.is_accum) return static_cast<const typename T::Accum*>(weight.data)[at];
  return V::load_one(T{}, static_cast<const typename T::Storage*>(weight.data) + at).first();
}

/// The factor of an entry's row, or of a vector of it: weight number `entry` times the scale of the
/// row of x. For any ids and dtype.
template <class V, class T>
struct AnyFactors {
  using Accum = typename T::Accum;
  const RowSum<Accum>& s;
  Accum at(std::int64_t row, std::int64_t entry, std::int64_t from, std::int64_t column) const {
    Accum factor = 1;
    if (s.weight.data != nullptr) {
      const std::int64_t w = s.weight_rows.at(row, entry) * s.weight.length + column;
      factor = weight_at<V, T>(s.weight, w);
    }
    return s.scale != nullptr ? factor * s.scale[from] : factor;
  }
  [[gnu::always_inline]] void prefetch(std::int64_t row, std::int64_t entry) const {
    if (s.weight.data == nullptr) return;
    const std::int64_t size = s.weight.is_accum ? sizeof(Accum) : sizeof(typename T::Storage);
    __builtin_prefetch(static_cast<const char*>(s.weight.data) +
                       s.weight_rows.at(row, entry) * s.weight.length * size);
  }
};

/// Factors that are weights of x's dtype at int32 ids, without a scale. In loops over short rows
/// the branches of AnyFactors would cost time.
template <class V, class T>
struct Int32Weights {
  const typename T::Storage* weight;
  const std::int32_t* ids;
  std::int64_t length;
  typename T::Accum at(std::int64_t /*row*/, std::int64_t entry, std::int64_t /*from*/,
                       std::int64_t column) const {
    return V::load_one(T{}, weight + ids[entry] * length + column).first();
  }
  [[gnu::always_inline]] void prefetch(std::int64_t /*row*/, std::int64_t entry) const {
    __builtin_prefetch(weight + ids[entry] * length);
  }
};

/// Factors that are weights in CSR order, without a scale. Hardware prefetches them.
template <class V, class T, class Number>
struct EntryWeights {
  const Number* weight;
  std::int64_t length;
  typename T::Accum at(std::int64_t /*row*/, std::int64_t entry, std::int64_t /*from*/,
                       std::int64_t column) const {
    const Number* p = weight + entry * length + column;
    if constexpr (std::is_same_v<Number, typename T::Accum>) {
      return *p;
    } else {
      return V::load_one(T{}, p).first();
    }
  }
  void prefetch(std::int64_t /*row*/, std::int64_t /*entry*/) const {}
};

/// Factors that are scales of the rows of x, without weights.
template <class V>
struct RowScales {
  using Accum = typename V::Scalar;
  const Accum* scale;
  Accum at(std::int64_t /*row*/, std::int64_t /*entry*/, std::int64_t from,
           std::int64_t /*column*/) const {
    return scale[from];
  }
  void prefetch(std::int64_t /*row*/, std::int64_t /*entry*/) const {}
};

}  // namespace mezzo::kernels
