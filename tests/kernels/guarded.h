#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace mezzo::test {

/// Bytes that end at an inaccessible page: reads and writes past the end crash the program, on
/// every backend. (AddressSanitizer does not check masked loads and stores.)
class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t size) : size_(size) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t usable = (size + page - 1) / page * page;
    mapped_ = usable + page;
    base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) throw std::runtime_error("mmap failed");
    data_ = static_cast<std::byte*>(base_) + (usable - size);
    if (mprotect(static_cast<std::byte*>(base_) + usable, page, PROT_NONE) != 0) {
      throw std::runtime_error("mprotect failed");
    }
  }
  /// A copy of `values`.
  template <class T>
  explicit GuardedBytes(const std::vector<T>& values) : GuardedBytes(values.size() * sizeof(T)) {
    if (size_ > 0) std::memcpy(data_, values.data(), size_);
  }
  GuardedBytes(GuardedBytes&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        data_(other.data_),
        size_(other.size_),
        mapped_(other.mapped_) {}
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  GuardedBytes& operator=(GuardedBytes&&) = delete;
  ~GuardedBytes() {
    if (base_ != nullptr) munmap(base_, mapped_);
  }

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  void* base_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0, mapped_ = 0;
};

}  // namespace mezzo::test
