#include "mezzo/amp/optim/mixed_precision_optimizer.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <mutex>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include "mezzo/amp/optim/fused_optimizer.h"
#include "mezzo/amp/scaler/unscale.h"
#include "mezzo/core/error.h"
#include "mezzo/runtime/sixteen_bits.h"

namespace mezzo::amp {
namespace {

using torch::optim::Optimizer;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

/// The currently wrapped optimizers.
struct WrappedOptimizers {
  std::mutex mutex;
  std::unordered_set<const Optimizer*> optimizers;
};

WrappedOptimizers& wrapped_optimizers() {
  static auto* all = new WrappedOptimizers;  // never destroyed: outlives static wrappers
  return *all;
}

Optimizer* add_wrapped(Optimizer& optimizer) {
  const std::lock_guard lock(wrapped_optimizers().mutex);
  if (!wrapped_optimizers().optimizers.insert(&optimizer).second) {
    mezzo::detail::raise<LogicError>(
        "enable_mixed_precision: expected an optimizer without a wrapper, got one that is "
        "wrapped already; use or destroy its MixedPrecisionOptimizer");
  }
  return &optimizer;
}

/// The parameters of all groups, each once: modules can be registered twice.
std::vector<at::Tensor> distinct_parameters_of(const Optimizer& optimizer) {
  std::vector<at::Tensor> all = parameters_of(optimizer);
  std::unordered_set<const c10::TensorImpl*> seen;
  std::erase_if(all, [&seen](const at::Tensor& parameter) {
    return !seen.insert(parameter.unsafeGetTensorImpl()).second;
  });
  return all;
}

std::vector<at::Tensor> gradients_of(const Optimizer& optimizer) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : distinct_parameters_of(optimizer)) {
    if (parameter.grad().defined()) all.push_back(parameter.grad());
  }
  return all;
}

bool has_dtype(const std::vector<at::Tensor>& parameters, at::ScalarType dtype) {
  return std::any_of(parameters.begin(), parameters.end(),
                     [=](const at::Tensor& parameter) { return parameter.scalar_type() == dtype; });
}

void check_options(const MixedPrecisionOptions& options) {
  const std::optional<double>& norm = options.max_gradient_norm;
  MEZZO_CHECK(!norm || (std::isfinite(*norm) && *norm > 0.0),
              "enable_mixed_precision: expected max_gradient_norm > 0 and finite, got {}; leave "
              "it unset for no clipping",
              *norm);
  MEZZO_CHECK(options.accumulate >= 1, "enable_mixed_precision: expected accumulate >= 1, got {}",
              options.accumulate);
  if (options.policy) options.policy->validate();
}

/// Throws unless every parameter has a supported dtype and is on `device`.
void check_parameters(const std::vector<at::Tensor>& parameters, at::Device device) {
  for (const at::Tensor& parameter : parameters) {
    const at::ScalarType dtype = parameter.scalar_type();
    MEZZO_CHECK(
        dtype == at::kFloat || dtype == at::kDouble || is_16_bit(dtype),
        "enable_mixed_precision: expected float32, float64, bfloat16 or float16 parameters, got {}",
        c10::toString(dtype));
    const at::Device expected =
        device.has_index() && !device.is_cpu() ? device : parameters.front().device();
    MEZZO_CHECK(parameter.device() == expected && parameter.device().type() == device.type(),
                "enable_mixed_precision: expected every parameter on the device {}, got one on "
                "{}; move the model before creating the optimizer, or set .device",
                device.str(), parameter.device().str());
  }
}

