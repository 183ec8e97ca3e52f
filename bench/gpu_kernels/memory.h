#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mezzo/core/dtype.h"

namespace mezzo::bench::gpu {

/// An array in the memory of the device; in a program for the emulator, in the memory of the CPU.
/// Every function throws std::runtime_error if CUDA reports an error.
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::int64_t bytes);
  ~DeviceArray();
  DeviceArray(DeviceArray&& from) noexcept;
  DeviceArray& operator=(DeviceArray&& from) noexcept;

  void* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  void write(const void* from, std::int64_t bytes);
  void read(void* to, std::int64_t offset, std::int64_t bytes) const;
  /// Sets every byte to 0xFF, NaN in each dtype: results that no kernel writes are found.
  void poison();

 private:
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

template <class T>
DeviceArray to_device(const std::vector<T>& from) {
  const auto bytes = static_cast<std::int64_t>(from.size() * sizeof(T));
  DeviceArray array(bytes);
  array.write(from.data(), bytes);
  return array;
}

/// Bytes of an element.
std::int64_t size_of(DType dtype);

/// `count` elements: number(seed, i).
DeviceArray random_array(DType dtype, std::uint64_t seed, std::int64_t count);

/// The elements [begin, begin + count) of an array of `dtype`.
std::vector<double> read_numbers(const DeviceArray& array, DType dtype, std::int64_t begin,
                                 std::int64_t count);

/// Milliseconds that the device takes for what `work` enqueues on the default stream.
double elapsed_ms(const std::function<void()>& work);

/// The name of the device, and the bytes of its L2 cache.
std::string device_name();
std::int64_t cache_bytes();

/// Bytes a second: copying an array much larger than the L2 cache (bytes read and written), and
/// reading one that fits into it.
struct Bandwidth {
  double copy = 0, cache = 0;
};
Bandwidth measure_bandwidth(std::int64_t copy_bytes);

}  // namespace mezzo::bench::gpu
