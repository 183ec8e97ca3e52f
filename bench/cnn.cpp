// Training steps of the CNN for 28 x 28 images, in every precision, with both layouts of the
// activations, by class of operation. The batch is random: speed does not depend on the pixels.
#include <array>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <CLI/App.hpp>
#include <fmt/format.h>
#include <torch/optim/adam.h>

#include "mezzo/amp/scaler/grad_scaler.h"
#include "mezzo/core/table.h"
#include "mezzo/train/steps/step.h"

#include "bench/harness/program.h"
#include "bench/harness/stages.h"
#include "examples/cnn/network.h"

namespace {

using namespace mezzo::bench;
namespace amp = mezzo::amp;

std::int64_t epoch_images = 60000;
bool without_policy = false;

void add_options(CLI::App& app) {
  app.add_option("--images", epoch_images, "Images of the epochs whose time is printed")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--without-policy", without_policy,
               "Also bf16 and fp16 without the CPU policy, as libtorch's own autocast has them");
}

/// The classes of operations whose time is reported.
enum class Work : std::uint8_t { kConvolution, kNormalization, kProduct, kCast, kOther };
constexpr std::array<const char*, 5> kWorkNames = {"convolution", "normalization", "products",
                                                   "casts", "other"};

/// The class of an operation by name; `outer`, the class of the enclosing operation, if the name
/// does not decide.
Work work_of(std::string_view name, Work outer) {
  const auto has = [name](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  };
  if (has("conv")) return Work::kConvolution;
  if (has("batch_norm")) return Work::kNormalization;
  if (has("::linear") || has("mm")) return Work::kProduct;
  if (name == "aten::to" || has("_to_copy") || has("::copy_")) return Work::kCast;
  return outer;
}

/// During its lifetime, accumulates the calling thread's time per class. Nested operations count
/// for the innermost. Only one instance at a time.
class WorkRecorder {
 public:
  WorkRecorder() {
    current = this;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(start, end).scopes({at::RecordScope::FUNCTION}));
  }
  ~WorkRecorder() { at::removeCallback(handle_); }
  WorkRecorder(const WorkRecorder&) = delete;
  WorkRecorder& operator=(const WorkRecorder&) = delete;

  /// Milliseconds per class, indexed by Work.
  const std::array<double, kWorkNames.size()>& milliseconds() {
    count();
    return milliseconds_;
  }

 private:
  static thread_local WorkRecorder* current;  // libtorch callbacks carry no user data

  static std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& function) {
    current->count();
    current->open_.push_back(work_of(function.name(), current->open_.back()));
    return nullptr;
  }
  static void end(const at::RecordFunction&, at::ObserverContext*) {
    current->count();
    if (current->open_.size() > 1) current->open_.pop_back();
  }

  void count() { milliseconds_[static_cast<std::size_t>(open_.back())] += clock_.lap(); }

  std::array<double, kWorkNames.size()> milliseconds_{};
  std::vector<Work> open_ = {Work::kOther};
  LapClock clock_;
  at::CallbackHandle handle_ = 0;
};
thread_local WorkRecorder* WorkRecorder::current = nullptr;

struct Variant {
  amp::Precision precision = amp::Precision::kFloat32;
  bool channels_last = false;
  amp::CpuPolicy policy = amp::CpuPolicy::kMeasure;
};

/// A model in training; each call takes one step.
class Training {
 public:
  Training(const Variant& variant, at::Tensor images, at::Tensor labels,
           std::shared_ptr<Stages> stages)
      : variant_(variant),
        images_(std::move(images)),
        labels_(std::move(labels)),
        stages_(std::move(stages)),
        network_(seeded_network(variant)),
        optimizer_(network_->parameters(), torch::optim::AdamOptions(1e-4)),
        scaler_({.device = at::kCPU, .enabled = variant.precision == amp::Precision::kFloat16}) {}

