#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "mezzo/core/dtype.h"
#include "mezzo/kernels/cuda/check_launch.h"
#include "mezzo/kernels/operand.h"

// Helpers of the CUDA kernels. Kernels use neither libtorch nor CUDA features beyond those below,
// so that tests can run them on a CPU, thread by thread (tests/support/cuda_emulator).

namespace mezzo::kernels::cuda {

inline constexpr int kWarpLanes = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFF;
/// Edges whose rows a lane loads before it uses the first.
inline constexpr int kEntriesAhead = 4;

__device__ inline int lane_of_warp() {
  return static_cast<int>(threadIdx.x) % kWarpLanes;
}

/// x / power for a power of 2 and x >= 0, without a division.
template <class Integer>
__device__ inline Integer shifted(Integer x, int power) {
  return x >> __popc(static_cast<unsigned>(power - 1));
}

/// x / y. A 64-bit division takes about 100 instructions: this one has none if y is 1, as the
/// number of heads often is.
__device__ inline std::int64_t quotient(std::int64_t x, std::int64_t y) {
  return y == 1 ? x : x / y;
}

// ---- numbers

__device__ inline float widened(float x) {
  return x;
}
__device__ inline double widened(double x) {
  return x;
}
__device__ inline float widened(BFloat16Bits x) {
  return __bfloat162float(__ushort_as_bfloat16(x.bits));
}
__device__ inline float widened(Float16Bits x) {
  return __half2float(__ushort_as_half(x.bits));
}

/// Rounds to nearest, ties to even; preserves inf and NaN.
template <class T>
__device__ inline typename T::Storage narrowed(typename T::Accum x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
  } else if constexpr (std::is_same_v<T, Float16>) {
    return {__half_as_ushort(__float2half_rn(x))};
  } else {
    return x;
  }
}

/// N adjacent elements, read or written by one instruction: 2, 4, 8 or 16 bytes, aligned to their
/// size. 16-bit elements are pairs in words: the compiler splits single ones as soon as they are
/// loaded, and then a load waits for the one before it.
template <class T, int N>
struct alignas(N * sizeof(typename T::Storage)) Pack {
  using Storage = typename T::Storage;
  using Word = std::conditional_t<sizeof(Storage) == 2 && N % 2 == 0, std::uint32_t, Storage>;
  Word word[N * sizeof(Storage) / sizeof(Word)];
};

/// The pack at `from`, or zeros unless `wanted`.
template <class T, int N>
__device__ inline Pack<T, N> load_pack(const typename T::Storage* from, bool wanted = true) {
  Pack<T, N> pack = {};
  if (wanted) pack = *reinterpret_cast<const Pack<T, N>*>(from);
  return pack;
}

template <class T, int N>
__device__ inline void widen(const Pack<T, N>& pack, typename T::Accum (&to)[N]) {
  typename T::Storage element[N];
  memcpy(element, &pack, sizeof(pack));
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = widened(element[i]);
}

template <class T, int N>
__device__ inline void load(const typename T::Storage* from, typename T::Accum (&to)[N]) {
  widen(load_pack<T, N>(from), to);
}

template <class T, int N>
__device__ inline void store(const typename T::Accum (&from)[N], typename T::Storage* to) {
  typename T::Storage element[N];
#pragma unroll
  for (int i = 0; i < N; ++i) element[i] = narrowed<T>(from[i]);
  Pack<T, N> pack;
  memcpy(&pack, element, sizeof(pack));
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

/// Stores those of N accumulators that are in a row of `length` elements, from element `column` on,
/// a multiple of N. In rows that do not consist of whole packs addresses need no alignment.
template <class T, int N>
__device__ inline void store_in_row(const typename T::Accum (&from)[N], typename T::Storage* row,
                                    std::int64_t column, std::int64_t length) {
  if (length % N == 0) return store<T, N>(from, row + column);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (column + i < length) row[column + i] = narrowed<T>(from[i]);
  }
}

/// The inverse of store_in_row; elements past the end of the row keep their value.
template <class T, int N>
__device__ inline void load_in_row(const typename T::Storage* row, std::int64_t column,
                                   std::int64_t length, typename T::Accum (&to)[N]) {
  if (length % N == 0) return load<T, N>(row + column, to);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (column + i < length) to[i] = widened(row[column + i]);
  }
}

/// Element `at` of an array of T, or of T's accumulator type if `is_accum`.
template <class T>
__device__ inline typename T::Accum number_at(const void* data, bool is_accum, std::int64_t at) {
  if constexpr (!std::is_same_v<typename T::Storage, typename T::Accum>) {
    if (is_accum) return static_cast<const typename T::Accum*>(data)[at];
  }
  return widened(static_cast<const typename T::Storage*>(data)[at]);
}

template <class T>
__device__ inline void store_number(typename T::Accum x, void* data, bool is_accum,
                                    std::int64_t at) {
  if (is_accum) {
    static_cast<typename T::Accum*>(data)[at] = x;
  } else {
    static_cast<typename T::Storage*>(data)[at] = narrowed<T>(x);
  }
}

/// An accumulator in the form that the operations of kernels/binary_op.h expect.
template <class A>
struct Number {
  A value;
  __device__ static constexpr Number zero() { return {A(0)}; }
  __device__ friend constexpr Number operator+(Number a, Number b) { return {a.value + b.value}; }
  __device__ friend constexpr Number operator-(Number a, Number b) { return {a.value - b.value}; }
  __device__ friend constexpr Number operator*(Number a, Number b) { return {a.value * b.value}; }
  __device__ friend constexpr Number operator/(Number a, Number b) { return {a.value / b.value}; }
  __device__ friend constexpr bool operator<(Number a, Number b) { return a.value < b.value; }
  __device__ friend constexpr Number select(bool take, Number yes, Number no) {
    return take ? yes : no;
  }
};

