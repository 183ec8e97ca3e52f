#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mezzo/data/dataset.h"
#include "mezzo/train/doctor/doctor.h"
#include "mezzo/train/report/report.h"
#include "mezzo/train/trainer.h"
#include "mezzo/train/tune/tune.h"

/// The pages of --report: the text of an HTML file each.
namespace mezzo::cli::page {

/// How often nodes, edges or graphs of one class were predicted as another.
struct Confusion {
  std::string targets;                            ///< such as "test nodes"
  std::vector<std::string> classes;               ///< their names
  std::vector<std::vector<std::int64_t>> counts;  ///< a row for each true class

  /// Adds the predictions of the run's best weights for its test targets, else for its validation
  /// targets. Does nothing for an interrupted run, for multi-label data, for a part of a data set,
  /// without such targets, and if outputs are not finite. Takes an evaluation.
  void add(const Dataset& dataset, const TrainResult& run);
};

/// `map` with at most `most` rows and columns: the most frequent classes, in their order, and
/// "other".
Confusion most_frequent(const Confusion& confusion, std::size_t most);

/// runs: at least one. error: what ended the later runs; may be empty.
std::string train_page(const std::vector<TrainReport>& runs, const Confusion& confusion,
                       const std::string& error);
/// dataset: its name.
std::string compare_page(const std::string& dataset, const std::vector<ComparisonRow>& rows);
std::string doctor_page(const DoctorReport& report);
/// dataset: its name. runs: of the best candidate; none if interrupted.
std::string tune_page(const std::string& dataset, const TuneResult& result,
                      const std::vector<TrainReport>& runs, const Confusion& confusion);

}  // namespace mezzo::cli::page
