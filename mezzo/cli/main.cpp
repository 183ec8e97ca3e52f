#include <string>
#include <vector>

#include "mezzo/cli/freed_pages.h"
#include "mezzo/cli/run.h"

int main(int argc, char** argv) {
  mezzo::cli::keep_freed_pages();
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) arguments.emplace_back(argv[i]);
  return mezzo::cli::run(arguments);
}