  /// Returns the loss, [1].
  at::Tensor step() {
    at::Tensor loss;
    {
      WorkRecorder recorder;
      const auto forward = [this] {
        return at::cross_entropy_loss(network_->forward(images_).to(at::kFloat), labels_);
      };
      loss = mezzo::scaled_backward(variant_.precision, at::kCPU, scaler_, forward,
                                    {.cpu_policy = variant_.policy});
      const auto& times = recorder.milliseconds();
      for (std::size_t i = 0; i < times.size(); ++i) note(*stages_, kWorkNames[i], times[i]);
    }
    LapClock clock;
    scaler_.step(optimizer_);
    scaler_.update();
    optimizer_.zero_grad();
    note(*stages_, "optimizer", clock.lap());
    return loss.reshape({1});
  }

 private:
  static torch::nn::Sequential seeded_network(const Variant& variant) {
    at::manual_seed(0);
    return make_network(variant.channels_last);
  }

  Variant variant_;
  at::Tensor images_, labels_;
  std::shared_ptr<Stages> stages_;
  torch::nn::Sequential network_;
  torch::optim::Adam optimizer_;
  amp::GradScaler scaler_;
};

std::vector<Variant> variants(const std::vector<amp::Precision>& precisions) {
  std::vector<Variant> all;
  for (const bool channels_last : {false, true}) {
    for (const amp::Precision precision : precisions) {
      all.push_back({.precision = precision, .channels_last = channels_last});
      if (precision == amp::Precision::kFloat32 || !without_policy) continue;
      all.push_back({precision, channels_last, amp::CpuPolicy::kOff});
    }
  }
  return all;
}

std::string name_of(const Variant& variant) {
  return fmt::format("{}{}{}", amp::to_string(variant.precision),
                     variant.channels_last ? " channels-last" : "",
                     variant.policy == amp::CpuPolicy::kOff ? " without policy" : "");
}

Plan training_step(const std::vector<amp::Precision>& precisions, std::int64_t batch) {
  constexpr std::int64_t kParameterBytes =
      14'736'266 * 4;                                     // plus two Adam moments and the gradients
  constexpr std::int64_t kActivationBytes = 260'224 * 4;  // per image, all convolutions
  const std::vector<Variant> all = variants(precisions);
  const auto make = [all, batch] {
    const at::Tensor images = at::rand({batch, 1, 28, 28});
    const at::Tensor labels = at::randint(10, {batch}, at::kLong);
    Comparison comparison;
    comparison.rounding.steps = 16;  // of convolutions, dense layers and their activations
    for (const Variant& variant : all) {
      const auto stages = std::make_shared<Stages>();
      const auto training = std::make_shared<Training>(variant, images, labels, stages);
      comparison.candidates.push_back(
          {.name = name_of(variant),
           .is_mezzo = true,
           .precision = variant.precision,
           .run = [training]() -> Tensors { return {training->step()}; },
           .cost = {.run_bytes = 3 * kParameterBytes + 4 * batch * kActivationBytes},
           .stages = stages});
    }
    return comparison;
  };
  return {.work = "training step of the cnn, F images",
          .width = batch,
          .bytes = static_cast<std::int64_t>(all.size()) * kParameterBytes,
          .make = make};
}

void print_epochs(const Outcome& outcome) {
  std::vector<std::vector<std::string>> rows = {{"candidate", "images/s", "s an epoch"}};
  for (const Measurement& measured : outcome.measurements) {
    if (!measured.skipped.empty()) continue;
    const double speed = static_cast<double>(outcome.width) / (measured.median() * 1e-3);
    rows.push_back({measured.name, fmt::format("{:.0f}", speed),
                    fmt::format("{:.1f}", static_cast<double>(epoch_images) / speed)});
  }
  std::cout << fmt::format("epochs of {} images, by the medians\n", epoch_images)
            << mezzo::format_table(rows) << std::endl;
}

void run(Bench& bench) {
  bench.begin();
  for (const std::int64_t batch : bench.arguments.widths) {
    const std::size_t before = bench.report.outcomes.size();
    bench.run(training_step(bench.arguments.precisions, batch));
    if (bench.report.outcomes.size() > before) print_epochs(bench.report.outcomes.back());
  }
  for (const amp::CpuPolicyChoice& choice : amp::cpu_policy_report()) {
    std::cout << amp::to_string(choice) << '\n';
  }
  std::cout << std::flush;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program({.name = "cnn",
                      .description = "Training steps of the CNN for images by class of operation",
                      .widths = {64},
                      .width_help = "Images of a batch",
                      .add_options = add_options,
                      .run = run},
                     argc, argv);
}
