#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"
#include "mezzo/train/options/options.h"
#include "mezzo/train/report/report.h"
#include "mezzo/train/trainer.h"

namespace mezzo {

/// A search for the options of a job.
struct TuneOptions {
  TrainOptions training;  ///< the job; what is neither varied nor in a recipe stays
  /// Options that are not varied, by the names of the command line without dashes: "layers", "lr".
  std::vector<std::string> fixed = {};
  double minutes = 10;  ///< > 0, of all trials, also of those reused
  /// The file of the trials; empty: none. Trials in the file are reused, also failed ones. A
  /// running trial is in it too: if the process is killed, that trial counts as failed and is not
  /// repeated.
  std::string trials = {};
};

/// A short run of one candidate.
struct Trial {
  /// 0: recommended_options(); 1: TuneOptions::training; the others are draws.
  std::int64_t candidate = 0;
  TrainOptions options;     ///< for a full run, with its own epochs and patience
  std::int64_t epochs = 0;  ///< of the trial, at most
  /// The best on the validation nodes; NaN if the run failed.
  double score = std::numeric_limits<double>::quiet_NaN();
  double seconds = 0;
  std::string failure = {};  ///< why the run failed, in one line; empty: it did not
};

/// The result of tune(). Plain values.
struct TuneResult {
  std::vector<Trial> trials;  ///< in the order in which they ran
  /// The index of the best of those with the most epochs; with equal scores that of the earliest
  /// candidate. nullopt: no trial has a score.
  std::optional<std::size_t> best;
  bool interrupted = false;
};

/// Callbacks of tune(); empty ones are skipped.
struct TuneCallbacks {
  /// trial: without score and seconds.
  std::function<void(const Trial& trial, const EpochRecord&)> on_epoch;
  /// Called after every trial, the last of `so_far`, also a reused one.
  std::function<void(const TuneResult& so_far)> on_trial;
  /// Called before every trial and after every step. true ends the search; its last trial is lost.
  std::function<bool()> should_stop;
  std::function<double()> seconds;  ///< the clock; empty: the machine's
};

/// Searches by successive halving the options with the best validation score. Candidates are the
/// recommended options, options.training, and draws from a grid of layers, widths, normalizations,
/// skip, dropouts, rates, decays and normalize_features; each of at least 4 and at most 500 is a
/// trial of 40 epochs until a third of the minutes is used. The best third goes on with 120 epochs
/// until two thirds are used, and a third of these with 360. The best candidate and the recommended
/// options go on in any case. The patience is a quarter of the epochs. The time is checked between
/// trials.
///
/// The precision, unless it is fixed, is amp::fastest_precision(), or what the doctor recommends
/// for the recommended options, if that needs no further options; with mini-batches, a loss scale
/// or parts in float32 the doctor does not run.
///
/// The candidates depend on the data and the options alone. Times decide how many trials there are
/// and, as the doctor's, the precision; both are in options.trials, so that a second call goes on
/// as the first would have. Throws as train(), except that a candidate may diverge or exceed the
/// memory; InvalidArgument for data without validation nodes and for a file of trials of other
/// data, another model or another device, and for unknown names in options.fixed; IoError if the
/// file cannot be read or written; NumericError if every trial failed.
MEZZO_API TuneResult tune(const Dataset& dataset, const TuneOptions& options,
                          const TuneCallbacks& callbacks = {});

/// One JSON object: `trials` in order, `best` (null: none), and `train`, which is report_to_json()
/// of the full run (null without one).
MEZZO_API std::string tune_to_json(const TuneResult& result,
                                   const std::vector<TrainReport>& reports);

}  // namespace mezzo