void check_optimizer(const Optimizer& optimizer, const MixedPrecisionOptions& options) {
  MEZZO_CHECK(
      dynamic_cast<const torch::optim::LBFGS*>(&optimizer) == nullptr,
      "enable_mixed_precision: LBFGS is not supported, because it evaluates the loss several "
      "times per step; use another optimizer, or LBFGS alone in float32");
  const std::vector<at::Tensor> parameters = parameters_of(optimizer);
  MEZZO_CHECK(!parameters.empty(),
              "enable_mixed_precision: expected an optimizer with parameters, got no parameters");
  check_parameters(parameters, options.device);
  MEZZO_CHECK(
      options.rounding != ParameterRounding::kStochastic || has_dtype(parameters, at::kBFloat16) ||
          has_dtype(parameters, at::kHalf),
      "enable_mixed_precision: expected bfloat16 parameters for .rounding = kStochastic, got "
      "none; call model->to(torch::kBFloat16) first, or leave .rounding out");
  const PrecisionScope supported(options.precision, options.device);
}

GradScalerOptions scaler_options(const Optimizer& optimizer, const MixedPrecisionOptions& options) {
  const bool float16 =
      options.precision == Precision::kFloat16 || has_dtype(parameters_of(optimizer), at::kHalf);
  return {.device = options.device,
          .policy = options.policy.value_or(LossScalePolicy::dynamic()),
          .enabled = float16 || options.policy.has_value()};
}

void check_loss(const at::Tensor& loss) {
  MEZZO_CHECK(loss.defined(),
              "MixedPrecisionOptimizer: expected a loss, got an undefined tensor; return it from "
              "the closure");
  MEZZO_CHECK(loss.is_floating_point(), "MixedPrecisionOptimizer: expected a floating loss, got {}",
              c10::toString(loss.scalar_type()));
  MEZZO_CHECK(loss.numel() == 1,
              "MixedPrecisionOptimizer: expected a loss of one element, got {}; take its mean() "
              "or sum()",
              loss.numel());
  MEZZO_CHECK(
      loss.requires_grad(),
      "MixedPrecisionOptimizer: expected a loss with a graph, got no graph; do not detach the "
      "loss or compute it under NoGradGuard");
}

/// Same arithmetic as torch::nn::utils::clip_grad_norm_, without synchronisation.
void clip_norm(const std::vector<at::Tensor>& gradients, double max_norm) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> norms;
  norms.reserve(gradients.size());
  for (const at::Tensor& gradient : gradients) {
    // Duplicate sparse entries count as their sum.
    norms.push_back(stored_values(gradient.is_sparse() ? gradient.coalesce() : gradient).norm(2.0));
  }
  const at::Tensor total = norms.size() == 1 ? norms.front() : at::stack(norms).norm(2.0);
  const at::Tensor factor = (max_norm / (total + 1e-6)).clamp_max_(1.0);
  for (const at::Tensor& gradient : gradients) stored_values(gradient).mul_(factor);
}

/// Reads the field `key`. Throws unless `is` accepts its type.
c10::IValue read(InputArchive& archive, const char* key, bool (c10::IValue::*is)() const) {
  c10::IValue value;
  if (!archive.try_read(key, value) || !(value.*is)()) {
    mezzo::detail::raise<IoError>(
        "MixedPrecisionOptimizer::load: expected a field '{}', got no field or another type", key);
  }
  return value;
}

std::vector<at::Tensor> detached(std::vector<at::Tensor> tensors) {
  for (at::Tensor& tensor : tensors) tensor = tensor.detach();
  return tensors;
}

/// Fields of save() besides the optimizer and the scaler.
struct Fields {
  std::int64_t rounding, seed, steps, micro_batches;
  bool scaled;
  std::vector<at::Tensor> masters;
  std::vector<std::int64_t> places;  // group positions of parameters with gradients
  std::vector<at::Tensor> gradients;
};

Fields read_fields(InputArchive& archive) {
  const auto integer = [&](const char* key) {
    return read(archive, key, &c10::IValue::isInt).toInt();
  };
  const auto tensors = [&](const char* key) {
    return read(archive, key, &c10::IValue::isTensorList).toTensorVector();
  };
  return {.rounding = integer("rounding"),
          .seed = integer("seed"),
          .steps = integer("steps"),
          .micro_batches = integer("micro_batches"),
          .scaled = read(archive, "scaled", &c10::IValue::isBool).toBool(),
          .masters = tensors("masters"),
          .places = read(archive, "places", &c10::IValue::isIntList).toIntVector(),
          .gradients = tensors("gradients")};
}

