#include "mezzo/runtime/signal_guard.h"

#include <omp.h>

namespace mezzo {
namespace {

sigset_t make_blocked_signals() {
  sigset_t signals;
  sigfillset(&signals);
  // Do not block faults: the kernel ends a process that blocks the signal of its own fault.
  for (const int fault : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP}) {
    sigdelset(&signals, fault);
  }
  return signals;
}

/// Sets the mask of every thread of the team except the calling one.
void set_worker_masks(const sigset_t& mask) {
  if (omp_get_max_threads() == 1 || omp_in_parallel() != 0) return;
#pragma omp parallel default(none) shared(mask)
  if (omp_get_thread_num() != 0) pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

}  // namespace

SignalGuard::SignalGuard() {
  static const sigset_t blocked_signals = make_blocked_signals();
  // The caller first: new threads of the team inherit its mask.
  pthread_sigmask(SIG_BLOCK, &blocked_signals, &caller_mask_);
  set_worker_masks(blocked_signals);
}

SignalGuard::~SignalGuard() {
  // The caller first, so that it receives pending signals: often it is the only thread that can.
  pthread_sigmask(SIG_SETMASK, &caller_mask_, nullptr);
  set_worker_masks(caller_mask_);
}

}  // namespace mezzo
