// Sums of segments as long as the in-degrees of an R-MAT graph; products of rows with the matrix of
// their group.
#include "bench/cases/rows.h"
#include "bench/harness/program.h"

namespace {

using namespace mezzo::bench;

void run(Bench& bench) {
  const Workload load = bench.workload();
  for (const std::int64_t width : bench.arguments.widths) {
    for (const Pass pass : {Pass::kForward, Pass::kForwardBackward}) {
      bench.run(segment_sum(load, width, pass));
      bench.run(segment_products({}, width, bench.arguments.precisions, pass));
      bench.run(gathered_products({}, width, bench.arguments.precisions, pass));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_program({.name = "segment",
                      .description = "Sums and products of segments beside libtorch's",
                      .widths = {64, 256},
                      .width_help = "Features of a row",
                      .takes_graph = true,
                      .run = run},
                     argc, argv);
}
