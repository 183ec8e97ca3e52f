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
  const char* const dtype_name = c10::toString(dtype);
  MEZZO_CHECK(!is_16_bit(dtype),
              "{}: expected float32 or float64 parameters, got {}, whose moments would be 16-bit "
              "too. Use enable_mixed_precision, which keeps float32 master weights",
              optimizer, dtype_name);
  MEZZO_CHECK(dtype == at::kFloat || dtype == at::kDouble,
              "{}: expected float32 or float64 parameters, got {}", optimizer, dtype_name);
  MEZZO_CHECK(gradient.layout() == at::kStrided && parameter.layout() == at::kStrided,
              "{}: expected dense gradients, got a sparse one. Use torch::optim::SGD for it, or "
              "make the embedding's gradient dense",
              optimizer);
  MEZZO_CHECK(gradient.scalar_type() == dtype && gradient.device() == parameter.device(),
              "{}: expected the gradient of a {} parameter on {} to match it, got {} on {}",
              optimizer, dtype_name, parameter.device().str(),
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

/// The batch for `parameter`; added if missing. The batches of its group start at `first`.
FusedBatch& batch_for(std::vector<FusedBatch>& batches, std::size_t first,
                      const OptimizerOptions& options, const at::Tensor& parameter) {
  const auto begin = batches.begin() + static_cast<std::ptrdiff_t>(first);
  const auto batch = std::find_if(begin, batches.end(), [&parameter](const FusedBatch& b) {
    return b.parameters.front().device() == parameter.device() &&
           b.parameters.front().scalar_type() == parameter.scalar_type();
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
                   const BasicFusedAdamOptions<Torch>& options);
};

/// Creates a missing moment; moves it to the device and layout of its parameter.
const at::Tensor& prepare_moment(at::Tensor& moment, const at::Tensor& parameter) {
  moment = moment.defined() ? laid_out_like(moment, parameter) : at::zeros_like(parameter);
  return moment;
}

template <class Torch>
void Algorithm<BasicFusedAdamOptions<Torch>>::step(Optimizer& optimizer, const FusedBatch& batch,
                                                   const BasicFusedAdamOptions<Torch>& options) {
  std::vector<at::Tensor> steps, exp_avgs, exp_avg_sqs, max_exp_avg_sqs;
  for (const at::Tensor& parameter : batch.parameters) {
    auto& state = state_of<State>(optimizer, parameter);
    const auto scalar = at::TensorOptions(parameter.device()).dtype(at::kFloat);
    state.step = state.step.defined() ? state.step.to(scalar) : at::zeros({}, scalar);
    steps.push_back(state.step);
    exp_avgs.push_back(prepare_moment(state.exp_avg, parameter));
    exp_avg_sqs.push_back(prepare_moment(state.exp_avg_sq, parameter));
    if (options.amsgrad()) {
      max_exp_avg_sqs.push_back(prepare_moment(state.max_exp_avg_sq, parameter));
    }
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
           options.eps(), options.amsgrad(), options.maximize(), batch.grad_scale, batch.found_inf);
  };
  if constexpr (kDecoupled) {
    apply([](const auto&... arguments) { at::_fused_adamw_(arguments...); });
  } else {
    apply([](const auto&... arguments) { at::_fused_adam_(arguments...); });
  }
}

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

  static void step(Optimizer& optimizer, const FusedBatch& batch, const FusedSGDOptions& options);
};

/// Parameters of a batch that share FusedSGDState::empty.
struct BufferGroup {
  at::Tensor empty = {};
  std::vector<at::Tensor> parameters = {}, gradients = {}, buffers = {};
  std::vector<FusedSGDState*> states = {};
};

std::vector<BufferGroup> group_by_empty(Optimizer& optimizer, const FusedBatch& batch) {
  std::vector<BufferGroup> groups;
  at::Tensor new_empty;  // of all buffers created in this step
  for (std::size_t i = 0; i < batch.parameters.size(); ++i) {
    const at::Tensor& parameter = batch.parameters[i];
    const auto scalar = at::TensorOptions(parameter.device()).dtype(at::kFloat);
    auto& state = state_of<FusedSGDState>(optimizer, parameter);
    if (!state.momentum_buffer.defined()) {
      if (!new_empty.defined()) new_empty = at::ones({}, scalar);
      state.empty = new_empty;
      state.momentum_buffer = at::zeros_like(parameter);
    }
    if (state.empty.defined()) state.empty = state.empty.to(scalar);
    state.momentum_buffer = laid_out_like(state.momentum_buffer, parameter);
    auto group = std::find_if(groups.begin(), groups.end(), [&state](const BufferGroup& g) {
      return g.empty.is_same(state.empty);
    });
    if (group == groups.end()) group = groups.insert(group, {.empty = state.empty});
    group->parameters.push_back(parameter);
    group->gradients.push_back(batch.gradients[i]);
    group->buffers.push_back(state.momentum_buffer);
    group->states.push_back(&state);
  }
  return groups;
}