bool gradients_fit(const Fields& fields, const std::vector<at::Tensor>& parameters,
                   const MasterWeights& masters) {
  if (fields.places.size() != fields.gradients.size()) return false;
  for (std::size_t i = 0; i < fields.places.size(); ++i) {
    const auto place = static_cast<std::size_t>(fields.places[i]);
    if (fields.places[i] < 0 || place >= parameters.size()) return false;
    const at::Tensor& parameter = parameters[place];
    const at::Tensor& gradient = fields.gradients[i];
    if (gradient.sizes() != masters.original(parameter).sizes()) return false;
    if (gradient.scalar_type() != parameter.scalar_type()) return false;
  }
  return true;
}

/// Loads the optimizer; restores its state if the checkpoint does not match.
void load_optimizer(Optimizer& optimizer, InputArchive& archive) {
  auto before = std::move(optimizer.state());
  optimizer.state().clear();
  try {
    optimizer.load(archive);
  } catch (const std::exception& error) {  // from libtorch, or IoError from a fused optimizer
    optimizer.state() = std::move(before);
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    mezzo::detail::raise<InvalidArgument>(
        "MixedPrecisionOptimizer::load: the saved optimizer has another type or other groups: {}",
        torch_error != nullptr ? torch_error->what_without_backtrace() : error.what());
  }
}

}  // namespace

void MixedPrecisionOptimizer::Release::operator()(Optimizer* optimizer) const {
  const std::lock_guard lock(wrapped_optimizers().mutex);
  wrapped_optimizers().optimizers.erase(optimizer);
}

MixedPrecisionOptimizer::MixedPrecisionOptimizer(Optimizer& optimizer,
                                                 const MixedPrecisionOptions& options)
    : options_(options),
      optimizer_(add_wrapped(optimizer)),
      scaler_(scaler_options(optimizer, options)) {
  masters_ = std::make_unique<MasterWeights>(optimizer, options.rounding, options.seed);
}

MixedPrecisionOptimizer::~MixedPrecisionOptimizer() = default;
MixedPrecisionOptimizer::MixedPrecisionOptimizer(MixedPrecisionOptimizer&&) noexcept = default;
MixedPrecisionOptimizer& MixedPrecisionOptimizer::operator=(MixedPrecisionOptimizer&&) noexcept =
    default;

MixedPrecisionOptimizer enable_mixed_precision(Optimizer& optimizer,
                                               const MixedPrecisionOptions& options) {
  check_options(options);
  check_optimizer(optimizer, options);
  return {optimizer, options};
}

at::Tensor MixedPrecisionOptimizer::minimize(const std::function<at::Tensor()>& closure) {
  MEZZO_CHECK(closure != nullptr,
              "MixedPrecisionOptimizer::minimize: expected a closure that returns the loss");
  // After all micro-batches without a step (it threw or was not called), drop the gradients.
  if (micro_batches_ == 0 || micro_batches_ >= options_.accumulate) zero_grad();
  at::Tensor loss;
  {
    const PrecisionScope region = scope();
    loss = closure();
  }
  backward(loss);
  if (micro_batches_ == options_.accumulate) step();
  return loss.detach();
}

PrecisionScope MixedPrecisionOptimizer::scope() const {
  return PrecisionScope(options_.precision, options_.device, {.cpu_policy = options_.cpu_policy});
}

