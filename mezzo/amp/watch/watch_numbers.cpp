#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include "mezzo/amp/scaler/unscale.h"
#include "mezzo/amp/watch/watch.h"
#include "mezzo/runtime/sixteen_bits.h"

namespace mezzo::amp {
namespace {

/// The bits of a binary floating type. Magnitudes compare correctly as integers.
template <class Number, class Bits>
struct Format {
  static constexpr int kMantissa = std::numeric_limits<Number>::digits - 1;
  static constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  static constexpr Bits kSmallestNormal = Bits{1} << kMantissa;
  static constexpr Bits kInf = static_cast<Bits>(kMagnitude >> kMantissa) << kMantissa;
  /// A sixteenth of the largest finite number, the bit pattern below inf.
  static constexpr Bits kNearTop = static_cast<Bits>(kInf - 1 - (Bits{4} << kMantissa));
};

/// Counts of one pass; magnitudes as bits.
template <class Bits>
struct BitCounts {
  std::int64_t zeros = 0, subnormal = 0, near_top = 0, inf = 0, nan = 0;
  Bits largest = 0;
  Bits smallest_less_one = std::numeric_limits<Bits>::max();  // of nonzero elements

  void add(const BitCounts& other) {
    zeros += other.zeros;
    subnormal += other.subnormal;
    near_top += other.near_top;
    inf += other.inf;
    nan += other.nan;
    largest = std::max(largest, other.largest);
    smallest_less_one = std::min(smallest_less_one, other.smallest_less_one);
  }
};

/// The counts of a short run, with counters of the numbers' size, which vectorise best.
template <class Number, class Bits>
void count_block(const Number* numbers, std::int64_t count, BitCounts<Bits>& total) {
  using F = Format<Number, Bits>;
  Bits zeros = 0, below_normal = 0, from_near_top = 0, from_inf = 0, nan = 0;
  Bits largest = 0, smallest_less_one = std::numeric_limits<Bits>::max();
#pragma omp simd reduction(+ : zeros, below_normal, from_near_top, from_inf, nan) \
    reduction(max : largest) reduction(min : smallest_less_one)
  for (std::int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, numbers + i, sizeof(bits));
    const Bits size = bits & F::kMagnitude;
    zeros = static_cast<Bits>(zeros + (size == 0));
    below_normal = static_cast<Bits>(below_normal + (size < F::kSmallestNormal));
    from_near_top = static_cast<Bits>(from_near_top + (size >= F::kNearTop));
    from_inf = static_cast<Bits>(from_inf + (size >= F::kInf));
    nan = static_cast<Bits>(nan + (size > F::kInf));
    const Bits finite = size < F::kInf ? size : Bits{0};
    largest = largest < finite ? finite : largest;
    const auto less_one = static_cast<Bits>(size - 1);  // a zero becomes the largest
    smallest_less_one = less_one < smallest_less_one ? less_one : smallest_less_one;
  }
  total.zeros += static_cast<std::int64_t>(zeros);
  total.subnormal += static_cast<std::int64_t>(below_normal) - static_cast<std::int64_t>(zeros);
  total.near_top += static_cast<std::int64_t>(from_near_top) - static_cast<std::int64_t>(from_inf);
  total.inf += static_cast<std::int64_t>(from_inf) - static_cast<std::int64_t>(nan);
  total.nan += static_cast<std::int64_t>(nan);
  total.largest = std::max(total.largest, largest);
  total.smallest_less_one = std::min(total.smallest_less_one, smallest_less_one);
}

template <class Number, class Bits>
BitCounts<Bits> count_run(const Number* numbers, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kRun = 1 << 14;  // fits a 16-bit counter
  BitCounts<Bits> total;
  for (std::int64_t i = begin; i < end; i += kRun) {
    count_block<Number, Bits>(numbers + i, std::min(kRun, end - i), total);
  }
  return total;
}

template <class Number, class Bits>
double value_of(Bits bits) {
  Number number;
  std::memcpy(&number, &bits, sizeof(number));
  return static_cast<double>(number);
}

template <class Number, class Bits>
NumberCounts count_all(const at::Tensor& dense) {
  const auto* numbers = static_cast<const Number*>(dense.const_data_ptr());
  constexpr std::int64_t kGrain = 1 << 15;
  BitCounts<Bits> total;
  std::mutex mutex;
  at::parallel_for(0, dense.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    const BitCounts<Bits> run = count_run<Number, Bits>(numbers, begin, end);
    const std::lock_guard lock(mutex);
    total.add(run);
  });
  const bool any = total.largest != 0;
  const auto smallest = static_cast<Bits>(total.smallest_less_one + 1);
  return {.elements = dense.numel(),
          .zeros = total.zeros,
          .subnormal = total.subnormal,
          .near_top = total.near_top,
          .inf = total.inf,
          .nan = total.nan,
          .largest = any ? value_of<Number>(total.largest) : 0.0,
          .smallest_nonzero = any ? value_of<Number>(smallest) : 0.0};
}

