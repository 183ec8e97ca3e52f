#pragma once

#include <memory>
#include <vector>

#include <torch/optim/sgd.h>

#include "mezzo/amp/optim/fused_optimizer.h"

namespace mezzo::amp {

/// Options of FusedSGD: torch::optim::SGDOptions (convertible) and `maximize`. As in libtorch,
/// setters return the options for chaining. lr, momentum and weight_decay >= 0, all finite;
/// nesterov requires momentum > 0 and dampening 0. Checked by the optimizer.
class MEZZO_API FusedSGDOptions : public torch::optim::SGDOptions {
 public:
  FusedSGDOptions(double learning_rate) : SGDOptions(learning_rate) {}
  FusedSGDOptions(const torch::optim::SGDOptions& options) : SGDOptions(options) {}

  /// The learning rate.
  double lr() const { return SGDOptions::lr(); }
  FusedSGDOptions& lr(double value) {
    return set([&] { SGDOptions::lr(value); });
  }

  /// Momentum factor. 0: no momentum buffer.
  double momentum() const { return SGDOptions::momentum(); }
  FusedSGDOptions& momentum(double value) {
    return set([&] { SGDOptions::momentum(value); });
  }

  /// Gradients enter the buffer scaled by 1 - dampening; the first one enters unscaled.
  double dampening() const { return SGDOptions::dampening(); }
  FusedSGDOptions& dampening(double value) {
    return set([&] { SGDOptions::dampening(value); });
  }

  /// weight_decay * parameter is added to the gradient.
  double weight_decay() const { return SGDOptions::weight_decay(); }
  FusedSGDOptions& weight_decay(double value) {
    return set([&] { SGDOptions::weight_decay(value); });
  }

  /// Whether to use gradient + momentum * buffer as the update, instead of the buffer.
  bool nesterov() const { return SGDOptions::nesterov(); }
  FusedSGDOptions& nesterov(bool value) {
    return set([&] { SGDOptions::nesterov(value); });
  }

  /// Whether to maximize the objective. libtorch's optimizers lack this option.
  bool maximize() const { return maximize_; }
  FusedSGDOptions& maximize(bool value) {
    return set([&] { maximize_ = value; });
  }

  /// The fields of libtorch's options, and `maximize`, which is false when reading libtorch's
  /// files.
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;

 private:
  template <class Assign>
  FusedSGDOptions& set(Assign assign) {
    assign();
    return *this;
  }
  std::unique_ptr<torch::optim::OptimizerOptions> clone() const override {
    return std::make_unique<FusedSGDOptions>(*this);
  }

  bool maximize_ = false;
};

/// State of FusedSGD for one parameter, if momentum > 0.
class MEZZO_API FusedSGDState : public torch::optim::OptimizerCloneableParamState<FusedSGDState> {
 public:
  at::Tensor momentum_buffer;  ///< shaped like the parameter
  /// float32, 0-dim: 1 while every step was skipped and the buffer is empty; undefined once the
  /// buffer is known to be filled. Shared by parameters that started together.
  at::Tensor empty;

  /// Same field as torch::optim::SGDParamState. Writing synchronises.
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;

  /// Whether the buffer has the parameter's shape.
  bool fits(const at::Tensor& parameter) const;
};

/// torch::optim::SGD on at::_fused_sgd_: same results up to rounding. Computes in the parameter's
/// dtype, float32 or float64. A drop-in replacement: same constructor arguments, and options
/// derived from libtorch's. Memory: one number per element if momentum > 0.
class MEZZO_API FusedSGD : public FusedOptimizer {
 public:
  /// Groups without options use the defaults. Throws InvalidArgument for options out of range or of
  /// another optimizer, and for parameters that are undefined or not leaves.
  explicit FusedSGD(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                    const FusedSGDOptions& defaults);
  explicit FusedSGD(std::vector<at::Tensor> parameters, const FusedSGDOptions& defaults);

  /// Adds a group; same rules as the constructor.
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  /// Writes the format of torch::optim::SGD, plus `maximize`, which libtorch ignores. Synchronises.
  void save(torch::serialize::OutputArchive& archive) const override;

  /// Restores what save() or torch::optim::SGD wrote; training continues bit for bit. The groups
  /// must match. Replaces the current state. Throws IoError, without any change, if the checkpoint
  /// does not match.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  const char* name() const override;
  void check_options(const torch::optim::OptimizerOptions& options) const override;
  void step_batch(const FusedBatch& batch) override;
};

}  // namespace mezzo::amp
