// Inference on a changing graph: updates a second beside computing the changed nodes by k hops, the
// latency and throughput of sampled questions, memory, and with --stress a count of differing bits.
#include "mezzo/predict/predictor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <iostream>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <CLI/App.hpp>
#include <fmt/format.h>
#include <torch/utils.h>

#include "mezzo/core/error.h"
#include "mezzo/core/random.h"
#include "mezzo/core/table.h"
#include "mezzo/graph/transforms/transforms.h"
#include "mezzo/runtime/memory.h"

#include "bench/harness/program.h"

namespace {

using namespace mezzo::bench;
using mezzo::Predictor;
using mezzo::PredictorOptions;
using mezzo::Topology;
namespace nn = mezzo::nn;
namespace amp = mezzo::amp;

std::int64_t num_nodes = 169'343, num_edges = 1'200'000, batch = 1000, num_layers = 3,
             num_questions = 2000, stress = 0;

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
}

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The bits of float32 numbers: NaN equals itself.
at::Tensor words(const at::Tensor& numbers) {
  return numbers.contiguous().view(at::kInt);
}

/// Elements whose bits differ.
std::int64_t differing(const at::Tensor& a, const at::Tensor& b) {
  return words(a).ne(words(b)).sum().item<std::int64_t>();
}

/// R-MAT on a power of two of nodes, scaled to any number of them.
Topology rmat_of(std::int64_t nodes, std::int64_t edges) {
  int scale = 1;
  while ((std::int64_t{1} << scale) < nodes) ++scale;
  const mezzo::Graph graph = mezzo::rmat_graph(scale, edges);
  const auto scaled = [&](const at::Tensor& ids) {
    return at::div(ids.to(at::kLong) * nodes, std::int64_t{1} << scale, "floor");
  };
  return Topology::from_coo(scaled(graph.topology().src()), scaled(graph.topology().dst()), nodes,
                            nodes);
}

nn::Model model_of(nn::ModelKind kind, std::int64_t width, std::int64_t layers) {
  torch::manual_seed(0);
  const std::int64_t heads = kind == nn::ModelKind::kGat ? 4 : 1;
  return nn::Model(nn::ModelOptions{.kind = kind,
                                    .in_features = width,
                                    .hidden_features = std::max<std::int64_t>(1, width / heads),
                                    .out_features = width,
                                    .num_layers = layers,
                                    .num_heads = heads});
}

constexpr nn::ModelKind kKinds[] = {nn::ModelKind::kGcn, nn::ModelKind::kSage, nn::ModelKind::kGat,
                                    nn::ModelKind::kGin};

// ---- updates

