#include "support/program.h"

#include <exception>
#include <iostream>
#include <optional>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "mezzo/cli/bench_machine.h"
#include "mezzo/cli/interrupt.h"
#include "mezzo/cli/options.h"
#include "mezzo/cli/run.h"
#include "mezzo/core/error.h"
#include "mezzo/core/malloc_tuning.h"
#include "mezzo/core/parse.h"
#include "mezzo/graph/reorder.h"
#include "mezzo/graph/transforms.h"

namespace mezzo::bench {
namespace {

/// libtorch warns of sparse tensors being in beta.
class NoWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

int run_checked(const Program& program, const cli::Arguments& arguments) {
  constexpr std::int64_t kLargestScale = 30;
  Bench bench;
  bench.arguments.widths = program.widths;
  CLI::App app(program.description, program.name);
  if (program.takes_graph) {
    cli::OptionGroup(app, "Graph")
        .number("--scale", bench.scale, "The R-MAT graph has 2^N nodes")
        .number("--edges", bench.edges, "and so many edges")
        .text("--reorder", bench.order, names(NodeOrders{}),
              "Reorder it first, which sorts the edges too");
  }
  cli::OptionGroup(app, "Measurement")
      .text("--work", bench.work, "TEXT", "Only works whose name contains this");
  program.add_options(app);
  add_bench_options(app, bench.arguments, program.width_help);
  if (!cli::parse_arguments(app, arguments)) return cli::kSuccess;
  MEZZO_CHECK(bench.scale >= 0 && bench.scale <= kLargestScale, "--scale: expected 0 to {}, got {}",
              kLargestScale, bench.scale);
  MEZZO_CHECK(bench.edges >= 1, "--edges: expected at least 1, got {}", bench.edges);

  bench.report = begin_report(bench.arguments);
  bench.report.stream_bandwidth = stream_bandwidth();
  program.run(bench);
  write_report(bench.arguments, bench.report);
  return cli::interrupted() ? cli::kInterrupted : cli::kSuccess;
}

int fail(const Program& program, cli::ExitCode code, const std::string& text) {
  std::cerr << program.name << ": " << text.substr(0, text.find('\n')) << std::endl;
  return code;
}

}  // namespace

Workload Bench::workload(bool self_loops) {
  Graph graph = rmat_graph(static_cast<int>(scale), edges);
  if (self_loops) graph = add_self_loop(graph);
  if (!order.empty()) graph = reorder(graph, parse(NodeOrders{}, "--reorder", order));
  report.graph = fmt::format("rmat{}{}{}", scale, self_loops ? " with self loops" : "",
                             order.empty() ? "" : ", reordered: " + order);
  report.num_nodes = graph.num_nodes();
  report.num_edges = graph.num_edges();
  print_conditions();
  return make_workload(graph, arguments.precisions);
}

void Bench::print_conditions() const {
  std::cout << format_conditions(report) << std::endl;
}

const Outcome* Bench::run(const Plan& plan) {
  if (cli::interrupted() || plan.work.find(work) == std::string::npos) return nullptr;
  std::optional<Outcome> outcome =
      measure(plan, {.rounds = arguments.rounds, .should_stop = cli::interrupted});
  if (!outcome) return nullptr;
  std::cout << format_outcome(*outcome, report.stream_bandwidth) << std::flush;
  return &report.outcomes.emplace_back(std::move(*outcome));
}

int run_program(const Program& program, int argc, char** argv) {
  keep_freed_pages();
  NoWarnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  try {
    cli::handle_interrupts();
    return run_checked(program, {argv + 1, argv + argc});
  } catch (const InvalidArgument& error) {
    return fail(program, cli::kUsageError, error.what());
  } catch (const IoError& error) {
    return fail(program, cli::kIoError, error.what());
  } catch (const std::exception& error) {
    return fail(program, cli::kInternalError, error.what());
  }
}

}  // namespace mezzo::bench
