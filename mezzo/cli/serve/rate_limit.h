#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

namespace mezzo::cli {

/// At most so many requests in each second. Any thread may call it.
class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RateLimit(std::int64_t per_second) : per_second_(per_second) {}

  /// Counts a request; returns whether it is within the limit. now: does not decrease. A second
  /// begins with the first request after the end of the last one.
  bool take(Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    if (count_ == 0 || now - begin_ >= std::chrono::seconds(1)) {
      begin_ = now;
      count_ = 0;
    }
    return ++count_ <= per_second_;
  }

 private:
  std::mutex mutex_;
  Clock::time_point begin_;
  std::int64_t per_second_, count_ = 0;
};

}  // namespace mezzo::cli
