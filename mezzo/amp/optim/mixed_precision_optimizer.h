#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/amp/autocast/cpu_policy.h"
#include "mezzo/amp/optim/master_weights.h"
#include "mezzo/amp/precision.h"
#include "mezzo/amp/scaler/grad_scaler.h"
#include "mezzo/core/export.h"

namespace mezzo::amp {

/// Options of enable_mixed_precision.
struct MixedPrecisionOptions {
  Precision precision = Precision::kBFloat16;
  /// Where every parameter lies.
  c10::Device device = c10::kCPU;
  /// The Euclidean norm that all gradients together are clipped to, > 0; unset: no clipping.
  std::optional<double> max_gradient_norm = std::nullopt;
  /// Micro-batches whose gradients make one step, >= 1. Each loss counts 1/accumulate.
  std::int64_t accumulate = 1;
  /// Scales the loss, under every precision if it is set. Unset: LossScalePolicy::dynamic() where
  /// the precision or a parameter is float16, and none elsewhere.
  std::optional<LossScalePolicy> policy = std::nullopt;
  /// How float16 and bfloat16 parameters, if there are any, are updated.
  ParameterRounding rounding = ParameterRounding::kMasterWeights;
  /// Of ParameterRounding::kStochastic.
  std::uint64_t seed = 0;
  /// Of the scope.
  CpuPolicy cpu_policy = CpuPolicy::kMeasure;
};

/// An optimizer that trains in mixed precision: the scope, the scaling of the loss, unscaling,
/// clipping, the step and the update of the scale are in minimize():
///
///     auto optimizer = amp::enable_mixed_precision(adam, {.precision = amp::Precision::kFloat16});
///     loss = optimizer.minimize([&] { return torch::mse_loss(model->forward(x), y); });
///
/// The same by hand, for a loop of one's own:
///
///     optimizer.zero_grad();
///     at::Tensor loss;
///     {
///       const amp::PrecisionScope scope = optimizer.scope();
///       loss = torch::mse_loss(model->forward(x), y);
///     }
///     optimizer.backward(loss);  // instead of loss.backward()
///     optimizer.unscale_();      // only if the gradients are read
///     optimizer.step();
///
/// Learning rates and groups stay those of the wrapped optimizer, which must outlive this object
/// and, until then, is not stepped by itself. Float16 and bfloat16 parameters (model->to(...)) are
/// updated in float32: MasterWeights says how, and what memory it takes. Their gradients move to
/// the masters, which the optimizer's groups hold, in float32: by each backward() where
/// `accumulate` is above 1, else by unscale_() or step(). What master_parameters() returns has them
/// in any case:
///
///     optimizer.backward(loss);
///     dist::all_reduce_gradients(optimizer.master_parameters(), group);  // several processes
///     optimizer.unscale_();
///     torch::nn::utils::clip_grad_norm_(optimizer.master_parameters(), 1.0);  // or the option
///     optimizer.step();
///
/// The model's own 16-bit parameters have gradients only from a backward() without accumulation to
/// the next unscale_(), step(), save() or master_parameters(). There they serve for an all-reduce;
/// after unscale_() clip_grad_norm_ would find none in them, in silence.
///
/// An exception from a closure leaves parameters and state as they were; one from a backward leaves
/// part of the gradients, and one from a step all of them, until zero_grad() drops them. After a
/// minimize() whose step threw the next one does that by itself. An optimizer that threw in its own
/// step may have moved some parameters.
///
/// Movable. Not thread-safe. Deterministic.
class MEZZO_API MixedPrecisionOptimizer {
 public:
  ~MixedPrecisionOptimizer();
  MixedPrecisionOptimizer(MixedPrecisionOptimizer&&) noexcept;
  MixedPrecisionOptimizer& operator=(MixedPrecisionOptimizer&&) noexcept;

  /// Runs `closure`, which returns the loss (floating, one element), in the precision's scope, and
  /// its backward; at every `accumulate`-th call then unscales, clips and steps. The first call of
  /// such a cycle drops the gradients of the cycle before, also of one whose step() threw or was
  /// left out. Returns the loss of this call, neither scaled nor divided, detached. Synchronises
  /// once if the loss is scaled, by which a step is decided, unless the optimizer is a FusedStep.
  /// Throws as backward(), step() and zero_grad() do.
  at::Tensor minimize(const std::function<at::Tensor()>& closure);

  /// A region of the precision on the device, for the forward.
  [[nodiscard]] PrecisionScope scope() const;

  /// The backward of the loss times the scale over `accumulate`; sums into the gradients. Does not
  /// synchronise. Throws InvalidArgument for a loss that is undefined, not floating, not of one
  /// element or without a graph, and for parameters in groups added since that cannot be taken:
  /// float16 ones where nothing is scaled or rounding is stochastic, and 16-bit ones that have a
  /// master already; LogicError after `accumulate` calls without a step().
  void backward(const at::Tensor& loss);

