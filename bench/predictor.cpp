// Inference on a changing graph: updates and the questions after them with kept rows, beside
// computing k hops without kept rows; the latency and throughput of sampled questions beside
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

/// What is asked after each update.
enum class Question { kOneNode, kHundredNodes, kChangedNodes };

/// Batches of random edges, which are removed and added back, each with a question after it: to a
/// Predictor with kept rows, and to one that computes as many hops as there are layers.
class Updates {
 public:
  Updates(const nn::Model& model, const Topology& graph, const at::Tensor& features,
          amp::Precision precision)
      : graph_(graph),
        kept_(model, graph, features, {.resident = true, .precision = precision}),
        computed_(model, graph, features, {.precision = precision}),
        reference_(model, graph, features, {.resident = true, .precision = precision}) {}

  /// The cells of a question, median times of some rounds: CPU time, updates a second, and how many
  /// times less than without kept rows.
  std::vector<std::string> ask(Question question, std::int64_t rounds) {
    std::vector<double> kept, computed;
    kept_.refresh();
    // After the first updates as many rows are marked as later.
    const std::int64_t first = question == Question::kChangedNodes ? 0 : kFirstUpdates;
    for (std::int64_t i = -first; i < rounds && !interrupted(); ++i) {
      const at::Tensor some = at::randperm(graph_.num_edges()).narrow(0, 0, batch);
      const at::Tensor src = graph_.src().index_select(0, some),
                       dst = graph_.dst().index_select(0, some);
      for (const bool add : {false, true}) {
        const auto change = [&](Predictor& p) {
          add ? p.add_edges(src, dst) : p.remove_edges(src, dst);
        };
        const at::Tensor nodes = asked_after(change, question);
        at::Tensor rows, expected;
        kept.push_back(cpu_milliseconds_of([&] {
          change(kept_);
          rows = kept_.predict(nodes);
        }));
        computed.push_back(cpu_milliseconds_of([&] {
          change(computed_);
          if (i >= 0) expected = computed_.predict(nodes);
        }));
        if (i >= 0 && differing_elements(rows, expected) > 0)
          mezzo::detail::raise<mezzo::LogicError>("predictor: the bits of an update differ");
      }
    }
    if (interrupted()) return {};
    const auto later = [first](const std::vector<double>& times) {
      return median({times.begin() + 2 * first, times.end()});
    };
    return {fmt::format("{:.1f} / {:.1f}", later(kept), later(computed)),
            fmt::format("{:.0f}", 1e3 * static_cast<double>(batch) / later(kept)),
            fmt::format("{:.1f}", later(computed) / later(kept))};
  }

  double kept_mebibytes() const {
    return static_cast<double>(kept_.memory_bytes() - computed_.memory_bytes()) / (1 << 20);
  }

 private:
  static constexpr std::int64_t kFirstUpdates = 20;

  at::Tensor asked_after(const std::function<void(Predictor&)>& change, Question question) {
    if (question == Question::kOneNode) return at::randint(graph_.num_src(), {1}, at::kLong);
    if (question == Question::kHundredNodes) return at::randint(graph_.num_src(), {100}, at::kLong);
    const at::Tensor before = reference_.predict();
    change(reference_);
    return words(reference_.predict()).ne(words(before)).any(1).nonzero().squeeze(1);
  }

  const Topology& graph_;
  Predictor kept_, computed_;
  Predictor reference_;  ///< to find the rows that change
};

void measure_updates(Bench& bench, const Topology& graph, const at::Tensor& features) {
  std::vector<std::vector<std::string>> rows = {{fmt::format("{} edges, then", batch), "precision",
                                                 "kept rows MiB", "1 node: CPU ms kept / k hops",
                                                 "updates/s", "times", "100 nodes", "updates/s",
                                                 "times", "all changed", "updates/s", "times"}};
  for (const nn::ModelKind kind : kPredictorKinds) {
    if (nn::to_string(kind).find(bench.work) == std::string_view::npos) continue;
    const nn::Model model = predictor_model(kind, features.size(1), num_layers);
    for (const amp::Precision precision : bench.arguments.precisions) {
      Updates updates(model, graph, features, precision);
      rows.push_back({std::string(nn::to_string(kind)), std::string(amp::to_string(precision)),
                      fmt::format("{:.1f}", updates.kept_mebibytes())});
      for (const Question question :
           {Question::kOneNode, Question::kHundredNodes, Question::kChangedNodes}) {
        const std::vector<std::string> cells = updates.ask(question, bench.arguments.rounds);
        if (interrupted()) return;
        rows.back().insert(rows.back().end(), cells.begin(), cells.end());
      }
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
                      .run = run,
                      .keeps_freed_pages = false},
                     argc, argv);
}
