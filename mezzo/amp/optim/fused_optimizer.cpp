#include "mezzo/amp/optim/fused_optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/optim/serialize.h>

#include "mezzo/core/error.h"
#include "mezzo/runtime/sixteen_bits.h"

namespace mezzo::amp {

/// Arguments of one fused kernel call: parameters of one group with the same device and dtype.
struct FusedBatch {
  const torch::optim::OptimizerOptions* options = nullptr;  // of the group
  std::vector<at::Tensor> parameters = {};                  // float32 or float64, dense
  std::vector<at::Tensor> gradients = {};                   // same memory layout as the parameters
  std::optional<at::Tensor> grad_scale = {};  // float32, 0-dim, on their device; nullopt: 1
  std::optional<at::Tensor> found_inf = {};   // float32, 0-dim, exactly 0 or 1; nullopt: 0
};

namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamGroup;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

void check_factor(const char* optimizer, const char* argument, const at::Tensor& factor) {
  MEZZO_CHECK(!factor.defined() || (factor.scalar_type() == at::kFloat && factor.dim() == 0),
              "{}::fused_step: expected {} to be float32 with 0 dimensions, got {} with {}",
              optimizer, argument, c10::toString(factor.scalar_type()), factor.dim());
}

void check_parameter(const char* optimizer, const at::Tensor& parameter,
                     const at::Tensor& gradient) {
  const at::ScalarType dtype = parameter.scalar_type();
  MEZZO_CHECK(dtype == at::kFloat || dtype == at::kDouble,
              "{}: expected float32 or float64 parameters, got {}{}", optimizer,
              c10::toString(dtype),
              is_16_bit(dtype) ? ", whose moments would be 16-bit too. Use enable_mixed_precision, "
                                 "which keeps float32 master weights"
                               : "");
  MEZZO_CHECK(gradient.layout() == at::kStrided && parameter.layout() == at::kStrided,
              "{}: expected dense gradients, got a sparse one. Use torch::optim::SGD for it, or "
              "make the embedding's gradient dense",
              optimizer);
  MEZZO_CHECK(gradient.scalar_type() == dtype && gradient.device() == parameter.device(),
              "{}: expected the gradient of a {} parameter on {} to match it, got {} on {}",
              optimizer, c10::toString(dtype), parameter.device().str(),
              c10::toString(gradient.scalar_type()), gradient.device().str());
  MEZZO_CHECK(parameter.is_non_overlapping_and_dense(),
              "{}: expected parameters without holes or overlaps in memory, got strides {} for "
              "shape {}; use clone()",
              optimizer, c10::str(parameter.strides()), c10::str(parameter.sizes()));
  // Unscaling in place would write some elements several times, which libtorch rejects.
  MEZZO_CHECK(at::has_internal_overlap(gradient) != at::MemOverlap::Yes,
              "{}: expected gradients with separate memory for each element, got an expanded "
              "tensor; use clone()",
              optimizer);
}

/// The batch for `parameter`, added if missing. options: of its group, which no other group shares.
FusedBatch& batch_for(std::vector<FusedBatch>& batches, const OptimizerOptions& options,
                      const at::Tensor& parameter) {
  const auto batch = std::find_if(batches.begin(), batches.end(), [&](const FusedBatch& b) {
    const at::Tensor& first = b.parameters.front();
    return b.options == &options && first.device() == parameter.device() &&
           first.scalar_type() == parameter.scalar_type();
  });
  if (batch != batches.end()) return *batch;
  return batches.emplace_back(FusedBatch{.options = &options});
}

std::optional<at::Tensor> on_device(const at::Tensor& factor, at::Device device) {
  if (!factor.defined()) return std::nullopt;
  // A non-blocking copy to the CPU could be read before it is complete.
  return factor.to(device, /*non_blocking=*/!device.is_cpu());
}

/// `tensor` with the device, dtype and memory layout of `like`; no copy if they match.
at::Tensor laid_out_like(const at::Tensor& tensor, const at::Tensor& like) {
  const bool same_layout =
      tensor.strides() == like.strides() || (tensor.is_contiguous() && like.is_contiguous());
  if (same_layout && tensor.device() == like.device() &&
      tensor.scalar_type() == like.scalar_type()) {
    return tensor;
  }
  return at::empty_like(like).copy_(tensor);
}

/// The same elements as 1-D tensors in memory order, for kernels without strides.
std::vector<at::Tensor> flat(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> rows;
  rows.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    rows.push_back(tensor.is_contiguous() ? tensor : tensor.as_strided({tensor.numel()}, {1}));
  }
  return rows;
}

/// The parameter's state, created if missing.
template <class State>
State& state_of(Optimizer& optimizer, const at::Tensor& parameter) {
  auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (!state) state = std::make_unique<State>();
  return static_cast<State&>(*state);
}

