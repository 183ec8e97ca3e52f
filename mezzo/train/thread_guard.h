#pragma once

#include <algorithm>
#include <cstdint>

#include <ATen/Parallel.h>
#include <sched.h>

namespace mezzo {

/// CPUs that the calling thread may use; 0 if unknown.
inline std::int64_t usable_cpus() {
  cpu_set_t cpus;
  return ::sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 0;
}

/// Call this before a run that uses ThreadGuard. at::set_num_threads also fixes MKL's number of
/// threads, which may change the bits of its products; that must not happen during a run.
inline void fix_own_threads() {
  at::set_num_threads(at::get_num_threads());
}

/// Guard: operations of the calling thread use the threads of `processes` processes, which wait
/// meanwhile; at most one thread for each CPU that this process may use. Internal to train; not
/// exported.
class ThreadGuard {
 public:
  explicit ThreadGuard(std::int64_t processes) : own_(at::get_num_threads()) {
    const std::int64_t all = std::min(own_ * processes, usable_cpus());
    if (all > own_) at::set_num_threads(static_cast<int>(all));
  }
  ~ThreadGuard() {
    if (at::get_num_threads() != own_) at::set_num_threads(own_);
  }
  ThreadGuard(const ThreadGuard&) = delete;
  ThreadGuard& operator=(const ThreadGuard&) = delete;

 private:
  int own_;
};

}  // namespace mezzo
