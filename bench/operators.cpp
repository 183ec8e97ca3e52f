// The programs of the operators and of attention layers: the one called MEZZO_PROGRAM.
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/cases/layers.h"
#include "bench/cases/reducers.h"
#include "bench/cases/rows.h"
#include "bench/harness/program.h"

namespace {

using namespace mezzo::bench;

constexpr std::array kPasses = {Pass::kForward, Pass::kForwardBackward};

/// Plans on a graph with rows of `width`.
using Plans = std::function<std::vector<Plan>(const Workload&, std::int64_t width, Pass)>;

/// Measures the plans of every width on an R-MAT graph.
Program on_graph(std::string name, std::string description, std::vector<std::int64_t> widths,
                 std::string width_help, const Plans& plans, bool self_loops = false) {
  return {.name = std::move(name),
          .description = std::move(description),
          .widths = std::move(widths),
          .width_help = std::move(width_help),
          .takes_graph = true,
          .run = [plans, self_loops](Bench& bench) {
            const Workload load = bench.workload(self_loops);
            for (const std::int64_t width : bench.arguments.widths) {
              for (const Pass pass : kPasses) {
                for (const Plan& plan : plans(load, width, pass)) bench.run(plan);
              }
            }
          }};
}

std::vector<Plan> sums(const Workload& load, std::int64_t width, Pass pass) {
  std::vector<Plan> plans = {copy_u_sum(load, width, pass), u_mul_e_sum(load, width, pass),
                             degree_scaled_sum(load, width, pass)};
  for (const auto reduce : {mezzo::ReduceOp::kMean, mezzo::ReduceOp::kMax, mezzo::ReduceOp::kMin,
                            mezzo::ReduceOp::kProd}) {
    plans.push_back(copy_u_reduce(load, reduce, width, pass));
  }
  return plans;
}

/// Rows that fit in the caches, and rows that do not.
void run_dropout(Bench& bench) {
  bench.begin();
  for (const std::int64_t width : bench.arguments.widths) {
    for (const std::int64_t rows : {2048, 131072}) {
      for (const Pass pass : kPasses) {
        bench.run(row_dropout(rows, width, bench.arguments.precisions, pass));
      }
    }
  }
}

/// Products of first, hidden and last layers, those of a mini-batch, and two small ones on either
/// side of the size limit above which float32 may use another library.
void run_linear(Bench& bench) {
  bench.begin();
  for (const ProductSize& size :
       {ProductSize{131072, 602, 256}, ProductSize{131072, 256, 256}, ProductSize{34493, 8415, 256},
        ProductSize{131072, 256, 41}, ProductSize{512, 602, 256}, ProductSize{2048, 256, 256},
        ProductSize{512, 256, 41}, ProductSize{512, 64, 64}, ProductSize{2048, 64, 64}}) {
    for (const Pass pass : kPasses) {
      bench.run(dense_product(size, bench.arguments.precisions, pass));
    }
  }
}

std::vector<Program> programs() {
  using Made = std::vector<Plan>;
  return {on_graph("spmm", "g-SpMM beside libtorch's sparse products and gathering",
                   {32, 64, 128, 256}, "Features of a node", sums),
          on_graph("sddmm", "g-SDDMM beside libtorch's sampled product and gathering",
                   {32, 64, 128, 256}, "Features of a node",
                   [](const Workload& load, std::int64_t width, Pass pass) -> Made {
                     return {u_dot_v(load, width, pass)};
                   }),
          on_graph("softmax", "Softmax over the edges of a node beside libtorch's scattering",
                   {1, 4, 8}, "Heads: numbers of an edge",
                   [](const Workload& load, std::int64_t heads, Pass pass) -> Made {
                     return {softmax(load, heads, pass)};
                   }),
          on_graph("segment", "Sums and products of segments beside libtorch's", {64, 256},
                   "Features of a row",
                   [](const Workload& load, std::int64_t width, Pass pass) -> Made {
                     return {segment_sum(load, width, pass),
                             segment_products({}, width, load.precisions, pass),
                             gathered_products({}, width, load.precisions, pass)};
                   }),
          on_graph(
              "attention", "GAT and GATv2 layers beside gathering and scattering in libtorch",
              {256}, "Features in and out, in 4 heads",
              [](const Workload& load, std::int64_t width, Pass pass) -> Made {
                return {gat_layer(load, width, pass), gatv2_layer(load, width, pass)};
              },
              /*self_loops=*/true),
          on_graph("interaction", "An interaction block beside concatenated rows in libtorch",
                   {64, 128}, "Features of a node, of an edge and of the hidden layer",
                   [](const Workload& load, std::int64_t width, Pass pass) -> Made {
                     return {interaction_block(load, width, pass)};
                   }),
          {.name = "dropout",
           .description = "Dropout beside libtorch's",
           .widths = {256},
           .width_help = "Features of a row",
           .run = run_dropout},
          {.name = "linear",
           .description = "Dense products in 16 bits beside libtorch's",
           .run = run_linear}};
}

}  // namespace

int main(int argc, char** argv) {
  for (const Program& program : programs()) {
    if (program.name == MEZZO_PROGRAM) return run_program(program, argc, argv);
  }
  return 1;
}
