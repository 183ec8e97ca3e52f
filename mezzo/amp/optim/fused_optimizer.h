#pragma once

#include <memory>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>

#include "mezzo/core/export.h"

namespace mezzo::amp {

/// Interface of optimizers whose kernels unscale the gradients and skip steps on the device, so
/// that GradScaler::step does not synchronise.
class MEZZO_API FusedStep {
 public:
  virtual ~FusedStep();

  /// Runs one step. Divides the gradients by `grad_scale` in place (float32, 0-dim; undefined:
  /// already unscaled). If `found_inf` (float32, 0-dim; undefined: 0) is nonzero, changes nothing:
  /// neither parameters nor gradients, moments and step counts. Synchronises only to copy the two
  /// from an accelerator to CPU parameters. Throws InvalidArgument for another dtype or shape.
  virtual void fused_step(const at::Tensor& grad_scale, const at::Tensor& found_inf) = 0;

 protected:
  FusedStep() = default;
  FusedStep(const FusedStep&) = default;
  FusedStep& operator=(const FusedStep&) = default;
  FusedStep(FusedStep&&) = default;
  FusedStep& operator=(FusedStep&&) = default;
};

/// Options of a fused optimizer: libtorch's options (convertible) and `maximize`. As in libtorch,
/// setters return the options for chaining:
///
///     FusedAdamOptions(1e-3).betas({0.9, 0.95}).maximize(true)
///
/// The optimizer checks the values.
template <class Options, class TorchOptions>
class MEZZO_API FusedOptions : public TorchOptions {
 public:
  /// The learning rate: >= 0, finite.
  double lr() const { return TorchOptions::lr(); }
  Options& lr(double value) { return set(TorchOptions::lr(), value); }

  /// Weight decay: >= 0, finite. Adam and SGD add weight_decay * parameter to the gradient; AdamW
  /// multiplies the parameter by 1 - lr * weight_decay.
  double weight_decay() const { return TorchOptions::weight_decay(); }
  Options& weight_decay(double value) { return set(TorchOptions::weight_decay(), value); }

  /// Whether to maximize the objective. libtorch's optimizers lack this option.
  bool maximize() const { return maximize_; }
  Options& maximize(bool value) { return set(maximize_, value); }

  /// The fields of libtorch's options, and `maximize`, which is false when reading libtorch's
  /// files.
  void serialize(torch::serialize::InputArchive& archive) override {
    TorchOptions::serialize(archive);
    c10::IValue value;
    maximize_ = archive.try_read("maximize", value) && value.toBool();
  }
  void serialize(torch::serialize::OutputArchive& archive) const override {
    TorchOptions::serialize(archive);
    archive.write("maximize", c10::IValue(maximize_));
  }

 protected:
  FusedOptions(const TorchOptions& options) : TorchOptions(options) {}

  template <class Value>
  Options& set(Value& option, const Value& value) {
    option = value;
    return static_cast<Options&>(*this);
  }

 private:
  std::unique_ptr<torch::optim::OptimizerOptions> clone() const override {
    return std::make_unique<Options>(static_cast<const Options&>(*this));
  }

  bool maximize_ = false;
};

/// Options of FusedAdam (with torch::optim::AdamOptions) and FusedAdamW (with AdamWOptions).
template <class TorchOptions>
class MEZZO_API BasicFusedAdamOptions
    : public FusedOptions<BasicFusedAdamOptions<TorchOptions>, TorchOptions> {
 public:
  using Betas = std::tuple<double, double>;

  BasicFusedAdamOptions(double learning_rate = 1e-3)
      : BasicFusedAdamOptions(TorchOptions(learning_rate)) {}
  BasicFusedAdamOptions(const TorchOptions& options)
      : FusedOptions<BasicFusedAdamOptions, TorchOptions>(options) {}

  /// Decay rates of the running means of the gradient and of its square, in [0, 1).
  Betas betas() const { return TorchOptions::betas(); }
  BasicFusedAdamOptions& betas(const Betas& value) {
    return this->set(TorchOptions::betas(), value);
  }

  /// Added to the square root of the second moment; >= 0, finite.
  double eps() const { return TorchOptions::eps(); }
  BasicFusedAdamOptions& eps(double value) { return this->set(TorchOptions::eps(), value); }

  /// Whether to divide by the largest second moment so far.
  bool amsgrad() const { return TorchOptions::amsgrad(); }
  BasicFusedAdamOptions& amsgrad(bool value) { return this->set(TorchOptions::amsgrad(), value); }
};

/// Options of FusedSGD.
class MEZZO_API FusedSGDOptions : public FusedOptions<FusedSGDOptions, torch::optim::SGDOptions> {
 public:
  FusedSGDOptions(double learning_rate) : FusedOptions(SGDOptions(learning_rate)) {}
  FusedSGDOptions(const torch::optim::SGDOptions& options) : FusedOptions(options) {}

