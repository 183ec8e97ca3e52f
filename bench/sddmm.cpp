// g-SDDMM: the dot product of the endpoints of every edge of an R-MAT graph.
#include "bench/harness/program.h"

namespace {

using namespace mezzo::bench;

void run(Bench& bench) {
  const Workload load = bench.workload();
  for (const std::int64_t width : bench.arguments.widths) {
    for (const Pass pass : {Pass::kForward, Pass::kForwardBackward}) {
      bench.run(u_dot_v(load, width, pass));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_program({.name = "sddmm",
                      .description = "g-SDDMM beside libtorch's sampled product and gathering",
                      .widths = {32, 64, 128, 256},
                      .width_help = "Features of a node",
                      .takes_graph = true,
                      .run = run},
                     argc, argv);
}
