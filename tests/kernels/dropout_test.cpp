// Dropout of every backend compared with philox(), on guarded memory.
#include "tests/definitions/dropout.h"

#include <limits>

#include "kernels/pieces.h"

namespace mezzo::test {
namespace {

constexpr DropoutLevel kLevel{.seed = 0x123456789ABCDEF0, .threshold = 20000};

/// Checks dropout of the draws [begin, end) on `count` elements; other elements must stay -1.
void check(const Kernels& backend, DType dtype, std::int64_t count, std::int64_t begin,
           std::int64_t end, bool streams) {
  SCOPED_TRACE(fmt::format("{} {}, {} elements, draws {} to {}", backend.name,
                           name_of(DTypes{}, dtype), count, begin, end));
  const auto factor = [&](std::int64_t element) {
    const double exact = definition::dropout_factor(kLevel, element);
    return dtype == DType::kFloat64 ? exact : static_cast<float>(exact);
  };
  std::vector<double> values, expected;
  for (std::int64_t i = 0; i < count; ++i) {
    const bool is_inf = i % 5 == 3;
    values.push_back(is_inf ? std::numeric_limits<double>::infinity()
                            : static_cast<double>(i % 61 + 1));
    const bool inside = i >= begin * kElementsPerDraw && i < end * kElementsPerDraw;
    expected.push_back(!inside ? -1 : factor(i) == 0 ? 0 : values.back() * factor(i));
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