at::Tensor read_tensor(InputArchive& archive, const std::string& key) {
  c10::IValue value;
  return archive.try_read(key, value) ? value.toTensor() : at::Tensor();
}

void check_range(const char* optimizer, const char* option, double value, double end) {
  MEZZO_CHECK(value >= 0 && value < end, "{}: expected {} in [0, {}), got {}", optimizer, option,
              end, value);
}

/// Creates a missing moment; moves it to the device and layout of its parameter.
const at::Tensor& prepare_moment(at::Tensor& moment, const at::Tensor& parameter) {
  moment = moment.defined() ? laid_out_like(moment, parameter) : at::zeros_like(parameter);
  return moment;
}

/// Name, state, checks and step of the optimizer with these options.
template <class Options>
struct Algorithm;

template <class Torch>
struct Algorithm<BasicFusedAdamOptions<Torch>> {
  using TorchOptions = Torch;
  using State = FusedAdamState;
  static constexpr bool kDecoupled = std::is_same_v<Torch, torch::optim::AdamWOptions>;
  static constexpr const char* kName = kDecoupled ? "FusedAdamW" : "FusedAdam";

  static void check(const BasicFusedAdamOptions<Torch>& options) {
    const auto [beta1, beta2] = options.betas();
    check_range(kName, "lr", options.lr(), INFINITY);
    check_range(kName, "betas[0]", beta1, 1);
    check_range(kName, "betas[1]", beta2, 1);
    check_range(kName, "eps", options.eps(), INFINITY);
    check_range(kName, "weight_decay", options.weight_decay(), INFINITY);
  }

  static void step(Optimizer& optimizer, const FusedBatch& batch,
                   const BasicFusedAdamOptions<Torch>& options) {
    std::vector<at::Tensor> steps, exp_avgs, exp_avg_sqs, max_exp_avg_sqs;
    for (const at::Tensor& parameter : batch.parameters) {
      auto& state = state_of<State>(optimizer, parameter);
      const auto scalar = parameter.options().dtype(at::kFloat);
      state.step = state.step.defined() ? state.step.to(scalar) : at::zeros({}, scalar);
      steps.push_back(state.step);
      exp_avgs.push_back(prepare_moment(state.exp_avg, parameter));
      exp_avg_sqs.push_back(prepare_moment(state.exp_avg_sq, parameter));
      if (!options.amsgrad()) continue;
      max_exp_avg_sqs.push_back(prepare_moment(state.max_exp_avg_sq, parameter));
    }
    // The kernel reads the count, so increment it first, unless the step is skipped.
    if (batch.found_inf) {
      at::_foreach_add_(steps, 1 - *batch.found_inf);
    } else {
      at::_foreach_add_(steps, 1);
    }
    const auto [beta1, beta2] = options.betas();
    const auto apply = [&](auto kernel) {
      kernel(flat(batch.parameters), flat(batch.gradients), flat(exp_avgs), flat(exp_avg_sqs),
             flat(max_exp_avg_sqs), steps, options.lr(), beta1, beta2, options.weight_decay(),
             options.eps(), options.amsgrad(), options.maximize(), batch.grad_scale,
             batch.found_inf);
    };
    if constexpr (kDecoupled) {
      apply([](const auto&... arguments) { at::_fused_adamw_(arguments...); });
    } else {
      apply([](const auto&... arguments) { at::_fused_adam_(arguments...); });
    }
  }
};

template <>
struct Algorithm<FusedSGDOptions> {
  using TorchOptions = torch::optim::SGDOptions;
  using State = FusedSGDState;
  static constexpr const char* kName = "FusedSGD";

  static void check(const FusedSGDOptions& options) {
    check_range(kName, "lr", options.lr(), INFINITY);
    check_range(kName, "momentum", options.momentum(), INFINITY);
    check_range(kName, "weight_decay", options.weight_decay(), INFINITY);
    MEZZO_CHECK(std::isfinite(options.dampening()), "{}: expected a finite dampening, got {}",
                kName, options.dampening());
    MEZZO_CHECK(!options.nesterov() || (options.momentum() > 0 && options.dampening() == 0),
                "{}: expected momentum > 0 and dampening 0 with nesterov, got {} and {}", kName,
                options.momentum(), options.dampening());
  }