/// The message of two numbers; for dot the caller sums. The op is selected at run time, the same in
/// all threads.
template <class A>
__device__ A message_of(BinaryOp op, A x, A y) {
  A message = 0;
  detail::visit(BinaryOps{}, op,
                [&]<class Op>() { message = Op::apply(Number<A>{x}, Number<A>{y}).value; });
  return message;
}

// ---- rows and edges

__device__ inline std::int64_t id_at(const Ids& ids, std::int64_t i) {
  if (ids.data == nullptr) return i;
  return ids.is_int64 ? static_cast<const std::int64_t*>(ids.data)[i]
                      : static_cast<const std::int32_t*>(ids.data)[i];
}

__device__ inline std::int64_t row_at(Access access, const Entries& entries, std::int64_t row,
                                      std::int64_t entry) {
  if (access == Access::kRow) return row;
  return id_at(access == Access::kFirst ? entries.first : entries.second, entry);
}

struct EntryRange {
  std::int64_t begin, end;
};

__device__ inline EntryRange entries_of(const Entries& entries, std::int64_t row) {
  if (entries.indptr == nullptr) return {row, row + 1};
  return {entries.indptr[row], entries.indptr[row + 1]};
}

__device__ inline std::int64_t offset_of(const std::int64_t* table, std::int64_t group,
                                         std::int64_t inner, std::int64_t step) {
  return table != nullptr ? table[group] : group * inner * step;
}

/// The row of edge `entry`: the last one with indptr[row] <= entry. Requires num_rows >= 1.
__device__ inline std::int64_t row_of_entry(const std::int64_t* indptr, std::int64_t num_rows,
                                            std::int64_t entry) {
  std::int64_t low = 0, high = num_rows;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    if (indptr[middle] <= entry) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/// Sums over each group of `width` (a power of 2) adjacent lanes in a fixed order; all lanes get
/// the result. All lanes of the warp must call it.
template <class A>
__device__ inline A group_sum(A x, int width) {
  for (int step = width / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

// ---- launches

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// The smallest power of 2 that is at least `x`, but at most `most` (a power of 2).
constexpr int power_of_2(std::int64_t x, int most) {
  int power = 1;
  while (power < x && power < most) power *= 2;
  return power;
}

/// Number of elements of T that a lane reads at once, at most 16 bytes: a power of 2 that divides
/// `count`.
template <class T>
constexpr int widest_pack(std::int64_t count) {
  int width = 16 / static_cast<int>(sizeof(typename T::Storage));
  while (width > 1 && count % width != 0) width /= 2;
  return width;
}

inline bool is_aligned(const void* data, std::int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(bytes) == 0;
}

/// Calls f.operator()<N>() for the largest N such that packs of N elements divide a head's features
/// and match the alignment of the addresses (combined by bitwise or).
template <class T, class F, int N = 16 / static_cast<int>(sizeof(typename T::Storage))>
void visit_pack(std::int64_t features, std::uintptr_t addresses, const F& f) {
  if constexpr (N > 1) {
    if (features % N != 0 || addresses % (N * sizeof(typename T::Storage)) != 0) {
      visit_pack<T, F, N / 2>(features, addresses, f);
      return;
    }
  }
  f.template operator()<N>();
}

/// The same for rows that edges gather, at `gathered`, and rows without padding, at `others`. After
/// padding, a head's features end within a pack: load_in_row and store_in_row need no alignment.
template <class T, class F>
void visit_pack(std::int64_t features, std::int64_t padding, std::uintptr_t gathered,
                std::uintptr_t others, const F& f) {
  visit_pack<T>(features + padding, padding > 0 ? gathered : gathered | others, f);
}

inline std::uintptr_t address_of(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data);
}

/// A GPU takes no more blocks than this along y and z: kernels loop over further slabs.
inline constexpr std::int64_t kMostBlocksAlongY = 65535;

/// The numbers of blocks of a launch.
struct Grid {
  std::int64_t x = 1, y = 1, z = 1;
};

/// Throws std::length_error with the kernel's name for more blocks than a GPU takes.
inline dim3 checked_grid(const char* kernel_name, const Grid& grid) {
  if (grid.x > 0x7FFFFFFF || grid.y > kMostBlocksAlongY || grid.z > kMostBlocksAlongY) {
    throw std::length_error(
        std::string(kernel_name) + ": expected at most 2147483647 x 65535 x 65535 blocks, got " +
        std::to_string(grid.x) + " x " + std::to_string(grid.y) + " x " + std::to_string(grid.z));
  }
  return dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
              static_cast<unsigned>(grid.z));
}

/// Queues `kernel` on `stream`; does nothing for an empty grid. Kernels take their parameters by
/// value and use only static shared memory.
template <class... Parameters, class... Arguments>
void launch(const char* kernel_name, void (*kernel)(Parameters...), const Grid& blocks, dim3 block,
            void* stream, const Arguments&... arguments) {
  if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0) return;
  const dim3 grid = checked_grid(kernel_name, blocks);
#ifdef __CUDACC__
  kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(Parameters(arguments)...);
  check_launch(kernel_name, static_cast<int>(cudaGetLastError()));
#else
  emulate(kernel_name, grid, block, [&] { kernel(Parameters(arguments)...); });
  static_cast<void>(stream);
#endif
}

}  // namespace mezzo::kernels::cuda
