#include "mezzo/amp/diagnose/step_job.h"

#include <algorithm>
#include <mutex>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <torch/optim/adam.h>

#include "mezzo/core/error.h"

namespace mezzo::amp::detail {
namespace {

std::vector<at::Tensor> parameters_of(const DiagnosedModel& model) {
  std::vector<at::Tensor> parameters;
  for (const auto& [name, parameter] : model.parameters) parameters.push_back(parameter);
  return parameters;
}

void check_model(const DiagnosedModel& model) {
  MEZZO_CHECK(!model.parameters.empty(), "diagnose: expected a model with parameters, got none");
  for (const auto& [name, parameter] : model.parameters) {
    MEZZO_CHECK(
        parameter.scalar_type() == at::kFloat || parameter.scalar_type() == at::kDouble,
        "diagnose: expected float32 parameters, which it runs in each precision, got {} of {}",
        c10::toString(parameter.scalar_type()), name);
  }
}

at::Tensor state_of(at::Generator& generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

}  // namespace

StepJob::StepJob(const std::function<at::Tensor(std::int64_t)>& step, const DiagnosedModel& model,
                 const DiagnoseOptions& options)
    : loss_of_step_(step), model_(model), options_(options) {
  MEZZO_CHECK(step != nullptr, "diagnose: expected a function that returns the loss of a step");
  check_model(model);
  tensors_ = parameters_of(model);
  for (const at::Tensor& parameter : tensors_) gradients_.push_back(parameter.grad());
  tensors_.insert(tensors_.end(), model.buffers.begin(), model.buffers.end());
  for (const at::Tensor& tensor : tensors_) values_.push_back(tensor.detach().clone());
  std::vector<c10::Device> devices = {at::kCPU};
  if (!options.device.is_cpu()) devices.push_back(options.device);
  for (const c10::Device& device : devices) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    random_states_.emplace_back(generator, state_of(generator));
  }
}

StepJob::~StepJob() {
  try {
    kept_.reset();
    mixed_.reset();
    restore();
    for (std::size_t i = 0; i < gradients_.size(); ++i) tensors_[i].mutable_grad() = gradients_[i];
  } catch (const std::exception& error) {
    TORCH_WARN("mezzo: diagnose cannot restore the model: ", error.what());
  }
}

void StepJob::restore() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].copy_(values_[i]);
  for (std::size_t i = 0; i < gradients_.size(); ++i) tensors_[i].mutable_grad() = at::Tensor();
  for (auto& [generator, state] : random_states_) {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }
}

void StepJob::start(const PrecisionSetting& setting, bool /*timed*/) {
  kept_.reset();
  mixed_.reset();
  restore();
  std::vector<at::Tensor> parameters = parameters_of(model_);
  optimizer_ = options_.make_optimizer
                   ? options_.make_optimizer(std::move(parameters))
                   : std::make_unique<torch::optim::Adam>(std::move(parameters));
  MEZZO_CHECK(optimizer_ != nullptr, "diagnose: expected an optimizer of make_optimizer, got none");
  MixedPrecisionOptions options{.precision = setting.precision, .device = options_.device};
  options.policy = setting.loss_scale;
  // A scale of 1 only skips steps with inf or nan gradients.
  if (setting.precision == Precision::kFloat16 && !options.policy) {
    options.policy = LossScalePolicy::constant(1);
  }
  mixed_.emplace(enable_mixed_precision(*optimizer_, options));
  if (!setting.keep_float32.empty()) kept_.emplace(model_.parameters, setting.keep_float32);
  next_step_ = 0;
  skipped_ = 0;
}

JobStep StepJob::step() {
  mixed_->zero_grad();
  const std::int64_t index = next_step_++;
  at::Tensor loss;
  {
    const PrecisionScope scope = mixed_->scope();
    loss = loss_of_step_(index);
  }
  mixed_->backward(loss);
  mixed_->unscale_();
  mixed_->step();
  JobStep result{.loss = loss.item<double>(), .loss_scale = mixed_->scaler().get_scale()};
  const std::int64_t skipped = mixed_->skipped_steps();
  result.skipped = skipped > skipped_;
  skipped_ = skipped;
  return result;
}

std::vector<std::string> StepJob::parts() const {
  std::vector<std::string> paths;
  for (const auto& [name, parameter] : model_.parameters) {
    const std::size_t dot = name.rfind('.');
    if (dot == std::string::npos) continue;
    const std::string path = name.substr(0, dot);
    if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
  }
  return paths;
}

}  // namespace mezzo::amp::detail
