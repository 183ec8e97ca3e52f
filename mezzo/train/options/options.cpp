#include "mezzo/train/options/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include <ATen/Context.h>

#include "mezzo/core/error.h"
#include "mezzo/runtime/cuda_library.h"
#include "mezzo/train/options/option_fields.h"

namespace mezzo {
namespace {

// Smaller rates are subnormal or 0 in float32.
constexpr float kLeastFactor = std::numeric_limits<float>::min();

/// The whole of `text` as a number, if it is one.
std::optional<double> number_of(std::string_view text) {
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Checks each option by itself, and that it applies.
void check_fields(const TrainOptions& options) {
  fields::for_each(fields::kTraining, [&](const auto& field) {
    MEZZO_CHECK(!field.rules.of_kinds || !nn::is_own(options.model) || !is_set(field, options),
                "{}: expected the default, since a model of your own does not read it", field.name);
    const auto applies = field.rules.applies;
    MEZZO_CHECK(applies == nullptr || applies(options) || !is_set(field, options),
                "{}: {}; got model {} in {}", field.name, field.rules.why_not,
                fields::to_text(options.model), fields::to_text(options.precision));
    check_range(field, options);
  });
}

/// Checks the options of the model against each other.
void check_model(const TrainOptions& options) {
  const std::int64_t heads = std::max(options.heads.value_or(1), options.output_heads.value_or(1));
  MEZZO_CHECK(options.hidden.value_or(1) <= fields::kMostWidth / heads,
              "heads: expected at most {} features in all, got {} heads of {}", fields::kMostWidth,
              heads, options.hidden.value_or(1));
  if (options.layers > 1 || options.model == nn::ModelKind::kSgc) return;
  constexpr const char* kWhy = "a model of one layer has no hidden layer";
  // A layer of gin has a hidden layer of its own.
  MEZZO_CHECK(nn::has_layer_mlps(options.model) || !options.hidden, "hidden: {}", kWhy);
  MEZZO_CHECK(!options.heads, "heads: {}; output-heads are its heads", kWhy);
  MEZZO_CHECK(options.normalization == nn::Normalization::kNone, "norm: {}", kWhy);
}

void check_capture(const TrainOptions& options) {
  if (!options.capture) return;
  MEZZO_CHECK(options.device.is_cuda(), "capture: expected a CUDA device, got {}",
              options.device.str());
  MEZZO_CHECK(
      !options.sampling,
      "capture: a captured step needs batches of one size, and mini-batches differ; train on "
      "the full graph");
}

}  // namespace

LossScale parse_loss_scale(std::string_view text) {
  if (text == "automatic") return {};
  if (text == "none") return {.kind = LossScale::Kind::kNone};
  if (text == "dynamic") return {.kind = LossScale::Kind::kDynamic};
  const std::optional<double> value = number_of(text);
  MEZZO_CHECK(value && *value > 0 && std::isfinite(static_cast<float>(*value)) &&
                  static_cast<float>(*value) > 0,
              "loss-scale: expected dynamic, none or a positive number, got '{}'", text);
  return {.kind = LossScale::Kind::kConstant, .value = *value};
}

std::string to_string(const LossScale& scale) {
  switch (scale.kind) {
    case LossScale::Kind::kNone:
      return "none";
    case LossScale::Kind::kConstant:
      return fmt::format("{}", scale.value);
    case LossScale::Kind::kDynamic:
      return "dynamic";
    case LossScale::Kind::kAutomatic:
      break;
  }
  return "automatic";
}

std::string cuda_problem() {
  return cuda_device_problem(0);
}

at::Device parse_device(const std::string& text) {
  std::optional<at::Device> device;
  try {
    device = at::Device(text);
  } catch (const c10::Error&) {
    // libtorch's message lists devices that Mezzo does not have.
  }
  MEZZO_CHECK(device && (device->is_cpu() || device->is_cuda()),
              "device: expected cpu, cuda or cuda:N, got '{}'", text);
  if (device->is_cpu()) return at::kCPU;

  const c10::DeviceIndex index = device->has_index() ? device->index() : c10::DeviceIndex{0};
  const std::string problem = cuda_device_problem(index);
  MEZZO_CHECK(problem.empty(), "device: {} is not usable: {}", text, problem);
  return {at::kCUDA, index};
}

bool is_low(amp::Precision precision) {
  return precision == amp::Precision::kBFloat16 || precision == amp::Precision::kFloat16;
}

void check_rates(OptimizerKind optimizer, double learning_rate, double weight_decay) {
  constexpr double kFloat32 = std::numeric_limits<float>::max();
  constexpr double kAdam = 1e37;  // the first steps divide the rate by as little as 0.1
  const double most = optimizer == OptimizerKind::kSgd ? kFloat32 : kAdam;
  MEZZO_CHECK(learning_rate > 0, "lr: expected above 0, got {}", learning_rate);
  MEZZO_CHECK(learning_rate >= kLeastFactor && learning_rate <= most,
              "lr: expected a number in [{}, {:.3g}], got {}", kLeastFactor, most, learning_rate);
  MEZZO_CHECK(weight_decay >= 0 && weight_decay <= most,
              "weight-decay: expected a number in [0, {:.3g}], got {}", most, weight_decay);
  // AdamW shrinks the parameters by this product.
  MEZZO_CHECK(optimizer != OptimizerKind::kAdamW || learning_rate * weight_decay <= most,
              "weight-decay: expected lr * weight-decay of at most {:.3g}, got {} * {}", most,
              learning_rate, weight_decay);
}

void check_options(const TrainOptions& options) {
  check_fields(options);
  check_model(options);
  check_sampling(options);
  check_capture(options);
  MEZZO_CHECK(options.init.empty() || options.resume.empty(),
              "init: expected init or resume, got both; a resumed run has its own weights");
  check_rates(options.optimizer, options.learning_rate, options.weight_decay);
  MEZZO_CHECK(!options.patience || *options.patience >= options.eval_every,
              "patience: expected at least eval-every, which is {}, got {}", options.eval_every,
              options.patience.value_or(0));
}

bool uses_self_loops(const TrainOptions& options) {
  return options.self_loops.value_or(nn::needs_in_edges(options.model));
}

}  // namespace mezzo
