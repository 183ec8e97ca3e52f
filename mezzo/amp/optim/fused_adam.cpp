#include "mezzo/amp/optim/fused_adam.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/amp/optim/fused_support.h"
#include "mezzo/core/error.h"

namespace mezzo::amp {
namespace {

template <class TorchOptions>
constexpr bool kDecoupled = std::is_same_v<TorchOptions, torch::optim::AdamWOptions>;

template <class TorchOptions>
constexpr const char* kFusedAdamName = kDecoupled<TorchOptions> ? "FusedAdamW" : "FusedAdam";

template <class Options>
void check_ranges(const Options& options, const char* name) {
  const auto check = [name](const char* option, double value, double end) {
    MEZZO_CHECK(value >= 0 && value < end, "{}: expected {} in [0, {}), got {}", name, option, end,
                value);
  };
  const auto [beta1, beta2] = options.betas();
  check("lr", options.lr(), INFINITY);
  check("betas[0]", beta1, 1);
  check("betas[1]", beta2, 1);
  check("eps", options.eps(), INFINITY);
  check("weight_decay", options.weight_decay(), INFINITY);
}

/// The optimizer state of a batch, in the kernels' form.
struct Moments {
  std::vector<at::Tensor> steps, exp_avgs, exp_avg_sqs, max_exp_avg_sqs;
};

/// Moves a moment to its parameter's device and layout; initialises it with zeros.
const at::Tensor& kept(at::Tensor& moment, const at::Tensor& parameter) {
  moment = moment.defined() ? laid_out_like(moment, parameter) : at::zeros_like(parameter);
  return moment;
}

Moments moments_of(torch::optim::Optimizer& optimizer, const FusedBatch& batch, bool amsgrad) {
  Moments moments;
  for (const at::Tensor& parameter : batch.parameters) {
    auto& state = state_of<FusedAdamState>(optimizer, parameter);
    const auto options = at::TensorOptions(parameter.device()).dtype(at::kFloat);
    state.step = state.step.defined() ? state.step.to(options) : at::zeros({}, options);
    moments.steps.push_back(state.step);
    moments.exp_avgs.push_back(kept(state.exp_avg, parameter));
    moments.exp_avg_sqs.push_back(kept(state.exp_avg_sq, parameter));
    if (amsgrad) moments.max_exp_avg_sqs.push_back(kept(state.max_exp_avg_sq, parameter));
  }
  return moments;
}

at::Tensor read_moment(torch::serialize::InputArchive& archive, const std::string& key) {
  c10::IValue value;
  return archive.try_read(key, value) ? value.toTensor() : at::Tensor();
}

}  // namespace

template <class TorchOptions>
void BasicFusedAdamOptions<TorchOptions>::serialize(torch::serialize::InputArchive& archive) {
  TorchOptions::serialize(archive);
  c10::IValue value;
  maximize_ = archive.try_read("maximize", value) && value.toBool();
}

template <class TorchOptions>
void BasicFusedAdamOptions<TorchOptions>::serialize(
    torch::serialize::OutputArchive& archive) const {
  TorchOptions::serialize(archive);
  archive.write("maximize", c10::IValue(maximize_));
}

void FusedAdamState::serialize(torch::serialize::InputArchive& archive) {
  c10::IValue count;
  archive.read("step", count);
  step = at::full({}, static_cast<double>(count.toInt()), at::kFloat);
  exp_avg = read_moment(archive, "exp_avg");
  exp_avg_sq = read_moment(archive, "exp_avg_sq");
  max_exp_avg_sq = read_moment(archive, "max_exp_avg_sq");
}

void FusedAdamState::serialize(torch::serialize::OutputArchive& archive) const {
  archive.write("step", c10::IValue(step.item<std::int64_t>()));
  archive.write("exp_avg", c10::IValue(exp_avg));
  archive.write("exp_avg_sq", c10::IValue(exp_avg_sq));
  if (max_exp_avg_sq.defined()) archive.write("max_exp_avg_sq", c10::IValue(max_exp_avg_sq));
}

bool FusedAdamState::fits(const at::Tensor& parameter) const {
  const auto same = [&parameter](const at::Tensor& moment) {
    return moment.defined() && moment.sizes() == parameter.sizes();
  };
  return same(exp_avg) && same(exp_avg_sq) && (!max_exp_avg_sq.defined() || same(max_exp_avg_sq));
}

template <class TorchOptions>
BasicFusedAdam<TorchOptions>::BasicFusedAdam(
    const std::vector<torch::optim::OptimizerParamGroup>& groups, const Options& defaults)
    : FusedOptimizer(own_groups<Options, TorchOptions>(groups, kFusedAdamName<TorchOptions>),
                     std::make_unique<Options>(defaults)) {
  check_ranges(defaults, kFusedAdamName<TorchOptions>);
  for (const auto& group : param_groups()) BasicFusedAdam::check_options(group.options());
}

template <class TorchOptions>
BasicFusedAdam<TorchOptions>::BasicFusedAdam(std::vector<at::Tensor> parameters,
                                             const Options& defaults)
    : BasicFusedAdam(std::vector{torch::optim::OptimizerParamGroup(std::move(parameters))},
                     defaults) {}

template <class TorchOptions>
void BasicFusedAdam<TorchOptions>::add_param_group(const torch::optim::OptimizerParamGroup& group) {
  const auto own = own_group<Options, TorchOptions>(group, name());
  if (own.has_options()) check_options(own.options());
  torch::optim::Optimizer::add_param_group(own);
}

template <class TorchOptions>
const char* BasicFusedAdam<TorchOptions>::name() const {
  return kFusedAdamName<TorchOptions>;
}

template <class TorchOptions>
void BasicFusedAdam<TorchOptions>::check_options(
    const torch::optim::OptimizerOptions& options) const {
  check_ranges(options_as<Options>(options, kFusedAdamName<TorchOptions>),
               kFusedAdamName<TorchOptions>);
}

template <class TorchOptions>
void BasicFusedAdam<TorchOptions>::step_batch(const FusedBatch& batch) {
  const auto& options = static_cast<const Options&>(*batch.options);
  const Moments moments = moments_of(*this, batch, options.amsgrad());
  // The kernel reads the count, so increment it first, unless the step is skipped.
  if (batch.found_inf) {
    at::_foreach_add_(moments.steps, 1 - *batch.found_inf);
  } else {
    at::_foreach_add_(moments.steps, 1);
  }
  const auto [beta1, beta2] = options.betas();
  const auto apply = [&](auto kernel) {
    kernel(flat(batch.parameters), flat(batch.gradients), flat(moments.exp_avgs),
           flat(moments.exp_avg_sqs), flat(moments.max_exp_avg_sqs), moments.steps, options.lr(),
           beta1, beta2, options.weight_decay(), options.eps(), options.amsgrad(),
           options.maximize(), batch.grad_scale, batch.found_inf);
  };
  if constexpr (kDecoupled<TorchOptions>) {
    apply([](const auto&... arguments) { at::_fused_adamw_(arguments...); });
  } else {
    apply([](const auto&... arguments) { at::_fused_adam_(arguments...); });
  }
}

template <class TorchOptions>
void BasicFusedAdam<TorchOptions>::save(torch::serialize::OutputArchive& archive) const {
  for (const auto& group : param_groups()) check_options(group.options());
  torch::optim::serialize<FusedAdamState, Options>(archive, *this);
}

template <class TorchOptions>
void BasicFusedAdam<TorchOptions>::load(torch::serialize::InputArchive& archive) {
  load_optimizer<FusedAdamState, Options>(archive, *this, kFusedAdamName<TorchOptions>);
}

template class BasicFusedAdamOptions<torch::optim::AdamOptions>;
template class BasicFusedAdamOptions<torch::optim::AdamWOptions>;
template class BasicFusedAdam<torch::optim::AdamOptions>;
template class BasicFusedAdam<torch::optim::AdamWOptions>;

}  // namespace mezzo::amp
