#include "mezzo/cli/interrupt.h"

#include <atomic>
#include <csignal>

namespace mezzo::cli {
namespace {

std::atomic<bool> came = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not lock");

extern "C" void remember(int /*signal*/) {
  came.store(true);
}

bool is_ignored(int signal) {
  struct sigaction current = {};
  sigaction(signal, nullptr, &current);
  return current.sa_handler == SIG_IGN;
}

}  // namespace

void handle_interrupts() {
  struct sigaction action = {};
  action.sa_handler = remember;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // Of a lost terminal the shell tells, and then the kernel again.
  action.sa_flags = SA_RESTART;
  if (!is_ignored(SIGHUP)) sigaction(SIGHUP, &action, nullptr);
}

void end_at_interrupts() {
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
  if (!is_ignored(SIGHUP)) std::signal(SIGHUP, SIG_DFL);
  if (interrupted()) std::raise(SIGTERM);
}

void outlive_readers() {
  std::signal(SIGPIPE, SIG_IGN);
}

bool interrupted() {
  return came.load();
}

}  // namespace mezzo::cli
