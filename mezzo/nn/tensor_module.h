#pragma once

#include <memory>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

namespace mezzo::nn {

/// A module from a tensor to a tensor, or empty. Converts from torch::nn::Sequential (which
/// AnyModule cannot hold), from the holder of any module that AnyModule can hold, and from
/// AnyModule. Copies refer to the same module.
class TensorModule {
 public:
  /// Empty.
  TensorModule() = default;
  TensorModule(torch::nn::AnyModule module) : any_(std::move(module)) {}  // NOLINT: converts
  TensorModule(torch::nn::Sequential module)                              // NOLINT: converts
      : sequential_(std::move(module)) {}
  template <class Impl>
  TensorModule(const torch::nn::ModuleHolder<Impl>& module)  // NOLINT: converts
      : TensorModule(module.is_empty() ? torch::nn::AnyModule() : torch::nn::AnyModule(module)) {}

  bool is_empty() const { return any_.is_empty() && sequential_.is_empty(); }
  /// The module. Must not be empty.
  std::shared_ptr<torch::nn::Module> ptr() const {
    return sequential_ ? sequential_.ptr() : any_.ptr();
  }
  /// Registers the module, unless empty, with its owner.
  void register_in(torch::nn::Module& owner, const std::string& name) const {
    if (!is_empty()) owner.register_module(name, ptr());
  }
  /// A copy with parameters of its own. Throws libtorch's error if the module has no clone().
  TensorModule clone() const {
    if (!sequential_) return any_.clone();
    return torch::nn::Sequential(
        std::dynamic_pointer_cast<torch::nn::SequentialImpl>(sequential_->clone()));
  }
  /// Must not be empty.
  at::Tensor forward(const at::Tensor& x) {
    return sequential_ ? sequential_->forward(x) : any_.forward(x);
  }

 private:
  torch::nn::AnyModule any_;  // at most one of the two is set
  torch::nn::Sequential sequential_ = nullptr;
};

}  // namespace mezzo::nn
