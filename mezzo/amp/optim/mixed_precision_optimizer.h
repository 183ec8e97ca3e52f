#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/amp/autocast/cpu_policy.h"
#include "mezzo/amp/precision.h"
#include "mezzo/amp/scaler/grad_scaler.h"
#include "mezzo/core/export.h"

namespace mezzo::amp {

class MasterWeights;

/// How 16-bit parameters accumulate updates below their rounding precision.
enum class ParameterRounding : std::uint8_t {
  kMasterWeights,  ///< updates a float32 copy; the parameter is the rounded copy
  kStochastic,     ///< bfloat16 only: no copy; updates are rounded up or down at random
};

/// Options of enable_mixed_precision.
struct MixedPrecisionOptions {
  Precision precision = Precision::kBFloat16;
  /// Device of all parameters.
  c10::Device device = c10::kCPU;
  /// Maximum Euclidean norm of all gradients together, > 0; unset: no clipping.
  std::optional<double> max_gradient_norm = std::nullopt;
  /// Micro-batches per step, >= 1. Each loss is divided by this number.
  std::int64_t accumulate = 1;
  /// Loss scaling, for every precision if set. Unset: LossScalePolicy::dynamic() if the precision
  /// or a parameter is float16, else no scaling.
  std::optional<LossScalePolicy> policy = std::nullopt;
  /// How float16 and bfloat16 parameters are updated.
  ParameterRounding rounding = ParameterRounding::kMasterWeights;
  /// Seed of ParameterRounding::kStochastic.
  std::uint64_t seed = 0;
  /// CPU policy of the scope.
  CpuPolicy cpu_policy = CpuPolicy::kMeasure;
};

/// An optimizer for mixed precision. minimize() opens the scope, scales the loss, unscales, clips,
/// steps and updates the scale:
///
///     auto optimizer = amp::enable_mixed_precision(adam, {.precision = amp::Precision::kFloat16});
///     loss = optimizer.minimize([&] { return torch::mse_loss(model->forward(x), y); });
///
/// The same in a custom loop:
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
/// Learning rates and groups stay in the wrapped optimizer, which must outlive this object and must
/// not be stepped directly. Float16 and bfloat16 parameters (model->to(...)) are updated in
/// float32; MasterWeights documents how, and the memory cost. Their gradients move to the float32
/// masters in the optimizer's groups: in backward() if `accumulate` > 1, else in unscale_() or
/// step(). master_parameters() always returns tensors with these gradients:
///
///     optimizer.backward(loss);
///     dist::all_reduce_gradients(optimizer.master_parameters(), group);  // several processes
///     optimizer.unscale_();
///     torch::nn::utils::clip_grad_norm_(optimizer.master_parameters(), 1.0);  // or the option
///     optimizer.step();
///
/// The model's 16-bit parameters have gradients only without accumulation, from backward() to the
/// next unscale_(), step(), save() or master_parameters(). They can be all-reduced there. After
/// unscale_(), clip_grad_norm_ on them silently does nothing.
///
/// An exception from the closure changes no parameter or state; one from a backward leaves part of
/// the gradients, one from a step all of them, until zero_grad(). If the step of minimize() threw,
/// the next minimize() calls zero_grad(). If the wrapped optimizer's step threw, it may have
/// updated some parameters.
///
/// Movable. Not thread-safe. Deterministic.
class MEZZO_API MixedPrecisionOptimizer {
 public:
  ~MixedPrecisionOptimizer();
  MixedPrecisionOptimizer(MixedPrecisionOptimizer&&) noexcept;
  MixedPrecisionOptimizer& operator=(MixedPrecisionOptimizer&&) noexcept;

  /// Runs `closure`, which returns the loss (floating, one element), in the precision's scope, and
  /// the backward; every `accumulate`-th call then unscales, clips and steps. The first call of a
  /// cycle drops the gradients of the previous cycle, even if its step() threw or was not called.
  /// Returns the detached loss of this call, neither scaled nor divided. Synchronises once per step
  /// if the loss is scaled, unless the optimizer is a FusedStep. Throws as backward(), step() and
  /// zero_grad() do.
  at::Tensor minimize(const std::function<at::Tensor()>& closure);

  /// Opens a scope of the precision on the device, for the forward.
  [[nodiscard]] PrecisionScope scope() const;

  /// Runs the backward of loss * scale / `accumulate`; accumulates gradients. Does not synchronise.
  /// Throws InvalidArgument for a loss that is undefined, not floating, not one element or without
  /// a graph, and for unsupported parameters in added groups: float16 without loss scaling or with
  /// stochastic rounding, and 16-bit parameters that already have a master; LogicError after
  /// `accumulate` calls without a step().
  void backward(const at::Tensor& loss);

