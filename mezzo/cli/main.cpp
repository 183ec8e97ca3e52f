#include <string>
#include <vector>

#include "mezzo/cli/interrupt.h"
#include "mezzo/cli/run.h"
#include "mezzo/cli/spin_limit.h"

namespace {

void on_load(int /*argc*/, char** argv, char** environment) {
  mezzo::cli::limit_spinning(argv, environment);
  mezzo::cli::exit_at_interrupts();
}

// Runs before libtorch's constructors, which take a good part of a second.
[[gnu::section(".preinit_array"), gnu::used]] void (*const call_on_load)(int, char**,
                                                                         char**) = on_load;

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) arguments.emplace_back(argv[i]);
  return mezzo::cli::run(arguments);
}
