#pragma once

#include <cstdint>

#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/edge_mlp.h"

// The loops of edge_mlp.h.

namespace mezzo::kernels {

/// Calls step(i, count) for each vector of a row: its first element, and how many it has.
template <class V, class Step>
[[gnu::always_inline]] inline void for_vectors(std::int64_t length, const Step& step) {
  std::int64_t i = 0;
  for (; length - i >= V::width; i += V::width) step(i, V::width);
  if (i < length) step(i, length - i);
}

template <class V, class T>
[[gnu::always_inline]] inline V load_some(const typename T::Storage* p, std::int64_t count) {
  return count == V::width ? V::load(T{}, p) : V::load(T{}, p, count);
}
template <class V>
[[gnu::always_inline]] inline V load_some_accum(const typename V::Scalar* p, std::int64_t count) {
  return count == V::width ? V::load_accum(p) : V::load_accum(p, count);
}
template <class V, class T>
[[gnu::always_inline]] inline void store_some(V v, typename T::Storage* p, std::int64_t count) {
  count == V::width ? v.store(T{}, p) : v.store(T{}, p, count);
}
template <class V>
[[gnu::always_inline]] inline void add_some(V v, typename V::Scalar* p, std::int64_t count) {
  const V sum = load_some_accum<V>(p, count) + v;
  count == V::width ? sum.store_accum(p) : sum.store_accum(p, count);
}

/// The picked rows of a block; prefetches rows of later edges.
template <class T>
class RowReader {
 public:
  RowReader(const PickedRows& picked, std::int64_t count, std::int64_t length)
      : rows_(static_cast<const typename T::Storage*>(picked.rows)),
        picker_(picked.ids.data == nullptr ? RowPicker{} : row_picker(picked.ids)),
        count_(count),
        length_(length),
        ahead_(picker_.are_entries() || rows_ == nullptr
                   ? count
                   : prefetch_distance(length * static_cast<std::int64_t>(sizeof(*rows_)))) {}

  bool is_zero() const { return rows_ == nullptr; }
  [[gnu::always_inline]] const typename T::Storage* at(std::int64_t i) const {
    if (i + ahead_ < count_) {
      prefetch(rows_ + picker_.at(0, i + ahead_) * length_,
               length_ * static_cast<std::int64_t>(sizeof(*rows_)));
    }
    return rows_ + picker_.at(0, i) * length_;
  }

