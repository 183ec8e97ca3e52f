#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "mezzo/graph/topology.h"
#include "mezzo/nn/model/model.h"

/// The layers of which a Model is made. Internal to nn; not exported.
namespace mezzo::nn::detail {

/// Opens the text of a Model's errors.
inline constexpr auto kModelName = "Model";

/// [num_src, in] -> [num_dst, out]. The last argument are the weights of the edges, undefined
/// unless takes_edge_weights().
using Convolution =
    std::function<at::Tensor(const Topology&, const at::Tensor&, const at::Tensor&)>;

/// A layer that is not yet registered, and what applies it.
struct MadeLayer {
  std::shared_ptr<torch::nn::Module> module;
  Convolution apply;
  std::int64_t out_features = 0;
};

/// Where in the stack a layer stands.
struct Place {
  std::int64_t in_features = 0;
  bool last = false;
};

/// The layer of options.kind for a place. Throws InvalidArgument for another kind than ModelKinds.
MadeLayer make_layer(const ModelOptions& options, Place place);

}  // namespace mezzo::nn::detail
