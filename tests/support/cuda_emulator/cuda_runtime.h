#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <source_location>
#include <type_traits>

#include <math.h>

// Replaces CUDA's header of this name when kernels are compiled for the CPU: the CUDA features that
// the kernels use, run by emulator.cpp. Kernels must not use others.

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_size = 1, unsigned y_size = 1, unsigned z_size = 1)
      : x(x_size), y(y_size), z(z_size) {}
};
struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};

/// The indices of the running thread.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace mezzo::kernels::cuda {

/// Calls `thread` once for each thread of the grid. A thread runs until it waits for others; blocks
/// run one after the other. Throws std::logic_error for errors in the kernel: a grid that CUDA
/// rejects, a barrier that some threads never reach, a shuffle or vote that only some of the named
/// lanes reach, or a lane read that takes no part.
void emulate(const char* kernel_name, dim3 grid, dim3 block, const std::function<void()>& thread);
/// The calls of emulate() so far.
std::int64_t num_emulated_launches();

/// The order of blocks, warps and lanes. Kernel results must not depend on it.
enum class EmulatedOrder { kForward, kReverse, kShuffled };
void set_emulated_order(EmulatedOrder order);

namespace emulator {

using Place = std::source_location;

void block_barrier(Place place);
void warp_barrier(unsigned mask, Place place);
/// The value from lane `source` of the warp.
std::uint64_t shuffle(unsigned mask, std::uint64_t value, unsigned source, Place place);
unsigned ballot(unsigned mask, bool predicate, Place place);
unsigned lane();

template <class T>
T shuffle_number(unsigned mask, T x, unsigned source, Place place) {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) >= 4, "what CUDA's shuffles take");
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  return std::bit_cast<T>(static_cast<Bits>(shuffle(mask, std::bit_cast<Bits>(x), source, place)));
}

}  // namespace emulator
}  // namespace mezzo::kernels::cuda

inline void __syncthreads(
    mezzo::kernels::cuda::emulator::Place place = std::source_location::current()) {
  mezzo::kernels::cuda::emulator::block_barrier(place);
}

inline void __syncwarp(unsigned mask = 0xFFFFFFFF, mezzo::kernels::cuda::emulator::Place place =
                                                       std::source_location::current()) {
  mezzo::kernels::cuda::emulator::warp_barrier(mask, place);
}

template <class T>
T __shfl_sync(unsigned mask, T x, int source, int width = 32,
              mezzo::kernels::cuda::emulator::Place place = std::source_location::current()) {
  const auto last = static_cast<unsigned>(width - 1);
  const unsigned begin = mezzo::kernels::cuda::emulator::lane() & ~last;
  return mezzo::kernels::cuda::emulator::shuffle_number(mask, x, begin | (unsigned(source) & last),
                                                        place);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T x, int lane_mask, int width = 32,
                  mezzo::kernels::cuda::emulator::Place place = std::source_location::current()) {
  const unsigned lane = mezzo::kernels::cuda::emulator::lane(), other = lane ^ unsigned(lane_mask);
  const bool inside = other <= (lane | static_cast<unsigned>(width - 1));
  return mezzo::kernels::cuda::emulator::shuffle_number(mask, x, inside ? other : lane, place);
}

template <class T>
T __shfl_down_sync(unsigned mask, T x, unsigned delta, int width = 32,
                   mezzo::kernels::cuda::emulator::Place place = std::source_location::current()) {
  const unsigned lane = mezzo::kernels::cuda::emulator::lane(), other = lane + delta;
  const bool inside = other <= (lane | static_cast<unsigned>(width - 1));
  return mezzo::kernels::cuda::emulator::shuffle_number(mask, x, inside ? other : lane, place);
}

template <class T>
T __shfl_up_sync(unsigned mask, T x, unsigned delta, int width = 32,
                 mezzo::kernels::cuda::emulator::Place place = std::source_location::current()) {
  const unsigned lane = mezzo::kernels::cuda::emulator::lane();
  const bool inside = delta <= (lane & static_cast<unsigned>(width - 1));
  return mezzo::kernels::cuda::emulator::shuffle_number(mask, x, inside ? lane - delta : lane,
                                                        place);
}

inline unsigned __ballot_sync(
    unsigned mask, int predicate,
    mezzo::kernels::cuda::emulator::Place place = std::source_location::current()) {
  return mezzo::kernels::cuda::emulator::ballot(mask, predicate != 0, place);
}

inline int __any_sync(
    unsigned mask, int predicate,
    mezzo::kernels::cuda::emulator::Place place = std::source_location::current()) {
  return mezzo::kernels::cuda::emulator::ballot(mask, predicate != 0, place) != 0;
}

inline int __all_sync(
    unsigned mask, int predicate,
    mezzo::kernels::cuda::emulator::Place place = std::source_location::current()) {
  return mezzo::kernels::cuda::emulator::ballot(mask, predicate != 0, place) == mask;
}

// Threads run one at a time, so that plain reads and writes are atomic. The types are CUDA's.
#define MEZZO_EMULATED_ATOMIC(name, type, result) \
  inline type name(type* address, type x) {       \
    const type old = *address;                    \
    *address = result;                            \
    return old;                                   \
  }
MEZZO_EMULATED_ATOMIC(atomicAdd, int, old + x)
MEZZO_EMULATED_ATOMIC(atomicAdd, unsigned, old + x)
MEZZO_EMULATED_ATOMIC(atomicAdd, unsigned long long, old + x)
MEZZO_EMULATED_ATOMIC(atomicMin, int, std::min(old, x))
MEZZO_EMULATED_ATOMIC(atomicMin, unsigned, std::min(old, x))
MEZZO_EMULATED_ATOMIC(atomicMin, long long, std::min(old, x))
MEZZO_EMULATED_ATOMIC(atomicMin, unsigned long long, std::min(old, x))
MEZZO_EMULATED_ATOMIC(atomicMax, int, std::max(old, x))
MEZZO_EMULATED_ATOMIC(atomicMax, unsigned, std::max(old, x))
MEZZO_EMULATED_ATOMIC(atomicMax, long long, std::max(old, x))
MEZZO_EMULATED_ATOMIC(atomicMax, unsigned long long, std::max(old, x))
#undef MEZZO_EMULATED_ATOMIC

/// Like CUDA's function: if one floating-point number is NaN, the other one.
template <class T>
constexpr T min(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return b != b || a < b ? a : b;
  } else {
    return a < b ? a : b;
  }
}
template <class T>
constexpr T max(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return b != b || a > b ? a : b;
  } else {
    return a > b ? a : b;
  }
}

inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>(Wide{a} * b >> 64);
}
