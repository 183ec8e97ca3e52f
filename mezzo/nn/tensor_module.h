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

/// A module from a tensor to a tensor, as layers take one, or none. A torch::nn::Sequential
/// converts, which AnyModule cannot hold; so does the holder of any module that AnyModule can, and
/// an AnyModule. Its rules stay its own; copies refer to the same module.
class TensorModule {
 public:
  /// None.
  TensorModule() = default;
  TensorModule(torch::nn::AnyModule module) : any_(std::move(module)) {}  // NOLINT: converts
  TensorModule(torch::nn::Sequential module)                              // NOLINT: converts
      : sequential_(std::move(module)) {}
  template <class Impl>
  TensorModule(const torch::nn::ModuleHolder<Impl>& module)  // NOLINT: converts
      : TensorModule(module.is_empty() ? torch::nn::AnyModule() : torch::nn::AnyModule(module)) {}

  bool is_empty() const { return any_.is_empty() && sequential_.is_empty(); }
  /// The module itself. Not of none.
  std::shared_ptr<torch::nn::Module> ptr() const {
    return sequential_ ? sequential_.ptr() : any_.ptr();
  }
  /// Registers the module, if there is one, with its owner.
  void register_in(torch::nn::Module& owner, const std::string& name) const {
    if (!is_empty()) owner.register_module(name, ptr());
  }
  /// A copy with parameters of its own. Throws libtorch's error if the module has no clone().
  TensorModule clone() const {
    if (!sequential_) return any_.clone();
    return torch::nn::Sequential(
        std::dynamic_pointer_cast<torch::nn::SequentialImpl>(sequential_->clone()));
  }
  /// Not of none.
  at::Tensor forward(const at::Tensor& x) {
    return sequential_ ? sequential_->forward(x) : any_.forward(x);
  }

 private:
  torch::nn::AnyModule any_;  // one of the two is empty
  torch::nn::Sequential sequential_ = nullptr;
};

}  // namespace mezzo::nn
