#include "mezzo/cli/interrupt.h"

#include <atomic>
#include <csignal>

#include <unistd.h>

#include "mezzo/cli/progress.h"
#include "mezzo/cli/run.h"
#include "mezzo/train/files/files.h"

namespace mezzo::cli {
namespace {

std::atomic<bool> is_deferred = false;  // else a signal ends the process
std::atomic<bool> is_interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not lock");

extern "C" void on_interrupt(int signal) {
  // A lost terminal sends SIGHUP more than once: the shell, then the kernel.
  if (is_deferred.load() && (!is_interrupted.exchange(true) || signal == SIGHUP)) return;
  remove_unfinished_file();
  end_open_row();
  ::_exit(kInterrupted);
}

bool is_ignored(int signal) {
  struct sigaction current = {};
  sigaction(signal, nullptr, &current);
  return current.sa_handler == SIG_IGN;
}

}  // namespace

void exit_at_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  if (!is_ignored(SIGHUP)) sigaction(SIGHUP, &action, nullptr);
  // `mezzo launch` blocks them in its processes until they have a handler.
  sigset_t handled;
  sigemptyset(&handled);
  sigaddset(&handled, SIGINT);
  sigaddset(&handled, SIGTERM);
  sigprocmask(SIG_UNBLOCK, &handled, nullptr);
}

void handle_interrupts() {
  is_deferred = true;
  exit_at_interrupts();
}

bool interrupted() {
  return is_interrupted.load();
}

void ignore_sigpipe() {
  std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace mezzo::cli
