#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

/// What the layers' tensors are called in PyG (PyTorch Geometric) and in older versions of DGL.
/// Internal to nn; not exported.
namespace mezzo::nn::detail {

/// What a tensor is made of: tensors of a file, by name.
struct TensorSource {
  std::vector<std::string> names;
  /// Makes the tensor, undefined if those of the file contradict each other. Empty: it is the only
  /// one of the file. May throw c10::Error for other shapes.
  std::function<at::Tensor(const std::vector<at::Tensor>&)> make = {};
};

/// By the names of tensors, here those of one layer.
using TensorSources = std::map<std::string, TensorSource>;

/// The forms that the layer's tensors can have in a file besides their own: what has another name
/// or shape. A form may list tensors that the layer lacks.
std::vector<TensorSources> other_forms(const torch::nn::Module& layer);

/// PyG's name of a child of the module; empty if PyG has the child's tensors in the module itself.
std::string pyg_child_name(const torch::nn::Module& module, const std::string& name);

}  // namespace mezzo::nn::detail
