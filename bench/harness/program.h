#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mezzo/amp/precision.h"

#include "bench/cases/kernels.h"
#include "bench/harness/measure.h"
#include "bench/harness/report.h"

namespace CLI {
class App;  // its header compiles slowly
}

namespace mezzo::bench {

/// Options of every program.
struct BenchArguments {
  std::vector<std::int64_t> widths;
  std::vector<amp::Precision> precisions = {amp::Precision::kFloat32, amp::Precision::kBFloat16,
                                            amp::Precision::kFloat16};
  std::int64_t rounds = 7;
  std::optional<std::int64_t> threads;
  std::string json;
};

/// A running program: its options and results so far.
class Bench {
 public:
  BenchArguments arguments;
  std::int64_t scale = 17, edges = std::int64_t{1} << 21;  ///< of the R-MAT graph
  std::string order;  ///< a name of NodeOrders, or empty: as drawn
  std::string work;   ///< only works whose name contains it are measured
  at::Device device = at::kCPU;
  Report report;

  /// Generates the R-MAT graph of the options and begins the report. With self loops: one more edge
  /// per node.
  Workload workload(bool self_loops = false);

  /// Begins the report: measures the bandwidth of the memory and prints the conditions. graph: its
  /// name, or empty.
  void begin(const std::string& graph = "", std::int64_t num_nodes = 0, std::int64_t num_edges = 0);

  /// Measures a plan and keeps the outcome for --json. options: the device, the rounds and when to
  /// stop are set here. Returns the outcome, until the next call; nullptr after an interrupt and if
  /// --work excludes the plan.
  const Outcome* measure(const Plan& plan, MeasureOptions options = {});

  /// measure(), and prints the table of the outcome.
  const Outcome* run(const Plan& plan, MeasureOptions options = {});
};

/// Describes a program.
struct Program {
  std::string name, description;
  std::vector<std::int64_t> widths = {};                          ///< the default of --width
  std::string width_help = {};                                    ///< empty: no --width
  bool takes_graph = false;                                       ///< --scale and --edges
  std::function<void(CLI::App&)> add_options = [](CLI::App&) {};  ///< its own
  std::function<void(Bench&)> run;
  bool keeps_freed_pages = true;  ///< as a program that trains
};

/// The whole of main(): reads the options, runs the program, writes the JSON. Returns the exit
/// code, as defined by the command `mezzo`.
int run_program(const Program& program, int argc, char** argv);

/// Whether SIGINT, SIGTERM or SIGHUP has arrived. The program then finishes with its results so
/// far; a second signal ends it immediately.
bool interrupted();

}  // namespace mezzo::bench
