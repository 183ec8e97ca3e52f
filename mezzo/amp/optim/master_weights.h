#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace torch::optim {
class Optimizer;  // its header costs seconds
}

namespace mezzo::amp {

/// How 16-bit parameters accumulate updates below their rounding precision.
enum class ParameterRounding : std::uint8_t {
  kMasterWeights,  ///< updates a float32 copy; the parameter is the rounded copy
  kStochastic,     ///< bfloat16 only: no copy; updates are rounded up or down at random
};

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

  /// Adds the gradients of the 16-bit parameters to those of the masters, in float32, and frees
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

  /// Frees the gradients of the 16-bit parameters; the optimizer frees those of the masters.
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

  void note(Entry& entry) const;
  void round_to_nearest(Entry& entry) const;

  torch::optim::Optimizer* optimizer_;
  ParameterRounding rounding_;
  std::uint64_t seed_;
  std::vector<Entry> entries_;
};

}  // namespace mezzo::amp
