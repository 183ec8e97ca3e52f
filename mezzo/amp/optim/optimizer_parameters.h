#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::optim {
class Optimizer;
}

namespace mezzo::amp {

/// The parameters of all groups, in order.
std::vector<at::Tensor> parameters_of(const torch::optim::Optimizer& optimizer);

}  // namespace mezzo::amp
