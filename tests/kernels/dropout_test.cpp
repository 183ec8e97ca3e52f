// Dropout of every backend compared with philox(), on guarded memory.
#include <limits>

#include "mezzo/core/random.h"

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
void check(const Kernels& backend, DType dtype, std::int64_t count, std::int64_t begin,
           std::int64_t end, bool streams) {
  SCOPED_TRACE(fmt::format("{} {}, {} elements, draws {} to {}", backend.name,
                           name_of(DTypes{}, dtype), count, begin, end));
  const double scale = kDropoutLevels / (kDropoutLevels - kLevel.threshold);
  const double factor = dtype == DType::kFloat64 ? scale : static_cast<float>(scale);
  std::vector<double> values, expected;
  for (std::int64_t i = 0; i < count; ++i) {
    const bool is_inf = i % 5 == 3;
    values.push_back(is_inf ? std::numeric_limits<double>::infinity()
                            : static_cast<double>(i % 61 + 1));
    const bool inside = i >= begin * kElementsPerDraw && i < end * kElementsPerDraw;
    expected.push_back(!inside ? -1 : is_kept(i) ? values.back() * factor : 0);
  }
  const GuardedBytes x = stored(dtype, /*is_accum=*/false, values);
  GuardedBytes out = stored(dtype, /*is_accum=*/false, std::vector<double>(values.size(), -1));
  backend.run(DropoutArgs{.draw_begin = begin,
                          .draw_end = end,
                          .dtype = dtype,
                          .dropout = kLevel,
                          .count = count,
                          .x = x.data(),
                          .out = out.data(),
                          .out_streams = streams});
  expect_numbers(numbers_in(dtype, false, out), rounded(dtype, false, expected));
}

TEST(DropoutKernel, keeps_what_the_generator_says_and_writes_its_own_elements_alone) {
  for (const Kernels& kernels : kernels_under_test()) {
    for (const std::int64_t count : {1, 7, 8, 63, 64, 65, 200, 256, 1024, 1031}) {
      const std::int64_t draws = (count + kElementsPerDraw - 1) / kElementsPerDraw;
      for (const std::int64_t begin : {std::int64_t{0}, draws / 3}) {
        for (const std::int64_t end : {draws, (draws + begin) / 2}) {
          if (!kernels.take_ranges && (begin > 0 || end < draws)) continue;
          for (const bool streams : {false, true}) {
            mezzo::detail::for_each(
                DTypes{}, [&]<class T>() { check(kernels, T::kind, count, begin, end, streams); });
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace mezzo::test
