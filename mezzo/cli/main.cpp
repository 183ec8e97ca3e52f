#include <string>
#include <vector>

#include "mezzo/cli/interrupt.h"
#include "mezzo/cli/run.h"
#include "mezzo/cli/spin_limit.h"
#include "mezzo/runtime/memory.h"

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
  // The tensors of a server grow with its graph: pages of former ones would never be used again.
  if (arguments.empty() || arguments.front() != "predict") mezzo::keep_freed_pages();
  return mezzo::cli::run(arguments);
}
