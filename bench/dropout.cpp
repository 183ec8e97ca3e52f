// Dropout of half of the elements: rows that fit in the caches, and rows that do not.
#include "bench/cases/rows.h"
#include "bench/harness/program.h"

namespace {

using namespace mezzo::bench;

void run(Bench& bench) {
  bench.begin();
  for (const std::int64_t width : bench.arguments.widths) {
    for (const std::int64_t rows : {2048, 131072}) {
      for (const Pass pass : {Pass::kForward, Pass::kForwardBackward}) {
        bench.run(row_dropout(rows, width, bench.arguments.precisions, pass));
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_program({.name = "dropout",
                      .description = "Dropout beside libtorch's",
                      .widths = {256},
                      .width_help = "Features of a row",
                      .run = run},
                     argc, argv);
}
