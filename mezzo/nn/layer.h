#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

/// The types that the layers share: their holder, their input rows, and the functions and modules
/// that a caller passes to them.
namespace mezzo::nn {

/// The module holder of a layer. The sizes come first, as in libtorch and DGL: `GATConv(64, 8,
/// {.num_heads = 4})`. They can also be passed with the other options: `GATConv({.in_features = 64,
/// .out_features = 8, .num_heads = 4})`.
template <class Impl, auto... Sizes>
class LayerHolder : public torch::nn::ModuleHolder<Impl> {
  template <auto>
  using Size = std::int64_t;

 public:
  using Options = decltype(Impl::options);

  LayerHolder(std::nullptr_t) : LayerHolder(std::shared_ptr<Impl>()) {}  // NOLINT: as libtorch's
  LayerHolder(std::shared_ptr<Impl> layer)                               // NOLINT: as libtorch's
      : torch::nn::ModuleHolder<Impl>(std::move(layer)) {}
  explicit LayerHolder(Options options) requires(sizeof...(Sizes) > 0)
      : LayerHolder(std::make_shared<Impl>(std::move(options))) {}
  explicit LayerHolder(Size<Sizes>... sizes, Options options = {})
      : LayerHolder(std::make_shared<Impl>(((options.*Sizes = sizes), ..., std::move(options)))) {}
};

/// The holder of a layer whose sizes are in_features and out_features.
template <class Impl, class Options = decltype(Impl::options)>
using InOutHolder = LayerHolder<Impl, &Options::in_features, &Options::out_features>;

/// The node features of a layer's input: one tensor for all nodes, destinations first, or a pair of
/// tensors for sources and destinations (DGL's pairs for bipartite graphs and blocks). The widths
/// of a pair may differ if the layer's options allow it. Converts from a tensor and from a
/// std::pair of tensors: `layer(graph, std::pair(h_src, h_dst))`. Only the layers check the
/// tensors.
class NodeRows {
 public:
  NodeRows(at::Tensor h) : src_(std::move(h)) {}  // NOLINT: converts
  NodeRows(at::Tensor src, at::Tensor dst)
      : src_(std::move(src)), dst_(std::move(dst)), is_pair_(true) {}
  NodeRows(std::pair<at::Tensor, at::Tensor> rows)  // NOLINT: converts
      : NodeRows(std::move(rows.first), std::move(rows.second)) {}

  bool is_pair() const { return is_pair_; }
  /// [num_src, ...]
  const at::Tensor& src() const { return src_; }
  /// The rows of the destinations, [num_dst, ...]; unless is_pair(), the same tensor as src().
  const at::Tensor& dst() const { return is_pair_ ? dst_ : src_; }

 private:
  at::Tensor src_, dst_;
  bool is_pair_ = false;
};

/// An elementwise function applied to a layer's output; empty: none. A function, not a submodule:
/// a module inside has its parameters listed, moved and saved by its owner alone.
using Activation = std::function<at::Tensor(const at::Tensor&)>;

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
