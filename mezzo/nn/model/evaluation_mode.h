#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

namespace mezzo::nn {

/// Keeps a model in evaluation mode for the life of this object. The destructor restores the mode
/// of each submodule. Refers to the submodules.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& model) {
    for (const auto& part : model.modules()) parts_.emplace_back(part, part->is_training());
    model.eval();
  }
  ~EvaluationMode() {
    // modules() lists a parent before its children, and train() also changes the children.
    for (const auto& [part, training] : parts_) part->train(training);
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> parts_;
};

}  // namespace mezzo::nn
