#include "bench/harness/program.h"

#include <algorithm>
#include <csignal>
#include <iostream>
#include <ostream>
#include <utility>

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "mezzo/core/error.h"
#include "mezzo/core/parse.h"
#include "mezzo/graph/transforms/transforms.h"
#include "mezzo/predict/mezzo_predictor.h"
#include "mezzo/predict/status.h"
#include "mezzo/runtime/memory.h"
#include "mezzo/train/files/files.h"

#include "bench/harness/machine.h"

namespace mezzo::bench {
namespace {

enum ExitCode : int {
  kSuccess = 0,
  kFailedCandidate = 1,
  kInternalError = 70,
  kInterrupted = 130,
};

volatile std::sig_atomic_t signalled = 0;

extern "C" void note_signal(int signal) {
  signalled = 1;
  std::signal(signal, SIG_DFL);
}

void handle_signals() {
  std::signal(SIGINT, note_signal);
  std::signal(SIGTERM, note_signal);
  if (std::signal(SIGHUP, note_signal) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);  // nohup
  std::signal(SIGPIPE, SIG_IGN);  // write the report even if stdout is closed
}

/// Suppresses libtorch's warning that sparse tensors are in beta.
class NoWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

template <class T>
void check_distinct_values(const char* flag, std::vector<T> values) {
  std::sort(values.begin(), values.end());
  MEZZO_CHECK(std::adjacent_find(values.begin(), values.end()) == values.end(),
              "{}: expected each value once, got one twice", flag);
}

void add_graph_options(CLI::App& app, Bench& bench) {
  constexpr std::int64_t kLargestScale = 30, kMostEdges = std::int64_t{1} << 40;
  app.add_option("--scale", bench.scale, "The R-MAT graph has 2^N nodes")
      ->check(CLI::Range(std::int64_t{0}, kLargestScale))
      ->capture_default_str()
      ->group("Graph");
  app.add_option("--edges", bench.edges, "and so many edges")
      ->check(CLI::Range(std::int64_t{1}, kMostEdges))
      ->capture_default_str()
      ->group("Graph");
  app.add_option("--reorder", bench.order, "Reorder it first, which sorts the edges too")
      ->type_name(detail::names(NodeOrders{}))
      ->group("Graph");
}

/// precisions: the values of --precision.
void add_measurement_options(CLI::App& app, const Program& program, Bench& bench,
                             std::vector<std::string>& precisions) {
  constexpr std::int64_t kWidest = 1 << 16, kMostRounds = 10000, kMostThreads = 4096;
  BenchArguments& arguments = bench.arguments;
  const auto add = [&app](const char* flag, auto& value, const std::string& help) {
    return app.add_option(flag, value, help)->group("Measurement");
  };
  add("--work", bench.work, "Only works whose name contains this");
  if (!program.width_help.empty()) {
    add("--width", arguments.widths, program.width_help)
        ->delimiter(',')
        ->check(CLI::Range(std::int64_t{1}, kWidest))
        ->capture_default_str();
  }
  add("--precision", precisions, "Precisions of Mezzo's candidates")
      ->delimiter(',')
      ->check(CLI::IsMember(precisions))
      ->capture_default_str();
  add("--rounds", arguments.rounds, "How often every candidate runs, in turn")
      ->check(CLI::Range(std::int64_t{1}, kMostRounds))
      ->capture_default_str();
  add("--threads", arguments.threads, "CPU threads (default: one a core)")
      ->check(CLI::Range(std::int64_t{1}, kMostThreads));
  add("--json", arguments.json, "Write the report as JSON")->type_name("FILE");
  app.set_config("--config", "", "TOML file with these options, without the dashes");
  app.allow_config_extras(CLI::config_extras_mode::error);
}

/// Returns false if the options ask for help, which is printed.
bool parse_options(const Program& program, Bench& bench, int argc, char** argv) {
  bench.arguments.widths = program.widths;
  std::vector<std::string> precisions = {"fp32", "bf16", "fp16"};
  CLI::App app(program.description, program.name);
  if (program.takes_graph) add_graph_options(app, bench);
  program.add_options(app);
  add_measurement_options(app, program, bench, precisions);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    app.exit(help);
    return false;
  } catch (const CLI::FileError& error) {
    throw IoError(error.what());
  } catch (const CLI::ParseError& error) {
    throw InvalidArgument(error.what());
  }
  check_distinct_values("--width", bench.arguments.widths);
  check_distinct_values("--precision", precisions);
  bench.arguments.precisions.clear();
  for (const std::string& word : precisions) {
    bench.arguments.precisions.push_back(amp::parse_precision(word));
  }
  return true;
}

/// Whether a candidate failed on a GPU; its name and reason are in the report.
bool has_failure(const Report& report) {
  return std::any_of(report.outcomes.begin(), report.outcomes.end(), [](const Outcome& outcome) {
    return std::any_of(
        outcome.measurements.begin(), outcome.measurements.end(),
        [](const Measurement& measured) { return measured.skipped.starts_with("FAILED"); });
  });
}

int run_checked(const Program& program, int argc, char** argv) {
  Bench bench;
  if (!parse_options(program, bench, argc, argv)) return kSuccess;
  const BenchArguments& arguments = bench.arguments;
  if (arguments.threads) at::set_num_threads(static_cast<int>(*arguments.threads));
  if (!arguments.json.empty()) check_writable("--json", arguments.json);
  bench.report.threads = at::get_num_threads();
  bench.report.rounds = arguments.rounds;
  program.run(bench);
  if (!arguments.json.empty()) {
    replace_file(arguments.json, [&](std::ostream& file) { file << report_to_json(bench.report); });
  }
  if (interrupted()) return kInterrupted;
  return has_failure(bench.report) ? kFailedCandidate : kSuccess;
}

}  // namespace

