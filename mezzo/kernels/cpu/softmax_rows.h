#pragma once

#include <cstdint>

#include "mezzo/kernels/cpu/access.h"
#include "mezzo/kernels/edge_softmax.h"

namespace mezzo {

template <class V, class T>
V load_at(const void* data, std::int64_t at, std::int64_t count) {
  const auto* p = static_cast<const typename T::Storage*>(data) + at;
  return count >= V::width ? V::load(T{}, p) : V::load(T{}, p, count);
}

/// The exponentials are computed twice rather than kept: a row may have any number of slots, and
/// the result in a 16-bit type cannot hold them unrounded.
template <class V, class T>
void softmax_rows(const SoftmaxArgs& a) {
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
    const SlotRange range = slots_of(a.slots, row);
    if (range.begin == range.end) continue;
    for (std::int64_t f = 0; f < a.length; f += V::width) {
      const std::int64_t left = a.length - f;
      const auto at = [&](std::int64_t slot) { return id_at(a.slots.second, slot) * a.length + f; };
      V top = load_at<V, T>(a.logits, at(range.begin), left);
      for (std::int64_t slot = range.begin + 1; slot < range.end; ++slot) {
        const V x = load_at<V, T>(a.logits, at(slot), left);
        top = select(top < x, x, top);
      }
      V sum = V::zero();
      for (std::int64_t slot = range.begin; slot < range.end; ++slot) {
        sum = sum + V::exp(load_at<V, T>(a.logits, at(slot), left) - top);
      }
      for (std::int64_t slot = range.begin; slot < range.end; ++slot) {
        const V x = load_at<V, T>(a.logits, at(slot), left);
        store_result<V, T>(V::exp(x - top) / sum, a.out, false, at(slot), left);
      }
    }
  }
}

template <class V, class T>
void softmax_grad_rows(const SoftmaxGradArgs& a) {
  for (std::int64_t row = a.row_begin; row < a.row_end; ++row) {
    const SlotRange range = slots_of(a.slots, row);
    for (std::int64_t f = 0; f < a.length; f += V::width) {
      const std::int64_t left = a.length - f;
      const auto at = [&](std::int64_t slot) { return id_at(a.slots.second, slot) * a.length + f; };
      V sum = V::zero();
      for (std::int64_t slot = range.begin; slot < range.end; ++slot) {
        sum = V::fma(load_at<V, T>(a.value, at(slot), left), load_at<V, T>(a.grad, at(slot), left),
                     sum);
      }
      for (std::int64_t slot = range.begin; slot < range.end; ++slot) {
        const V y = load_at<V, T>(a.value, at(slot), left);
        const V dy = load_at<V, T>(a.grad, at(slot), left);
        store_result<V, T>(y * (dy - sum), a.out, false, at(slot), left);
      }
    }
  }
}

}  // namespace mezzo
