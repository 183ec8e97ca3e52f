// Time per edge on R-MAT graphs from 0.26 to 34 million edges, 16 edges per node.
#include <iostream>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <fmt/format.h>

#include "mezzo/core/table.h"
#include "mezzo/graph/transforms/transforms.h"

#include "bench/cases/layers.h"
#include "bench/harness/program.h"

namespace {

using namespace mezzo::bench;

constexpr std::int64_t kEdgesPerNode = 16;

std::vector<int> scales = {14, 16, 18, 20, 21};

void add_options(CLI::App& app) {
  app.add_option("--scales", scales, "The R-MAT graphs have 2^N nodes")
      ->delimiter(',')
      ->check(CLI::Range(0, 26))
      ->capture_default_str();
}

/// Nanoseconds per edge of each Mezzo candidate, by minima.
void add_rows(std::vector<std::vector<std::string>>& rows, const Outcome& outcome,
              std::int64_t edges) {
  for (const Measurement& measured : outcome.measurements) {
    if (!measured.is_mezzo || !measured.skipped.empty()) continue;
    rows.push_back({outcome.work, std::to_string(outcome.width), measured.name,
                    fmt::format("{:.2f}", static_cast<double>(edges) * 1e-6),
                    fmt::format("{:.2f}", measured.minimum() * 1e6 / static_cast<double>(edges))});
  }
}

/// Removes the baselines from `plan`, because they do not fit in memory with the largest graphs.
/// Keeps a baseline that provides the expected results.
Plan without_baselines(Plan plan) {
  plan.make = [inner = plan.make] {
    Comparison comparison = inner();
    if (!comparison.expected.empty()) {
      std::erase_if(comparison.candidates, [](const Candidate& one) { return !one.is_mezzo; });
    }
    return comparison;
  };
  return plan;
}

void run(Bench& bench) {
  std::vector<std::vector<std::string>> rows = {
      {"work", "F", "candidate", "M edges", "ns an edge"}};
  bench.begin();
  for (const int scale : scales) {
    if (interrupted()) break;
    const std::int64_t edges = kEdgesPerNode << scale;
    const Workload load =
        make_workload(mezzo::rmat_graph(scale, edges), bench.arguments.precisions);
    std::cout << "rmat" << scale << ", " << edges << " edges" << std::endl;
    const std::size_t before = bench.report.outcomes.size();
    for (const std::int64_t width : bench.arguments.widths) {
      bench.run(without_baselines(copy_u_sum(load, width, Pass::kForwardBackward)));
      bench.run(without_baselines(u_mul_e_sum(load, width, Pass::kForwardBackward)));
      bench.run(without_baselines(u_dot_v(load, width, Pass::kForwardBackward)));
      bench.run(gat_layer(load, width, Pass::kForwardBackward));
    }
    for (std::size_t i = before; i < bench.report.outcomes.size(); ++i) {
      Outcome& outcome = bench.report.outcomes[i];
      add_rows(rows, outcome, edges);
      outcome.work += fmt::format(", rmat{}, {} edges", scale, edges);
    }
  }
  std::cout << mezzo::format_table(rows, 3) << std::flush;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program({.name = "scaling",
                      .description = "Time of an edge while graphs grow at constant degree",
                      .widths = {64},
                      .width_help = "Features of a node",
                      .add_options = add_options,
                      .run = run},
                     argc, argv);
}
