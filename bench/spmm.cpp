// g-SpMM: the neighbours' rows, plain, weighted, scaled and under every reducer, on an R-MAT graph.
#include "bench/cases/reducers.h"
#include "bench/harness/program.h"

namespace {

using namespace mezzo::bench;

void run(Bench& bench) {
  const Workload load = bench.workload();
  for (const std::int64_t width : bench.arguments.widths) {
    for (const Pass pass : {Pass::kForward, Pass::kForwardBackward}) {
      bench.run(copy_u_sum(load, width, pass));
      bench.run(u_mul_e_sum(load, width, pass));
      bench.run(degree_scaled_sum(load, width, pass));
      for (const auto reduce : {mezzo::ReduceOp::kMean, mezzo::ReduceOp::kMax,
                                mezzo::ReduceOp::kMin, mezzo::ReduceOp::kProd}) {
        bench.run(copy_u_reduce(load, reduce, width, pass));
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_program({.name = "spmm",
                      .description = "g-SpMM beside libtorch's sparse products and gathering",
                      .widths = {32, 64, 128, 256},
                      .width_help = "Features of a node",
                      .takes_graph = true,
                      .run = run},
                     argc, argv);
}
