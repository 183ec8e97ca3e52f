#pragma once

#include <cstdint>
#include <limits>

#include "mezzo/kernels/attention.h"
#include "mezzo/kernels/cuda/device.h"
#include "mezzo/kernels/cuda/dropout_words.h"

// Terms of the attention of one edge and head, computed by one lane.

namespace mezzo::kernels::cuda {

__device__ inline float exponential(float x) {
  return expf(x);
}
__device__ inline double exponential(double x) {
  return exp(x);
}

/// x if it is positive, else slope * x.
template <class A>
__device__ inline A leaky_relu(A x, A slope) {
  return A(0) < x ? x : x * slope;
}

template <class T>
__device__ inline typename T::Accum head_number(const HeadNumbers& from, std::int64_t row,
                                                std::int64_t head) {
  return number_at<T>(from.data, from.is_accum, from.length == 1 ? row : row * from.length + head);
}

/// Scale of elements that are not dropped.
template <class A>
A kept_factor(const DropoutLevel& dropout) {
  return static_cast<A>(kDropoutLevels / (kDropoutLevels - dropout.threshold));
}

/// `factor`, or 0 if element `number` is dropped. Requires a threshold other than 0.
template <class A>
__device__ inline A kept_or_zero(const DropoutLevel& dropout, A factor, std::int64_t number) {
  std::uint32_t words[4];
  dropout_words(dropout, number / kElementsPerDraw, words);
  const auto place = static_cast<int>(number % kElementsPerDraw);
  // Not words[place / 2]: a dynamic index would move the array to local memory.
  const std::uint32_t low = place < 2 ? words[0] : words[1];
  const std::uint32_t high = place < 6 ? words[2] : words[3];
  const std::uint32_t level = ((place < 4 ? low : high) >> (16 * (place % 2))) & 0xFFFF;
  return level >= dropout.threshold ? factor : A(0);
}

/// Factors of an edge's softmax output. The gradient of the edge's weight needs `dropout_factor`
/// alone.
template <class A>
struct ShareFactors {
  A dropout_factor, edge_weight;
};

template <class T>
__device__ inline ShareFactors<typename T::Accum> share_factors(const AttentionScores& scores,
                                                                std::int64_t edge,
                                                                std::int64_t head,
                                                                std::int64_t heads,
                                                                typename T::Accum kept_factor) {
  ShareFactors<typename T::Accum> factors = {1, 1};
  if (scores.dropout.threshold > 0) {
    factors.dropout_factor = kept_or_zero(scores.dropout, kept_factor, edge * heads + head);
  }
  if (scores.edge_weight.data != nullptr) {
    factors.edge_weight = head_number<T>(scores.edge_weight, edge, head);
  }
  return factors;
}

/// Running maximum of a softmax; sums are relative to it. The maximum ignores NaN, which shows up
/// in the sum.
template <class A>
struct RunningTop {
  A top = -std::numeric_limits<A>::infinity();

  /// Replaces the maximum by `next`; returns the factor that rescales numbers relative to the old
  /// one.
  __device__ A raise(A next) {
    const A before = top;
    top = next;
    // -inf - -inf is NaN.
    return before == next ? A(1) : exponential(before - next);
  }

  /// exp(logit - top); 0 while all logits are -inf, because a later one may be finite.
  __device__ A relative(A logit) const {
    return logit == -std::numeric_limits<A>::infinity() ? A(0) : exponential(logit - top);
  }

  /// The softmax's divisor for a complete row; NaN if all its logits were -inf, as 0/0.
  __device__ A divisor(A sum, bool empty) const {
    if (empty) return A(1);
    return top == -std::numeric_limits<A>::infinity() ? std::numeric_limits<A>::quiet_NaN() : sum;
  }
};

/// The maximum over the lanes of a group, at least `least`. Ignores NaN.
template <class A>
__device__ inline A largest_number(A x, A least, int width) {
  A largest = least < x ? x : least;
  for (int step = width / 2; step > 0; step /= 2) {
    const A other = __shfl_xor_sync(kAllLanes, largest, step);
    largest = largest < other ? other : largest;
  }
  return largest;
}

}  // namespace mezzo::kernels::cuda
