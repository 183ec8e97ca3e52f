// Dropout of every backend compared with philox(), on guarded memory.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mezzo/core/random.h"
#include "mezzo/kernels/backend.h"

#include "kernels/guarded.h"
#include "kernels/pieces.h"

namespace mezzo::test {
namespace {

constexpr DropoutLevel kLevel{.seed = 0x123456789ABCDEF0, .threshold = 20000};

bool is_kept(std::int64_t element) {
  const auto words =
      philox(kLevel.seed, kDropoutStream, static_cast<std::uint64_t>(element / kElementsPerDraw));
  const std::int64_t place = element % kElementsPerDraw;
  const std::uint32_t level =
      (words[static_cast<std::size_t>(place / 2)] >> (16 * (place % 2))) & 0xFFFF;
  return level >= kLevel.threshold;
}

/// Checks dropout of the draws [begin, end) on `count` elements; other elements must stay -1.
template <class Number>
void check(const Kernels& backend, DType dtype, std::int64_t count, std::int64_t begin,
           std::int64_t end, bool streams = false) {
  SCOPED_TRACE(fmt::format("{}, {} elements, draws {} to {}", backend.name, count, begin, end));
  std::vector<Number> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    values[static_cast<std::size_t>(i)] =
        i % 5 == 3 ? std::numeric_limits<Number>::infinity() : static_cast<Number>(i + 1);
  }
  const GuardedBytes x(values);
  GuardedBytes out(std::vector<Number>(values.size(), -1));
  backend.run(DropoutArgs{.draw_begin = begin,
                          .draw_end = end,
                          .dtype = dtype,
                          .dropout = kLevel,
                          .count = count,
                          .x = x.data(),
                          .out = out.data(),
                          .out_streams = streams});
  const auto scale = static_cast<Number>(kDropoutLevels / (kDropoutLevels - kLevel.threshold));
  const auto* got = reinterpret_cast<const Number*>(out.data());
  for (std::int64_t i = 0; i < count; ++i) {
    const bool decided = i >= begin * kElementsPerDraw && i < end * kElementsPerDraw;
    const Number expected = !decided     ? -1
                            : is_kept(i) ? values[static_cast<std::size_t>(i)] * scale
                                         : 0;
    ASSERT_EQ(got[i], expected) << "element " << i;
  }
}

TEST(DropoutKernel, keeps_what_the_generator_says_and_writes_its_own_elements_alone) {
  for (const Kernels& kernels : kernels_under_test()) {
    for (const std::int64_t count : {1, 7, 8, 63, 64, 65, 200, 256, 1024, 1031}) {
      const std::int64_t draws = (count + kElementsPerDraw - 1) / kElementsPerDraw;
      for (const std::int64_t begin : {std::int64_t{0}, draws / 3}) {
        for (const std::int64_t end : {draws, (draws + begin) / 2}) {
          if (!kernels.take_ranges && (begin > 0 || end < draws)) continue;
          for (const bool streams : {false, true}) {
            check<float>(kernels, DType::kFloat32, count, begin, end, streams);
            check<double>(kernels, DType::kFloat64, count, begin, end, streams);
          }
        }
      }
    }
  }
}

TEST(DropoutKernel, sixteen_bit_numbers_are_kept_alike) {
  constexpr std::uint16_t kBFloat16Two = 0x4000, kFloat16Two = 0x4000;
  constexpr std::int64_t kCount = 256, kFirstDraw = 8;
  const std::vector<std::uint16_t> twos(kCount, kBFloat16Two);
  static_assert(kBFloat16Two == kFloat16Two, "2 has the same bits in both formats");
  for (const Kernels& kernels : kernels_under_test()) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      SCOPED_TRACE(kernels.name);
      const GuardedBytes x(twos);
      GuardedBytes out(twos.size() * sizeof(std::uint16_t));
      // Two ranges, the second with non-temporal stores.
      for (const bool streams : {false, true}) {
        if (!kernels.take_ranges && streams) continue;
        kernels.run(DropoutArgs{
            .draw_begin = streams ? kFirstDraw : 0,
            .draw_end = streams || !kernels.take_ranges ? kCount / kElementsPerDraw : kFirstDraw,
            .dtype = dtype,
            .dropout = kLevel,
            .count = kCount,
            .x = x.data(),
            .out = out.data(),
            .out_streams = streams});
      }
      const float scaled =
          2 * static_cast<float>(kDropoutLevels / (kDropoutLevels - kLevel.threshold));
      std::uint16_t expected = 0;
      kernels.narrow(dtype, &scaled, &expected, 1);
      const auto* got = reinterpret_cast<const std::uint16_t*>(out.data());
      for (std::int64_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(got[i], is_kept(i) ? expected : 0) << "element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace mezzo::test
