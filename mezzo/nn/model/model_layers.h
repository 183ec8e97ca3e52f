#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "mezzo/graph/topology.h"
#include "mezzo/nn/model/model.h"

/// The layers of a Model. Internal to nn; not exported.
namespace mezzo::nn::detail {

/// The name of Model in error messages.
inline constexpr auto kModelName = "Model";

/// Rows of width `in` -> [num_dst, out]. The last argument: weights or features of the edges,
/// undefined unless the kind takes them.
using Convolution = std::function<at::Tensor(const Topology&, const NodeRows&, const at::Tensor&)>;

/// A layer that is not yet registered, and the function that applies it.
struct LayerModule {
  std::shared_ptr<torch::nn::Module> module;
  Convolution apply;
  std::int64_t out_features = 0;
  /// What the layer makes of the mean or sum over the neighbours: [num_dst, in] -> [num_dst, out],
  /// linear. Empty unless takes_received_offset(), and for an aggregator other than kMean.
  std::function<at::Tensor(const at::Tensor&)> of_received = {};
};

/// A layer's position in the stack.
struct Place {
  std::int64_t in_features = 0;
  bool last = false;
};

/// Creates a layer of options.kind for `place`. Throws InvalidArgument for kinds not in ModelKinds.
LayerModule make_layer(const ModelOptions& options, Place place);

}  // namespace mezzo::nn::detail