void MixedPrecisionOptimizer::backward(const at::Tensor& loss) {
  check_loss(loss);
  if (micro_batches_ == options_.accumulate || unscaled_) {
    mezzo::detail::raise<LogicError>(
        "MixedPrecisionOptimizer::backward: {}; call step(), or zero_grad() to drop the gradients",
        unscaled_ ? "the gradients are unscaled already" : "every micro-batch of the step has run");
  }
  adopt();
  // A 0-dim float16 loss is scaled in float32 and cannot overflow.
  at::Tensor share = loss.reshape({});
  if (options_.accumulate > 1) {
    if (is_16_bit(share)) share = share.to(at::kFloat);
    share = share / static_cast<double>(options_.accumulate);
  }
  const at::Tensor scaled = scaler_.scale(share);
  scope().backward(scaled);
  // libtorch would accumulate in 16 bits. Without accumulation, the gradient stays on the model's
  // parameter for all-reduce or clipping.
  if (options_.accumulate > 1) masters_->collect_gradients();
  ++micro_batches_;
}

/// Creates masters for 16-bit parameters of added groups.
void MixedPrecisionOptimizer::adopt() const {
  const bool takes_float16 =
      scaler_.is_enabled() || options_.rounding == ParameterRounding::kStochastic;
  MEZZO_CHECK(takes_float16 || !has_dtype(parameters_of(*optimizer_), at::kHalf),
              "MixedPrecisionOptimizer: expected added groups without float16 parameters, got "
              "one, and the loss is not scaled; set .policy in enable_mixed_precision, or add "
              "the group before");
  masters_->adopt();
}

std::vector<at::Tensor> MixedPrecisionOptimizer::master_parameters() {
  adopt();
  masters_->collect_gradients();
  return distinct_parameters_of(*optimizer_);
}

void MixedPrecisionOptimizer::require_gradients(const char* caller) const {
  if (micro_batches_ == 0) {
    mezzo::detail::raise<LogicError>(
        "MixedPrecisionOptimizer::{}: no backward() since the last step; call backward(loss), "
        "not loss.backward(), or minimize(closure)",
        caller);
  }
  if (gradients_of(*optimizer_).empty()) {
    mezzo::detail::raise<LogicError>(
        "MixedPrecisionOptimizer::{}: no parameter of the optimizer has a gradient; the loss "
        "must depend on one",
        caller);
  }
}

void MixedPrecisionOptimizer::unscale_() {
  adopt();
  masters_->collect_gradients();
  require_gradients("unscale_");
  if (unscaled_) {
    mezzo::detail::raise<LogicError>(
        "MixedPrecisionOptimizer::unscale_: the gradients are unscaled already; call step()");
  }
  scaler_.unscale_(*optimizer_);
  unscaled_ = true;
}

StepOutcome MixedPrecisionOptimizer::step() {
  adopt();
  masters_->collect_gradients();
  require_gradients("step");
  // Call unscale_(), so that zero_grad() also ends an iteration whose step throws. A fused
  // optimizer unscales in its step and needs no cleanup.
  const bool fused = dynamic_cast<FusedStep*>(&*optimizer_) != nullptr;
  if (!unscaled_ && (options_.max_gradient_norm || !fused)) unscale_();
  if (options_.max_gradient_norm) {
    clip_norm(gradients_of(*optimizer_), *options_.max_gradient_norm);
  }
  masters_->begin_step();
  const StepOutcome outcome = scaler_.step(*optimizer_);
  masters_->end_step(static_cast<std::uint64_t>(steps_));
  ++steps_;
  micro_batches_ = 0;
  unscaled_ = false;
  scaler_.update();  // last: a policy may throw
  return outcome;
}

void MixedPrecisionOptimizer::zero_grad() {
  const bool unscaled = std::exchange(unscaled_, false);
  optimizer_->zero_grad();
  masters_->zero_grad();
  micro_batches_ = 0;
  // Ends the iteration of the scaler. Last: a policy may throw.
  if (unscaled) scaler_.update();
}

