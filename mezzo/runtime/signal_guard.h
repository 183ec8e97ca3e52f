#pragma once

#include <csignal>

#include "mezzo/core/export.h"

namespace mezzo {

/// While alive, no signal handler runs in the calling thread or in its OpenMP team: signals stay
/// pending and are delivered afterwards. Signals for faults of the thread itself (SIGSEGV, SIGFPE,
/// ...) are not blocked.
///
/// Needed by the float32 kernels of oneDNN up to 3.11.1. They point the stack pointer at the end of
/// a heap block, where the frame of a signal handler overwrites other blocks (decision 29).
///
/// Construct and destroy it in the same thread. Cost: two system calls per thread and two empty
/// parallel regions, a few microseconds.
class MEZZO_API SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

 private:
  sigset_t caller_mask_ = {};
};

}  // namespace mezzo