  /// The tensors that a step moves, each once, in the order of the groups: float32 and float64
  /// parameters themselves, the float32 masters of the others. Moves gradients of 16-bit parameters
  /// there, so all that backward() has summed up lies in theirs: what to hand to
  /// dist::all_reduce_gradients before unscale_(), and to clip_grad_norm_ after it. To read or
  /// change the gradients of, not the numbers: masters are rounded into the parameters by a step,
  /// and are NaN under kStochastic. Does not synchronise. Throws InvalidArgument for parameters as
  /// backward() does.
  std::vector<at::Tensor> master_parameters();

  /// Makes the gradients of master_parameters() the true ones: once before a step(), which else
  /// does it itself. Does not synchronise. Throws LogicError before any backward(), if called twice
  /// and where no parameter has a gradient; InvalidArgument for parameters as backward() does.
  void unscale_();

  /// Unscales, unless unscale_() has done so; clips; steps if every gradient is finite or nothing
  /// is scaled; rounds 16-bit parameters; moves the scale. Steps with what has been summed up, also
  /// before the `accumulate`-th backward. An optimizer that is a FusedStep decides on the device:
  /// kDeferred. Synchronises once otherwise, if the loss is scaled. Throws LogicError before any
  /// backward() since the last step and where no parameter has a gradient; InvalidArgument for
  /// parameters as backward() does; NumericError as the policy's at_floor says, after the step.
  StepOutcome step();

  /// Drops every gradient and starts a cycle of accumulation. After an unscale_() without a step()
  /// the scale moves by what unscale_() found, for which a policy may synchronise or, with all that
  /// done, throw NumericError, as GradScaler::update says.
  void zero_grad();

  /// Calls of step(), skipped ones included.
  std::int64_t steps() const { return steps_; }

  /// Steps that inf or nan gradients made the scaler skip. Synchronises for a FusedStep.
  std::int64_t skipped_steps() const { return scaler_.skipped_steps(); }

  /// The scaler, disabled where nothing is scaled.
  GradScaler& scaler() { return scaler_; }
  const GradScaler& scaler() const { return scaler_; }

  /// The float32 copies of 16-bit parameters.
  const MasterWeights& master_weights() const { return *masters_; }

  /// Writes the state: the wrapped optimizer's, the scale, the masters, the counters, the gradients
  /// of an unfinished accumulation. With the model's parameters it makes a run that continues bit
  /// for bit. As the next step would, it first gives masters to 16-bit parameters of groups that
  /// were added, moves gradients there as master_parameters() does, and has masters follow
  /// parameters that were changed from outside. Synchronises. Throws LogicError between unscale_()
  /// and step(), and for sparse gradients of an unfinished accumulation; InvalidArgument for
  /// parameters as backward() does.
  void save(torch::serialize::OutputArchive& archive) const;

  /// Reads what save() wrote, into an object of the same options and groups. Masters are rounded
  /// into the parameters; all others are the model's to load, before or after. Gradients at hand
  /// are dropped. Throws IoError where a field is missing or of another form, InvalidArgument where
  /// the state is of other parameters or options, NumericError as zero_grad() does, before the
  /// state is taken over.
  void load(torch::serialize::InputArchive& archive);

 private:
  /// Ends the claim on an optimizer that no second object may wrap.
  struct Release {
    void operator()(torch::optim::Optimizer* optimizer) const;
  };

  MixedPrecisionOptimizer(torch::optim::Optimizer& optimizer, const MixedPrecisionOptions& options);
  friend MEZZO_API MixedPrecisionOptimizer
  enable_mixed_precision(torch::optim::Optimizer& optimizer, const MixedPrecisionOptions& options);

  void adopt() const;
  void require_gradients(const char* caller) const;

  MixedPrecisionOptions options_;
  std::unique_ptr<torch::optim::Optimizer, Release> optimizer_;
  std::unique_ptr<MasterWeights> masters_;
  GradScaler scaler_;
  std::int64_t micro_batches_ = 0;  // backwards since the last step
  bool unscaled_ = false;
  std::int64_t steps_ = 0;
};

/// Wraps `optimizer`, of any kind but LBFGS, fused ones included. Throws InvalidArgument, before
/// anything is changed, for options out of range or without effect, for LBFGS, for an optimizer
/// without parameters or with parameters of a dtype that is not float32, float64, bfloat16 or
/// float16 or not on `options.device`; LogicError for one that is wrapped already.
MEZZO_API MixedPrecisionOptimizer enable_mixed_precision(torch::optim::Optimizer& optimizer,
                                                         const MixedPrecisionOptions& options = {});

}  // namespace mezzo::amp
