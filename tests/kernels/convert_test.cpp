// Conversions of every backend between 16-bit numbers and float32, compared with the definition in
// integers: all 65536 patterns to float32, every case of rounding from float32.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mezzo/core/random.h"
#include "mezzo/kernels/backend.h"

namespace mezzo::kernels {
namespace {

/// A 16-bit format: sign, then exponent, then fraction.
struct Format {
  DType dtype;
  std::string name;
  int fraction_bits;
  int exponent_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  std::uint16_t infinity() const {
    return static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << fraction_bits);
  }
  bool is_nan(std::uint16_t bits) const { return (bits & 0x7fff) > infinity(); }
};

const std::vector<Format>& formats() {
  static const std::vector<Format> all = {{DType::kBFloat16, "bfloat16", 7, 8},
                                          {DType::kFloat16, "float16", 10, 5}};
  return all;
}

/// The value of `bits`, exact in float64.
double value_of(const Format& format, std::uint16_t bits) {
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  const int exponent = (bits & 0x7fff) >> format.fraction_bits;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << format.exponent_bits) - 1) {
    return fraction != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  }
  const int significand = exponent == 0 ? fraction : fraction + (1 << format.fraction_bits);
  return sign *
         std::ldexp(significand, std::max(exponent, 1) - format.bias() - format.fraction_bits);
}

/// The 16-bit number nearest to x, ties to even, by bisection: the patterns of positive numbers
/// have the order of the numbers. x: not NaN.
std::uint16_t nearest(const Format& format, float x) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const double magnitude = std::abs(static_cast<double>(x));
  std::uint16_t low = 0, high = format.infinity();
  while (high - low > 1) {  // value_of(low) <= magnitude < value_of(high)
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (value_of(format, middle) <= magnitude ? low : high) = middle;
  }
  if (std::isinf(x)) return static_cast<std::uint16_t>(sign | format.infinity());
  const double below = value_of(format, low);
  // Rounding extends the range of the exponent: above the largest number is 2^(bias + 1).
  const double above =
      high == format.infinity() ? std::ldexp(1.0, format.bias() + 1) : value_of(format, high);
  const double down = magnitude - below, up = above - magnitude;
  const bool take_low = down < up || (down == up && low % 2 == 0);
  return static_cast<std::uint16_t>(sign | (take_low ? low : high));
}

std::vector<std::uint16_t> all_patterns() {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  return all;
}

std::vector<float> widen(const CpuBackend& backend, const Format& format,
                         const std::vector<std::uint16_t>& from) {
  std::vector<float> to(from.size());
  backend.widen(format.dtype, from.data(), to.data(), static_cast<std::int64_t>(from.size()));
  return to;
}

std::vector<std::uint16_t> to_16_bit(const CpuBackend& backend, const Format& format,
                                     const std::vector<float>& from) {
  std::vector<std::uint16_t> to(from.size());
  backend.narrow(format.dtype, from.data(), to.data(), static_cast<std::int64_t>(from.size()));
  return to;
}

/// Runs `check` for every backend that runs here and both formats.
template <class Check>
void for_each_backend(Check check) {
  for (const BackendStatus& one : cpu_backends()) {
    if (one.backend == nullptr) continue;
    for (const Format& format : formats()) {
      SCOPED_TRACE(std::string(one.name) + " " + format.name);
      check(*one.backend, format);
    }
  }
}

void expect_nearest(const CpuBackend& backend, const Format& format, const std::vector<float>& x) {
  const auto got = to_16_bit(backend, format, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint16_t expected = nearest(format, x[i]);
    ASSERT_EQ(got[i], expected) << fmt::format("of {} ({:#010x}): got {:#06x}, expected {:#06x}",
                                               x[i], std::bit_cast<std::uint32_t>(x[i]), got[i],
                                               expected);
  }
}

TEST(Backends, the_plain_one_comes_first_and_always_runs) {
  ASSERT_FALSE(cpu_backends().empty());
  EXPECT_EQ(cpu_backends().front().name, "scalar");
  EXPECT_NE(cpu_backends().front().backend, nullptr);
}

TEST(Backends, are_whole_or_say_what_the_machine_lacks) {
  for (const BackendStatus& one : cpu_backends()) {
    SCOPED_TRACE(one.name);
    EXPECT_EQ(one.backend == nullptr, !one.missing.empty());
    if (one.backend == nullptr) continue;
    EXPECT_EQ(one.backend->name, one.name);
    mezzo::detail::for_each(CpuKernelList{}, [&]<class Args>() {
      EXPECT_NE(std::get<CpuKernel<Args>>(one.backend->kernels), nullptr);
    });
    EXPECT_NE(one.backend->widen, nullptr);
    EXPECT_NE(one.backend->narrow, nullptr);
  }
}

TEST(Convert, conversion_to_float32_is_exact_for_all_patterns) {
  for_each_backend([](const CpuBackend& backend, const Format& format) {
    const auto patterns = all_patterns();
    const auto float32 = widen(backend, format, patterns);
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      const double expected = value_of(format, patterns[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(float32[i])) << fmt::format("{:#06x}", patterns[i]);
      } else {
        ASSERT_EQ(static_cast<double>(float32[i]), expected) << fmt::format("{:#06x}", patterns[i]);
      }
      ASSERT_EQ(std::signbit(float32[i]), (patterns[i] & 0x8000) != 0);
    }
  });
}