 private:
  const typename T::Storage* rows_;
  RowPicker picker_;
  std::int64_t count_, length_, ahead_;
};

template <class V, class T>
void compute(const AddRowsArgs& a) {
  using Storage = typename T::Storage;
  const RowReader<T> first(a.terms[0], a.count, a.length), second(a.terms[1], a.count, a.length),
      third(a.terms[2], a.count, a.length);
  for (std::int64_t r = 0; r < a.count; ++r) {
    const Storage* x = first.is_zero() ? nullptr : first.at(r);
    const Storage* y = second.is_zero() ? nullptr : second.at(r);
    const Storage* z = third.is_zero() ? nullptr : third.at(r);
    auto* out = static_cast<Storage*>(a.out) + r * a.length;
    for_vectors<V>(a.length, [&](std::int64_t i, std::int64_t count) {
      V sum = x == nullptr ? V::zero() : load_some<V, T>(x + i, count);
      if (y != nullptr) sum = sum + load_some<V, T>(y + i, count);
      if (z != nullptr) sum = sum + load_some<V, T>(z + i, count);
      if (a.relu) sum = select(sum < V::zero(), V::zero(), sum);
      store_some<V, T>(sum, out + i, count);
    });
  }
}

template <class V, class T>
void compute(const ReluGradArgs& a) {
  using Storage = typename T::Storage;
  auto* sums = static_cast<typename T::Accum*>(a.sums);
  for (std::int64_t r = 0; r < a.count; ++r) {
    const auto* x = static_cast<const Storage*>(a.x) + r * a.length;
    const auto* upstream = static_cast<const Storage*>(a.grad) + r * a.length;
    auto* out = static_cast<Storage*>(a.out) + r * a.length;
    for_vectors<V>(a.length, [&](std::int64_t i, std::int64_t count) {
      const V result = load_some<V, T>(x + i, count);
      const auto passes = (V::zero() < result) | is_nan(result);
      const V grad = select(passes, load_some<V, T>(upstream + i, count), V::zero());
      store_some<V, T>(grad, out + i, count);
      if (sums != nullptr) add_some<V>(grad, sums + i, count);
    });
  }
}

/// A row's mean and 1 / sqrt(variance + eps).
template <class V>
struct Normal {
  V mean, scale;
};

template <class V, class T>
[[gnu::always_inline]] inline Normal<V> normal_of(const typename T::Storage* x, std::int64_t length,
                                                  double eps) {
  using Accum = typename T::Accum;
  V sum = V::zero(), squares = V::zero();
  for_vectors<V>(length, [&](std::int64_t i, std::int64_t count) {
    sum = sum + load_some<V, T>(x + i, count);
  });
  const V mean = V::set(sum.sum() / static_cast<Accum>(length));
  for_vectors<V>(length, [&](std::int64_t i, std::int64_t count) {
    const V centred = load_some<V, T>(x + i, count) - mean;
    const V part = count == V::width ? centred : V::keep(centred, count);
    squares = V::fma(part, part, squares);
  });
  const double variance = static_cast<double>(squares.sum()) / static_cast<double>(length);
  return {mean, V::set(static_cast<Accum>(1 / __builtin_sqrt(variance + eps)))};
}

template <class V, class T>
void compute(const NormalizeRowsArgs& a) {
  using Storage = typename T::Storage;
  const auto* weight = static_cast<const typename T::Accum*>(a.weight);
  const auto* bias = static_cast<const typename T::Accum*>(a.bias);
  for (std::int64_t r = 0; r < a.count; ++r) {
    const auto* x = static_cast<const Storage*>(a.x) + r * a.length;
    const auto* residual = static_cast<const Storage*>(a.residual) + r * a.length;
    auto* out = static_cast<Storage*>(a.out) + r * a.length;
    const Normal<V> normal = normal_of<V, T>(x, a.length, a.eps);
    for_vectors<V>(a.length, [&](std::int64_t i, std::int64_t count) {
      const V unit = (load_some<V, T>(x + i, count) - normal.mean) * normal.scale;
      const V result =
          V::fma(unit, load_some_accum<V>(weight + i, count), load_some_accum<V>(bias + i, count));
      store_some<V, T>(load_some<V, T>(residual + i, count) + result, out + i, count);
    });
  }
}

template <class V, class T>
void compute(const NormalizeRowsGradArgs& a) {
  using Storage = typename T::Storage;
  using Accum = typename T::Accum;
  const auto* weight = static_cast<const Accum*>(a.weight);
  auto* sums = static_cast<Accum*>(a.sums);
  const RowReader<T> first(a.grads[0], a.count, a.length), second(a.grads[1], a.count, a.length);
  for (std::int64_t r = 0; r < a.count; ++r) {
    const auto* x = static_cast<const Storage*>(a.x) + r * a.length;
    auto* x_grad = static_cast<Storage*>(a.x_grad) + r * a.length;
    const Storage* own = first.is_zero() ? nullptr : first.at(r);
    const Storage* shared = second.is_zero() ? nullptr : second.at(r);
    const Normal<V> normal = normal_of<V, T>(x, a.length, a.eps);
    const auto unit_at = [&](std::int64_t i, std::int64_t count) {
      return (load_some<V, T>(x + i, count) - normal.mean) * normal.scale;
    };
    const auto grad_at = [&](std::int64_t i, std::int64_t count) {
      const V grad = own == nullptr ? V::zero() : load_some<V, T>(own + i, count);
      return shared == nullptr ? grad : grad + load_some<V, T>(shared + i, count);
    };
    V sum = V::zero(), products = V::zero();  // of the gradient of the unit row, also times it
    for_vectors<V>(a.length, [&](std::int64_t i, std::int64_t count) {
      const V unit = unit_at(i, count), grad = grad_at(i, count);
      const V unit_grad = grad * load_some_accum<V>(weight + i, count);
      sum = sum + unit_grad;
      products = V::fma(unit_grad, unit, products);
      add_some<V>(grad * unit, sums + i, count);
      add_some<V>(grad, sums + a.length + i, count);
    });
    const V mean = V::set(sum.sum() / static_cast<Accum>(a.length));
    const V slope = V::set(products.sum() / static_cast<Accum>(a.length));
    for_vectors<V>(a.length, [&](std::int64_t i, std::int64_t count) {
      const V unit_grad = grad_at(i, count) * load_some_accum<V>(weight + i, count);
      const V grad = (unit_grad - mean - slope * unit_at(i, count)) * normal.scale;
      store_some<V, T>(grad, x_grad + i, count);
      add_some<V>(grad, sums + 2 * a.length + i, count);
    });
  }
}

template <class V, class T, class Id>
void scatter_rows(const ScatterRowsArgs& a, const Id* ids) {
  using Accum = typename T::Accum;
  constexpr std::int64_t kBatch = 256;
  const std::int64_t ahead = prefetch_distance(a.length * static_cast<std::int64_t>(sizeof(Accum)));
  const auto* rows = static_cast<const typename T::Storage*>(a.rows);
  auto* sums = static_cast<Accum*>(a.sums);
  const auto share = static_cast<std::uint32_t>(a.share),
             shares = static_cast<std::uint32_t>(a.shares);
  std::int64_t own[kBatch];
  for (std::int64_t begin = 0; begin < a.count; begin += kBatch) {
    const std::int64_t end = begin + kBatch < a.count ? begin + kBatch : a.count;
    std::int64_t count = 0;
    for (std::int64_t r = begin; r < end; ++r) {
      own[count] = r;
      count += static_cast<std::uint32_t>(ids[r]) % shares == share ? 1 : 0;
    }
    for (std::int64_t n = 0; n < count; ++n) {
      if (n + ahead < count) {
        prefetch(sums + ids[own[n + ahead]] * a.length,
                 a.length * static_cast<std::int64_t>(sizeof(Accum)));
      }
      const auto* row = rows + own[n] * a.length;
      Accum* sum = sums + ids[own[n]] * a.length;
      for_vectors<V>(a.length, [&](std::int64_t i, std::int64_t left) {
        add_some<V>(load_some<V, T>(row + i, left), sum + i, left);
      });
    }
  }
}

template <class V, class T>
void compute(const ScatterRowsArgs& a) {
  with_ids(a.ids, [&](const auto* ids) { scatter_rows<V, T>(a, ids); });
}

}  // namespace mezzo::kernels
