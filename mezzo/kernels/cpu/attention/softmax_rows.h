#pragma once

#include <cstdint>

#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/edge_softmax.h"

namespace mezzo::kernels {

/// The elements of a row, gathered from their edges into an array [entries, length] of the
/// accumulator type, so that whole vectors are computed for any length. Sums over entries are
/// folded to one number per element at the end. A pattern has element i % length at index i.
template <class V, class T>
class GatheredRow {
 public:
  using Accum = typename T::Accum;
  /// Each element of a vector sums at most kEntriesApart numbers.
  static constexpr std::int64_t kCapacity = kEntriesApart * V::width;

  /// Whether this class can compute the row: a pattern must fill whole vectors.
  static bool fits(EntryRange range, std::int64_t length) {
    return V::width % length == 0 && (range.end - range.begin) * length <= kCapacity;
  }

  GatheredRow(const Entries& entries, EntryRange range, std::int64_t length)
      : edges_(row_picker(Access::kSecond, entries)), range_(range), length_(length) {
    count_ = (range.end - range.begin) * length;
    vectors_ = (count_ + V::width - 1) / V::width;
  }

  /// Gathers the elements; pads the last vector with copies of the first entry.
  void gather(const void* data, Accum* to, std::int64_t look_until) const {
    const auto* from = static_cast<const typename T::Storage*>(data);
    constexpr std::int64_t kAhead = 32;
    for (std::int64_t entry = range_.begin; entry < range_.end; ++entry) {
      if (entry + kAhead < look_until) {
        __builtin_prefetch(from + edges_.at(0, entry + kAhead) * length_);
      }
      const auto* p = from + edges_.at(0, entry) * length_;
      Accum* place = to + (entry - range_.begin) * length_;
      if (length_ == 1) {
        *place = V::load_one(T{}, p).first();
      } else {
        V::load(T{}, p, length_).store_accum(place, length_);
      }
    }
    for (std::int64_t i = count_; i < vectors_ * V::width; ++i) to[i] = to[i % length_];
  }

  void scatter(const Accum* from, const Ids& ids, void* data) const {
    auto* to = static_cast<typename T::Storage*>(data);
    if (ids.data == nullptr) {
      for (std::int64_t i = 0; i < count_; i += V::width) {
        store_result<V, T>(V::load_accum(from + i), to, false, range_.begin * length_ + i,
                           count_ - i);
      }
      return;
    }
    for (std::int64_t entry = range_.begin; entry < range_.end; ++entry) {
      const Accum* place = from + (entry - range_.begin) * length_;
      V::load_accum(place, length_).store(T{}, to + id_at(ids, entry) * length_, length_);
    }
  }

  std::int64_t vectors() const { return vectors_; }

  /// Sets the padding of the last vector to 0.
  void clear_tail(Accum* values) const {
    for (std::int64_t i = count_; i < vectors_ * V::width; ++i) values[i] = 0;
  }

  /// Folds a vector to one number per element of the row, and repeats these as a pattern.
  template <class Join>
  V pattern(V lanes, Join join) const {
    alignas(64) Accum values[V::width];
    lanes.store_accum(values);
    for (std::int64_t width = V::width / 2; width >= length_; width /= 2) {
      for (std::int64_t i = 0; i < width; ++i) values[i] = join(values[i], values[i + width]);
    }
    for (std::int64_t i = length_; i < V::width; ++i) values[i] = values[i - length_];
    return V::load_accum(values);
  }

