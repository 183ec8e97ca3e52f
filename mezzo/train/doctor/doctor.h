#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "mezzo/amp/watch/gradient_report.h"
#include "mezzo/amp/watch/watch.h"
#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"
#include "mezzo/train/options.h"
#include "mezzo/train/trainer.h"

namespace mezzo {

/// What to diagnose.
struct DoctorOptions {
  /// The job. Precision, loss scale and parts in float32 are the doctor's to choose, and epochs,
  /// patience and files are none of its concern: all have to be at their defaults.
  TrainOptions training;
  std::int64_t steps = 20;  ///< of each trial, >= 1
};

/// Where the floating outputs of some operations lie in the range of their type; shares of
/// `elements`.
struct PlaceShares {
  std::string place;  ///< "layer0", "after layer1"
  amp::Pass pass = amp::Pass::kForward;
  std::int64_t elements = 0;
  double flushed = 0;     ///< zero by underflow, where amp::Watch judges it
  double subnormal = 0;   ///< too small for all their digits
  double near_top = 0;    ///< at least a sixteenth of the largest number
  double non_finite = 0;  ///< inf or nan
};

/// An operation that flushed a notable share of its outputs to zero.
struct FlushingOp {
  std::string op;
  amp::WatchPlace place;
  double share = 0;
};

/// Some steps of the job in one way.
struct Trial {
  amp::Precision precision = amp::Precision::kFloat32;
  LossScale loss_scale;
  std::vector<std::string> keep_float32;

  std::vector<double> losses;  ///< one a step; fewer than asked for where the weights became nan
  std::int64_t skipped_steps = 0;
  std::int64_t skipped_at_end = 0;  ///< of the last quarter of the steps
  double final_loss_scale = 1;
  /// Median of steps that nobody watched, without skipped ones; nan where all were skipped.
  double step_ms = 0;
  std::int64_t peak_memory_bytes = 0;  ///< of those steps, with the data
  /// Mean loss of the last quarter of the steps against float32's, in units of float32's first
  /// loss; inf where one of them is not finite.
  double loss_difference = std::numeric_limits<double>::infinity();

  /// Of the outputs in the 16-bit type, or in float32 for fp32; in the order of first use.
  std::vector<PlaceShares> places;
  /// Where finite numbers first became inf or nan; a scaled backward does so while a dynamic scale
  /// settles.
  std::optional<amp::WatchExit> forward_exit, backward_exit;
  std::optional<FlushingOp> flushing;  ///< the first in the backward

  /// "--precision fp16 --loss-scale 1024 --keep-float32 layer0": what `mezzo train` calls it.
  MEZZO_API std::string options() const;
};

/// Something that went wrong in a trial, and what `mezzo train` takes against it.
struct Finding {
  enum class Kind : std::uint8_t {
    kDivergence,  ///< float32 itself: no matter of precision
    kOverflow,    ///< a forward operation left the range
    kUnderflow,   ///< gradients became zero
    kSkipped,     ///< steps were skipped while the scale settled
    kLoss,        ///< the losses are not float32's
  };
  Kind kind = Kind::kOverflow;
  std::size_t trial = 0;  ///< in which it was seen
  std::string op, place;  ///< of kOverflow and kUnderflow
  std::string evidence;   ///< one sentence
  std::string remedy;     ///< options, or one sentence where there are none; empty: nothing to do
};

/// The best found way to train in a precision.
struct Prescription {
  amp::Precision precision = amp::Precision::kFloat32;
  std::size_t trial = 0;  ///< in which it was tried
  bool suited = false;    ///< it trained as float32 does
  std::string evidence;   ///< one sentence
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

/// What there is of CUDA, whatever device the job runs on.
struct CudaFacts {
  std::int64_t devices = 0;  ///< that the library can use
  std::string library;       ///< file of the CUDA kernels; empty where none was looked for
  std::string problem;       ///< why there are no devices, on one line; else empty
};

/// What a job needs. Plain values.
struct Diagnosis {
  std::string dataset, model, device;
  CudaFacts cuda;
  std::uint64_t seed = 0;
  std::int64_t threads = 1;
  std::int64_t steps = 0;

  std::vector<Trial> trials;  ///< the first is fp32
  GradientFacts gradients;
  std::vector<Finding> findings;            ///< empty: nothing was wrong
  std::vector<Prescription> prescriptions;  ///< fp32, bf16, fp16
  std::optional<std::size_t> recommended;   ///< of `prescriptions`; none where fp32 diverges
  std::vector<std::string> reasons;         ///< for it, one sentence each
  bool interrupted = false;  ///< only `trials` is filled in, with those that came to an end
};

/// Calls of diagnose() to its user; empty ones are left out.
struct DoctorCallbacks {
  /// After every watched step; the name of the trial is that of Trial::options().
  std::function<void(const std::string& trial, const EpochRecord&)> on_step;
  /// Asked after every step; true ends the diagnosis.
  std::function<bool()> should_stop;
};

/// Trains the job for some steps in fp32, bf16 and fp16 from the same seed, watched; looks for the
/// parts of the model to keep in float32 and the loss scale with which a 16-bit precision trains as
/// float32 does; tries these remedies out, and recommends the fastest precision that is suited.
///
/// Takes 4 trials and one more for each remedy that is tried (one alone where float32 diverges),
/// each of `steps` watched steps (see amp::Watch for their cost) and 11 plain ones. Numbers but
/// times are as deterministic as train(). Throws InvalidArgument for options or data that train()
/// would refuse.
MEZZO_API Diagnosis diagnose(const Dataset& dataset, const DoctorOptions& options,
                             const DoctorCallbacks& callbacks = {});

/// Tables of the trials and of the layers, the findings and the recommendation, for people.
MEZZO_API std::string format_diagnosis(const Diagnosis& diagnosis);

/// One JSON object with everything. Numbers that are not finite become null.
MEZZO_API std::string diagnosis_to_json(const Diagnosis& diagnosis);

}  // namespace mezzo
