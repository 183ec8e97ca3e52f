#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "mezzo/amp/precision.h"
#include "mezzo/core/json.h"
#include "mezzo/train/tune/tune.h"

namespace mezzo {

/// A row of a report.
OrderedJson trial_to_json(const Trial& trial);

/// The trials of a job so far, and their file, which is written at every change. Internal to train;
/// not exported.
class TrialFile {
 public:
  /// path: empty: no file. job: what all trials have in common, an object. Reads the trials that
  /// the file has; one that was running when its process ended counts as failed, with a warning.
  /// Throws InvalidArgument for trials of another job, IoError for another form.
  TrialFile(std::string path, nlohmann::json job);

  /// The precision that was set; nullopt: none.
  std::optional<amp::Precision> precision() const;
  /// Is written with the next trial.
  void set_precision(amp::Precision precision);

  /// Sets score, seconds and failure of `trial` to those of an equal trial; false without one.
  bool read_result(Trial& trial) const;
  /// Adds the trial as one that is running.
  void begin(const Trial& trial);
  /// Ends the trial that is running: with its result, or without a trace.
  void end(const Trial& trial);
  void drop();

 private:
  void read();
  void write() const;

  std::string path_;
  nlohmann::json content_;
};

}  // namespace mezzo
