#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "mezzo/kernels/cuda/device.h"

#include "bench/gpu_kernels/memory.h"
#include "bench/gpu_kernels/numbers.h"

namespace mezzo::bench::gpu {
namespace {

using kernels::cuda::ceil_div;
using kernels::cuda::launch;

constexpr int kThreads = 256;
constexpr int kRounds = 7;

#ifdef __CUDACC__
void check(const char* call, cudaError_t status) {
  kernels::cuda::check_launch(call, static_cast<int>(status));
}
#endif

template <class T>
__global__ void fill(typename T::Storage* to, std::uint64_t seed, std::int64_t count) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = kernels::cuda::narrowed<T>(typename T::Accum(number(seed, i)));
  }
}

/// Words of 16 bytes.
struct alignas(16) Word {
  std::uint32_t part[4];
};

__global__ void copy_words(const Word* from, Word* to, std::int64_t count) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = from[i];
  }
}

/// Every block reads all words, from a place of its own on, not through the L1 cache.
__global__ void read_words(const Word* from, std::uint32_t* to, std::int64_t count) {
  std::uint32_t sum = 0;
  const std::int64_t begin = count / gridDim.x * blockIdx.x;
#pragma unroll 8
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    const std::int64_t at = begin + i < count ? begin + i : begin + i - count;
#ifdef __CUDACC__
    const uint4 word = __ldcg(reinterpret_cast<const uint4*>(from + at));
    sum += word.x + word.y + word.z + word.w;
#else
    sum += from[at].part[0];
#endif
  }
  if (sum == 1) *to = sum;  // so that the loads stay
}

std::int64_t blocks_for(std::int64_t count) {
  return std::clamp<std::int64_t>(ceil_div(count, kThreads), 1, 1 << 16);
}

double best_ms(const std::function<void()>& work) {
  work();
  double best = elapsed_ms(work);
  for (int round = 1; round < kRounds; ++round) best = std::min(best, elapsed_ms(work));
  return best;
}

double half_to_double(Float16Bits x) {
  const int exponent = x.bits >> 10 & 31, fraction = x.bits & 1023;
  const double sign = (x.bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return fraction == 0 ? sign * HUGE_VAL : NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}
double to_double(Float16Bits x) {
  return half_to_double(x);
}
double to_double(BFloat16Bits x) {
  const std::uint32_t bits = std::uint32_t{x.bits} << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
double to_double(double x) {
  return x;
}

}  // namespace

DeviceArray::DeviceArray(std::int64_t bytes) : bytes_(bytes) {
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 16));
#ifdef __CUDACC__
  check("cudaMalloc", cudaMalloc(&data_, size));
#else
  data_ = std::aligned_alloc(16, (size + 15) / 16 * 16);
#endif
}

DeviceArray::~DeviceArray() {
#ifdef __CUDACC__
  static_cast<void>(cudaFree(data_));
#else
  std::free(data_);
#endif
}

DeviceArray::DeviceArray(DeviceArray&& from) noexcept
    : data_(std::exchange(from.data_, nullptr)), bytes_(std::exchange(from.bytes_, 0)) {}

DeviceArray& DeviceArray::operator=(DeviceArray&& from) noexcept {
  std::swap(data_, from.data_);
  std::swap(bytes_, from.bytes_);
  return *this;
}

void DeviceArray::write(const void* from, std::int64_t bytes) {
#ifdef __CUDACC__
  check("cudaMemcpy",
        cudaMemcpy(data_, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice));
#else
  std::memcpy(data_, from, static_cast<std::size_t>(bytes));
#endif
}

void DeviceArray::read(void* to, std::int64_t offset, std::int64_t bytes) const {
  const char* from = static_cast<const char*>(data_) + offset;
#ifdef __CUDACC__
  check("cudaMemcpy",
        cudaMemcpy(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost));
#else
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
#endif
}

