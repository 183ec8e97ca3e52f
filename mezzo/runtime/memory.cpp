#include "mezzo/runtime/memory.h"

#include <atomic>
#include <fstream>
#include <string>

#include <ATen/Context.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <malloc.h>

#include "mezzo/core/error.h"
#include "mezzo/core/huge_pages.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/runtime/cuda_library.h"

namespace mezzo {

namespace {

std::atomic<std::int64_t> live_bytes{0};
std::atomic<std::int64_t> peak_bytes{0};

c10::DeleterFnPtr inner_deleter = nullptr;

void free_counted(void* data) {
  live_bytes -= static_cast<std::int64_t>(malloc_usable_size(data));
  inner_deleter(data);
}

/// Counts the allocations of libtorch's allocator and requests huge pages for large blocks. Blocks
/// are allocated and freed by libtorch; their size comes from malloc, so they need no extra bytes.
class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* inner) : inner_(inner) {
    inner_deleter = inner->raw_deleter();
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    c10::DataPtr block = inner_->allocate(bytes);
    advise_huge_pages(block.get(), bytes);
    if (block.get() != nullptr && block.compare_exchange_deleter(inner_deleter, &free_counted)) {
      const std::int64_t live = live_bytes +=
          static_cast<std::int64_t>(malloc_usable_size(block.get()));
      std::int64_t peak = peak_bytes.load();
      while (live > peak && !peak_bytes.compare_exchange_weak(peak, live)) {
      }
    }
    return block;
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_counted; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  c10::Allocator* inner_;
};

[[maybe_unused]] const bool installed = [] {
  c10::Allocator* inner = c10::GetDefaultCPUAllocator();
  if (inner->raw_deleter() == nullptr) return false;
  static CountingAllocator counting(inner);
  c10::SetCPUAllocator(&counting);
  return true;
}();

/// libtorch's statistics of tensor bytes on a CUDA device.
const c10::CachingAllocator::Stat& cuda_bytes(const c10::CachingDeviceAllocator::DeviceStats& all) {
  return all.allocated_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}

/// Calls count(allocator, index) for a CUDA device.
template <class Count>
auto counted_by_libtorch(c10::Device device, const Count& count) {
  const c10::Device here = detail::resolve_device("memory", device);
  at::globalContext().lazyInitDevice(at::kCUDA);
  return count(*c10::getDeviceAllocator(at::kCUDA), here.index());
}

}  // namespace

std::int64_t peak_memory_bytes(c10::Device device) {
  if (device.is_cpu()) return peak_bytes.load();
  return counted_by_libtorch(device, [](c10::DeviceAllocator& allocator, c10::DeviceIndex index) {
    return cuda_bytes(allocator.getDeviceStats(index)).peak;
  });
}

std::int64_t current_memory_bytes(c10::Device device) {
  if (device.is_cpu()) return live_bytes.load();
  return counted_by_libtorch(device, [](c10::DeviceAllocator& allocator, c10::DeviceIndex index) {
    return cuda_bytes(allocator.getDeviceStats(index)).current;
  });
}

std::int64_t free_memory_bytes(c10::Device device) {
  MEZZO_CHECK(device.is_cuda(), "memory: expected a CUDA device to ask for free memory, got {}",
              device.str());
  return counted_by_libtorch(device, [](c10::DeviceAllocator& allocator, c10::DeviceIndex index) {
    return static_cast<std::int64_t>(allocator.getMemoryInfo(index).first);
  });
}

void reset_peak_memory(c10::Device device) {
  if (device.is_cpu()) {
    peak_bytes = live_bytes.load();
    return;
  }
  counted_by_libtorch(device, [](c10::DeviceAllocator& allocator, c10::DeviceIndex index) {
    allocator.resetPeakStats(index);
  });
}

c10::Device default_device(std::int64_t index) {
  if (cuda_kernels() == nullptr || !sees_gpu()) return c10::Device(c10::kCPU);
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

std::int64_t proportional_bytes() {
  constexpr const char* kFile = "/proc/self/smaps_rollup";
  std::ifstream file(kFile);
  for (std::string word; file >> word;) {
    std::int64_t kibibytes = 0;
    if (word == "Pss:" && file >> kibibytes) return kibibytes * 1024;
  }
  throw IoError(fmt::format("{}: expected a line 'Pss: <number> kB'", kFile));
}

void keep_freed_pages() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);  // never; the largest int would be 2 GiB
}

}  // namespace mezzo
