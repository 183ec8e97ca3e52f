// The program mezzo-bench: kernels and epochs, or neighbour sampling and mini-batch epochs, on the
// graph of a dataset, compared with libtorch's operations.
#include <algorithm>
#include <cstddef>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "mezzo/data/convert.h"
#include "mezzo/data/dataset.h"
#include "mezzo/graph/graph.h"
#include "mezzo/train/files/files.h"
#include "mezzo/train/options/sampling_options.h"

#include "bench/cases/epoch.h"
#include "bench/cases/kernels.h"
#include "bench/cases/layers.h"
#include "bench/cases/mini_batch.h"
#include "bench/cases/sampling.h"
#include "bench/harness/program.h"

namespace {

using namespace mezzo::bench;
using mezzo::Dataset;
using mezzo::Graph;

struct Options {
  std::string dataset = "wordnet", split;
  std::optional<std::int64_t> split_index;
  mezzo::CsvColumns csv;
  bool sampling = false;
  std::int64_t batch_size = SamplingWork().batch_size;
  std::vector<std::string> fanouts = {"15", "10", "5"};
};
Options options;

void add_options(CLI::App& app) {
  const auto add = [&app](const char* group, const char* flag, auto& value, const char* help) {
    return app.add_option(flag, value, help)->capture_default_str()->group(group);
  };
  add("Data", "--dataset", options.dataset, "A data set's file or folder, or its name");
  add("Data", "--split", options.split, "Which of the splits that have names");
  add("Data", "--split-index", options.split_index, "Which of the data set's splits, from 0");
  add("Data", "--id", options.csv.id, "Column of nodes.csv in a CSV folder, if it is not 'id'");
  add("Data", "--label", options.csv.label, "Column of nodes.csv, if it is not 'label'");
  add("Data", "--src", options.csv.src, "Column of edges.csv, if it is not 'src' or 'source'");
  add("Data", "--dst", options.csv.dst, "Column of edges.csv, if it is not 'dst' or 'target'");
  CLI::Option* sampling =
      app.add_flag("--sampling", options.sampling,
                   "Time neighbour sampling and a mini-batch epoch instead of kernels")
          ->group("Sampling");
  add("Sampling", "--batch-size", options.batch_size, "Seeds of a batch")
      ->check(CLI::PositiveNumber)
      ->needs(sampling);
  add("Sampling", "--fanout", options.fanouts, "Neighbours drawn for a node, input layer first")
      ->delimiter(',')
      ->needs(sampling);
}

/// A line that is redrawn on a terminal; elsewhere one line per comparison.
class ProgressLine {
 public:
  explicit ProgressLine(std::size_t plans) : plans_(plans) {}
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void begin(const Plan& plan) {
    ++plan_;
    if (is_terminal_) return;
    std::cerr << fmt::format("{}/{}  {}, F={}", plan_, plans_, plan.work, plan.width) << std::endl;
  }

  void show(const std::string& text) {
    if (!is_terminal_) return;
    clear();
    std::cerr << fmt::format("{}/{}  {}", plan_, plans_, text) << std::flush;
  }

  void clear() {
    if (is_terminal_) std::cerr << "\r\x1b[K" << std::flush;
  }

