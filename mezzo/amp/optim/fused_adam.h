#pragma once

#include <memory>
#include <tuple>
#include <vector>

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include "mezzo/amp/optim/fused_optimizer.h"

namespace mezzo::amp {

/// Options of FusedAdam (from torch::optim::AdamOptions) and FusedAdamW (from AdamWOptions), and
/// convertible from those. Like theirs the setters return the options, to be chained:
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

  /// Per parameter and step, in units of the parameter.
  double lr() const { return TorchOptions::lr(); }
  BasicFusedAdamOptions& lr(double value) {
    return set([&] { TorchOptions::lr(value); });
  }

  /// Of the gradient's and its square's running means: the share that stays, a step.
  Betas betas() const { return TorchOptions::betas(); }
  BasicFusedAdamOptions& betas(const Betas& value) {
    return set([&] { TorchOptions::betas(value); });
  }

  /// Added to the root of the second moment.
  double eps() const { return TorchOptions::eps(); }
  BasicFusedAdamOptions& eps(double value) {
    return set([&] { TorchOptions::eps(value); });
  }

  /// Adam: times the parameter, added to the gradient. AdamW: the parameter loses lr times so much.
  double weight_decay() const { return TorchOptions::weight_decay(); }
  BasicFusedAdamOptions& weight_decay(double value) {
    return set([&] { TorchOptions::weight_decay(value); });
  }

  /// Divides by the largest second moment so far.
  bool amsgrad() const { return TorchOptions::amsgrad(); }
  BasicFusedAdamOptions& amsgrad(bool value) {
    return set([&] { TorchOptions::amsgrad(value); });
  }

  /// Climbs along the gradient. libtorch's optimizers have no such option.
  bool maximize() const { return maximize_; }
  BasicFusedAdamOptions& maximize(bool value) {
    return set([&] { maximize_ = value; });
  }

  /// As libtorch's options, and `maximize`, which an archive of libtorch's lacks and which is then
  /// false.
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

/// What FusedAdam and FusedAdamW keep of a parameter.
class MEZZO_API FusedAdamState : public torch::optim::OptimizerCloneableParamState<FusedAdamState> {
 public:
  at::Tensor step;            ///< float32, 0-dim: steps that moved it; exact up to 2^24
  at::Tensor exp_avg;         ///< first moment, like the parameter
  at::Tensor exp_avg_sq;      ///< second moment
  at::Tensor max_exp_avg_sq;  ///< undefined until a step with amsgrad

  /// The fields of torch::optim::AdamParamState. Writing synchronises.
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;

  /// Whether the moments have the parameter's shape.
  bool fits(const at::Tensor& parameter) const;
};

/// torch::optim::Adam or AdamW over at::_fused_adam_ or _fused_adamw_: the same results up to the
/// rounding of each operation, in float64 for float64 parameters and in float32 for float32 ones.
/// It takes the place of libtorch's by its name alone: the constructors take the same arguments,
/// and the options derive from libtorch's. Memory: two numbers a parameter, three with amsgrad.
template <class TorchOptions>
class MEZZO_API BasicFusedAdam : public FusedOptimizer {
 public:
  using Options = BasicFusedAdamOptions<TorchOptions>;

  /// Groups without options take the defaults. Throws InvalidArgument for options out of range or
  /// of another optimizer, and for parameters that are undefined or not leaves.
  explicit BasicFusedAdam(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                          const Options& defaults = {});
  explicit BasicFusedAdam(std::vector<at::Tensor> parameters, const Options& defaults = {});

  /// As the constructor does with its groups.
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  /// Writes what libtorch's optimizer of that name writes and reads, and `maximize`, which it does
  /// not read. Synchronises.
  void save(torch::serialize::OutputArchive& archive) const override;

  /// Continues bit for bit from what save() wrote, or from an archive of libtorch's optimizer. The
  /// groups must be as they were. State of before is forgotten. Throws IoError, changing nothing,
  /// where the archive does not fit.
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
