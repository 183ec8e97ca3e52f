#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "mezzo/core/export.h"
#include "mezzo/core/median.h"
#include "mezzo/train/report/report.h"

namespace mezzo {

/// Mean and sample standard deviation; the deviation of fewer than two values is 0.
struct MeanDeviation {
  double mean = std::numeric_limits<double>::quiet_NaN();
  double deviation = 0;
};
MEZZO_API MeanDeviation mean_deviation(const std::vector<double>& values);

/// The values `value(report)` of some reports.
template <class Value>
std::vector<double> collect(const std::vector<TrainReport>& reports, Value value) {
  std::vector<double> values;
  for (const TrainReport& report : reports) values.push_back(static_cast<double>(value(report)));
  return values;
}

/// Several runs of one model and precision, combined as in report_to_json.
struct RunsSummary {
  std::int64_t epochs_run = 0, steps = 0, skipped_steps = 0;                    ///< sums
  double total_seconds = 0, evaluation_seconds = 0, communication_seconds = 0;  ///< sums
  std::int64_t peak_memory_bytes = 0;                                           ///< the largest
  double epoch_ms_min = 0;                                                      ///< the smallest
  double epoch_ms_median = 0, best_epoch = 0, final_loss_scale = 1;             ///< medians
};

/// runs: at least one.
MEZZO_API RunsSummary summarize(const std::vector<TrainReport>& runs);

/// The sums over the mini-batches of the runs; nullopt if no run has any. runs: of equal options.
MEZZO_API std::optional<SamplingReport> total_sampling(const std::vector<TrainReport>& runs);

/// How many times faster than fp32 the row's epochs are, by their medians; nullopt if the model has
/// no fp32 row with runs.
MEZZO_API std::optional<double> speed_up(const ComparisonRow& row,
                                         const std::vector<ComparisonRow>& rows);

}  // namespace mezzo
