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

/// How 16-bit parameters take updates that are smaller than the gap to their neighbours.
enum class ParameterRounding : std::uint8_t {
  kMasterWeights,  ///< a float32 copy of each is kept and updated; the parameter is that, rounded
  kStochastic,     ///< bfloat16 only: no copy is kept; an update is rounded up or down at random
};

/// Lets an optimizer update 16-bit parameters in float32.
///
/// While it lives, the optimizer's groups hold a float32 tensor, the master, in the place of each
/// float16 or bfloat16 parameter, so that gradients, moments and updates are float32 and any
/// optimizer works. The model keeps its own tensors: a step rounds into them in place. float32
/// and float64 parameters of the same optimizer stay as they are. State that the optimizer has for
/// a 16-bit parameter goes to its master as float32. The end of the object puts the parameters
/// back, with the state as it then is.
///
/// Bytes for each element of a 16-bit parameter, beside the optimizer's float32 moments (Adam: 8):
///
///                        parameter  its gradient  master   gradient of the master
///     kMasterWeights     2          2             4        4
///     kStochastic        2          2             4 (step) 4
///
/// The gradient of the parameter lives until collect_gradients(), that of the master from there to
/// the end of the step, and "(step)" from begin_step() to end_step(): at other times a master of
/// kStochastic has its parameter's shape, the memory of one number, and NaN everywhere.
///
/// The order: backward, collect_gradients(), [unscale, clip: on the optimizer's gradients],
/// begin_step(), optimizer.step(), end_step(). MixedPrecisionOptimizer does it. The optimizer must
/// outlive the object. Not thread-safe. Deterministic.
class MEZZO_API MasterWeights {
 public:
  /// Re-points the groups of `optimizer`. seed: of stochastic rounding. Throws InvalidArgument,
  /// before anything is changed, for a float16 parameter under kStochastic and where the state of a
  /// 16-bit parameter cannot be read (then: make the object before the first step).
  MasterWeights(torch::optim::Optimizer& optimizer, ParameterRounding rounding,
                std::uint64_t seed = 0);
  ~MasterWeights();

  MasterWeights(const MasterWeights&) = delete;
  MasterWeights& operator=(const MasterWeights&) = delete;

  /// Gives masters to the 16-bit parameters that were added to the groups since. Throws as the
  /// constructor does.
  void adopt();

  /// Adds the gradients of the 16-bit parameters to those of the masters, in float32, and drops
  /// them. Sparse gradients have a sparse sum, until a dense one comes.
  void collect_gradients();

  /// Elements of parameters that were changed from outside since they were last rounded, such as by
  /// weights loaded into the model or by clamp_(), replace those of the masters; the others keep
  /// their low bits. Does not synchronise; costs nothing for parameters that nobody wrote to.
  /// Nothing to do under kStochastic.
  void follow_parameters();

  /// Makes the masters hold what the step has to start from: under kStochastic the parameters, else
  /// what follow_parameters() leaves. Does not synchronise.
  void begin_step();

  /// Rounds the masters into the parameters, to nearest or at random, and drops the gradients of
  /// the masters. Exact where the optimizer skipped the step. step: numbers the draws.
  void end_step(std::uint64_t step);

  /// Drops the gradients of the 16-bit parameters; those of the masters are the optimizer's to
  /// drop.
  void zero_grad();

  /// How many parameters have a master.
  std::size_t size() const { return entries_.size(); }

  /// The 16-bit parameters, in the order of the groups at adoption.
  std::vector<at::Tensor> parameters() const;

  /// The float32 masters, in that order; none under kStochastic, which keeps none.
  std::vector<at::Tensor> masters() const;

  /// The model's tensor that `member` of the groups stands for: its parameter if it is a master,
  /// else itself.
  const at::Tensor& original(const at::Tensor& member) const;

  /// Whether `masters` are float32 and have the number and shapes of masters().
  bool fits(const std::vector<at::Tensor>& masters) const;

  /// Sets the masters, those of a checkpoint, and rounds them into the parameters. Throws
  /// InvalidArgument, before anything is changed, unless they fit.
  void restore(const std::vector<at::Tensor>& masters);

  ParameterRounding rounding() const { return rounding_; }
  std::uint64_t seed() const { return seed_; }
  void set_seed(std::uint64_t seed) { seed_ = seed; }

 private:
  struct Entry {
    at::Tensor parameter, master;
    std::int64_t version = 0;  // of the parameter, when it was last written here, and
    at::Tensor written = {};   // the memory it then lay in, kept so that no other takes the address
  };

  void note(Entry& entry) const;
  void round_to_nearest(Entry& entry) const;

  torch::optim::Optimizer* optimizer_;
  ParameterRounding rounding_;
  std::uint64_t seed_;
  std::vector<Entry> entries_;
};

}  // namespace mezzo::amp
