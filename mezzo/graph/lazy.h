#pragma once

#include <atomic>
#include <mutex>
#include <utility>

#include <c10/core/InferenceMode.h>

namespace mezzo::detail {

/// A value computed once, by the first thread that reads it; other threads wait.
template <class T>
class Lazy {
 public:
  template <class Make>
  const T& get(const Make& make) {
    if (!ready_.load(std::memory_order_acquire)) {
      const std::lock_guard lock(mutex_);
      // A structure first used in inference mode must still work in training later.
      const c10::InferenceMode no_inference(false);
      if (!ready_.load(std::memory_order_relaxed)) put(make());
    }
    return value_;
  }
  /// Call before the object is shared, or under the lock.
  void put(T value) {
    value_ = std::move(value);
    ready_.store(true, std::memory_order_release);
  }
  /// Returns the value if it exists, else nullptr.
  const T* peek() const { return ready_.load(std::memory_order_acquire) ? &value_ : nullptr; }

 private:
  std::mutex mutex_;
  std::atomic<bool> ready_{false};
  T value_{};
};

}  // namespace mezzo::detail
