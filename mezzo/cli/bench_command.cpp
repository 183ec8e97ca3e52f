#include <algorithm>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "mezzo/cli/arguments.h"
#include "mezzo/cli/bench_arguments.h"
#include "mezzo/cli/bench_epoch.h"
#include "mezzo/cli/bench_kernels.h"
#include "mezzo/cli/bench_layers.h"
#include "mezzo/cli/bench_machine.h"
#include "mezzo/cli/bench_mini_batch.h"
#include "mezzo/cli/bench_sampling.h"
#include "mezzo/cli/commands.h"
#include "mezzo/cli/interrupt.h"
#include "mezzo/cli/progress.h"
#include "mezzo/cli/run.h"
#include "mezzo/core/error.h"
#include "mezzo/data/convert.h"
#include "mezzo/graph/graph.h"
#include "mezzo/train/files.h"
#include "mezzo/train/sampling_options.h"

namespace mezzo::cli {
namespace {

using bench::BenchArguments;
using bench::Pass;
using bench::Plan;

/// One line that is drawn over itself on a terminal, and a line a comparison elsewhere.
class BenchProgress {
 public:
  explicit BenchProgress(std::size_t plans) : plans_(plans) {}
  ~BenchProgress() {
    if (drawn_) std::cerr << kClearLine << std::flush;
  }
  BenchProgress(const BenchProgress&) = delete;
  BenchProgress& operator=(const BenchProgress&) = delete;

  void begin(const Plan& plan) {
    ++plan_;
    if (style_ == Progress::Style::kLines) {
      std::cerr << fmt::format("{}/{}  {}, F={}", plan_, plans_, plan.work, plan.width)
                << std::endl;
    }
  }

  void show(const std::string& text) {
    if (style_ == Progress::Style::kLines) return;
    drawn_ = true;
    std::cerr << fmt::format("{}{}/{}  {}", kClearLine, plan_, plans_, text) << std::flush;
  }

 private:
  static constexpr auto kClearLine = "\r\x1b[K";
  Progress::Style style_ = progress_style();
  std::size_t plans_, plan_ = 0;
  bool drawn_ = false;
};

std::vector<Plan> kernel_plans(const bench::Workload& load, const BenchArguments& arguments) {
  constexpr std::int64_t kHeads = 4;
  std::vector<Plan> plans;
  for (const std::int64_t width : arguments.widths) {
    for (const Pass pass : {Pass::kForward, Pass::kForwardBackward}) {
      plans.push_back(bench::copy_u_sum(load, width, pass));
      plans.push_back(bench::u_mul_e_sum(load, width, pass));
      plans.push_back(bench::u_dot_v(load, width, pass));
    }
    plans.push_back(bench::gat_layer(load, width, Pass::kForwardBackward));
  }
  plans.push_back(bench::softmax(load, kHeads, Pass::kForwardBackward));
  return plans;
}

/// What a data set lacks for epochs to be timed; empty where it lacks nothing.
std::string lacks_for_epochs(const Dataset& dataset) {
  if (!dataset.labels.defined()) return "labels";
  return dataset.features.defined() ? "" : "node features";
}

void tell_skipped_epochs(const Dataset& dataset) {
  const std::string lacks = lacks_for_epochs(dataset);
  if (!lacks.empty()) {
    std::cout << fmt::format("epochs are skipped: {} has no {}\n", dataset.name, lacks);
  }
}

std::vector<Plan> epoch_plans(const Dataset& dataset, const DataArguments& data,
                              const BenchArguments& arguments) {
  std::vector<Plan> plans;
  if (!lacks_for_epochs(dataset).empty()) return plans;
  for (const auto model : {nn::ModelKind::kGcn, nn::ModelKind::kSage, nn::ModelKind::kGat}) {
    bench::EpochOptions options{.model = model, .precisions = arguments.precisions};
    options.split_index = data.split_index.value_or(0);
    options.hidden = *std::max_element(arguments.widths.begin(), arguments.widths.end());
    plans.push_back(bench::training_epoch(dataset, options));
  }
  return plans;
}

void measure_all(const std::vector<Plan>& plans, bench::Report& report) {
  BenchProgress progress(plans.size());
  bench::MeasureOptions options{.rounds = report.rounds, .should_stop = interrupted};
  options.on_progress = [&progress](const std::string& text) { progress.show(text); };
  for (const Plan& plan : plans) {
    progress.begin(plan);
    std::optional<bench::Outcome> outcome = bench::measure(plan, options);
    if (!outcome) return;
    report.outcomes.push_back(std::move(*outcome));
  }
}

/// What --sampling asks for.
struct SamplingArguments {
  bool wanted = false;
  std::optional<std::int64_t> batch_size;
  std::vector<std::int64_t> fanouts;

