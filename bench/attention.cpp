// GAT and GATv2 layers on an R-MAT graph with self loops: time and memory, compared with an
// implementation that stores E x F tensors.
#include "bench/cases/layers.h"
#include "bench/harness/program.h"

namespace {

using namespace mezzo::bench;

void run(Bench& bench) {
  const Workload load = bench.workload(/*self_loops=*/true);
  for (const std::int64_t width : bench.arguments.widths) {
    for (const Pass pass : {Pass::kForward, Pass::kForwardBackward}) {
      bench.run(gat_layer(load, width, pass));
      bench.run(gatv2_layer(load, width, pass));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(
      {.name = "attention",
       .description = "GAT and GATv2 layers beside gathering and scattering in libtorch",
       .widths = {256},
       .width_help = "Features in and out, in 4 heads",
       .takes_graph = true,
       .run = run},
      argc, argv);
}
