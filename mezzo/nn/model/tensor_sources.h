#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "mezzo/nn/model/pyg_names.h"

namespace mezzo::nn::detail {

using NamedTensors = std::map<std::string, at::Tensor>;

/// What each parameter and buffer of the module is made of in a file. For each layer it takes the
/// form, the layer's own or one of other_forms(), that most of its tensors have in the file. Names
/// of the result need not be in the file. paths: where submodules are in the file, as
/// load_state_dict's. Throws InvalidArgument for a path of no submodule.
TensorSources sources_in_file(const torch::nn::Module& module, const NamedTensors& in_file,
                              const std::map<std::string, std::string>& paths);

}  // namespace mezzo::nn::detail
