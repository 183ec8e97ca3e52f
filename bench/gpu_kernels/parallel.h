#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace mezzo::bench::gpu {

/// Calls f(i) for every i of [0, count), on all cores; each thread takes every n-th i.
inline void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& f) {
  const auto threads = std::clamp<std::int64_t>(std::thread::hardware_concurrency(), 1, count + 1);
  std::vector<std::thread> started;
  for (std::int64_t t = 0; t < threads; ++t) {
    started.emplace_back([&f, t, threads, count] {
      for (std::int64_t i = t; i < count; i += threads) f(i);
    });
  }
  for (std::thread& thread : started) thread.join();
}

}  // namespace mezzo::bench::gpu
