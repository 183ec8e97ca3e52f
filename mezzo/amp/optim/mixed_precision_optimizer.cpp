#include "mezzo/amp/optim/mixed_precision_optimizer.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include "mezzo/amp/optim/fused_step.h"
#include "mezzo/amp/optim/optimizer_parameters.h"
#include "mezzo/amp/scaler/unscale.h"
#include "mezzo/core/error.h"
#include "mezzo/runtime/sixteen_bits.h"

namespace mezzo::amp {
namespace {

using torch::optim::Optimizer;

/// The currently wrapped optimizers.
struct Claims {
  std::mutex mutex;
  std::unordered_set<const Optimizer*> optimizers;
};

Claims& claims() {
  static auto* all = new Claims;  // never destroyed: outlives static wrappers
  return *all;
}

Optimizer* claim(Optimizer& optimizer) {
  const std::lock_guard lock(claims().mutex);
  if (!claims().optimizers.insert(&optimizer).second) {
    mezzo::detail::raise<LogicError>(
        "enable_mixed_precision: this optimizer is wrapped already; use the "
        "MixedPrecisionOptimizer that wraps it, or let it end first");
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
              "enable_mixed_precision: expected max_gradient_norm > 0 and finite, got {}; leave it "
              "unset to clip nothing",
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
                "enable_mixed_precision: expected every parameter on the device {}, got one on {}; "
                "move the model before the optimizer is made, or set .device",
                device.str(), parameter.device().str());
  }
}

void check_optimizer(const Optimizer& optimizer, const MixedPrecisionOptions& options) {
  MEZZO_CHECK(dynamic_cast<const torch::optim::LBFGS*>(&optimizer) == nullptr,
              "enable_mixed_precision: LBFGS evaluates the loss several times a step, which cannot "
              "be scaled and skipped; use another optimizer, or LBFGS in float32 by itself");
  const std::vector<at::Tensor> parameters = parameters_of(optimizer);
  MEZZO_CHECK(!parameters.empty(), "enable_mixed_precision: the optimizer has no parameters");
  check_parameters(parameters, options.device);
  MEZZO_CHECK(options.rounding != ParameterRounding::kStochastic ||
                  has_dtype(parameters, at::kBFloat16) || has_dtype(parameters, at::kHalf),
              "enable_mixed_precision: stochastic rounding is for bfloat16 parameters, and the "
              "optimizer has none; call model->to(torch::kBFloat16) first, or leave .rounding out");
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
              "MixedPrecisionOptimizer: expected a loss, got an undefined tensor; the closure has "
              "to return it");
  MEZZO_CHECK(loss.is_floating_point(),
              "MixedPrecisionOptimizer: expected a floating loss, got one of {}",
              c10::toString(loss.scalar_type()));
  MEZZO_CHECK(loss.numel() == 1,
              "MixedPrecisionOptimizer: expected a loss of one element, got {}; take its mean() or "
              "sum()",
              loss.numel());
  MEZZO_CHECK(loss.requires_grad(),
              "MixedPrecisionOptimizer: the loss has no graph to differentiate; was it detached, "
              "or made under NoGradGuard?");
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

}  // namespace

void MixedPrecisionOptimizer::Release::operator()(Optimizer* optimizer) const {
  const std::lock_guard lock(claims().mutex);
  claims().optimizers.erase(optimizer);
}

MixedPrecisionOptimizer::MixedPrecisionOptimizer(Optimizer& optimizer,
                                                 const MixedPrecisionOptions& options)
    : options_(options), optimizer_(claim(optimizer)), scaler_(scaler_options(optimizer, options)) {
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
        "MixedPrecisionOptimizer::backward: {}; call step(), or zero_grad() to give it up",
        unscaled_ ? "the gradients are unscaled already"
                  : "the gradients of every micro-batch of the step are there");
  }
  adopt();
  // A 0-dim float16 loss is scaled in float32 and cannot overflow.
  at::Tensor share = loss.reshape({});
  if (options_.accumulate > 1) {
    if (is_16_bit(share)) share = share.to(at::kFloat);
    share = share / static_cast<double>(options_.accumulate);
  }
  const at::Tensor scaled = scaler_.scale(share);
  {
    std::optional<PrecisionScope> region;  // the backward reads the TF32 switch
    if (options_.precision == Precision::kTensorFloat32) {
      region.emplace(options_.precision, options_.device);
    }
    scaled.backward();
  }
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
              "MixedPrecisionOptimizer: expected groups that are added later to have no float16 "
              "parameters, which need loss scaling where this object has none, got some; set "
              ".policy in enable_mixed_precision, or wrap the optimizer with all its groups");
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
        "MixedPrecisionOptimizer::{}: no backward() since the last step; call backward(loss), not "
        "loss.backward(), or minimize(closure)",
        caller);
  }
  if (gradients_of(*optimizer_).empty()) {
    mezzo::detail::raise<LogicError>(
        "MixedPrecisionOptimizer::{}: no parameter of the optimizer has a gradient; the loss has "
        "to depend on one",
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

}  // namespace mezzo::amp
