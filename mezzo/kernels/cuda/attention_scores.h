#pragma once

#include <cstdint>
#include <limits>

#include "mezzo/kernels/attention.h"
#include "mezzo/kernels/cuda/device.h"
#include "mezzo/kernels/cuda/dropout_words.h"

// What the attention of an edge and a head is made of, for the lane that stands for both.

namespace mezzo::kernels::cuda {

__device__ inline float exponential(float x) {
  return expf(x);
}
__device__ inline double exponential(double x) {
  return exp(x);
}

/// x where it is positive, else slope * x.
template <class A>
__device__ inline A leaky_relu(A x, A slope) {
  return A(0) < x ? x : x * slope;
}

template <class T>
__device__ inline typename T::Accum head_number(const HeadNumbers& from, std::int64_t row,
                                                std::int64_t head) {
  return number_at<T>(from.data, from.wide, from.length == 1 ? row : row * from.length + head);
}

/// What an element that is not dropped is multiplied by.
template <class A>
A kept_factor(const DropoutLevel& dropout) {
  return static_cast<A>(kDropoutLevels / (kDropoutLevels - dropout.threshold));
}

/// `factor`, or 0 where element `number` is dropped. The threshold is not 0.
template <class A>
__device__ inline A kept_or_zero(const DropoutLevel& dropout, A factor, std::int64_t number) {
  std::uint32_t words[4];
  dropout_words(dropout, number / kElementsPerDraw, words);
  const auto place = static_cast<int>(number % kElementsPerDraw);
  // Not words[place / 2]: an index that is known only on the way would put them into memory.
  const std::uint32_t low = place < 2 ? words[0] : words[1];
  const std::uint32_t high = place < 6 ? words[2] : words[3];
  const std::uint32_t level = ((place < 4 ? low : high) >> (16 * (place % 2))) & 0xFFFF;
  return level >= dropout.threshold ? factor : A(0);
}

/// What multiplies an edge's share. `kept` alone, without the edge's weight, is what the gradient
/// of that weight needs.
template <class A>
struct ShareFactors {
  A kept, edge_weight;
};

template <class T>
__device__ inline ShareFactors<typename T::Accum> share_factors(const AttentionScores& scores,
                                                                std::int64_t edge,
                                                                std::int64_t head,
                                                                std::int64_t heads,
                                                                typename T::Accum kept_factor) {
  ShareFactors<typename T::Accum> factors = {1, 1};
  if (scores.dropout.threshold > 0) {
    factors.kept = kept_or_zero(scores.dropout, kept_factor, edge * heads + head);
  }
  if (scores.edge_weight.data != nullptr) {
    factors.edge_weight = head_number<T>(scores.edge_weight, edge, head);
  }
  return factors;
}

/// A softmax's running maximum and the sum relative to it. A NaN does not count for the maximum;
/// it shows in the sum.
template <class A>
struct RunningTop {
  A top = -std::numeric_limits<A>::infinity();

  /// What numbers relative to the old maximum are multiplied by where `next` takes its place.
  __device__ A raise(A next) {
    const A before = top;
    top = next;
    // -inf - -inf is NaN.
    return before == next ? A(1) : exponential(before - next);
  }

  /// exp(logit - top). While all logits are -inf it is 0: some later one may not be.
  __device__ A relative(A logit) const {
    return logit == -std::numeric_limits<A>::infinity() ? A(0) : exponential(logit - top);
  }

  /// The softmax's divisor where all of a row is added up; NaN if all its logits were -inf, as 0/0.
  __device__ A divisor(A sum, bool empty) const {
    if (empty) return A(1);
    return top == -std::numeric_limits<A>::infinity() ? std::numeric_limits<A>::quiet_NaN() : sum;
  }
};

/// The largest number of the group's lanes, at least `least`. NaNs do not count.
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
