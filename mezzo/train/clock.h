#pragma once

#include <chrono>

namespace mezzo {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// A checkpoint that was asked for is written at least so often.
inline constexpr double kCheckpointSeconds = 60;

}  // namespace mezzo
