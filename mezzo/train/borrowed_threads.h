#pragma once

#include <algorithm>
#include <cstdint>

#include <ATen/Parallel.h>
#include <sched.h>

namespace mezzo {

/// CPUs on which the calling thread may run; 0 where the system does not tell.
inline std::int64_t usable_cpus() {
  cpu_set_t cpus;
  return ::sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 0;
}

/// To be called before a run that borrows threads. Once a number of threads has been set, libtorch
/// has MKL always take as many, which may change the bits of its products: not in mid run.
inline void fix_own_threads() {
  at::set_num_threads(at::get_num_threads());
}

/// While it lives, operations of the calling thread have the threads of `processes` like this one,
/// which wait for it: together as many as when all of them compute. At most one for each CPU that
/// this process may use; it may be bound to its own. Internal to train; not exported.
class BorrowedThreads {
 public:
  explicit BorrowedThreads(std::int64_t processes) : own_(at::get_num_threads()) {
    const std::int64_t all = std::min(own_ * processes, usable_cpus());
    if (all > own_) at::set_num_threads(static_cast<int>(all));
  }
  ~BorrowedThreads() {
    if (at::get_num_threads() != own_) at::set_num_threads(own_);
  }
  BorrowedThreads(const BorrowedThreads&) = delete;
  BorrowedThreads& operator=(const BorrowedThreads&) = delete;

 private:
  int own_;
};

}  // namespace mezzo
