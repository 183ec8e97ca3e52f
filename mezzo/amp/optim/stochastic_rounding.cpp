#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include "mezzo/amp/capture_region.h"
#include "mezzo/amp/optim/mixed_precision_optimizer.h"
#include "mezzo/core/error.h"
#include "mezzo/core/random.h"

namespace mezzo::amp {
namespace {

/// Elements per Philox counter (128 bits).
constexpr std::int64_t kBlock = 8;

constexpr std::int64_t kLow16 = 0xFFFF;
constexpr std::int64_t kLow32 = 0xFFFFFFFF;

/// Packs step and parameter into one 64-bit stream number.
std::uint64_t stream_of(const RoundingKey& key) {
  return (key.step << 24) | key.parameter;
}

std::int64_t num_blocks(std::int64_t num_elements) {
  return (num_elements + kBlock - 1) / kBlock;
}

void check(const at::Tensor& values, const at::Tensor& rounded, const RoundingKey& key) {
  MEZZO_CHECK(values.defined() && rounded.defined(),
              "round_stochastically: expected two tensors, got an undefined one");
  MEZZO_CHECK(values.scalar_type() == at::kFloat && rounded.scalar_type() == at::kBFloat16,
              "round_stochastically: expected float32 values and a bfloat16 result, got {} and {}",
              c10::toString(values.scalar_type()), c10::toString(rounded.scalar_type()));
  MEZZO_CHECK(
      values.sizes() == rounded.sizes() && values.device() == rounded.device(),
      "round_stochastically: expected a result of the values' shape and device, {} on {}, got "
      "{} on {}",
      c10::str(values.sizes()), values.device().str(), c10::str(rounded.sizes()),
      rounded.device().str());
  MEZZO_CHECK(key.step < (std::uint64_t{1} << 40) && key.parameter < (std::uint64_t{1} << 24),
              "round_stochastically: expected step < 2^40 and parameter < 2^24, got {} and {}",
              key.step, key.parameter);
  MEZZO_CHECK(!detail::is_capturing(),
              "round_stochastically: not possible in a captured step, because the random numbers "
              "depend on the host's step count; use ParameterRounding::kMasterWeights");
}

/// Adding 16 random bits to the discarded bits carries with exactly the required probability.
std::uint16_t round_one(float value, std::uint32_t random) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x0040);
  return static_cast<std::uint16_t>((bits + random) >> 16);
}

void round_blocks(const float* values, at::BFloat16* rounded, std::int64_t num_elements,
                  std::uint64_t seed, std::uint64_t stream, std::int64_t begin, std::int64_t end) {
  for (std::int64_t block = begin; block < end; ++block) {
    const auto words = philox(seed, stream, static_cast<std::uint64_t>(block));
    const std::int64_t first = block * kBlock;
    const std::int64_t count = std::min(kBlock, num_elements - first);
    for (std::int64_t index = 0; index < count; ++index) {
      const std::uint32_t word = words[static_cast<std::size_t>(index / 2)];
      const std::uint32_t random = index % 2 == 0 ? word & 0xFFFF : word >> 16;
      rounded[first + index].x = round_one(values[first + index], random);
    }
  }
}

void round_on_cpu(const at::Tensor& values, const at::Tensor& rounded, const RoundingKey& key) {
  const auto* from = values.const_data_ptr<float>();
  auto* to = rounded.mutable_data_ptr<at::BFloat16>();
  const std::int64_t count = values.numel();
  at::parallel_for(0, num_blocks(count), 1024, [&](std::int64_t begin, std::int64_t end) {
    round_blocks(from, to, count, key.seed, stream_of(key), begin, end);
  });
}

/// The halves of 64-bit products of numbers below 2^32 with a constant, in int64 arithmetic without
/// overflow.
struct Product {
  at::Tensor high, low;
};

Product multiply(const at::Tensor& numbers, std::int64_t factor) {
  const at::Tensor upper = numbers.bitwise_right_shift(16).mul_(factor);
  const at::Tensor lower = numbers.bitwise_and(kLow16).mul_(factor);
  at::Tensor high = lower.bitwise_right_shift(16).add_(upper).bitwise_right_shift_(16);
  at::Tensor low = upper.bitwise_and(kLow16).mul_(0x10000).add_(lower).bitwise_and_(kLow32);
  return {std::move(high), std::move(low)};
}

/// mezzo::philox of counters 0, 1, ...: int64 [blocks, 4], values below 2^32.
at::Tensor philox_words(std::uint64_t seed, std::uint64_t stream, std::int64_t blocks,
                        at::Device device) {
  const at::Tensor counter = at::arange(blocks, at::TensorOptions(device).dtype(at::kLong));
  const auto constant = [&](std::uint64_t value) {
    return at::full_like(counter, static_cast<std::int64_t>(value & 0xFFFFFFFF));
  };
  std::array<at::Tensor, 4> c = {counter.bitwise_and(kLow32), counter.bitwise_right_shift(32),
                                 constant(stream), constant(stream >> 32)};
  auto k0 = static_cast<std::uint32_t>(seed);
  auto k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const Product p0 = multiply(c[0], 0xD2511F53);
    const Product p1 = multiply(c[2], 0xCD9E8D57);
    c = {p1.high.bitwise_xor(c[1]).bitwise_xor_(static_cast<std::int64_t>(k0)), p1.low,
         p0.high.bitwise_xor(c[3]).bitwise_xor_(static_cast<std::int64_t>(k1)), p0.low};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return at::stack({c[0], c[1], c[2], c[3]}, 1);
}

}  // namespace

void round_stochastically_by_operations(const at::Tensor& values, const at::Tensor& rounded,
                                        const RoundingKey& key) {
  check(values, rounded, key);
  const at::NoGradGuard no_grad;
  const at::Tensor flat = values.contiguous().view({-1});
  const std::int64_t count = flat.numel();
  const at::Tensor words =
      philox_words(key.seed, stream_of(key), num_blocks(count), values.device());
  const at::Tensor random = at::stack({words.bitwise_and(kLow16), words.bitwise_right_shift(16)}, 2)
                                .view({-1})
                                .narrow(0, 0, count);
  // Sign and magnitude are separate and below 2^32, so int64 values are never negative.
  const at::Tensor bits = flat.view(at::kInt).to(at::kLong).bitwise_and_(kLow32);
  const at::Tensor carried = bits.add(random).bitwise_right_shift_(16);
  const at::Tensor quiet = bits.bitwise_right_shift(16).bitwise_or_(0x0040);
  const at::Tensor halves = at::where(flat.isnan(), quiet, carried);
  rounded.copy_(halves.to(at::kShort).view(at::kBFloat16).view(rounded.sizes()));
}

void round_stochastically(const at::Tensor& values, const at::Tensor& rounded,
                          const RoundingKey& key) {
  check(values, rounded, key);
  if (!values.is_cpu()) return round_stochastically_by_operations(values, rounded, key);
  const at::NoGradGuard no_grad;
  if (rounded.is_contiguous()) {
    round_on_cpu(values.contiguous(), rounded, key);
    rounded.unsafeGetTensorImpl()->bump_version();
    return;
  }
  const at::Tensor contiguous = at::empty(rounded.sizes(), rounded.options());
  round_on_cpu(values.contiguous(), contiguous, key);
  rounded.copy_(contiguous);
}

}  // namespace mezzo::amp
