#include "mezzo/amp/optim/fused_sgd.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/amp/optim/fused_support.h"
#include "mezzo/core/error.h"

namespace mezzo::amp {
namespace {

constexpr const char* kFusedSgdName = "FusedSGD";

void check_ranges(const FusedSGDOptions& options) {
  const auto check = [](const char* option, double value) {
    MEZZO_CHECK(value >= 0 && std::isfinite(value), "{}: expected {} in [0, inf), got {}",
                kFusedSgdName, option, value);
  };
  check("lr", options.lr());
  check("momentum", options.momentum());
  check("weight_decay", options.weight_decay());
  MEZZO_CHECK(std::isfinite(options.dampening()), "{}: expected a finite dampening, got {}",
              kFusedSgdName, options.dampening());
  MEZZO_CHECK(!options.nesterov() || (options.momentum() > 0 && options.dampening() == 0),
              "{}: nesterov requires a momentum and zero dampening, got {} and {}", kFusedSgdName,
              options.momentum(), options.dampening());
}

/// Parameters of a batch that share FusedSGDState::empty.
struct Cohort {
  at::Tensor empty = {};  // FusedSGDState::empty
  std::vector<at::Tensor> parameters = {}, gradients = {}, buffers = {};
  std::vector<FusedSGDState*> states = {};
};

std::vector<Cohort> cohorts_of(torch::optim::Optimizer& optimizer, const FusedBatch& batch) {
  std::vector<Cohort> cohorts;
  at::Tensor begun_now;
  for (std::size_t i = 0; i < batch.parameters.size(); ++i) {
    const at::Tensor& parameter = batch.parameters[i];
    const auto options = at::TensorOptions(parameter.device()).dtype(at::kFloat);
    auto& state = state_of<FusedSGDState>(optimizer, parameter);
    if (!state.momentum_buffer.defined()) {
      if (!begun_now.defined()) begun_now = at::ones({}, options);
      state.empty = begun_now;
      state.momentum_buffer = at::zeros_like(parameter);
    }
    if (state.empty.defined()) state.empty = state.empty.to(options);
    state.momentum_buffer = laid_out_like(state.momentum_buffer, parameter);
    auto cohort = std::find_if(cohorts.begin(), cohorts.end(),
                               [&state](const Cohort& c) { return c.empty.is_same(state.empty); });
    if (cohort == cohorts.end()) cohort = cohorts.insert(cohort, {.empty = state.empty});
    cohort->parameters.push_back(parameter);
    cohort->gradients.push_back(batch.gradients[i]);
    cohort->buffers.push_back(state.momentum_buffer);
    cohort->states.push_back(&state);
  }
  return cohorts;
}

/// Updates `empty` after a step.
void settle(const Cohort& cohort, const std::optional<at::Tensor>& found_inf) {
  // Other parameters with the same `empty` may have no gradient in this step.
  const bool whole = cohort.empty.use_count() == cohort.states.size() + 1;
  if (found_inf && whole) {  // in place, for captured steps
    cohort.empty.mul_(*found_inf);
    return;
  }
  const at::Tensor empty = found_inf ? cohort.empty * *found_inf : at::Tensor();
  for (FusedSGDState* state : cohort.states) state->empty = empty;
}

}  // namespace

void FusedSGDOptions::serialize(torch::serialize::InputArchive& archive) {
  SGDOptions::serialize(archive);
  c10::IValue value;
  maximize_ = archive.try_read("maximize", value) && value.toBool();
}

void FusedSGDOptions::serialize(torch::serialize::OutputArchive& archive) const {
  SGDOptions::serialize(archive);
  archive.write("maximize", c10::IValue(maximize_));
}

void FusedSGDState::serialize(torch::serialize::InputArchive& archive) {
  c10::IValue value;
  momentum_buffer = archive.try_read("momentum_buffer", value) ? value.toTensor() : at::Tensor();
  empty = at::Tensor();
}

void FusedSGDState::serialize(torch::serialize::OutputArchive& archive) const {
  const bool filled = !empty.defined() || empty.item<float>() == 0.0F;
  if (filled && momentum_buffer.defined()) {
    archive.write("momentum_buffer", c10::IValue(momentum_buffer));
  }
}

bool FusedSGDState::fits(const at::Tensor& parameter) const {
  return !momentum_buffer.defined() || momentum_buffer.sizes() == parameter.sizes();
}

FusedSGD::FusedSGD(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                   const FusedSGDOptions& defaults)
    : FusedOptimizer(own_groups<FusedSGDOptions, torch::optim::SGDOptions>(groups, kFusedSgdName),
                     std::make_unique<FusedSGDOptions>(defaults)) {
  check_ranges(defaults);
  for (const auto& group : param_groups()) FusedSGD::check_options(group.options());
}

FusedSGD::FusedSGD(std::vector<at::Tensor> parameters, const FusedSGDOptions& defaults)
    : FusedSGD(std::vector{torch::optim::OptimizerParamGroup(std::move(parameters))}, defaults) {}

void FusedSGD::add_param_group(const torch::optim::OptimizerParamGroup& group) {
  const auto own = own_group<FusedSGDOptions, torch::optim::SGDOptions>(group, kFusedSgdName);
  if (own.has_options()) check_options(own.options());
  torch::optim::Optimizer::add_param_group(own);
}

const char* FusedSGD::name() const {
  return kFusedSgdName;
}

void FusedSGD::check_options(const torch::optim::OptimizerOptions& options) const {
  check_ranges(options_as<FusedSGDOptions>(options, kFusedSgdName));
}

void FusedSGD::step_batch(const FusedBatch& batch) {
  const auto& options = static_cast<const FusedSGDOptions&>(*batch.options);
  const auto apply = [&](const Cohort& cohort, bool is_first,
                         const std::optional<at::Tensor>& found_inf) {
    at::_fused_sgd_(flat(cohort.parameters), flat(cohort.gradients), flat(cohort.buffers),
                    options.weight_decay(), options.momentum(), options.lr(), options.dampening(),
                    options.nesterov(), options.maximize(), is_first, batch.grad_scale, found_inf);
  };
  if (options.momentum() == 0) {
    apply({.parameters = batch.parameters, .gradients = batch.gradients}, false, batch.found_inf);
    return;
  }
  for (const Cohort& cohort : cohorts_of(*this, batch)) {
    if (!cohort.empty.defined()) {
      apply(cohort, false, batch.found_inf);
      continue;
    }
    // Only the device knows whether this is the first applied step: call both kinds of step, and
    // let the device skip the wrong one.
    const at::Tensor skip = batch.found_inf ? *batch.found_inf : at::zeros_like(cohort.empty);
    const at::Tensor skip_first = at::maximum(skip, 1 - cohort.empty);
    const at::Tensor skip_later = at::maximum(skip, cohort.empty);
    apply(cohort, true, skip_first);
    apply(cohort, false, skip_later);
    settle(cohort, batch.found_inf);
  }
}

void FusedSGD::save(torch::serialize::OutputArchive& archive) const {
  for (const auto& group : param_groups()) check_options(group.options());
  torch::optim::serialize<FusedSGDState, FusedSGDOptions>(archive, *this);
}

void FusedSGD::load(torch::serialize::InputArchive& archive) {
  load_optimizer<FusedSGDState, FusedSGDOptions>(archive, *this, kFusedSgdName);
}

}  // namespace mezzo::amp