 private:
  bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
  std::size_t plans_, plan_ = 0;
};

/// Measures the plans that --work includes, in turn, and calls `use` with each outcome.
template <class Use>
void measure_all(Bench& bench, std::vector<Plan> plans, const Use& use) {
  std::erase_if(plans, [&bench](const Plan& plan) {
    return plan.work.find(bench.work) == std::string::npos;
  });
  ProgressLine progress(plans.size());
  for (const Plan& plan : plans) {
    progress.begin(plan);
    MeasureOptions measure_options;
    measure_options.on_progress = [&progress](const std::string& text) { progress.show(text); };
    const Outcome* outcome = bench.measure(plan, measure_options);
    if (outcome == nullptr) return;
    progress.clear();
    use(*outcome);
  }
}

std::vector<Plan> kernel_plans(const Workload& load, const Bench& bench) {
  constexpr std::int64_t kHeads = 4;
  std::vector<Plan> plans;
  for (const std::int64_t width : bench.arguments.widths) {
    for (const Pass pass : {Pass::kForward, Pass::kForwardBackward}) {
      plans.push_back(copy_u_sum(load, width, pass));
      plans.push_back(u_mul_e_sum(load, width, pass));
      plans.push_back(u_dot_v(load, width, pass));
    }
    plans.push_back(gat_layer(load, width, Pass::kForwardBackward));
  }
  plans.push_back(softmax(load, kHeads, Pass::kForwardBackward));
  return plans;
}

/// What the dataset lacks for timing epochs; empty if nothing.
std::string lacks_for_epochs(const Dataset& dataset) {
  if (!dataset.labels.defined()) return "labels";
  return dataset.features.defined() ? "" : "node features";
}

void print_skipped_epochs(const Dataset& dataset) {
  const std::string lacks = lacks_for_epochs(dataset);
  if (!lacks.empty()) {
    std::cout << fmt::format("epochs are skipped: {} has no {}\n", dataset.name, lacks);
  }
}

void measure_kernels(Bench& bench, const Dataset& dataset, const Graph& graph) {
  const BenchArguments& arguments = bench.arguments;
  std::vector<Plan> plans = kernel_plans(make_workload(graph, arguments.precisions), bench);
  if (lacks_for_epochs(dataset).empty()) {
    using mezzo::nn::ModelKind;
    for (const auto model : {ModelKind::kGcn, ModelKind::kSage, ModelKind::kGat}) {
      EpochOptions epoch{.model = model, .precisions = arguments.precisions};
      epoch.split_index = options.split_index.value_or(0);
      epoch.hidden = *std::max_element(arguments.widths.begin(), arguments.widths.end());
      plans.push_back(training_epoch(dataset, epoch));
    }
  }
  measure_all(bench, std::move(plans), [](const Outcome&) {});
  std::cout << format_summary(bench.report, arguments.precisions);
}

/// Measures the epoch only if the dataset has features and labels.
void measure_sampling(Bench& bench, const Dataset& dataset, Graph& graph) {
  SamplingWork work{.fanouts = {}, .batch_size = options.batch_size};
  for (const std::string& text : options.fanouts) {
    work.fanouts.push_back(mezzo::parse_fanout(text));
  }
  const Plan sampling = neighbor_sampling(graph, work, bench.report.threads);
  std::vector<Plan> plans = {sampling};
  if (lacks_for_epochs(dataset).empty()) {
    graph.ndata()["feat"] = dataset.features;
    // Batches contain any nodes; a substitute for a missing label does not change the time.
    graph.ndata()["label"] = dataset.labels.clamp_min(0);
    for (const std::int64_t width : bench.arguments.widths) {
      plans.push_back(pipelined_epoch(graph, work,
                                      {.hidden = width,
                                       .num_classes = dataset.num_classes,
                                       .precisions = bench.arguments.precisions}));
    }
  }
  measure_all(bench, std::move(plans), [&](const Outcome& outcome) {
    std::cout << outcome.work << '\n'
              << (outcome.work == sampling.work ? format_rates(outcome)
                                                : format_pipelining(outcome))
              << std::endl;
  });
}

void run(Bench& bench) {
  mezzo::check_not_read("--json", bench.arguments.json, mezzo::data::origin_of(options.dataset));
  const Dataset dataset = mezzo::load_dataset(
      options.dataset, {.split = options.split, .labels_optional = true, .csv = options.csv});
  if (options.split_index)
    dataset.split(*options.split_index);  // throws if the split does not exist
  bench.begin(dataset.name, dataset.num_nodes, dataset.num_edges());
  Graph graph(mezzo::topology_of(dataset));
  if (options.sampling) {
    measure_sampling(bench, dataset, graph);
  } else {
    measure_kernels(bench, dataset, graph);
  }
  print_skipped_epochs(dataset);
  std::cout << std::flush;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(
      {.name = "mezzo-bench",
       .description =
           "Times kernels and epochs on the graph of a data set, beside libtorch's own operations",
       .widths = {64, 256},
       .width_help = "Features of a node in the kernels; the epochs take the widest as hidden "
                     "width, with --sampling each in turn",
       .add_options = add_options,
       .run = run},
      argc, argv);
}
