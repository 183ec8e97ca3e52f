#include "mezzo/cli/spin_limit.h"

#include <array>
#include <csignal>
#include <cstddef>
#include <string_view>
#include <vector>

#include <unistd.h>

namespace mezzo::cli {
namespace {

// libgomp's default is 300000 without OMP_WAIT_POLICY.
char spin_count[] = "GOMP_SPINCOUNT=10000";

bool is_set(std::string_view name, char** environment) {
  for (char** one = environment; *one != nullptr; ++one) {
    const std::string_view text = *one;
    if (text.starts_with(name) && text.substr(name.size()).starts_with('=')) return true;
  }
  return false;
}

}  // namespace

void limit_spinning(char** arguments, char** environment) {
  if (is_set("OMP_WAIT_POLICY", environment) || is_set("GOMP_SPINCOUNT", environment)) return;
  // Its name rather than the link itself, which would name the process `exe`.
  std::array<char, 4096> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  // If `ld-linux.so.2 mezzo ...` started the process, the link leads to the loader.
  if (length <= 0 || std::string_view(path.data()).find("/ld-") != std::string_view::npos) return;

  std::vector<char*> variables;
  for (char** one = environment; *one != nullptr; ++one) variables.push_back(*one);
  variables.push_back(spin_count);
  variables.push_back(nullptr);
  // Without a handler a signal would end the new program in another way than this one.
  sigset_t interrupts;
  sigemptyset(&interrupts);
  sigaddset(&interrupts, SIGINT);
  sigaddset(&interrupts, SIGTERM);
  sigprocmask(SIG_BLOCK, &interrupts, nullptr);
  ::execve(path.data(), arguments, variables.data());
}

}  // namespace mezzo::cli
