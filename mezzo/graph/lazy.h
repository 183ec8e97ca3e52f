#pragma once

#include <atomic>
#include <mutex>
#include <utility>

#include <c10/core/InferenceMode.h>

namespace mezzo::detail {

/// A value made by the first that asks, while the others wait.
template <class T>
class Lazy {
 public:
  template <class Make>
  const T& get(const Make& make) {
    if (!ready_.load(std::memory_order_acquire)) {
      const std::lock_guard lock(mutex_);
      // A structure first used inside an inference guard must still serve training later.
      const c10::InferenceMode no_inference(false);
      if (!ready_.load(std::memory_order_relaxed)) put(make());
    }
    return value_;
  }
  /// Before the object is shared, or under the lock.
  void put(T value) {
    value_ = std::move(value);
    ready_.store(true, std::memory_order_release);
  }
  /// The value if it is there already.
  const T* peek() const { return ready_.load(std::memory_order_acquire) ? &value_ : nullptr; }

 private:
  std::mutex mutex_;
  std::atomic<bool> ready_{false};
  T value_{};
};

}  // namespace mezzo::detail
