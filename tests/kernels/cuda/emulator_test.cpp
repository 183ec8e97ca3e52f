// Guarantees of the emulator: it computes what CUDA defines and reports undefined behavior.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "mezzo/kernels/backend.h"
#include "mezzo/kernels/cuda/device.h"

#include "support/errors.h"

namespace mezzo::test {
namespace {

using namespace kernels;  // NOLINT(google-build-using-namespace)

using cuda::emulate;
using cuda::EmulatedOrder;

constexpr unsigned kAll = 0xFFFFFFFF;

template <class Check>
void in_every_order(Check check) {
  for (const auto order :
       {EmulatedOrder::kForward, EmulatedOrder::kReverse, EmulatedOrder::kShuffled}) {
    cuda::set_emulated_order(order);
    check();
  }
  cuda::set_emulated_order(EmulatedOrder::kForward);
}

/// Returns the emulator's report on a kernel in one block of `threads`.
template <class Kernel>
std::string fault(unsigned threads, Kernel kernel) {
  try {
    emulate("kernel", 1, threads, kernel);
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "";
}

TEST(Emulator, every_thread_of_the_grid_runs_once) {
  in_every_order([] {
    std::vector<int> runs(3 * 2 * 2 * 40 * 2, 0);
    emulate("count", dim3(3, 2, 2), dim3(40, 2), [&] {
      const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
      ++runs[(block * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x];
    });
    EXPECT_EQ(runs, std::vector<int>(runs.size(), 1));
  });
}

TEST(Emulator, a_barrier_lets_threads_read_what_others_of_the_block_wrote) {
  in_every_order([] {
    std::vector<int> sums(4, 0);
    emulate("sum", 4, 96, [&] {
      __shared__ int numbers[96];
      numbers[threadIdx.x] = static_cast<int>(threadIdx.x);
      __syncthreads();
      if (threadIdx.x != 95) return;
      sums[blockIdx.x] = std::accumulate(numbers, numbers + 96, 0);
    });
    EXPECT_EQ(sums, std::vector<int>(4, 96 * 95 / 2));
  });
}

TEST(Emulator, shuffles_and_votes_exchange_what_the_lanes_give) {
  in_every_order([] {
    emulate("shuffles", 1, 64, [] {
      const int lane = static_cast<int>(threadIdx.x % 32);
      EXPECT_EQ(__shfl_xor_sync(kAll, lane, 5), lane ^ 5);
      EXPECT_EQ(__shfl_sync(kAll, lane * 0.5, 7), 3.5);
      EXPECT_EQ(__shfl_sync(kAll, lane, 9, 8), lane / 8 * 8 + 1);
      EXPECT_EQ(__shfl_down_sync(kAll, lane, 3, 8), lane % 8 < 5 ? lane + 3 : lane);
      EXPECT_EQ(__shfl_up_sync(kAll, lane, 3, 8), lane % 8 >= 3 ? lane - 3 : lane);
      EXPECT_EQ(__shfl_sync(kAll, std::int64_t{1} << lane, 31), std::int64_t{1} << 31);
      EXPECT_EQ(__ballot_sync(kAll, lane == 1 || lane == 30), 1U << 1 | 1U << 30);
      EXPECT_EQ(__any_sync(kAll, threadIdx.x == 40), threadIdx.x / 32 == 1);
      EXPECT_EQ(__all_sync(kAll, threadIdx.x < 32), threadIdx.x / 32 == 0);
    });
  });
}

TEST(Emulator, lanes_of_disjoint_masks_exchange_apart) {
  emulate("halves", 1, 32, [] {
    const int lane = static_cast<int>(threadIdx.x);
    if (lane < 16) {
      EXPECT_EQ(__shfl_sync(0x0000FFFF, lane, 3), 3);
    } else {
      EXPECT_EQ(__shfl_sync(0xFFFF0000, lane, 20), 20);
    }
    __syncwarp();
  });
}

TEST(Emulator, a_shuffle_that_part_of_the_lanes_reach_is_reported) {
  const std::string text = fault(32, [] {
    if (threadIdx.x < 8) __shfl_xor_sync(kAll, 1, 1);
  });
  EXPECT_NE(text.find("thread 0 waits at a shuffle"), text.npos) << text;
  EXPECT_NE(text.find("thread 8 has returned"), text.npos) << text;
}

TEST(Emulator, a_shuffle_beside_a_barrier_is_reported) {
  const std::string text = fault(32, [] {
    if (threadIdx.x < 8) __syncthreads();
    __shfl_xor_sync(kAll, 1, 1);
  });
  EXPECT_NE(text.find("thread 0 waits at a barrier of the block"), text.npos) << text;
  EXPECT_NE(text.find("thread 8 waits at a shuffle"), text.npos) << text;
}

TEST(Emulator, reading_a_lane_that_takes_no_part_is_reported) {
  const std::string text = fault(32, [] {
    if (threadIdx.x < 16) __shfl_sync(0x0000FFFF, 1, 20);
  });
  EXPECT_NE(text.find("reads lane 20, which takes no part"), text.npos) << text;
}

TEST(Emulator, threads_at_different_barriers_are_reported) {
  const std::string text = fault(64, [] {
    if (threadIdx.x < 32) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  });
  EXPECT_NE(text.find("wait at different barriers"), text.npos) << text;
}

TEST(Emulator, a_kernel_runs_after_one_that_failed) {
  EXPECT_NE(fault(256,
                  [] {
                    if (threadIdx.x == 200) __shfl_xor_sync(kAll, 1, 1);
                    __syncthreads();
                  }),
            "");
  int count = 0;
  emulate("count", 2, 256, [&] {
    __syncthreads();
    atomicAdd(&count, 1);
  });
  EXPECT_EQ(count, 512);
}

TEST(Emulator, a_launch_that_cuda_refuses_is_reported) {
  EXPECT_THROW(emulate("kernel", 1, 1025, [] {}), std::logic_error);
  EXPECT_THROW(emulate("kernel", dim3(1, 65536), 32, [] {}), std::logic_error);
  EXPECT_THROW(emulate("kernel", 1, dim3(1, 1, 65), [] {}), std::logic_error);
}

TEST(Emulator, atomics_return_what_was_there) {
  int smallest = 100;
  unsigned long long sum = 0;
  emulate("atomics", 2, 64, [&] {
    atomicMin(&smallest, static_cast<int>(threadIdx.x) - 7);
    const auto before = atomicAdd(&sum, 2ULL);
    EXPECT_EQ(before % 2, 0U);
  });
  EXPECT_EQ(smallest, -7);
  EXPECT_EQ(sum, 256U);
}

/// Float32 numbers of every exponent and sign, near 16-bit numbers and halfway between them.
std::vector<float> telling_numbers() {
  std::vector<float> numbers;
  for (std::uint32_t high = 0; high < 0x10000; ++high) {
    for (const std::uint32_t low : {0x0000, 0x0001, 0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001,
                                    0xE000, 0xEFFF, 0xF000, 0xF001, 0xFFFF}) {
      numbers.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  return numbers;
}

TEST(Emulator, conversions_round_as_the_cpus) {
  const CpuBackend& scalar = *cpu_backends()[0].backend;
  const std::vector<float> numbers = telling_numbers();
  std::vector<std::uint16_t> half(numbers.size()), brain(numbers.size());
  const auto count = static_cast<std::int64_t>(numbers.size());
  scalar.narrow(DType::kFloat16, numbers.data(), half.data(), count);
  scalar.narrow(DType::kBFloat16, numbers.data(), brain.data(), count);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::uint16_t got_half = __half_as_ushort(__float2half_rn(numbers[i]));
    const std::uint16_t got_brain = __bfloat16_as_ushort(__float2bfloat16_rn(numbers[i]));
    if (std::isnan(numbers[i])) {
      ASSERT_EQ(got_half, 0x7FFF);
      ASSERT_EQ(got_brain, 0x7FFF);
      continue;
    }
    ASSERT_EQ(got_half, half[i]) << numbers[i];
    ASSERT_EQ(got_brain, brain[i]) << numbers[i];
  }
}

TEST(Emulator, sixteen_bits_widen_as_the_cpus) {
  const CpuBackend& scalar = *cpu_backends()[0].backend;
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    float half = 0, brain = 0;
    scalar.widen(DType::kFloat16, &bits, &half, 1);
    scalar.widen(DType::kBFloat16, &bits, &brain, 1);
    const float got_half = __half2float(__ushort_as_half(bits));
    const float got_brain = __bfloat162float(__ushort_as_bfloat16(bits));
    ASSERT_TRUE(std::isnan(half) ? std::isnan(got_half) : half == got_half) << i;
    ASSERT_TRUE(std::isnan(brain) ? std::isnan(got_brain) : brain == got_brain) << i;
  }
}

int runs_of_kernel = 0;
void kernel_that_counts() {
  ++runs_of_kernel;
}

TEST(Launch, more_blocks_than_a_gpu_takes_are_an_error_that_names_the_kernel) {
  constexpr std::int64_t kMost = 0x7FFFFFFF;
  const std::vector<cuda::Grid> grids = {{kMost + 1},        {std::int64_t{1} << 32},
                                         {(kMost << 1) + 3}, {1, 65536},
                                         {1, 1, 65536},      {1, (std::int64_t{1} << 32) + 1}};
  runs_of_kernel = 0;
  for (const cuda::Grid& grid : grids) {
    EXPECT_THROWS(std::length_error, fragments("counts: expected at most", "blocks, got"),
                  cuda::launch("counts", kernel_that_counts, grid, 32, nullptr));
  }
  cuda::launch("counts", kernel_that_counts, {kMost + 1, 0}, 32, nullptr);
  EXPECT_EQ(runs_of_kernel, 0);
  cuda::launch("counts", kernel_that_counts, {3, 2}, 32, nullptr);
  EXPECT_EQ(runs_of_kernel, 3 * 2 * 32);

  const dim3 largest = cuda::checked_grid("counts", {kMost, 65535, 65535});
  EXPECT_EQ(largest.x, 0x7FFFFFFFU);
  EXPECT_EQ(largest.y, 65535U);
  EXPECT_EQ(largest.z, 65535U);
}

}  // namespace
}  // namespace mezzo::test
