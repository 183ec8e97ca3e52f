#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/core/error.h"
#include "mezzo/core/random.h"
#include "mezzo/core/table.h"
#include "mezzo/predict/predictor.h"

#include "bench/cases/predictors.h"

namespace mezzo::bench {
namespace {

/// Counts elements whose bits differ from a full pass of a new Predictor.
class Stress {
 public:
  Stress(nn::Model model, amp::Precision precision)
      : model_(std::move(model)), options_{.resident = true, .precision = precision} {
    const Topology graph = rmat_topology(kNodes, kEdges);
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
      faults += differing_elements(resident_->predict(), expected) +
                differing_elements(plain_->predict(), expected);
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
        random_below(static_cast<std::uint64_t>(bound), 1, 0, next_++));
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
      const std::uint64_t bits = random_bits(seed, 1, static_cast<std::uint64_t>(i));
      const std::int64_t count = bits % 2 == 0 ? 1 : 1 + static_cast<std::int64_t>(bits / 2 % 32);
      at::Tensor nodes = at::empty({count}, at::kLong);
      for (std::int64_t j = 0; j < count; ++j) {
        nodes.mutable_data_ptr<std::int64_t>()[j] = static_cast<std::int64_t>(
            random_below(kNodes, seed, 2, static_cast<std::uint64_t>(64 * i + j)));
      }
      const Predictor& asked = bits / 128 % 4 == 0 ? *resident_ : *plain_;
      faults += differing_elements(asked.predict(nodes), expected.index_select(0, nodes));
    }
    return faults;
  }

  nn::Model model_;
  PredictorOptions options_;
  at::Tensor src_, dst_, features_;
  std::optional<Predictor> resident_, plain_;
  std::uint64_t next_ = 0;
};

}  // namespace

void run_stress(Bench& bench, std::int64_t layers, std::int64_t steps) {
  bench.begin();
  const std::int64_t width = bench.arguments.widths.front();
  std::vector<std::vector<std::string>> rows = {
      {"model", "precision", "questions and updates", "differing elements"}};
  for (const nn::ModelKind kind : kPredictorKinds) {
    for (const amp::Precision precision : bench.arguments.precisions) {
      const std::int64_t faults =
          Stress(predictor_model(kind, width, layers), precision).run(steps);
      if (interrupted()) return;
      rows.push_back({std::string(nn::to_string(kind)), std::string(amp::to_string(precision)),
                      std::to_string(steps), std::to_string(faults)});
      if (faults > 0)
        detail::raise<LogicError>("predictor: {} elements of {} in {} differ", faults,
                                  nn::to_string(kind), amp::to_string(precision));
    }
  }
  std::cout << format_table(rows, 2) << std::flush;
}

}  // namespace mezzo::bench
