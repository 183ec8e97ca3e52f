#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/amp/precision.h"

/// Compares the speed of several implementations on the CPU or a GPU.
namespace mezzo::bench {

using Tensors = std::vector<at::Tensor>;

/// A part of the work of a candidate and its time in each run.
struct Stage {
  std::string name;
  std::vector<double> milliseconds;
};
using Stages = std::vector<Stage>;

/// Estimates of one run.
struct Cost {
  std::int64_t run_bytes = 0;    ///< allocated at its peak
  std::int64_t moved_bytes = 0;  ///< read and written if nothing is reused; 0: unknown
  /// Multiplications and additions if compute-bound; 0: memory-bound.
  std::int64_t operations = 0;
  std::int64_t items = 0;  ///< items per run (sampled edges); 0: unknown
};

/// One way to do the work of a comparison.
struct Candidate {
  std::string name;
  bool is_mezzo = false;  ///< its results must be correct; else a baseline
  amp::Precision precision = amp::Precision::kFloat32;
  std::function<Tensors()> run = {};  ///< does the work once; results as Comparison::expected
  /// Reorders the results of `run` as the expected ones; not timed. Empty: no reordering.
  std::function<Tensors(Tensors)> arrange = {};
  Cost cost = {};
  std::shared_ptr<Stages> stages = nullptr;  ///< filled by `run`; null: no stages
  std::string refusal = {};                  ///< why it cannot do the work; `run` is then empty
};

/// A result to compare with: every stride-th row of it.
struct Expected {
  at::Tensor value;  ///< float32
  std::int64_t stride = 1;
};

/// Error bounds relative to the largest element of each result. Rounding errors of a sum count as
/// independent: n roundings add up to sqrt(n).
struct Rounding {
  /// Epsilons of the storage type: the roundings of operands, intermediates and the result, half
  /// an epsilon each, on terms that may be some times larger than the largest result.
  double steps = 4;
  double terms = 1 << 17;  ///< added up in float32 for an element, at most
  /// Whether gradients jump, as at the 0 of a ReLU: rounding turns the sign of a few arguments, and
  /// the gradients there change by more than it. The error is then the root of the mean square, if
  /// no element is off by more than the largest.
  bool has_jumps = false;
};

/// The largest allowed error of a result in `precision`: steps * epsilon of the storage type +
/// sqrt(terms) * epsilon of float32; at most 0.1, which rounding does not reach in any precision.
double largest_error(const Rounding& rounding, amp::Precision precision);

/// Candidates with their operands.
struct Comparison {
  std::vector<Candidate> candidates;
  std::vector<Expected> expected;  ///< empty: the results of the first candidate that runs
  Rounding rounding = {};
};

/// A comparison whose operands do not exist yet.
struct Plan {
  std::string work;        ///< "copy_u sum, forward"
  std::int64_t width = 0;  ///< features of a node
  std::int64_t bytes = 0;  ///< estimate of the operands of all candidates and the expected results
  std::function<Comparison()> make;
};

/// The measurements of one candidate.
struct Measurement {
  std::string name;
  bool is_mezzo = false;
  amp::Precision precision = amp::Precision::kFloat32;
  std::vector<double> milliseconds;  ///< one per round; empty if it was skipped
  /// Largest difference to the expected result over the largest element of that, over all results;
  /// NaN for the candidate that provided the expected results.
  double error = std::numeric_limits<double>::quiet_NaN();
  std::int64_t peak_bytes = 0;  ///< of tensors allocated by the run, including results
  Cost cost;                    ///< of the candidate
  Stages stages;
  std::string skipped;  ///< why it was not run; empty if it was

  double minimum() const;  ///< milliseconds
  double median() const;   ///< milliseconds
};

/// The measurements of one plan.
struct Outcome {
  std::string work;
  std::int64_t width = 0;
  std::vector<Measurement> measurements;
  std::string skipped;  ///< why nothing was run; empty if something was
};

struct MeasureOptions {
  at::Device device = at::kCPU;
  std::int64_t rounds = 7;                 ///< >= 1
  std::int64_t repeats = 1;                ///< runs per round; times are per run
  std::int64_t warm_ups = 1;               ///< the results of the first are checked
  std::function<bool()> should_stop = {};  ///< called between runs
  std::function<void(const std::string&)> on_progress = {};  ///< called before each round
};

/// Runs the candidates of a plan `warm_ups` times each, checks their results, then times them
/// alternately for `rounds` rounds, so that machine drift affects all equally. Skipped, with a
/// reason, are: a plan or a candidate that would not fit into the free memory, a candidate that is
/// not supported, a baseline that fails on the CPU or does not fit on a GPU, and a plan whose
/// operands cannot be built from the data. Seeds libtorch's generator. On a GPU a round lasts from
/// synchronization to synchronization. Returns nullopt if it was stopped.
///
/// Throws LogicError if a result of Mezzo exceeds largest_error() of its precision (plus that of
/// the candidate that provided the expected results); exceptions of Mezzo's candidates pass
/// through. On a GPU both, and the failure of a baseline, are reported as skipped instead, the
/// reason beginning with "FAILED: ", and the other candidates continue.
std::optional<Outcome> measure(const Plan& plan, const MeasureOptions& options);

/// The speed-up of a candidate over `other`, by minima; NaN if one was skipped.
double speed_up(const Measurement& of, const Measurement& other);

/// speed_up() by medians.
double median_speed_up(const Measurement& of, const Measurement& other);

}  // namespace mezzo::bench
