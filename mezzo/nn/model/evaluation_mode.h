#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

namespace mezzo::nn {

/// A model in evaluation mode for the life of this object; afterwards, also where an error ended
/// it, each part is in the mode in which it was. Refers to the model's parts.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& model) {
    for (const auto& part : model.modules()) parts_.emplace_back(part, part->is_training());
    model.eval();
  }
  ~EvaluationMode() {
    // A part comes before its own parts, which train() changes too.
    for (const auto& [part, training] : parts_) part->train(training);
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> parts_;
};

}  // namespace mezzo::nn