  static void step(Optimizer& optimizer, const FusedBatch& batch, const FusedSGDOptions& options) {
    if (options.momentum() == 0) return apply(batch, {}, options, false, batch.found_inf);
    std::vector<at::Tensor> buffers, empty;
    std::vector<State*> states;
    for (const at::Tensor& parameter : batch.parameters) {
      State* state = states.emplace_back(&state_of<State>(optimizer, parameter));
      const auto scalar = parameter.options().dtype(at::kFloat);
      if (!state->momentum_buffer.defined()) state->empty = at::ones({}, scalar);
      if (state->empty.defined()) empty.push_back(state->empty = state->empty.to(scalar));
      buffers.push_back(prepare_moment(state->momentum_buffer, parameter));
    }
    if (options.dampening() == 0 || empty.empty()) {  // then an empty buffer is one of zeros
      apply(batch, buffers, options, false, batch.found_inf);
    } else {
      for (std::size_t i = 0; i < states.size(); ++i) {
        step_dampened({.parameters = {batch.parameters[i]},
                       .gradients = {batch.gradients[i]},
                       .grad_scale = batch.grad_scale,
                       .found_inf = batch.found_inf},
                      {buffers[i]}, options, states[i]->empty);
      }
    }
    if (batch.found_inf && !empty.empty()) at::_foreach_mul_(empty, *batch.found_inf);
    if (batch.found_inf) return;
    for (State* state : states) state->empty.reset();
  }

 private:
  static void apply(const FusedBatch& batch, const std::vector<at::Tensor>& buffers,
                    const FusedSGDOptions& options, bool is_first,
                    const std::optional<at::Tensor>& found_inf) {
    at::_fused_sgd_(flat(batch.parameters), flat(batch.gradients), flat(buffers),
                    options.weight_decay(), options.momentum(), options.lr(), options.dampening(),
                    options.nesterov(), options.maximize(), is_first, batch.grad_scale, found_inf);
  }

  /// A step of one parameter. The first gradient enters the buffer without dampening, and only the
  /// device knows whether a step is the first: call both kinds, the device skips the wrong one.
  static void step_dampened(const FusedBatch& batch, const std::vector<at::Tensor>& buffers,
                            const FusedSGDOptions& options, const at::Tensor& empty) {
    if (!empty.defined()) return apply(batch, buffers, options, false, batch.found_inf);
    const at::Tensor skip = batch.found_inf ? *batch.found_inf : at::zeros_like(empty);
    apply(batch, buffers, options, true, at::maximum(skip, 1 - empty));
    apply(batch, buffers, options, false, at::maximum(skip, empty));
  }
};

/// Copies of the groups, with libtorch's options converted to `Options`. Throws InvalidArgument for
/// undefined or non-leaf parameters.
template <class Options>
std::vector<OptimizerParamGroup> converted(const std::vector<OptimizerParamGroup>& groups) {
  std::vector<OptimizerParamGroup> results;
  for (const OptimizerParamGroup& group : groups) {
    for (const at::Tensor& parameter : group.params()) {
      MEZZO_CHECK(parameter.defined() && parameter.is_leaf(),
                  "{}: expected defined leaf parameters, got {}", Algorithm<Options>::kName,
                  parameter.defined() ? "the result of an operation" : "an undefined tensor");
    }
    OptimizerParamGroup& result = results.emplace_back(group.params());
    if (!group.has_options()) continue;
    using TorchOptions = typename Algorithm<Options>::TorchOptions;
    const auto* torch = dynamic_cast<const TorchOptions*>(&group.options());
    result.set_options(group.options().clone());
    if (torch == nullptr || dynamic_cast<const Options*>(torch) != nullptr) continue;
    result.set_options(std::make_unique<Options>(*torch));
  }
  return results;
}

template <class State>
void check_loaded_states(const Optimizer& optimizer, const char* name) {
  for (const OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (state == optimizer.state().end()) continue;
      if (static_cast<const State&>(*state->second).fits(parameter)) continue;
      mezzo::detail::raise<IoError>(
          "{}::load: expected state of shape {}, that of the parameter, got another shape", name,
          c10::str(parameter.sizes()));
    }
  }
}

}  // namespace

FusedStep::~FusedStep() = default;  // anchors the vtable in the library

std::vector<FusedBatch> FusedOptimizer::make_batches() const {
  std::vector<FusedBatch> batches;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const OptimizerParamGroup& group : param_groups()) {
    check_options(group.options());
    for (const at::Tensor& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      check_parameter(name(), parameter, gradient);
      MEZZO_CHECK(seen.insert(parameter.unsafeGetTensorImpl()).second,
                  "{}: expected each parameter once, got one twice; a step would update it twice",
                  name());
      FusedBatch& batch = batch_for(batches, group.options(), parameter);
      batch.parameters.push_back(parameter);
      batch.gradients.push_back(gradient);
    }
  }
  return batches;
}