/// Removes a batch of random edges, and adds it back.
void measure_updates(Bench& bench, const Topology& graph, const at::Tensor& features,
                     std::vector<std::vector<std::string>>& rows) {
  for (const nn::ModelKind kind : kKinds) {
    for (const amp::Precision precision : bench.arguments.precisions) {
      if (interrupted()) return;
      const nn::Model model = model_of(kind, features.size(1), num_layers);
      Predictor resident(model, graph, features, {.resident = true, .precision = precision});
      Predictor plain(model, graph, features, {.precision = precision});
      std::vector<double> update_times, hop_times;
      std::int64_t changed = 0;
      for (std::int64_t round = 0; round < bench.arguments.rounds; ++round) {
        const at::Tensor some = at::randperm(graph.num_edges()).narrow(0, 0, batch);
        const at::Tensor src = graph.src().index_select(0, some),
                         dst = graph.dst().index_select(0, some);
        const at::Tensor before = resident.predict();
        update_times.push_back(seconds_of([&] { resident.remove_edges(src, dst); }));
        plain.remove_edges(src, dst);
        const at::Tensor after = resident.predict();
        const at::Tensor nodes = words(after).ne(words(before)).any(1).nonzero().squeeze(1);
        at::Tensor expected;
        hop_times.push_back(seconds_of([&] { expected = plain.predict(nodes); }));
        if (differing(expected, after.index_select(0, nodes)) > 0)
          mezzo::detail::raise<mezzo::LogicError>("predictor: the bits of an update differ");
        changed += nodes.numel();
        update_times.push_back(seconds_of([&] { resident.add_edges(src, dst); }));
        plain.add_edges(src, dst);
      }
      const auto median = [](std::vector<double> times) {
        std::nth_element(times.begin(),
                         times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                         times.end());
        return times[times.size() / 2];
      };
      const double update = median(update_times), hops = median(hop_times);
      const auto bytes = static_cast<double>(resident.memory_bytes() - plain.memory_bytes());
      rows.push_back({std::string(nn::to_string(kind)), std::string(amp::to_string(precision)),
                      fmt::format("{:.1f}", update * 1e3),
                      fmt::format("{:.0f}", static_cast<double>(batch) / update),
                      fmt::format("{:.0f}", static_cast<double>(changed / bench.arguments.rounds)),
                      fmt::format("{:.1f}", hops * 1e3), fmt::format("{:.2f}", hops / update),
                      fmt::format("{:.1f}", bytes / (1 << 20))});
    }
  }
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

void measure_questions(Bench& bench, const Topology& graph, const at::Tensor& features) {
  std::vector<std::vector<std::string>> rows = {
      {"question", "precision", "threads", "p50 ms", "p99 ms", "questions/s"}};
  const nn::Model model = model_of(nn::ModelKind::kSage, features.size(1), 2);
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
      if (times.empty()) continue;
      rows.push_back({"sage [15, 10], one node", std::string(amp::to_string(precision)),
                      std::to_string(threads), fmt::format("{:.3f}", times[times.size() / 2]),
                      fmt::format("{:.3f}", times[times.size() * 99 / 100]),
                      fmt::format("{:.0f}", static_cast<double>(times.size()) / seconds)});
    }
  }
  std::cout << mezzo::format_table(rows, 2) << std::flush;
}

// ---- stress

/// Counts elements whose bits differ from a full pass of a new Predictor.
class Stress {
 public:
  Stress(nn::Model model, amp::Precision precision)
      : model_(std::move(model)), options_{.resident = true, .precision = precision} {
    const Topology graph = rmat_of(kNodes, kEdges);
    src_ = graph.src().to(at::kLong);
    dst_ = graph.dst().to(at::kLong);
    features_ = at::randn({kNodes, model_->options.in_features});
    resident_.emplace(made());
    plain_.emplace(model_, topology(), features_, PredictorOptions{.precision = precision});
  }

  /// Returns the number of differing elements.
  std::int64_t run(std::int64_t steps) {
    std::int64_t faults = 0;
    for (std::int64_t step = 0; step < steps && !interrupted();) {
      for (int i = 0; i < kUpdates; ++i) update();
      const at::Tensor expected = made().predict();
      faults += differing(resident_->predict(), expected) + differing(plain_->predict(), expected);
      step += kUpdates + 3;
      const std::int64_t questions = std::min<std::int64_t>(steps - step, kQuestions);
      std::atomic<std::int64_t> of_questions = 0;
      std::vector<std::thread> askers;
      for (int i = 0; i < 2; ++i) {
        const std::uint64_t seed = next_++;
        askers.emplace_back([&, seed] { of_questions += ask(expected, questions / 2, seed); });
      }
      for (std::thread& asker : askers) asker.join();
      faults += of_questions;
      step += std::max<std::int64_t>(questions, 1);
    }
    return faults;
  }

 private:
  static constexpr std::int64_t kNodes = 300, kEdges = 1500, kUpdates = 8, kQuestions = 240;

