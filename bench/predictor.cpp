// Inference on a changing graph: an update of kept rows and the questions after it beside computing
// the same by k hops without kept rows, the latency and throughput of sampled questions beside
// PyG's and DGL's, and memory. With --stress and --stream: counts of differing bits.
#include "mezzo/predict/predictor.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <iostream>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <CLI/App.hpp>
#include <fmt/format.h>

#include "mezzo/core/error.h"
#include "mezzo/core/random.h"
#include "mezzo/core/table.h"

#include "bench/cases/predictors.h"
#include "bench/harness/peer.h"
#include "bench/harness/program.h"

namespace {

using namespace mezzo::bench;
using mezzo::Predictor;
using mezzo::Topology;
namespace nn = mezzo::nn;
namespace amp = mezzo::amp;

std::int64_t num_nodes = 169'343, num_edges = 1'200'000, batch = 1000, num_layers = 3,
             num_questions = 2000, stress = 0;
std::string stream;

void add_options(CLI::App& app) {
  const auto add = [&app](const char* name, std::int64_t& value, const char* help) {
    app.add_option(name, value, help)->check(CLI::NonNegativeNumber)->capture_default_str();
  };
  add("--nodes", num_nodes, "Nodes of the R-MAT graph");
  add("--edges", num_edges, "Its edges");
  add("--batch", batch, "Edges of an update");
  add("--layers", num_layers, "Layers of the models whose rows are kept");
  add("--questions", num_questions, "Questions for one node");
  add("--stress", stress, "Instead: random questions and updates for each model and precision");
  app.add_option("--stream", stream, "Instead: the changes of a file of tools/make_stream");
}

/// CPU time of all threads.
double cpu_milliseconds_of(const std::function<void()>& work) {
  const std::clock_t start = std::clock();
  work();
  return 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

// ---- updates

/// CPU times of a Predictor: of updates, and of questions after them.
struct Times {
  std::vector<double> update, one, some, changed;
};

/// The times of batches of random edges, which are removed and added back.
class Updates {
 public:
  Updates(const nn::Model& model, const Topology& graph, const at::Tensor& features,
          amp::Precision precision)
      : graph_(graph),
        resident_(model, graph, features, {.resident = true, .precision = precision}),
        plain_(model, graph, features, {.precision = precision}) {}

  void run_round() {
    const at::Tensor some = at::randperm(graph_.num_edges()).narrow(0, 0, batch);
    const at::Tensor src = graph_.src().index_select(0, some),
                     dst = graph_.dst().index_select(0, some);
    update([&](Predictor& predictor) { predictor.remove_edges(src, dst); });
    update([&](Predictor& predictor) { predictor.add_edges(src, dst); });
  }

  /// The cells of a row of the table.
  std::vector<std::string> cells() const {
    const double update = median(kept_.update), computed = median(computed_.update);
    const auto bytes = static_cast<double>(resident_.memory_bytes() - plain_.memory_bytes());
    std::vector<std::string> result = {
        fmt::format("{:.1f}", update),
        fmt::format("{:.0f}", 1e3 * static_cast<double>(batch) / update),
        fmt::format("{:.1f}", bytes / (1 << 20))};
    for (const auto question : {&Times::one, &Times::some, &Times::changed}) {
      const double kept = update + median(kept_.*question),
                   other = computed + median(computed_.*question);
      result.push_back(fmt::format("{:.1f} / {:.1f}", kept, other));
      result.push_back(fmt::format("{:.2f}", other / kept));
    }
    result.push_back(fmt::format("{:.0f}", median(num_changed_)));
    return result;
  }

 private:
  static constexpr std::int64_t kSome = 100;

  void update(const std::function<void(Predictor&)>& change) {
    const at::Tensor before = resident_.predict();
    kept_.update.push_back(cpu_milliseconds_of([&] { change(resident_); }));
    computed_.update.push_back(cpu_milliseconds_of([&] { change(plain_); }));
    const at::Tensor differs = words(resident_.predict()).ne(words(before)).any(1);
    const at::Tensor changed = differs.nonzero().squeeze(1);
    num_changed_.push_back(static_cast<double>(changed.numel()));
    const at::Tensor any = at::randint(graph_.num_src(), {kSome}, at::kLong);
    ask(&Times::one, any.narrow(0, 0, 1));
    ask(&Times::some, any);
    ask(&Times::changed, changed);
  }

  void ask(std::vector<double> Times::*times, const at::Tensor& nodes) {
    at::Tensor kept, computed;
    (kept_.*times).push_back(cpu_milliseconds_of([&] { kept = resident_.predict(nodes); }));
    (computed_.*times).push_back(cpu_milliseconds_of([&] { computed = plain_.predict(nodes); }));
    if (differing_elements(kept, computed) > 0)
      mezzo::detail::raise<mezzo::LogicError>("predictor: the bits of an update differ");
  }

  const Topology& graph_;
  Predictor resident_, plain_;
  Times kept_, computed_;
  std::vector<double> num_changed_;
};

void measure_updates(Bench& bench, const Topology& graph, const at::Tensor& features) {
  std::vector<std::vector<std::string>> rows = {
      {"updates of", "precision", fmt::format("CPU ms for {} edges", batch), "updates/s",
       "kept rows MiB", "and 1 node: kept / k hops", "times", "100 nodes", "times", "changed nodes",
       "times", "changed"}};
  for (const nn::ModelKind kind : kPredictorKinds) {
    if (nn::to_string(kind).find(bench.work) == std::string_view::npos) continue;
    const nn::Model model = predictor_model(kind, features.size(1), num_layers);
    for (const amp::Precision precision : bench.arguments.precisions) {
      Updates updates(model, graph, features, precision);
      for (std::int64_t i = 0; i < bench.arguments.rounds; ++i) {
        if (interrupted()) return;
        updates.run_round();
      }
      rows.push_back({std::string(nn::to_string(kind)), std::string(amp::to_string(precision))});
      const std::vector<std::string> cells = updates.cells();
      rows.back().insert(rows.back().end(), cells.begin(), cells.end());
    }
  }
  std::cout << mezzo::format_table(rows, 2) << std::flush;
}

// ---- questions

/// Milliseconds of questions for one node each, the end of a random edge, on one thread.
std::vector<double> question_times(const Predictor& predictor, const at::Tensor& ends,
                                   const mezzo::SampledNeighbors& drawn, std::uint64_t seed) {
  std::vector<double> times;
  const auto bound = static_cast<std::uint64_t>(ends.numel());
  for (std::int64_t i = 0; i < num_questions; ++i) {
    const auto edge = static_cast<std::int64_t>(
        mezzo::random_below(bound, seed, 0, static_cast<std::uint64_t>(i)));
    const at::Tensor nodes = ends.narrow(0, edge, 1);
    times.push_back(1e3 * seconds_of([&] { predictor.predict(nodes, drawn); }));
  }
  std::sort(times.begin(), times.end());
  return times;
}

/// The row of another library, by bench/peers/one_node.py: CPU times, at most those of a clock.
std::vector<std::string> peer_row(const char* python, const std::string& library,
                                  const Topology& graph, std::int64_t width) {
  std::vector<std::string> command = {MEZZO_BENCH_PEERS "/one_node.py", library};
  for (const std::int64_t number : {graph.num_src(), graph.num_edges(), width, num_questions}) {
    command.push_back(std::to_string(number));
  }
  const at::Tensor ends = at::cat({graph.src(), graph.dst()}).to(at::kLong);
  Peer peer(python, command, ends.const_data_ptr(), ends.nbytes());
  if (peer.version().empty()) return {library, fmt::format("{} cannot run it", python)};
  std::istringstream answer(peer.ask("ask"));
  double middle = 0, late = 0;
  answer >> middle >> late;
  return {peer.version(), "fp32", "1", fmt::format("{:.3f}", middle), fmt::format("{:.3f}", late)};
}

void measure_questions(Bench& bench, const Topology& graph, const at::Tensor& features) {
  std::vector<std::vector<std::string>> rows = {
      {"sage [15, 10], one node", "precision", "threads", "p50 ms", "p99 ms", "questions/s"}};
  if (num_questions == 0) return;
  if (const char* const python = std::getenv("MEZZO_PYTHON")) {
    for (const char* library : {"pyg", "dgl"}) {
      rows.push_back(peer_row(python, library, graph, features.size(1)));
    }
  }
  const nn::Model model = predictor_model(nn::ModelKind::kSage, features.size(1), 2);
  for (const amp::Precision precision : bench.arguments.precisions) {
    const Predictor predictor(model, graph, features, {.precision = precision});
    for (const int threads : {1, 2, 4, 8}) {
      if (interrupted()) return;
      std::vector<double> times;
      std::mutex mutex;
      std::vector<std::thread> askers;
      const double seconds = seconds_of([&] {
        for (int i = 0; i < threads; ++i) {
          askers.emplace_back([&, i] {
            const auto own = question_times(predictor, graph.dst(), {.fanouts = {15, 10}},
                                            static_cast<std::uint64_t>(i));
            const std::lock_guard lock(mutex);
            times.insert(times.end(), own.begin(), own.end());
          });
        }
        for (std::thread& asker : askers) asker.join();
      });
      std::sort(times.begin(), times.end());
      rows.push_back({"mezzo", std::string(amp::to_string(precision)), std::to_string(threads),
                      fmt::format("{:.3f}", times[times.size() / 2]),
                      fmt::format("{:.3f}", times[times.size() * 99 / 100]),
                      fmt::format("{:.0f}", static_cast<double>(times.size()) / seconds)});
    }
  }
  std::cout << mezzo::format_table(rows, 2) << std::flush;
}

void run(Bench& bench) {
  const std::int64_t width = bench.arguments.widths.front();
  if (stress > 0) return run_stress(bench, num_layers, stress);
  if (!stream.empty()) return run_stream(bench, num_layers, stream, batch);
  bench.begin("R-MAT", num_nodes, num_edges);
  const Topology graph = rmat_topology(num_nodes, num_edges);
  const at::Tensor features = at::randn({num_nodes, width});
  measure_questions(bench, graph, features);
  measure_updates(bench, graph, features);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program({.name = "predictor",
                      .description = "Inference on a changing graph",
                      .widths = {128},
                      .width_help = "Features and width of each layer",
                      .add_options = add_options,
                      .run = run},
                     argc, argv);
}
