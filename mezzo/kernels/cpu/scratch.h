#pragma once

#include <cstdint>

#include "mezzo/kernels/head_scratch.h"

namespace mezzo::kernels {

/// Allocates arrays from a kernel's scratch memory, aligned to cache lines and padded by a vector.
template <class V>
class Scratch {
 public:
  using Number = typename V::Scalar;
  explicit Scratch(void* memory) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    next_ = static_cast<Number*>(memory) + (kAlignment - address % kAlignment) % kAlignment /
                                               static_cast<std::uintptr_t>(sizeof(Number));
  }
  Number* take(std::int64_t count) {
    Number* array = next_;
    next_ += (count + kMostLanes - 1) / kMostLanes * kMostLanes + kMostLanes;
    return array;
  }

 private:
  static constexpr std::uintptr_t kAlignment = 64;
  Number* next_;
};

}  // namespace mezzo::kernels