Workload Bench::workload(bool self_loops) {
  Graph graph = rmat_graph(static_cast<int>(scale), edges);
  if (self_loops) graph = add_self_loop(graph);
  if (!order.empty()) graph = reorder(graph, parse(NodeOrders{}, "--reorder", order));
  begin(fmt::format("rmat{}{}{}", scale, self_loops ? " with self loops" : "",
                    order.empty() ? "" : ", reordered: " + order),
        graph.num_nodes(), graph.num_edges());
  return make_workload(graph, arguments.precisions);
}

void Bench::begin(const std::string& graph, std::int64_t num_nodes, std::int64_t num_edges) {
  report.graph = graph;
  report.num_nodes = num_nodes;
  report.num_edges = num_edges;
  report.stream_bandwidth = stream_bandwidth();
  std::cout << format_conditions(report) << std::endl;
}

const Outcome* Bench::measure(const Plan& plan, MeasureOptions options) {
  if (interrupted() || plan.work.find(work) == std::string::npos) return nullptr;
  options.device = device;
  options.rounds = arguments.rounds;
  options.should_stop = interrupted;
  std::optional<Outcome> outcome = bench::measure(plan, options);
  return outcome ? &report.outcomes.emplace_back(std::move(*outcome)) : nullptr;
}

const Outcome* Bench::run(const Plan& plan, MeasureOptions options) {
  const Outcome* outcome = measure(plan, std::move(options));
  if (outcome) std::cout << format_outcome(*outcome, report.stream_bandwidth) << std::flush;
  return outcome;
}

int run_program(const Program& program, int argc, char** argv) {
  if (program.keeps_freed_pages) keep_freed_pages();
  NoWarnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  try {
    handle_signals();
    return run_checked(program, argc, argv);
  } catch (...) {
    const int status = detail::status_of_exception();
    std::cerr << program.name << ": " << mezzo_last_error() << std::endl;
    return status == MEZZO_OUT_OF_MEMORY ? kInternalError : status;
  }
}

bool interrupted() {
  return signalled != 0;
}

}  // namespace mezzo::bench
