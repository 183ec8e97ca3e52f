#include "mezzo/train/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include <ATen/Context.h>

#include "mezzo/core/error.h"
#include "mezzo/runtime/cuda_library.h"

namespace mezzo {
namespace {

// What is beyond any model would take the memory, or the hops of sgc the time, without an end.
constexpr std::int64_t kMostLayers = 1 << 16;
// Wider than any layer, heads and all; the sizes of tensors of two such still fit 64 bits.
constexpr std::int64_t kMostWidth = 1 << 24;
// A smaller factor loses its digits in float32, or is 0 there, and nothing is trained.
constexpr float kLeastFactor = std::numeric_limits<float>::min();

bool is_share(double value) {
  return value >= 0 && value < 1;  // false for NaN
}

void check_width(std::string_view name, const std::optional<std::int64_t>& width) {
  MEZZO_CHECK(!width || (*width >= 1 && *width <= kMostWidth), "{}: expected 1 to {}, got {}", name,
              kMostWidth, *width);
}

/// The whole of `text` as a number; nothing where it is none.
std::optional<double> number_of(std::string_view text) {
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

void check_model(const TrainOptions& options) {
  const std::string_view model = name_of(nn::ModelKinds{}, options.model);
  MEZZO_CHECK(options.layers >= 1 && options.layers <= kMostLayers,
              "layers: expected 1 to {}, got {}", kMostLayers, options.layers);
  check_width("hidden", options.hidden);
  MEZZO_CHECK(is_share(options.dropout), "dropout: expected a number in [0, 1), got {}",
              options.dropout);

  const bool attention = options.model == nn::ModelKind::kGat;
  MEZZO_CHECK(attention || !options.heads, "heads: only gat has attention heads, the model is {}",
              model);
  MEZZO_CHECK(attention || !options.output_heads,
              "output-heads: only gat has attention heads, the model is {}", model);
  MEZZO_CHECK(attention || !options.attention_dropout,
              "attention-dropout: only gat has attention, the model is {}", model);
  check_width("heads", options.heads);
  check_width("output-heads", options.output_heads);
  const std::int64_t heads = std::max(options.heads.value_or(1), options.output_heads.value_or(1));
  MEZZO_CHECK(options.hidden.value_or(1) <= kMostWidth / heads,
              "heads: expected heads of together at most {} features, got {} of {}", kMostWidth,
              heads, options.hidden.value_or(1));
  MEZZO_CHECK(!options.attention_dropout || is_share(*options.attention_dropout),
              "attention-dropout: expected a number in [0, 1), got {}", *options.attention_dropout);

  const bool sgc = options.model == nn::ModelKind::kSgc, gin = options.model == nn::ModelKind::kGin;
  const bool single = sgc || options.layers == 1;
  const char* why = sgc ? "sgc is one layer, whose hops are the layers asked for"
                        : "a model of one layer has no hidden layer";
  // A layer of gin has a hidden layer of its own.
  MEZZO_CHECK(!single || gin || !options.hidden, "hidden: {}", why);
  MEZZO_CHECK(!single || !options.heads, "heads: {}; output-heads are its heads", why);
  MEZZO_CHECK(!single || options.normalization == nn::Normalization::kNone, "norm: {}", why);
  MEZZO_CHECK(options.model != nn::ModelKind::kMlp || !options.self_loops,
              "self-loops: the model mlp uses no edges");
}

void check_capture(const TrainOptions& options) {
  if (!options.capture) return;
  MEZZO_CHECK(options.device.is_cuda(),
              "capture: a step is captured on a CUDA device, and the device is {}",
              options.device.str());
  MEZZO_CHECK(!options.sampling,
              "capture: mini-batches differ in size, which a captured step cannot follow; train on "
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
  if (cuda_kernels() == nullptr) {
    return "the CUDA kernels are not loaded: " + cuda_library_problem();
  }
  return at::hasCUDA() ? "" : "libtorch sees no CUDA device";
}

at::Device parse_device(const std::string& text) {
  std::optional<at::Device> device;
  try {
    device = at::Device(text);
  } catch (const c10::Error&) {
    // libtorch's text names devices that exist nowhere here; ours is below.
  }
  MEZZO_CHECK(device && (device->is_cpu() || device->is_cuda()),
              "device: expected cpu, cuda or cuda:N, got '{}'", text);
  if (device->is_cpu()) return at::kCPU;

  const std::string problem = cuda_problem();
  MEZZO_CHECK(problem.empty(), "device: {} asked for, but {}", text, problem);
  const int count = at::detail::getCUDAHooks().getNumGPUs();
  const int index = device->has_index() ? device->index() : 0;
  MEZZO_CHECK(index < count, "device: {} asked for, but there are {} CUDA devices", text, count);
  return {at::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

bool is_low(amp::Precision precision) {
  return precision == amp::Precision::kBFloat16 || precision == amp::Precision::kFloat16;
}

void check_rates(OptimizerKind optimizer, double learning_rate, double weight_decay) {
  constexpr double kFloat32 = std::numeric_limits<float>::max();
  constexpr double kAdam = 1e37;  // which divides the rate by a tenth at first
  const double most = optimizer == OptimizerKind::kSgd ? kFloat32 : kAdam;
  MEZZO_CHECK(learning_rate >= kLeastFactor && learning_rate <= most,
              "lr: expected a number in [{}, {:.3g}], got {}", kLeastFactor, most, learning_rate);
  MEZZO_CHECK(weight_decay >= 0 && weight_decay <= most,
              "weight-decay: expected a number in [0, {:.3g}], got {}", most, weight_decay);
  // By their product AdamW shrinks the parameters.
  MEZZO_CHECK(optimizer != OptimizerKind::kAdamW || learning_rate * weight_decay <= most,
              "weight-decay: expected lr * weight-decay of at most {:.3g}, got {} * {}", most,
              learning_rate, weight_decay);
}

void check_options(const TrainOptions& options) {
  check_model(options);
  check_sampling(options);
  check_capture(options);
  MEZZO_CHECK(options.epochs >= 1, "epochs: expected at least 1, got {}", options.epochs);
  check_rates(options.optimizer, options.learning_rate, options.weight_decay);
  MEZZO_CHECK(options.loss_factor >= kLeastFactor &&
                  options.loss_factor <= std::numeric_limits<float>::max(),
              "loss-factor: expected a positive number of float32 that is not subnormal, got {}",
              options.loss_factor);
  MEZZO_CHECK(options.keep_float32.empty() || is_low(options.precision),
              "keep-float32: only bf16 and fp16 have parts that are not in float32, the precision "
              "is {}",
              amp::to_string(options.precision));
  MEZZO_CHECK(options.eval_every >= 1, "eval-every: expected at least 1, got {}",
              options.eval_every);
  MEZZO_CHECK(!options.patience || *options.patience >= 1, "patience: expected at least 1, got {}",
              *options.patience);
  MEZZO_CHECK(options.split_index >= 0, "split-index: expected at least 0, got {}",
              options.split_index);
}

bool uses_self_loops(const TrainOptions& options) {
  return options.self_loops.value_or(nn::needs_in_edges(options.model));
}

}  // namespace mezzo