  /// Momentum factor: >= 0, finite. 0: no momentum buffer.
  double momentum() const { return SGDOptions::momentum(); }
  FusedSGDOptions& momentum(double value) { return set(SGDOptions::momentum(), value); }

  /// Gradients enter the buffer scaled by 1 - dampening (finite); the first one enters unscaled. If
  /// steps may be skipped, a dampening other than 0 costs two kernel calls per parameter.
  double dampening() const { return SGDOptions::dampening(); }
  FusedSGDOptions& dampening(double value) { return set(SGDOptions::dampening(), value); }

  /// Whether to use gradient + momentum * buffer as the update, instead of the buffer. Requires
  /// momentum > 0 and dampening 0.
  bool nesterov() const { return SGDOptions::nesterov(); }
  FusedSGDOptions& nesterov(bool value) { return set(SGDOptions::nesterov(), value); }
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

/// State of FusedSGD for one parameter, if momentum > 0.
class MEZZO_API FusedSGDState : public torch::optim::OptimizerCloneableParamState<FusedSGDState> {
 public:
  at::Tensor momentum_buffer;  ///< shaped like the parameter
  /// float32, 0-dim: 1 while every step was skipped and the buffer is empty; undefined once the
  /// buffer is known to be filled.
  at::Tensor empty;

  /// Same field as torch::optim::SGDParamState. Writing synchronises.
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;

  /// Whether the buffer has the parameter's shape.
  bool fits(const at::Tensor& parameter) const;
};

struct FusedBatch;  // arguments of one kernel call

/// Base class of FusedAdam, FusedAdamW and FusedSGD: updates all parameters of a group with one
/// call of libtorch's fused kernels, while torch::optim makes a dozen calls per parameter.
///
/// Skips parameters without a gradient. Parameters may differ in device, dtype and memory layout.
/// They must be float32 or float64: for 16-bit parameters the kernels would store moments in 16
/// bits, which lose a decay of 0.999 and small updates to rounding. For 16-bit parameters call
/// enable_mixed_precision, which keeps float32 master weights.
///
/// Closures, groups, state(), learning rate schedulers, torch::save and torch::load work as for
/// every libtorch optimizer. A step clears autocast's cache, so that an open region sees the new
/// weights. Deterministic on the CPU for any number of threads. Not thread-safe.
class MEZZO_API FusedOptimizer : public torch::optim::Optimizer, public FusedStep {
 public:
  /// Runs one step. closure: computes the gradients and returns the loss, which step() returns;
  /// without it the result is undefined. Allocates the state at a parameter's first step. Does not
  /// synchronise. Copies gradients whose memory layout differs from their parameter's. Throws
  /// InvalidArgument, before any change, for parameters or gradients that are sparse, complex or
  /// 16-bit, parameters that overlap or have holes in memory, expanded gradients, gradients whose
  /// dtype or device differs from their parameter's, a parameter listed twice and options out of
  /// range.
  at::Tensor step(LossClosure closure = nullptr) override;

  /// See FusedStep. Throws as step() does.
  void fused_step(const at::Tensor& grad_scale, const at::Tensor& found_inf) override;

 protected:
  using torch::optim::Optimizer::Optimizer;

 private:
  virtual const char* name() const = 0;
  virtual void check_options(const torch::optim::OptimizerOptions& options) const = 0;
  virtual void step_batch(const FusedBatch& batch) = 0;

  std::vector<FusedBatch> make_batches() const;
};

/// torch::optim::Adam, AdamW or SGD on libtorch's fused kernels: same results up to rounding.
/// Computes in the parameter's dtype, float32 or float64. A drop-in replacement: same constructor
/// arguments, and options derived from libtorch's. Numbers per element: Adam and AdamW two, three
/// with amsgrad; SGD one if momentum > 0.
template <class Options>
class MEZZO_API BasicFusedOptimizer : public FusedOptimizer {
 public:
  /// Groups without options use the defaults, which FusedSGD requires. Throws InvalidArgument for
  /// options out of range or of another optimizer, and for parameters that are undefined or not
  /// leaves.
  explicit BasicFusedOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                               const Options& defaults = {});
  explicit BasicFusedOptimizer(std::vector<at::Tensor> parameters, const Options& defaults = {});

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

/// Options of FusedAdam and FusedAdamW.
using FusedAdamOptions = BasicFusedAdamOptions<torch::optim::AdamOptions>;
using FusedAdamWOptions = BasicFusedAdamOptions<torch::optim::AdamWOptions>;
/// libtorch's Adam, AdamW and SGD, see FusedOptimizer.
using FusedAdam = BasicFusedOptimizer<FusedAdamOptions>;
using FusedAdamW = BasicFusedOptimizer<FusedAdamWOptions>;
using FusedSGD = BasicFusedOptimizer<FusedSGDOptions>;

extern template class BasicFusedOptimizer<FusedAdamOptions>;
extern template class BasicFusedOptimizer<FusedAdamWOptions>;
extern template class BasicFusedOptimizer<FusedSGDOptions>;

}  // namespace mezzo::amp
