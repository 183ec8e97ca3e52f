#pragma once

#include <memory>
#include <vector>

#include <torch/optim/sgd.h>

#include "mezzo/amp/optim/fused_optimizer.h"

namespace mezzo::amp {

/// Options of FusedSGD: torch::optim::SGDOptions, from which they convert, and `maximize`. Like
/// theirs the setters return the options, to be chained. lr, momentum and weight_decay >= 0, all
/// finite; nesterov wants a momentum and no dampening. Checked by the optimizer.
class MEZZO_API FusedSGDOptions : public torch::optim::SGDOptions {
 public:
  FusedSGDOptions(double learning_rate) : SGDOptions(learning_rate) {}
  FusedSGDOptions(const torch::optim::SGDOptions& options) : SGDOptions(options) {}

  /// Times the update, in units of the parameter over those of its gradient.
  double lr() const { return SGDOptions::lr(); }
  FusedSGDOptions& lr(double value) {
    return set([&] { SGDOptions::lr(value); });
  }

  /// The share of the running sum of gradients that stays, a step. 0: no such sum is kept.
  double momentum() const { return SGDOptions::momentum(); }
  FusedSGDOptions& momentum(double value) {
    return set([&] { SGDOptions::momentum(value); });
  }

  /// The share of a gradient that does not enter the sum; the first one enters whole.
  double dampening() const { return SGDOptions::dampening(); }
  FusedSGDOptions& dampening(double value) {
    return set([&] { SGDOptions::dampening(value); });
  }

  /// Times the parameter, added to the gradient.
  double weight_decay() const { return SGDOptions::weight_decay(); }
  FusedSGDOptions& weight_decay(double value) {
    return set([&] { SGDOptions::weight_decay(value); });
  }

  /// Steps by the gradient and momentum times the sum, in place of the sum.
  bool nesterov() const { return SGDOptions::nesterov(); }
  FusedSGDOptions& nesterov(bool value) {
    return set([&] { SGDOptions::nesterov(value); });
  }

  /// Climbs along the gradient. libtorch's optimizers have no such option.
  bool maximize() const { return maximize_; }
  FusedSGDOptions& maximize(bool value) {
    return set([&] { maximize_ = value; });
  }

  /// As libtorch's options, and `maximize`, which an archive of libtorch's lacks and which is then
  /// false.
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

/// What FusedSGD keeps of a parameter if there is a momentum.
class MEZZO_API FusedSGDState : public torch::optim::OptimizerCloneableParamState<FusedSGDState> {
 public:
  at::Tensor momentum_buffer;  ///< like the parameter
  /// float32, 0-dim: 1 as long as every step was skipped, so that the buffer holds nothing yet;
  /// undefined where it is known to hold something. One for the parameters that began together.
  at::Tensor empty;

  /// The field of torch::optim::SGDParamState. Writing synchronises.
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;

  /// Whether the buffer has the parameter's shape.
  bool fits(const at::Tensor& parameter) const;
};

/// torch::optim::SGD over at::_fused_sgd_: the same results up to the rounding of each operation,
/// in float64 for float64 parameters and in float32 for float32 ones. It takes the place of
/// libtorch's by its name alone: the constructors take the same arguments, and the options derive
/// from libtorch's. Memory: one number a parameter if there is a momentum.
class MEZZO_API FusedSGD : public FusedOptimizer {
 public:
  /// Groups without options take the defaults. Throws InvalidArgument for options out of range or
  /// of another optimizer, and for parameters that are undefined or not leaves.
  explicit FusedSGD(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                    const FusedSGDOptions& defaults);
  explicit FusedSGD(std::vector<at::Tensor> parameters, const FusedSGDOptions& defaults);

  /// As the constructor does with its groups.
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  /// Writes what torch::optim::SGD writes and reads, and `maximize`, which it does not read.
  /// Synchronises.
  void save(torch::serialize::OutputArchive& archive) const override;

  /// Continues bit for bit from what save() wrote, or from an archive of torch::optim::SGD. The
  /// groups must be as they were. State of before is forgotten. Throws IoError, changing nothing,
  /// where the archive does not fit.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  const char* name() const override;
  void check_options(const torch::optim::OptimizerOptions& options) const override;
  void step_batch(const FusedBatch& batch) override;
};

}  // namespace mezzo::amp