/// Updates `empty` after a step.
void update_empty(const BufferGroup& group, const std::optional<at::Tensor>& found_inf) {
  // Other parameters with the same `empty` may have no gradient in this step.
  const bool all_stepped = group.empty.use_count() == group.states.size() + 1;
  if (found_inf && all_stepped) {  // in place, for captured steps
    group.empty.mul_(*found_inf);
    return;
  }
  const at::Tensor empty = found_inf ? group.empty * *found_inf : at::Tensor();
  for (FusedSGDState* state : group.states) state->empty = empty;
}

void Algorithm<FusedSGDOptions>::step(Optimizer& optimizer, const FusedBatch& batch,
                                      const FusedSGDOptions& options) {
  const auto apply = [&](const BufferGroup& group, bool is_first,
                         const std::optional<at::Tensor>& found_inf) {
    at::_fused_sgd_(flat(group.parameters), flat(group.gradients), flat(group.buffers),
                    options.weight_decay(), options.momentum(), options.lr(), options.dampening(),
                    options.nesterov(), options.maximize(), is_first, batch.grad_scale, found_inf);
  };
  if (options.momentum() == 0) {
    apply({.parameters = batch.parameters, .gradients = batch.gradients}, false, batch.found_inf);
    return;
  }
  for (const BufferGroup& group : group_by_empty(optimizer, batch)) {
    if (!group.empty.defined()) {
      apply(group, false, batch.found_inf);
      continue;
    }
    // Only the device knows whether this is the first applied step: call both kinds of step, and
    // let the device skip the wrong one.
    const at::Tensor skip = batch.found_inf ? *batch.found_inf : at::zeros_like(group.empty);
    const at::Tensor skip_first = at::maximum(skip, 1 - group.empty);
    const at::Tensor skip_later = at::maximum(skip, group.empty);
    apply(group, true, skip_first);
    apply(group, false, skip_later);
    update_empty(group, batch.found_inf);
  }
}

template <class Options>
[[noreturn]] void raise_other_options() {
  mezzo::detail::raise<InvalidArgument>("{0}: expected {0}Options for the group, got other options",
                                        Algorithm<Options>::kName);
}

/// A copy of the group with its options, if any, as `Options`. Throws InvalidArgument for undefined
/// or non-leaf parameters and for options of another optimizer.
template <class Options>
OptimizerParamGroup converted_group(const OptimizerParamGroup& group) {
  for (const at::Tensor& parameter : group.params()) {
    MEZZO_CHECK(parameter.defined() && parameter.is_leaf(),
                "{}: expected defined leaf parameters, got {}", Algorithm<Options>::kName,
                parameter.defined() ? "the result of an operation" : "an undefined tensor");
  }
  OptimizerParamGroup result(group.params());
  if (!group.has_options()) return result;
  using TorchOptions = typename Algorithm<Options>::TorchOptions;
  if (dynamic_cast<const Options*>(&group.options()) != nullptr) {
    result.set_options(group.options().clone());
  } else if (const auto* torch = dynamic_cast<const TorchOptions*>(&group.options())) {
    result.set_options(std::make_unique<Options>(*torch));
  } else {
    raise_other_options<Options>();
  }
  return result;
}

template <class Options>
std::vector<OptimizerParamGroup> converted_groups(const std::vector<OptimizerParamGroup>& groups) {
  std::vector<OptimizerParamGroup> results;
  results.reserve(groups.size());
  for (const auto& group : groups) results.push_back(converted_group<Options>(group));
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
    const std::size_t first = batches.size();
    for (const at::Tensor& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      check_parameter(name(), parameter, gradient);
      MEZZO_CHECK(seen.insert(parameter.unsafeGetTensorImpl()).second,
                  "{}: expected each parameter once, got one twice; a step would update it twice",
                  name());
      FusedBatch& batch = batch_for(batches, first, group.options(), parameter);
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
    std::vector<at::Tensor> gradients = std::move(batch.gradients);
    batch.gradients.clear();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      batch.gradients.push_back(laid_out_like(gradients[i], batch.parameters[i]));
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
    : FusedOptimizer(converted_groups<Options>(groups), std::make_unique<Options>(defaults)) {
  Algorithm<Options>::check(defaults);
  for (const auto& group : param_groups()) BasicFusedOptimizer::check_options(group.options());
}

template <class Options>
BasicFusedOptimizer<Options>::BasicFusedOptimizer(std::vector<at::Tensor> parameters,
                                                  const Options& defaults)
    : BasicFusedOptimizer(std::vector{OptimizerParamGroup(std::move(parameters))}, defaults) {}

template <class Options>
void BasicFusedOptimizer<Options>::add_param_group(const OptimizerParamGroup& group) {
  const OptimizerParamGroup converted = converted_group<Options>(group);
  if (converted.has_options()) check_options(converted.options());
  Optimizer::add_param_group(converted);
}

template <class Options>
const char* BasicFusedOptimizer<Options>::name() const {
  return Algorithm<Options>::kName;
}

template <class Options>
void BasicFusedOptimizer<Options>::check_options(const OptimizerOptions& options) const {
  const auto* same = dynamic_cast<const Options*>(&options);
  if (same == nullptr) raise_other_options<Options>();
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