  Topology topology() const { return Topology::from_coo(src_, dst_, kNodes, kNodes); }
  Predictor made() const { return Predictor(model_, topology(), features_, options_); }
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(
        mezzo::random_below(static_cast<std::uint64_t>(bound), 1, 0, next_++));
  }

  void update() {
    const std::int64_t count = 1 + below(20);
    if (below(5) == 0) {
      const at::Tensor nodes = at::randperm(kNodes).narrow(0, 0, count);
      const at::Tensor rows = at::randn({count, features_.size(1)});
      features_ = features_.index_copy(0, nodes, rows);
      resident_->set_features(nodes, rows);
      plain_->set_features(nodes, rows);
    } else if (src_.numel() > kEdges) {
      const at::Tensor order = at::randperm(src_.numel());
      const at::Tensor gone = order.narrow(0, 0, count),
                       left = order.narrow(0, count, src_.numel() - count);
      const at::Tensor src = src_.index_select(0, gone), dst = dst_.index_select(0, gone);
      resident_->remove_edges(src, dst);
      plain_->remove_edges(src, dst);
      src_ = src_.index_select(0, left);
      dst_ = dst_.index_select(0, left);
    } else {
      const at::Tensor src = at::randint(kNodes, {count}, at::kLong),
                       dst = at::randint(kNodes, {count}, at::kLong);
      resident_->add_edges(src, dst);
      plain_->add_edges(src, dst);
      src_ = at::cat({src_, src});
      dst_ = at::cat({dst_, dst});
    }
  }

  /// Half of the questions are for one node, the others for up to 32.
  std::int64_t ask(const at::Tensor& expected, std::int64_t questions, std::uint64_t seed) const {
    std::int64_t faults = 0;
    for (std::int64_t i = 0; i < questions; ++i) {
      const std::uint64_t bits = mezzo::random_bits(seed, 1, static_cast<std::uint64_t>(i));
      const std::int64_t count = bits % 2 == 0 ? 1 : 1 + static_cast<std::int64_t>(bits / 2 % 32);
      at::Tensor nodes = at::empty({count}, at::kLong);
      for (std::int64_t j = 0; j < count; ++j) {
        nodes.mutable_data_ptr<std::int64_t>()[j] = static_cast<std::int64_t>(
            mezzo::random_below(kNodes, seed, 2, static_cast<std::uint64_t>(64 * i + j)));
      }
      const Predictor& asked = bits / 128 % 4 == 0 ? *resident_ : *plain_;
      faults += differing(asked.predict(nodes), expected.index_select(0, nodes));
    }
    return faults;
  }

  nn::Model model_;
  PredictorOptions options_;
  at::Tensor src_, dst_, features_;
  std::optional<Predictor> resident_, plain_;
  std::uint64_t next_ = 0;
};

void run_stress(Bench& bench, std::int64_t width) {
  std::vector<std::vector<std::string>> rows = {
      {"model", "precision", "questions and updates", "differing elements"}};
  for (const nn::ModelKind kind : kKinds) {
    for (const amp::Precision precision : bench.arguments.precisions) {
      const std::int64_t faults = Stress(model_of(kind, width, num_layers), precision).run(stress);
      rows.push_back({std::string(nn::to_string(kind)), std::string(amp::to_string(precision)),
                      std::to_string(stress), std::to_string(faults)});
      if (faults > 0)
        mezzo::detail::raise<mezzo::LogicError>("predictor: {} elements of {} in {} differ", faults,
                                                nn::to_string(kind), amp::to_string(precision));
    }
  }
  std::cout << mezzo::format_table(rows, 2) << std::flush;
}

void run(Bench& bench) {
  const std::int64_t width = bench.arguments.widths.front();
  if (stress > 0) {
    bench.begin();
    return run_stress(bench, width);
  }
  bench.begin("R-MAT", num_nodes, num_edges);
  const Topology graph = rmat_of(num_nodes, num_edges);
  const at::Tensor features = at::randn({num_nodes, width});
  measure_questions(bench, graph, features);
  std::vector<std::vector<std::string>> rows = {
      {"updates of", "precision", fmt::format("ms for {} edges", batch), "updates/s",
       "changed nodes", "k hops ms", "times", "kept rows MiB"}};
  measure_updates(bench, graph, features, rows);
  std::cout << mezzo::format_table(rows, 2) << std::flush;
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
