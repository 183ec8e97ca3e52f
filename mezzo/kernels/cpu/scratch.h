#pragma once

#include <cstdint>

#include "mezzo/kernels/head_scratch.h"

namespace mezzo::kernels {

/// Hands out arrays of a kernel's scratch, each on its own cache lines and with a vector to spare
/// behind it.
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
    Number* taken = next_;
    next_ += (count + kMostLanes - 1) / kMostLanes * kMostLanes + kMostLanes;
    return taken;
  }

 private:
  static constexpr std::uintptr_t kAlignment = 64;
  Number* next_;
};

}  // namespace mezzo::kernels