void FusedOptimizer::fused_step(const at::Tensor& grad_scale, const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  check_factor(name(), "grad_scale", grad_scale);
  check_factor(name(), "found_inf", found_inf);
  // The kernels skip only at exactly 1; a sum over devices or ranks may be larger.
  const at::Tensor skip = found_inf.defined() ? found_inf.ne(0).to(at::kFloat) : at::Tensor();
  for (FusedBatch& batch : make_batches()) {
    const at::Device device = batch.parameters.front().device();
    batch.grad_scale = on_device(grad_scale, device);
    batch.found_inf = on_device(skip, device);
    const std::vector<at::Tensor> gradients = batch.gradients;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      batch.gradients[i] = laid_out_like(gradients[i], batch.parameters[i]);
    }
    step_batch(batch);
    if (!batch.grad_scale) continue;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].is_same(batch.gradients[i])) gradients[i].copy_(batch.gradients[i]);
    }
  }
  at::autocast::clear_cache();
}

at::Tensor FusedOptimizer::step(LossClosure closure) {
  at::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  fused_step({}, {});
  return loss;
}

void FusedAdamState::serialize(InputArchive& archive) {
  c10::IValue count;
  archive.read("step", count);
  step = at::full({}, static_cast<double>(count.toInt()), at::kFloat);
  exp_avg = read_tensor(archive, "exp_avg");
  exp_avg_sq = read_tensor(archive, "exp_avg_sq");
  max_exp_avg_sq = read_tensor(archive, "max_exp_avg_sq");
}

void FusedAdamState::serialize(OutputArchive& archive) const {
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

void FusedSGDState::serialize(InputArchive& archive) {
  momentum_buffer = read_tensor(archive, "momentum_buffer");
  empty = at::Tensor();
}

void FusedSGDState::serialize(OutputArchive& archive) const {
  const bool filled = !empty.defined() || empty.item<float>() == 0.0F;
  if (filled && momentum_buffer.defined()) {
    archive.write("momentum_buffer", c10::IValue(momentum_buffer));
  }
}

bool FusedSGDState::fits(const at::Tensor& parameter) const {
  return !momentum_buffer.defined() || momentum_buffer.sizes() == parameter.sizes();
}

template <class Options>
BasicFusedOptimizer<Options>::BasicFusedOptimizer(const std::vector<OptimizerParamGroup>& groups,
                                                  const Options& defaults)
    : FusedOptimizer(converted<Options>(groups), std::make_unique<Options>(defaults)) {
  Algorithm<Options>::check(defaults);
  for (const auto& group : param_groups()) BasicFusedOptimizer::check_options(group.options());
}

template <class Options>
BasicFusedOptimizer<Options>::BasicFusedOptimizer(std::vector<at::Tensor> parameters,
                                                  const Options& defaults)
    : BasicFusedOptimizer(std::vector{OptimizerParamGroup(std::move(parameters))}, defaults) {}

template <class Options>
void BasicFusedOptimizer<Options>::add_param_group(const OptimizerParamGroup& group) {
  const OptimizerParamGroup added = converted<Options>({group}).front();
  if (added.has_options()) check_options(added.options());
  Optimizer::add_param_group(added);
}

template <class Options>
const char* BasicFusedOptimizer<Options>::name() const {
  return Algorithm<Options>::kName;
}

template <class Options>
void BasicFusedOptimizer<Options>::check_options(const OptimizerOptions& options) const {
  const auto* same = dynamic_cast<const Options*>(&options);
  MEZZO_CHECK(same != nullptr, "{0}: expected {0}Options for the group, got other options", name());
  Algorithm<Options>::check(*same);
}

template <class Options>
void BasicFusedOptimizer<Options>::step_batch(const FusedBatch& batch) {
  Algorithm<Options>::step(*this, batch, static_cast<const Options&>(*batch.options));
}

template <class Options>
void BasicFusedOptimizer<Options>::save(OutputArchive& archive) const {
  for (const auto& group : param_groups()) check_options(group.options());
  torch::optim::serialize<typename Algorithm<Options>::State, Options>(archive, *this);
}

template <class Options>
void BasicFusedOptimizer<Options>::load(InputArchive& archive) {
  using State = typename Algorithm<Options>::State;
  auto previous_state = std::move(state());
  std::vector<OptimizerParamGroup> previous_groups = param_groups();
  state().clear();
  try {
    torch::optim::serialize<State, Options>(archive, *this);
    check_loaded_states<State>(*this, name());
  } catch (const std::exception& error) {
    state() = std::move(previous_state);
    param_groups() = std::move(previous_groups);
    if (dynamic_cast<const Error*>(&error) != nullptr) throw;
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    const std::string text = torch_error ? torch_error->what_without_backtrace() : error.what();
    mezzo::detail::raise<IoError>("{}::load: {}", name(), text.substr(0, text.find('\n')));
  }
}

template class BasicFusedOptimizer<FusedAdamOptions>;
template class BasicFusedOptimizer<FusedAdamWOptions>;
template class BasicFusedOptimizer<FusedSGDOptions>;

}  // namespace mezzo::amp
