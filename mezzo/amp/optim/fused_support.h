#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/serialize.h>
#include <torch/serialize/archive.h>

#include "mezzo/core/error.h"

/// Helpers of the fused optimizers.
namespace mezzo::amp {

/// `tensor` with the device, dtype and memory layout of `like`; no copy if they match.
at::Tensor laid_out_like(const at::Tensor& tensor, const at::Tensor& like);

/// The same elements as 1-D tensors in memory order, for kernels without strides.
std::vector<at::Tensor> flat(const std::vector<at::Tensor>& tensors);

/// The parameter's state, created if missing.
template <class State>
State& state_of(torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (!state) state = std::make_unique<State>();
  return static_cast<State&>(*state);
}

/// A copy of the group whose options, if any, have type `Options`; converts libtorch's options.
/// Throws InvalidArgument for undefined or non-leaf parameters and other options.
template <class Options, class TorchOptions>
torch::optim::OptimizerParamGroup own_group(const torch::optim::OptimizerParamGroup& group,
                                            const char* name) {
  for (const at::Tensor& parameter : group.params()) {
    MEZZO_CHECK(parameter.defined() && parameter.is_leaf(),
                "{}: expected parameters that are defined and leaves of autograd's graph", name);
  }
  torch::optim::OptimizerParamGroup own(group.params());
  if (!group.has_options()) return own;
  if (dynamic_cast<const Options*>(&group.options()) != nullptr) {
    own.set_options(group.options().clone());
    return own;
  }
  const auto* options = dynamic_cast<const TorchOptions*>(&group.options());
  MEZZO_CHECK(options != nullptr, "{}: expected the group's options to be {}Options", name, name);
  own.set_options(std::make_unique<Options>(*options));
  return own;
}

template <class Options, class TorchOptions>
std::vector<torch::optim::OptimizerParamGroup> own_groups(
    const std::vector<torch::optim::OptimizerParamGroup>& groups, const char* name) {
  std::vector<torch::optim::OptimizerParamGroup> own;
  own.reserve(groups.size());
  for (const auto& group : groups) own.push_back(own_group<Options, TorchOptions>(group, name));
  return own;
}

/// The group's options as `Options`. Throws InvalidArgument if they have another type.
template <class Options>
const Options& options_as(const torch::optim::OptimizerOptions& options, const char* name) {
  const auto* own = dynamic_cast<const Options*>(&options);
  MEZZO_CHECK(own != nullptr, "{}: expected the group's options to be {}Options", name, name);
  return *own;
}

/// Reads what torch::optim::serialize wrote and replaces the state. If the checkpoint does not
/// match, throws and leaves the optimizer unchanged.
template <class State, class Options>
void load_optimizer(torch::serialize::InputArchive& archive, torch::optim::Optimizer& optimizer,
                    const char* name) {
  auto state = std::move(optimizer.state());
  std::vector<torch::optim::OptimizerParamGroup> groups = optimizer.param_groups();
  optimizer.state().clear();
  try {
    torch::optim::serialize<State, Options>(archive, optimizer);
    for (const auto& group : optimizer.param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
        if (found == optimizer.state().end()) continue;
        if (static_cast<const State&>(*found->second).fits(parameter)) continue;
        mezzo::detail::raise<IoError>("{}::load: the state saved for a parameter has another shape",
                                      name);
      }
    }
  } catch (const std::exception& error) {
    optimizer.state() = std::move(state);
    optimizer.param_groups() = std::move(groups);
    if (dynamic_cast<const Error*>(&error) != nullptr) throw;
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    const std::string text = torch_error ? torch_error->what_without_backtrace() : error.what();
    mezzo::detail::raise<IoError>("{}::load: {}", name, text.substr(0, text.find('\n')));
  }
}

}  // namespace mezzo::amp
