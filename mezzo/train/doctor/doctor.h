#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "mezzo/amp/watch/watch.h"
#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"
#include "mezzo/train/options.h"
#include "mezzo/train/trainer.h"

namespace mezzo {

/// What to diagnose.
struct DoctorOptions {
  /// The job. Precision, loss scale, parts in float32, epochs, patience, capture and files must
  /// have their defaults: the doctor chooses or does not use them.
  TrainOptions training;
  std::int64_t steps = 20;  ///< of each run, >= 1
};

/// How the floating outputs of a place in the model fit the range of their type; shares of
/// `elements`.
struct PlaceShares {
  std::string place;  ///< "layer0", "after layer1"
  amp::Pass pass = amp::Pass::kForward;
  std::int64_t elements = 0;
  double flushed = 0;     ///< zero by underflow, for operations that amp::Watch checks
  double subnormal = 0;   ///< subnormal
  double near_top = 0;    ///< at least a sixteenth of the largest number
  double non_finite = 0;  ///< inf or nan
};

/// An operation that flushed at least 1 % of its outputs to zero.
struct FlushingOp {
  std::string op;
  amp::WatchPlace place;
  double share = 0;
};

/// Some steps of the job with one precision, loss scale and parts in float32.
struct DoctorRun {
  amp::Precision precision = amp::Precision::kFloat32;
  LossScale loss_scale;
  std::vector<std::string> keep_float32;

  std::vector<double> losses;  ///< one a step; fewer if the weights became nan
  std::int64_t skipped_steps = 0;
  std::int64_t skipped_at_end = 0;  ///< of the last quarter of the steps
  double final_loss_scale = 1;
  /// Median of steps without amp::Watch, without skipped ones; nan if all were skipped.
  double step_ms = 0;
  std::int64_t peak_memory_bytes = 0;  ///< of these steps, with the data
  /// Absolute difference to float32's mean loss over the last quarter of the steps, divided by
  /// float32's first loss; inf if one of them is not finite.
  double loss_difference = std::numeric_limits<double>::infinity();

  /// Of the outputs in the 16-bit type, or in float32 for fp32; in the order of first use.
  std::vector<PlaceShares> places;
  /// Where finite numbers first became inf or nan; in the backward this is normal while a dynamic
  /// scale settles.
  std::optional<amp::WatchExit> forward_exit, backward_exit;
  std::optional<FlushingOp> flushing;  ///< the first in the backward

  /// The options of `mezzo train`: "--precision fp16 --loss-scale 1024 --keep-float32 layer0".
  MEZZO_API std::string options() const;
};

/// Something that went wrong in a run, and the options of `mezzo train` that fix it.
struct Issue {
  enum class Kind : std::uint8_t {
    kDivergence,  ///< in float32 too: not caused by the precision
    kOverflow,    ///< a forward operation left the range
    kUnderflow,   ///< gradients became zero
    kSkipped,     ///< steps were skipped while the scale settled
    kLoss,        ///< the losses differ from float32's
  };
  Kind kind = Kind::kOverflow;
  std::size_t run = 0;    ///< index of the run
  std::string op, place;  ///< of kOverflow and kUnderflow
  std::string evidence;   ///< one sentence
  std::string fix;        ///< options, or one sentence; empty: nothing to do
};

/// The best options found for a precision.
struct Candidate {
  amp::Precision precision = amp::Precision::kFloat32;
  std::size_t run = 0;   ///< index of the run with these options
  bool suited = false;   ///< it trained like float32
  std::string evidence;  ///< one sentence
};

/// The gradients of the parameters in float32, of all steps together.
struct GradientFacts {
  std::vector<amp::GradientRow> rows;    ///< one a parameter, without `half`
  std::vector<double> largest_per_step;  ///< finite ones
  double largest = 0;                    ///< absolute, of all
  double smallest = 0;                   ///< absolute, not 0
  double needed_loss_scale = 1;  ///< power of two that keeps 99.9 % of them exact in float16
  double kept_unscaled = 1;      ///< share that float16 keeps without a loss scale
};

/// The CUDA devices of this machine, whatever device the job runs on.
struct CudaFacts {
  std::int64_t devices = 0;  ///< that the library can use
  std::string library;       ///< file of the CUDA kernels; empty if not searched
  std::string problem;       ///< why there are no devices, on one line; else empty
};

/// The result of diagnose(). Plain values.
struct Diagnosis {
  std::string dataset, model, device;
  CudaFacts cuda;
  std::uint64_t seed = 0;
  std::int64_t threads = 1;
  std::int64_t steps = 0;

  std::vector<DoctorRun> runs;  ///< the first is fp32
  GradientFacts gradients;
  std::vector<Issue> issues;               ///< empty: nothing was wrong
  std::vector<Candidate> candidates;       ///< fp32, bf16, fp16
  std::optional<std::size_t> recommended;  ///< index in `candidates`; nullopt if fp32 diverges
  std::vector<std::string> reasons;        ///< for the recommendation, one sentence each
  bool interrupted = false;                ///< only `runs` is set, to the complete ones
};

/// Callbacks of diagnose(); empty ones are skipped.
struct DoctorCallbacks {
  /// Called after every watched step. run: DoctorRun::options().
  std::function<void(const std::string& run, const EpochRecord&)> on_step;
  /// Called after every step; true ends the diagnosis.
  std::function<bool()> should_stop;
};

/// Trains the job for some steps in fp32, bf16 and fp16 from the same seed under an amp::Watch;
/// searches for the parts to keep in float32 and the loss scale with which a 16-bit precision
/// trains like float32; tests these options, and recommends the fastest suited precision.
///
/// Takes 4 runs and one more for each fix that it tests (only one run if float32 diverges), each of
/// `steps` watched steps (see amp::Watch for their cost) and 11 plain ones. All numbers except
/// times are as deterministic as train(). Throws InvalidArgument for options or data that train()
/// would refuse.
MEZZO_API Diagnosis diagnose(const Dataset& dataset, const DoctorOptions& options,
                             const DoctorCallbacks& callbacks = {});

/// Tables of the runs and of the layers, the issues and the recommendation, for people.
MEZZO_API std::string format_diagnosis(const Diagnosis& diagnosis);

/// One JSON object with everything. Numbers that are not finite become null.
MEZZO_API std::string diagnosis_to_json(const Diagnosis& diagnosis);

}  // namespace mezzo