void DeviceArray::poison() {
#ifdef __CUDACC__
  check("cudaMemset", cudaMemset(data_, 0xFF, static_cast<std::size_t>(bytes_)));
#else
  std::memset(data_, 0xFF, static_cast<std::size_t>(bytes_));
#endif
}

std::int64_t size_of(DType dtype) {
  std::int64_t size = 0;
  detail::visit(DTypes{}, dtype, [&]<class T>() { size = sizeof(typename T::Storage); });
  return size;
}

DeviceArray random_array(DType dtype, std::uint64_t seed, std::int64_t count) {
  DeviceArray array(count * size_of(dtype));
  detail::visit(DTypes{}, dtype, [&]<class T>() {
    launch("fill", fill<T>, {blocks_for(count)}, kThreads, nullptr,
           static_cast<typename T::Storage*>(array.data()), seed, count);
  });
  return array;
}

std::vector<double> read_numbers(const DeviceArray& array, DType dtype, std::int64_t begin,
                                 std::int64_t count) {
  std::vector<double> numbers;
  detail::visit(DTypes{}, dtype, [&]<class T>() {
    constexpr auto kSize = static_cast<std::int64_t>(sizeof(typename T::Storage));
    std::vector<typename T::Storage> stored(static_cast<std::size_t>(count));
    array.read(stored.data(), begin * kSize, count * kSize);
    for (const auto x : stored) numbers.push_back(to_double(x));
  });
  return numbers;
}

double elapsed_ms(const std::function<void()>& work) {
#ifdef __CUDACC__
  cudaEvent_t begin = nullptr, end = nullptr;
  check("cudaEventCreate", cudaEventCreate(&begin));
  check("cudaEventCreate", cudaEventCreate(&end));
  check("cudaEventRecord", cudaEventRecord(begin));
  work();
  check("cudaEventRecord", cudaEventRecord(end));
  check("cudaEventSynchronize", cudaEventSynchronize(end));
  float milliseconds = 0;
  check("cudaEventElapsedTime", cudaEventElapsedTime(&milliseconds, begin, end));
  static_cast<void>(cudaEventDestroy(begin));
  static_cast<void>(cudaEventDestroy(end));
  return milliseconds;
#else
  const auto begin = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  return time.count();
#endif
}

std::string device_name() {
#ifdef __CUDACC__
  cudaDeviceProp properties;
  check("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, 0));
  return properties.name;
#else
  return "emulator";
#endif
}

std::int64_t cache_bytes() {
#ifdef __CUDACC__
  int bytes = 0;
  check("cudaDeviceGetAttribute", cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, 0));
  return bytes;
#else
  return 1 << 12;
#endif
}

Bandwidth measure_bandwidth(std::int64_t copy_bytes) {
  constexpr auto kWord = static_cast<std::int64_t>(sizeof(Word));
  Bandwidth bandwidth;
  {
    const std::int64_t words = copy_bytes / kWord;
    const DeviceArray from = random_array(DType::kFloat32, 1, 4 * words), to(words * kWord);
    const double time = best_ms([&] {
      launch("copy", copy_words, {blocks_for(words)}, kThreads, nullptr,
             static_cast<const Word*>(from.data()), static_cast<Word*>(to.data()), words);
    });
    bandwidth.copy = static_cast<double>(2 * words * kWord) / (time * 1e-3);
  }
  // A quarter: each of the cache's two partitions may keep its own copy of a line.
  const std::int64_t words = cache_bytes() / 4 / kWord, blocks = std::min<std::int64_t>(words, 528);
  const DeviceArray from = random_array(DType::kFloat32, 2, 4 * words), to(kWord);
  const double time = best_ms([&] {
    launch("read", read_words, {blocks}, kThreads, nullptr, static_cast<const Word*>(from.data()),
           static_cast<std::uint32_t*>(to.data()), words);
  });
  bandwidth.cache = static_cast<double>(blocks * words * kWord) / (time * 1e-3);
  return bandwidth;
}

}  // namespace mezzo::bench::gpu
