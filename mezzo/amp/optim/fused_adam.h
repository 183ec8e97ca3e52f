#pragma once

#include <memory>
#include <tuple>
#include <vector>

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include "mezzo/amp/optim/fused_optimizer.h"

namespace mezzo::amp {

/// Options of FusedAdam (from torch::optim::AdamOptions) and FusedAdamW (from AdamWOptions), and
/// convertible from those. As in libtorch, setters return the options for chaining:
///
///     FusedAdamOptions(1e-3).betas({0.9, 0.95}).maximize(true)
///
/// lr >= 0, betas in [0, 1), eps >= 0, weight_decay >= 0, all finite; checked by the optimizer.
template <class TorchOptions>
class MEZZO_API BasicFusedAdamOptions : public TorchOptions {
 public:
  using Betas = std::tuple<double, double>;

  BasicFusedAdamOptions(double learning_rate = 1e-3) : TorchOptions(learning_rate) {}
  BasicFusedAdamOptions(const TorchOptions& options) : TorchOptions(options) {}

  /// The learning rate.
  double lr() const { return TorchOptions::lr(); }
  BasicFusedAdamOptions& lr(double value) {
    return set([&] { TorchOptions::lr(value); });
  }

  /// Decay rates of the running means of the gradient and of its square.
  Betas betas() const { return TorchOptions::betas(); }
  BasicFusedAdamOptions& betas(const Betas& value) {
    return set([&] { TorchOptions::betas(value); });
  }

  /// Added to the square root of the second moment.
  double eps() const { return TorchOptions::eps(); }
  BasicFusedAdamOptions& eps(double value) {
    return set([&] { TorchOptions::eps(value); });
  }

  /// Adam: weight_decay * parameter is added to the gradient. AdamW: the parameter is multiplied by
  /// 1 - lr * weight_decay.
  double weight_decay() const { return TorchOptions::weight_decay(); }
  BasicFusedAdamOptions& weight_decay(double value) {
    return set([&] { TorchOptions::weight_decay(value); });
  }

  /// Whether to divide by the largest second moment so far.
  bool amsgrad() const { return TorchOptions::amsgrad(); }
  BasicFusedAdamOptions& amsgrad(bool value) {
    return set([&] { TorchOptions::amsgrad(value); });
  }

  /// Whether to maximize the objective. libtorch's optimizers lack this option.
  bool maximize() const { return maximize_; }
  BasicFusedAdamOptions& maximize(bool value) {
    return set([&] { maximize_ = value; });
  }

  /// The fields of libtorch's options, and `maximize`, which is false when reading libtorch's
  /// files.
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;

 private:
  template <class Assign>
  BasicFusedAdamOptions& set(Assign assign) {
    assign();
    return *this;
  }
  std::unique_ptr<torch::optim::OptimizerOptions> clone() const override {
    return std::make_unique<BasicFusedAdamOptions>(*this);
  }

  bool maximize_ = false;
};

/// State of FusedAdam and FusedAdamW for one parameter.
class MEZZO_API FusedAdamState : public torch::optim::OptimizerCloneableParamState<FusedAdamState> {
 public:
  at::Tensor step;            ///< float32, 0-dim: count of applied steps; exact up to 2^24
  at::Tensor exp_avg;         ///< first moment, shaped like the parameter
  at::Tensor exp_avg_sq;      ///< second moment
  at::Tensor max_exp_avg_sq;  ///< undefined until a step with amsgrad

  /// Same fields as torch::optim::AdamParamState. Writing synchronises.
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;

  /// Whether the moments have the parameter's shape.
  bool fits(const at::Tensor& parameter) const;
};

/// torch::optim::Adam or AdamW on at::_fused_adam_ or _fused_adamw_: same results up to rounding.
/// Computes in the parameter's dtype, float32 or float64. A drop-in replacement: same constructor
/// arguments, and options derived from libtorch's. Memory: two numbers per element, three with
/// amsgrad.
template <class TorchOptions>
class MEZZO_API BasicFusedAdam : public FusedOptimizer {
 public:
  using Options = BasicFusedAdamOptions<TorchOptions>;

  /// Groups without options use the defaults. Throws InvalidArgument for options out of range or of
  /// another optimizer, and for parameters that are undefined or not leaves.
  explicit BasicFusedAdam(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                          const Options& defaults = {});
  explicit BasicFusedAdam(std::vector<at::Tensor> parameters, const Options& defaults = {});

  /// Adds a group; same rules as the constructor.
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  /// Writes the format of libtorch's optimizer of that name, plus `maximize`, which libtorch
  /// ignores. Synchronises.
  void save(torch::serialize::OutputArchive& archive) const override;

  /// Restores what save() or libtorch's optimizer wrote; training continues bit for bit. The groups
  /// must match. Replaces the current state. Throws IoError, without any change, if the checkpoint
  /// does not match.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  const char* name() const override;
  void check_options(const torch::optim::OptimizerOptions& options) const override;
  void step_batch(const FusedBatch& batch) override;
};

using FusedAdamOptions = BasicFusedAdamOptions<torch::optim::AdamOptions>;
using FusedAdamWOptions = BasicFusedAdamOptions<torch::optim::AdamWOptions>;
using FusedAdam = BasicFusedAdam<torch::optim::AdamOptions>;
using FusedAdamW = BasicFusedAdam<torch::optim::AdamWOptions>;

extern template class BasicFusedAdamOptions<torch::optim::AdamOptions>;
extern template class BasicFusedAdamOptions<torch::optim::AdamWOptions>;
extern template class BasicFusedAdam<torch::optim::AdamOptions>;
extern template class BasicFusedAdam<torch::optim::AdamWOptions>;

}  // namespace mezzo::amp
