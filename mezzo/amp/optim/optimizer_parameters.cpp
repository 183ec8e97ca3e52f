#include "mezzo/amp/optim/optimizer_parameters.h"

#include <torch/optim/optimizer.h>

namespace mezzo::amp {

std::vector<at::Tensor> parameters_of(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  }
  return parameters;
}

}  // namespace mezzo::amp
