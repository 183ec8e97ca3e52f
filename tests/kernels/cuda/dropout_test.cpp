// Dropout in a CUDA graph: kernels that run again with the same arguments read the seed offset from
// memory, so that each replay drops other elements.
#include <limits>

#include "kernels/pieces.h"

namespace mezzo::test {
namespace {

/// 1031 ones; the kernel drops half of them.
std::vector<float> half_of_ones(const Kernels& kernels, const DropoutLevel& dropout) {
  const GuardedBytes x(std::vector<float>(1031, 1));
  GuardedBytes out(x.size());
  kernels.run(DropoutArgs{.draw_begin = 0,
                          .draw_end = (1031 + kElementsPerDraw - 1) / kElementsPerDraw,
                          .dtype = DType::kFloat32,
                          .dropout = dropout,
                          .count = 1031,
                          .x = x.data(),
                          .out = out.data()});
  std::vector<float> got(1031);
  std::memcpy(got.data(), out.data(), out.size());
  return got;
}

TEST(CudaDropout, reads_what_is_added_to_the_seed_each_time_that_it_runs) {
  constexpr std::uint32_t kHalf = 0x8000;
  for (const Kernels& kernels : kernels_under_test()) {
    SCOPED_TRACE(kernels.name);
    const auto under = [&](std::uint64_t seed) {
      return half_of_ones(kernels, {.seed = seed, .threshold = kHalf});
    };
    GuardedBytes number(sizeof(std::int64_t));
    const DropoutLevel captured{.seed = 12,
                                .threshold = kHalf,
                                .seed_offset = reinterpret_cast<std::int64_t*>(number.data())};
    std::vector<float> before;
    for (const std::int64_t offset : {std::int64_t{0}, std::int64_t{1}, std::int64_t{-13},
                                      std::numeric_limits<std::int64_t>::max()}) {
      std::memcpy(number.data(), &offset, sizeof(offset));
      const std::vector<float> got = half_of_ones(kernels, captured);
      EXPECT_EQ(got, under(12 + static_cast<std::uint64_t>(offset))) << offset;
      EXPECT_NE(got, before) << offset;
      before = got;
    }
  }
}

}  // namespace
}  // namespace mezzo::test