 private:
  RowPicker edges_;
  EntryRange range_;
  std::int64_t length_, count_, vectors_;
};

template <class V, class T>
void softmax_gathered(const SoftmaxArgs& a, const GatheredRow<V, T>& row, std::int64_t last) {
  using Accum = typename T::Accum;
  alignas(64) Accum values[GatheredRow<V, T>::kCapacity];
  row.gather(a.logits, values, last);
  V top = V::load_accum(values);
  for (std::int64_t i = 1; i < row.vectors(); ++i) {
    const V x = V::load_accum(values + i * V::width);
    top = select(top < x, x, top);
  }
  top = row.pattern(top, [](Accum x, Accum y) { return x < y ? y : x; });
  for (std::int64_t i = 0; i < row.vectors(); ++i) {
    V::exp(V::load_accum(values + i * V::width) - top).store_accum(values + i * V::width);
  }
  row.clear_tail(values);
  V sum = V::zero();
  for (std::int64_t i = 0; i < row.vectors(); ++i) {
    sum = sum + V::load_accum(values + i * V::width);
  }
  sum = row.pattern(sum, [](Accum x, Accum y) { return x + y; });
  for (std::int64_t i = 0; i < row.vectors(); ++i) {
    (V::load_accum(values + i * V::width) / sum).store_accum(values + i * V::width);
  }
  row.scatter(values, a.out_ids, a.out);
}

template <class V, class T>
V load_at(const void* data, std::int64_t at, std::int64_t count) {
  const auto* p = static_cast<const typename T::Storage*>(data) + at;
  return count >= V::width ? V::load(T{}, p) : V::load(T{}, p, count);
}

/// The sum over entries by part = add(part, entry), block by block: one float32 sum of a million
/// numbers of similar size is 1 % off.
template <class V, class Add>
V sum_of_blocks(EntryRange range, Add add) {
  constexpr std::int64_t kBlock = 1024;
  V sum = V::zero();
  for (std::int64_t begin = range.begin; begin < range.end; begin += kBlock) {
    const std::int64_t end = range.end - begin < kBlock ? range.end : begin + kBlock;
    V part = V::zero();
    for (std::int64_t entry = begin; entry < end; ++entry) part = add(part, entry);
    sum = sum + part;
  }
  return sum;
}

/// A row of any number of entries and any length, without a copy: computes the exponentials twice.
template <class V, class T>
void softmax_in_place(const SoftmaxArgs& a, EntryRange range) {
  for (std::int64_t f = 0; f < a.length; f += V::width) {
    const std::int64_t left = a.length - f;
    const auto at = [&](std::int64_t entry) {
      return id_at(a.entries.second, entry) * a.length + f;
    };
    V top = load_at<V, T>(a.logits, at(range.begin), left);
    for (std::int64_t entry = range.begin + 1; entry < range.end; ++entry) {
      const V x = load_at<V, T>(a.logits, at(entry), left);
      top = select(top < x, x, top);
    }
    const V sum = sum_of_blocks<V>(range, [&](V part, std::int64_t entry) {
      return part + V::exp(load_at<V, T>(a.logits, at(entry), left) - top);
    });
    for (std::int64_t entry = range.begin; entry < range.end; ++entry) {
      const V x = load_at<V, T>(a.logits, at(entry), left);
      const std::int64_t to = id_at(a.out_ids, entry) * a.length + f;
      store_result<V, T>(V::exp(x - top) / sum, a.out, false, to, left);
    }
  }
}

template <class V, class T>
void compute(const SoftmaxArgs& a) {
  const std::int64_t last = last_entry(a.entries, a.row_end);
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
    const EntryRange range = entries_of(a.entries, row);
    if (range.begin == range.end || a.length == 0) continue;
    if (GatheredRow<V, T>::fits(range, a.length)) {
      softmax_gathered<V, T>(a, GatheredRow<V, T>(a.entries, range, a.length), last);
    } else {
      softmax_in_place<V, T>(a, range);
    }
  }
}

template <class V, class T>
void softmax_grad_gathered(const SoftmaxGradArgs& a, const GatheredRow<V, T>& row,
                           std::int64_t last) {
  using Accum = typename T::Accum;
  alignas(64) Accum values[GatheredRow<V, T>::kCapacity], grads[GatheredRow<V, T>::kCapacity];
  row.gather(a.value, values, last);
  row.gather(a.grad, grads, last);
  row.clear_tail(values);
  row.clear_tail(grads);
  V sum = V::zero();
  for (std::int64_t i = 0; i < row.vectors(); ++i) {
    sum = V::fma(V::load_accum(values + i * V::width), V::load_accum(grads + i * V::width), sum);
  }
  sum = row.pattern(sum, [](Accum x, Accum y) { return x + y; });
  for (std::int64_t i = 0; i < row.vectors(); ++i) {
    const V y = V::load_accum(values + i * V::width), dy = V::load_accum(grads + i * V::width);
    (y * (dy - sum)).store_accum(values + i * V::width);
  }
  row.scatter(values, a.out_ids, a.out);
}

template <class V, class T>
void softmax_grad_in_place(const SoftmaxGradArgs& a, EntryRange range) {
  for (std::int64_t f = 0; f < a.length; f += V::width) {
    const std::int64_t left = a.length - f;
    const auto at = [&](std::int64_t entry) {
      return id_at(a.entries.second, entry) * a.length + f;
    };
    const V sum = sum_of_blocks<V>(range, [&](V part, std::int64_t entry) {
      return V::fma(load_at<V, T>(a.value, at(entry), left), load_at<V, T>(a.grad, at(entry), left),
                    part);
    });
    for (std::int64_t entry = range.begin; entry < range.end; ++entry) {
      const V y = load_at<V, T>(a.value, at(entry), left);
      const V dy = load_at<V, T>(a.grad, at(entry), left);
      const std::int64_t to = id_at(a.out_ids, entry) * a.length + f;
      store_result<V, T>(y * (dy - sum), a.out, false, to, left);
    }
  }
}

template <class V, class T>
void compute(const SoftmaxGradArgs& a) {
  const std::int64_t last = last_entry(a.entries, a.row_end);
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
    const EntryRange range = entries_of(a.entries, row);
    if (range.begin == range.end || a.length == 0) continue;
    if (GatheredRow<V, T>::fits(range, a.length)) {
      softmax_grad_gathered<V, T>(a, GatheredRow<V, T>(a.entries, range, a.length), last);
    } else {
      softmax_grad_in_place<V, T>(a, range);
    }
  }
}

}  // namespace mezzo::kernels