  /// The tensors that a step updates, each once, in group order: float32 and float64 parameters,
  /// and the float32 masters of the others. Moves gradients of 16-bit parameters to the masters.
  /// Pass the result to dist::all_reduce_gradients before unscale_(), and to clip_grad_norm_ after
  /// it. Use only the gradients, not the values: a step rounds masters into the parameters, and
  /// masters are NaN under kStochastic. Does not synchronise. Throws InvalidArgument for parameters
  /// as backward() does.
  std::vector<at::Tensor> master_parameters();

  /// Unscales the gradients of master_parameters(). Optional; step() does it otherwise. Does not
  /// synchronise. Throws LogicError before any backward(), if called twice and if no parameter has
  /// a gradient; InvalidArgument for parameters as backward() does.
  void unscale_();

  /// Unscales, unless unscale_() was called; clips; steps if every gradient is finite or the loss
  /// is not scaled; rounds 16-bit parameters; updates the scale. Steps with the gradients so far,
  /// even before the `accumulate`-th backward. A FusedStep optimizer decides on the device:
  /// kDeferred. Otherwise synchronises once if the loss is scaled. Throws LogicError if no
  /// backward() ran since the last step and if no parameter has a gradient; InvalidArgument for
  /// parameters as backward() does; NumericError under the policy's at_floor, after the step.
  StepOutcome step();

  /// Drops all gradients and starts an accumulation cycle. After unscale_() without step(), updates
  /// the scale by the result of unscale_(), as the last action; see GradScaler::update for
  /// synchronisation and NumericError.
  void zero_grad();

  /// Number of step() calls, including skipped ones.
  std::int64_t steps() const { return steps_; }

  /// Number of steps skipped for inf or nan gradients. Synchronises for a FusedStep.
  std::int64_t skipped_steps() const { return scaler_.skipped_steps(); }

  /// The scaler; disabled if the loss is not scaled.
  GradScaler& scaler() { return scaler_; }
  const GradScaler& scaler() const { return scaler_; }

  /// The float32 copies of 16-bit parameters.
  const MasterWeights& master_weights() const { return *masters_; }

  /// Writes the wrapped optimizer's state, the scale, the masters, the counters and the gradients
  /// of an unfinished accumulation. With the model's parameters, a run continues bit for bit. Like
  /// a step, it first creates masters for 16-bit parameters of added groups, moves gradients as
  /// master_parameters() does, and updates masters of parameters that were changed outside.
  /// Synchronises. Throws LogicError between unscale_() and step(), and for sparse gradients of an
  /// unfinished accumulation; InvalidArgument for parameters as backward() does.
  void save(torch::serialize::OutputArchive& archive) const;

  /// Reads what save() wrote, into an object with the same options and groups. Rounds masters into
  /// the parameters; load all other parameters with the model, before or after. Drops current
  /// gradients. Throws IoError if a field is missing or has the wrong type, InvalidArgument if the
  /// state belongs to other parameters or options, NumericError as zero_grad() does, before the
  /// state is replaced.
  void load(torch::serialize::InputArchive& archive);

 private:
  /// Releases an optimizer, so that another object may wrap it.
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
  std::int64_t micro_batches_ = 0;  // backward() calls since the last step
  bool unscaled_ = false;
  std::int64_t steps_ = 0;
};

/// Wraps any optimizer but LBFGS, including fused ones. Throws InvalidArgument, before any change,
/// for options out of range or without effect, for LBFGS, for an optimizer without parameters or
/// with parameters that are not float32, float64, bfloat16 or float16 or not on `options.device`;
/// LogicError if it is already wrapped.
MEZZO_API MixedPrecisionOptimizer enable_mixed_precision(torch::optim::Optimizer& optimizer,
                                                         const MixedPrecisionOptions& options = {});

/// Lets an optimizer update 16-bit parameters in float32.
///
/// While this object lives, the optimizer's groups hold a float32 master tensor instead of each
/// float16 or bfloat16 parameter. Gradients, moments and updates are float32, so any optimizer
/// works. The model keeps its tensors: a step rounds the masters into them in place. float32 and
/// float64 parameters are not changed. Existing optimizer state of a 16-bit parameter moves to its
/// master as float32. The destructor puts the parameters and the current state back.
///
/// Bytes per element of a 16-bit parameter, without the optimizer's float32 moments (Adam: 8):
///
///                        parameter  its gradient  master   gradient of the master
///     kMasterWeights     2          2             4        4
///     kStochastic        2          2             4 (step) 4
///
/// The parameter's gradient lives until collect_gradients(), the master's from then to the end of
/// the step. "(step)" means from begin_step() to end_step(): at other times a kStochastic master
/// has its parameter's shape but the memory of one element, NaN.
///
/// The order: backward, collect_gradients(), [unscale, clip: on the optimizer's gradients],
/// begin_step(), optimizer.step(), end_step(). MixedPrecisionOptimizer does this. The optimizer
/// must outlive the object. Not thread-safe. Deterministic.
class MEZZO_API MasterWeights {
 public:
  /// Replaces 16-bit parameters in the groups of `optimizer`. seed: for stochastic rounding. Throws
  /// InvalidArgument, before any change, for a float16 parameter under kStochastic and if the state
  /// of a 16-bit parameter cannot be read (then create the object before the first step).
  MasterWeights(torch::optim::Optimizer& optimizer, ParameterRounding rounding,
                std::uint64_t seed = 0);
  ~MasterWeights();