  bench::SamplingWork work() const {
    bench::SamplingWork made;
    made.batch_size = batch_size.value_or(made.batch_size);
    if (!fanouts.empty()) made.fanouts = fanouts;
    return made;
  }
};

void add_sampling_options(CLI::App& app, SamplingArguments& arguments) {
  OptionGroup(app, "Sampling")
      .flag("--sampling", arguments.wanted,
            "Time neighbour sampling and a mini-batch epoch instead of kernels")
      .number("--batch-size", arguments.batch_size, "With --sampling: seeds of a batch (1024)")
      .list(
          "--fanout", "N,...",
          [&arguments](const std::vector<std::string>& words) {
            arguments.fanouts.clear();
            for (const std::string& word : words) arguments.fanouts.push_back(parse_fanout(word));
          },
          "With --sampling: neighbours drawn for a node, input layer first", "15,10,5");
}

void check_sampling(const SamplingArguments& arguments) {
  const bool any = arguments.batch_size || !arguments.fanouts.empty();
  MEZZO_CHECK(arguments.wanted || !any, "--batch-size and --fanout need --sampling");
  MEZZO_CHECK(arguments.work().batch_size >= 1, "--batch-size: expected at least 1, got {}",
              arguments.work().batch_size);
}

/// Measures and prints; the epoch only where the data set has features and labels.
void measure_sampling(const Dataset& dataset, Graph graph, const bench::SamplingWork& work,
                      const BenchArguments& arguments, bench::Report& report) {
  std::vector<Plan> plans = {bench::neighbor_sampling(graph, work, report.threads)};
  if (lacks_for_epochs(dataset).empty()) {
    graph.ndata()["feat"] = dataset.features;
    // The batches are of any nodes; for one without a label another's does to take the time.
    graph.ndata()["label"] = dataset.labels.clamp_min(0);
    for (const std::int64_t width : arguments.widths) {
      plans.push_back(bench::pipelined_epoch(graph, work,
                                             {.hidden = width,
                                              .num_classes = dataset.num_classes,
                                              .precisions = arguments.precisions}));
    }
  }
  measure_all(plans, report);
  std::cout << format_conditions(report) << '\n';
  for (std::size_t i = 0; i < report.outcomes.size(); ++i) {
    const bench::Outcome& outcome = report.outcomes[i];
    std::cout << outcome.work << '\n'
              << (i == 0 ? bench::format_rates(outcome, bench::million_edges(graph, work))
                         : bench::format_pipelining(outcome))
              << '\n';
  }
  tell_skipped_epochs(dataset);
  std::cout << std::flush;
}

}  // namespace

int bench_command(const Arguments& arguments) {
  DataArguments data;
  BenchArguments wanted;
  wanted.widths = {64, 256};
  CLI::App app(
      "Times kernels and epochs on the graph of a data set, beside libtorch's own operations",
      "mezzo bench");
  add_data_options(app, data);
  bench::add_bench_options(
      app, wanted,
      "Features of a node in the kernels; the epochs take the widest as hidden width, with "
      "--sampling each in turn");
  SamplingArguments sampling;
  add_sampling_options(app, sampling);
  if (!parse_arguments(app, arguments)) return kSuccess;
  ignore_sigpipe();
  handle_interrupts();

  check_sampling(sampling);
  bench::Report report = bench::begin_report(wanted);
  check_not_read("--json", wanted.json, data::origin_of(data.dataset));
  const Dataset dataset =
      load_dataset(data.dataset, {.split = data.split, .labels_optional = true});
  if (data.split_index) dataset.split(*data.split_index);  // throws where there is none
  report.graph = dataset.name;
  report.num_nodes = dataset.num_nodes;
  report.num_edges = dataset.num_edges();
  report.stream_bandwidth = bench::stream_bandwidth();
  const Graph graph(topology_of(dataset));
  if (sampling.wanted) {
    measure_sampling(dataset, graph, sampling.work(), wanted, report);
    bench::write_report(wanted, report);
    return interrupted() ? kInterrupted : kSuccess;
  }
  const bench::Workload workload = bench::make_workload(graph, wanted.precisions);
  std::vector<Plan> plans = kernel_plans(workload, wanted);
  for (Plan& plan : epoch_plans(dataset, data, wanted)) plans.push_back(std::move(plan));
  measure_all(plans, report);

  std::cout << format_conditions(report) << format_summary(report, wanted.precisions);
  tell_skipped_epochs(dataset);
  std::cout << std::flush;
  bench::write_report(wanted, report);
  return interrupted() ? kInterrupted : kSuccess;
}

}  // namespace mezzo::cli
