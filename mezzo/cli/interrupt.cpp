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

}  // namespace

void handle_interrupts() {
  struct sigaction action = {};
  action.sa_handler = remember;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void outlive_readers() {
  std::signal(SIGPIPE, SIG_IGN);
}

bool interrupted() {
  return came.load();
}

}  // namespace mezzo::cli