  MasterWeights(const MasterWeights&) = delete;
  MasterWeights& operator=(const MasterWeights&) = delete;

  /// Creates masters for 16-bit parameters added to the groups since. Throws as the constructor
  /// does.
  void adopt();

  /// Adds the gradients of the 16-bit parameters to the masters' gradients, in float32, and frees
  /// them. A sum of sparse gradients is sparse.
  void collect_gradients();

  /// Copies parameter elements that were changed since the last rounding (weights loaded into the
  /// model, clamp_()) to the masters; other elements of the masters keep their low bits. Does not
  /// synchronise; costs nothing for parameters that were not written. No effect under kStochastic.
  void follow_parameters();

  /// Prepares the masters for the step: copies the parameters under kStochastic, else calls
  /// follow_parameters(). Does not synchronise.
  void begin_step();

  /// Rounds the masters into the parameters, to nearest or at random, and frees the gradients of
  /// the masters. Exact if the optimizer skipped the step. step: part of the random key.
  void end_step(std::uint64_t step);

  /// Frees the gradients of the 16-bit parameters; the optimizer frees the masters' gradients.
  void zero_grad();

  /// Number of parameters with a master.
  std::size_t size() const { return entries_.size(); }

  /// The 16-bit parameters, in the order of the groups at adoption.
  std::vector<at::Tensor> parameters() const;

  /// The float32 masters, in that order; empty under kStochastic.
  std::vector<at::Tensor> masters() const;

  /// The model's tensor for `member` of the groups: the parameter of a master, else `member`
  /// itself.
  const at::Tensor& original(const at::Tensor& member) const;

  /// Whether `masters` are float32 with the number and shapes of masters().
  bool fits(const std::vector<at::Tensor>& masters) const;

  /// Restores masters from a checkpoint and rounds them into the parameters. Throws
  /// InvalidArgument, before any change, unless they fit().
  void restore(const std::vector<at::Tensor>& masters);

  ParameterRounding rounding() const { return rounding_; }
  std::uint64_t seed() const { return seed_; }
  void set_seed(std::uint64_t seed) { seed_ = seed; }

 private:
  struct Entry {
    at::Tensor parameter, master;
    std::int64_t version = 0;  // version of the parameter when last written here
    at::Tensor written = {};   // its memory then; the reference prevents reuse of the address
  };

  void record_version(Entry& entry) const;
  void round_to_nearest(Entry& entry) const;

  torch::optim::Optimizer* optimizer_;
  ParameterRounding rounding_;
  std::uint64_t seed_;
  std::vector<Entry> entries_;
};

/// Key of the random numbers: equal keys draw equal numbers.
struct RoundingKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;       ///< training step, below 2^40
  std::uint64_t parameter = 0;  ///< index in the optimizer, below 2^24
};

/// Rounds `values` (float32) to `rounded` (bfloat16, same shape and device), each to one of its two
/// bfloat16 neighbours at random: P(up) is exactly the distance from the lower neighbour over the
/// gap, with 16 random bits. Up to bfloat16's largest number the expected result is the value, so
/// small updates survive on average. Representable values, infinities and NaN do not change; above
/// bfloat16's largest number the upper neighbour is infinity.
///
/// The bits are Philox of (seed, step, parameter, row-major index of the element): the same on
/// every device, for any number of threads and any strides. Writes in place and bumps autograd's
/// version counter. On the CPU one pass without allocation if both are contiguous; otherwise about
/// 120 elementwise operations on int64 tensors of half the elements. Does not synchronise. Throws
/// InvalidArgument for other dtypes, different shapes, a key out of range and during capture of a
/// step.
MEZZO_API void round_stochastically(const at::Tensor& values, const at::Tensor& rounded,
                                    const RoundingKey& key);

/// Same, by libtorch operations that exist on every device, including the CPU.
MEZZO_API void round_stochastically_by_operations(const at::Tensor& values,
                                                  const at::Tensor& rounded,
                                                  const RoundingKey& key);

}  // namespace mezzo::amp
