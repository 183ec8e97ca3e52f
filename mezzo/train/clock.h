#pragma once

#include <chrono>

namespace mezzo {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The longest time between two checkpoints of a run.
inline constexpr double kCheckpointSeconds = 60;

}  // namespace mezzo
