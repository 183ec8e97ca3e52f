#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <torch/nn/pimpl.h>

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

}  // namespace mezzo::nn
