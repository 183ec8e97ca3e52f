#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mezzo/cli/bench_arguments.h"
#include "mezzo/cli/bench_kernels.h"
#include "mezzo/cli/bench_measure.h"
#include "mezzo/cli/bench_report.h"

namespace mezzo::bench {

/// A running program: its options, and what it has measured so far.
class Bench {
 public:
  BenchArguments arguments;
  std::int64_t scale = 17, edges = std::int64_t{1} << 21;  ///< of the R-MAT graph
  std::string order;  ///< a word of NodeOrders, or empty: as drawn
  std::string work;   ///< only works whose name contains it are measured
  Report report;

  /// The R-MAT graph that was asked for, and prints the conditions. With self loops: one more a
  /// node.
  Workload workload(bool self_loops = false);

  /// Prints threads, rounds, bandwidth, and the graph if there is one.
  void print_conditions() const;

  /// Measures a plan, prints its table and keeps the outcome for --json. Returns it, until the next
  /// call; nullptr after an interrupt and where --work leaves the plan out.
  const Outcome* run(const Plan& plan);
};

/// What a program is.
struct Program {
  std::string name, description;
  std::vector<std::int64_t> widths = {};                          ///< the default of --width
  std::string width_help = {};                                    ///< empty: no --width
  bool takes_graph = false;                                       ///< --scale and --edges
  std::function<void(CLI::App&)> add_options = [](CLI::App&) {};  ///< its own
  std::function<void(Bench&)> run;
};

/// The whole of main(): reads the options, runs the program, writes the JSON. Returns the exit code
/// as the command `mezzo` has them.
int run_program(const Program& program, int argc, char** argv);

}  // namespace mezzo::bench
