#pragma once

#include <functional>
#include <memory>
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
  TensorModule(torch::nn::AnyModule module) {  // NOLINT: converts
    if (module.is_empty()) return;
    module_ = module.ptr();
    forward_ = [held = std::move(module)](const at::Tensor& x) mutable { return held.forward(x); };
  }
  TensorModule(const torch::nn::Sequential& module) {  // NOLINT: converts
    if (module.is_empty()) return;
    module_ = module.ptr();
    forward_ = [held = module.ptr()](const at::Tensor& x) { return held->forward(x); };
  }
  template <class Impl>
  TensorModule(const torch::nn::ModuleHolder<Impl>& module)  // NOLINT: converts
      : TensorModule(module.is_empty() ? torch::nn::AnyModule() : torch::nn::AnyModule(module)) {}

  bool is_empty() const { return module_ == nullptr; }
  /// The module itself, which its owner registers; null if there is none.
  const std::shared_ptr<torch::nn::Module>& ptr() const { return module_; }
  /// Not of none.
  at::Tensor forward(const at::Tensor& x) const { return forward_(x); }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  std::function<at::Tensor(const at::Tensor&)> forward_;
};

}  // namespace mezzo::nn