void MixedPrecisionOptimizer::save(OutputArchive& archive) const {
  if (unscaled_) {
    mezzo::detail::raise<LogicError>(
        "MixedPrecisionOptimizer::save: called between unscale_() and step(); call step() first");
  }
  adopt();
  if (micro_batches_ > 0) masters_->collect_gradients();
  masters_->follow_parameters();
  std::vector<std::int64_t> places;
  std::vector<at::Tensor> gradients;
  const std::vector<at::Tensor> parameters = parameters_of(*optimizer_);
  for (std::size_t i = 0; micro_batches_ > 0 && i < parameters.size(); ++i) {
    const at::Tensor& gradient = parameters[i].grad();
    if (!gradient.defined()) continue;
    if (gradient.layout() != at::kStrided) {
      mezzo::detail::raise<LogicError>(
          "MixedPrecisionOptimizer::save: a sparse gradient of an unfinished accumulation cannot "
          "be saved; call step() first");
    }
    places.push_back(static_cast<std::int64_t>(i));
    gradients.push_back(gradient.detach());
  }
  archive.write("rounding", c10::IValue(static_cast<std::int64_t>(masters_->rounding())));
  archive.write("seed", c10::IValue(static_cast<std::int64_t>(masters_->seed())));
  archive.write("steps", c10::IValue(steps_));
  archive.write("micro_batches", c10::IValue(micro_batches_));
  archive.write("scaled", c10::IValue(scaler_.is_enabled()));
  archive.write("masters", c10::IValue(detached(masters_->masters())));
  archive.write("places", c10::IValue(places));
  archive.write("gradients", c10::IValue(gradients));
  OutputArchive optimizer;
  optimizer_->save(optimizer);
  archive.write("optimizer", optimizer);
  if (!scaler_.is_enabled()) return;
  OutputArchive scaler;
  scaler_.save(scaler);
  archive.write("scaler", scaler);
}

void MixedPrecisionOptimizer::load(InputArchive& archive) {
  const Fields fields = read_fields(archive);
  InputArchive optimizer, scaler;
  if (!archive.try_read("optimizer", optimizer) ||
      (fields.scaled && !archive.try_read("scaler", scaler))) {
    mezzo::detail::raise<IoError>(
        "MixedPrecisionOptimizer::load: expected the fields 'optimizer' and 'scaler', got no "
        "field of that name");
  }
  MEZZO_CHECK(
      fields.rounding == static_cast<std::int64_t>(options_.rounding),
      "MixedPrecisionOptimizer::load: expected a checkpoint with the same .rounding, got the "
      "other one");
  MEZZO_CHECK(
      fields.scaled == scaler_.is_enabled(),
      "MixedPrecisionOptimizer::load: expected a checkpoint {} loss scaling, got one {}; set the "
      "same .precision and .policy",
      scaler_.is_enabled() ? "with" : "without", fields.scaled ? "with" : "without");
  MEZZO_CHECK(
      fields.micro_batches >= 0 && fields.micro_batches <= options_.accumulate,
      "MixedPrecisionOptimizer::load: expected at most .accumulate = {} micro-batches of an "
      "unfinished step, got {}",
      options_.accumulate, fields.micro_batches);
  adopt();
  const std::vector<at::Tensor> parameters = parameters_of(*optimizer_);
  MEZZO_CHECK(masters_->fits(fields.masters) && gradients_fit(fields, parameters, *masters_),
              "MixedPrecisionOptimizer::load: expected masters and gradients of the optimizer's "
              "parameters, got those of other parameters");

  zero_grad();             // first: a policy may throw
  masters_->begin_step();  // optimizers compare shapes of saved state and masters
  load_optimizer(*optimizer_, optimizer);
  masters_->end_step(0);  // exact: values did not change
  scaler_.load(scaler);
  masters_->restore(fields.masters);
  masters_->set_seed(static_cast<std::uint64_t>(fields.seed));
  for (std::size_t i = 0; i < fields.places.size(); ++i) {
    const at::Tensor& parameter = parameters[static_cast<std::size_t>(fields.places[i])];
    parameter.mutable_grad() = fields.gradients[i].to(parameter.device()).clone();
  }
  steps_ = fields.steps;
  micro_batches_ = fields.micro_batches;
}

}  // namespace mezzo::amp