/// Limits of a dtype: the smallest normal number, and a sixteenth of the largest.
struct MagnitudeLimits {
  double smallest_normal, near_top;
};

template <class Number>
MagnitudeLimits limits() {
  return {static_cast<double>(std::numeric_limits<Number>::min()),
          static_cast<double>(std::numeric_limits<Number>::max()) / 16};
}

MagnitudeLimits limits_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return limits<at::Half>();
    case at::kBFloat16:
      return limits<at::BFloat16>();
    case at::kFloat:
      return limits<float>();
    default:
      return limits<double>();
  }
}

/// The smaller of two magnitudes; 0 means none.
double smaller(double left, double right) {
  if (left == 0.0) return right;
  return right == 0.0 ? left : std::min(left, right);
}

}  // namespace

NumberCounts& NumberCounts::operator+=(const NumberCounts& other) {
  elements += other.elements;
  zeros += other.zeros;
  subnormal += other.subnormal;
  near_top += other.near_top;
  inf += other.inf;
  nan += other.nan;
  largest = std::max(largest, other.largest);
  smallest_nonzero = smaller(smallest_nonzero, other.smallest_nonzero);
  return *this;
}

bool has_countable_numbers(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_meta()) return false;
  const at::ScalarType dtype = tensor.scalar_type();
  const bool known_dtype = is_16_bit(dtype) || dtype == at::kFloat || dtype == at::kDouble;
  const at::Layout layout = tensor.layout();
  return known_dtype && (layout == at::kStrided || layout == at::kSparse ||
                         layout == at::kSparseCsr || layout == at::kSparseCsc);
}

NumberCounts count_numbers(const at::Tensor& tensor) {
  if (!has_countable_numbers(tensor)) return {};
  if (!tensor.is_cpu()) return count_numbers_by_operations(tensor);
  const at::NoGradGuard no_grad;
  at::Tensor dense = stored_values(tensor);
  if (!dense.is_non_overlapping_and_dense()) dense = dense.contiguous();
  switch (dense.scalar_type()) {
    case at::kHalf:
      return count_all<at::Half, std::uint16_t>(dense);
    case at::kBFloat16:
      return count_all<at::BFloat16, std::uint16_t>(dense);
    case at::kFloat:
      return count_all<float, std::uint32_t>(dense);
    default:
      return count_all<double, std::uint64_t>(dense);
  }
}

NumberCounts count_numbers_by_operations(const at::Tensor& tensor) {
  if (!has_countable_numbers(tensor)) return {};
  const at::NoGradGuard no_grad;
  const at::Tensor numbers = stored_values(tensor);
  if (numbers.numel() == 0) return {};
  const MagnitudeLimits limit = limits_of(numbers.scalar_type());
  const at::Tensor size = numbers.abs(), nan = numbers.isnan(), inf = size.isinf();
  const at::Tensor finite = at::logical_or(nan, inf).logical_not_();
  const at::Tensor nonzero = size.gt(0).logical_and_(finite);
  const auto count = [](const at::Tensor& mask) { return mask.sum().to(at::kDouble); };
  const at::Tensor statistics =
      at::stack({count(size.eq(0)), count(size.lt(limit.smallest_normal).logical_and_(nonzero)),
                 count(size.ge(limit.near_top).logical_and_(finite)), count(inf), count(nan),
                 size.masked_fill(nonzero.logical_not(), 0).amax().to(at::kDouble),
                 size.masked_fill(nonzero.logical_not(), INFINITY).amin().to(at::kDouble)})
          .cpu();
  const double* value = statistics.const_data_ptr<double>();
  const auto whole = [value](int i) { return static_cast<std::int64_t>(value[i]); };
  return {.elements = numbers.numel(),
          .zeros = whole(0),
          .subnormal = whole(1),
          .near_top = whole(2),
          .inf = whole(3),
          .nan = whole(4),
          .largest = value[5],
          .smallest_nonzero = std::isinf(value[6]) ? 0.0 : value[6]};
}

}  // namespace mezzo::amp
