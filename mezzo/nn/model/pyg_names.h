#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace mezzo::nn::detail {

using NamedTensors = std::map<std::string, at::Tensor>;

/// A state dict for a module here, and what PyG calls the module's tensors.
struct PygTensors {
  NamedTensors tensors;
  std::map<std::string, std::string> names;  ///< from own names; empty if PyG did not write it
};

/// Gives the tensors of a state dict of PyG (PyTorch Geometric) the names and shapes that they have
/// in the module; other names stay. The layers GCNConv, SAGEConv, GATConv, GATv2Conv and GINConv
/// may be anywhere in the module; nn::MLP and nn::Model are PyG's MLP and BasicGNN. own: the
/// tensors of the module. A state dict without a name of PyG's is returned as it is.
PygTensors from_pyg(const torch::nn::Module& module, const NamedTensors& own, NamedTensors in_file);

}  // namespace mezzo::nn::detail
