// Edge softmax on an R-MAT graph.
#include "bench/harness/program.h"

namespace {

using namespace mezzo::bench;

void run(Bench& bench) {
  const Workload load = bench.workload();
  for (const std::int64_t heads : bench.arguments.widths) {
    for (const Pass pass : {Pass::kForward, Pass::kForwardBackward}) {
      bench.run(softmax(load, heads, pass));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(
      {.name = "softmax",
       .description = "Softmax over the edges of a node beside libtorch's scattering",
       .widths = {1, 4, 8},
       .width_help = "Heads: numbers of an edge",
       .takes_graph = true,
       .run = run},
      argc, argv);
}