TEST(Convert, conversion_from_float32_inverts_it) {
  for_each_backend([](const CpuBackend& backend, const Format& format) {
    const auto patterns = all_patterns();
    const auto back = to_16_bit(backend, format, widen(backend, format, patterns));
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      if (format.is_nan(patterns[i])) {
        ASSERT_TRUE(format.is_nan(back[i])) << fmt::format("{:#06x}", patterns[i]);
      } else {
        ASSERT_EQ(back[i], patterns[i]);
      }
    }
  });
}

TEST(Convert, halfway_cases_and_their_neighbours_round_to_nearest_even) {
  for_each_backend([](const CpuBackend& backend, const Format& format) {
    std::vector<float> x;
    for (std::uint16_t bits = 0; bits < format.infinity(); ++bits) {
      const bool last = bits + 1 == format.infinity();
      const double above = last ? std::ldexp(1.0, format.bias() + 1)
                                : value_of(format, static_cast<std::uint16_t>(bits + 1));
      const auto halfway = static_cast<float>((value_of(format, bits) + above) / 2);  // exact
      for (const float near : {halfway, std::nextafter(halfway, 0.0F),
                               std::nextafter(halfway, std::numeric_limits<float>::infinity())}) {
        x.push_back(near);
        x.push_back(-near);
      }
    }
    expect_nearest(backend, format, x);
  });
}

TEST(Convert, random_bits_round_to_nearest_even) {
  for_each_backend([](const CpuBackend& backend, const Format& format) {
    std::vector<float> x;
    for (std::uint64_t i = 0; i < 100000; ++i) {
      const auto one = std::bit_cast<float>(static_cast<std::uint32_t>(random_bits(1, 2, i)));
      if (!std::isnan(one)) x.push_back(one);
    }
    expect_nearest(backend, format, x);
  });
}

TEST(Convert, float32_subnormals_and_zeros_of_both_signs_are_rounded_not_flushed) {
  for_each_backend([](const CpuBackend& backend, const Format& format) {
    std::vector<float> x = {0.0F, -0.0F};
    for (std::uint32_t bits = 1; bits < 0x00800000; bits = bits * 2 + 1) {
      for (const std::uint32_t one : {bits, bits + 1}) {
        x.push_back(std::bit_cast<float>(one));
        x.push_back(-std::bit_cast<float>(one));
      }
    }
    expect_nearest(backend, format, x);
  });
}

TEST(Convert, overflow_becomes_infinity_and_infinity_stays) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  for_each_backend([](const CpuBackend& backend, const Format& format) {
    const std::vector<float> x = {65519.0F,
                                  65520.0F,
                                  -65520.0F,
                                  1e30F,
                                  std::numeric_limits<float>::max(),
                                  -std::numeric_limits<float>::max(),
                                  inf,
                                  -inf};
    expect_nearest(backend, format, x);
    const auto got = to_16_bit(backend, format, {std::numeric_limits<float>::max(), inf, -inf});
    EXPECT_EQ(got[0], format.infinity());
    EXPECT_EQ(got[1], format.infinity());
    EXPECT_EQ(got[2], format.infinity() | 0x8000);
  });
}

TEST(Convert, every_kind_of_nan_stays_a_nan) {
  for_each_backend([](const CpuBackend& backend, const Format& format) {
    std::vector<float> x;
    // Each bit of the fraction: bits that do not fit in 16 bits must not give infinity.
    for (std::uint32_t fraction = 1; fraction < 0x00800000; fraction *= 2) {
      x.push_back(std::bit_cast<float>(0x7f800000U | fraction));
      x.push_back(std::bit_cast<float>(0xff800000U | fraction));
    }
    x.push_back(std::bit_cast<float>(0x7fffffffU));
    x.push_back(std::bit_cast<float>(0xffffffffU));
    const auto got = to_16_bit(backend, format, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_TRUE(format.is_nan(got[i]))
          << fmt::format("{:#010x} became {:#06x}", std::bit_cast<std::uint32_t>(x[i]), got[i]);
    }
  });
}

TEST(Convert, any_count_is_converted_and_nothing_beyond_it_is_touched) {
  for_each_backend([](const CpuBackend& backend, const Format& format) {
    constexpr std::uint16_t untouched = 0x5a5a;
    for (std::size_t count = 0; count <= 70; ++count) {
      std::vector<float> x(count);
      for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<float>(i) - 20.0F;
      std::vector<std::uint16_t> low(count + 8, untouched);
      backend.narrow(format.dtype, x.data(), low.data(), static_cast<std::int64_t>(count));
      std::vector<float> float32(count + 8, 7.5F);
      backend.widen(format.dtype, low.data(), float32.data(), static_cast<std::int64_t>(count));
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(low[i], nearest(format, x[i])) << count;
        ASSERT_EQ(float32[i], x[i]) << count;
      }
      for (std::size_t i = count; i < count + 8; ++i) {
        ASSERT_EQ(low[i], untouched) << count;
        ASSERT_EQ(float32[i], 7.5F) << count;
      }
    }
  });
}

}  // namespace
}  // namespace mezzo::kernels
