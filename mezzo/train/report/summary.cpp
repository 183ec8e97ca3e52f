#include "mezzo/train/report/summary.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace mezzo {

MeanDeviation mean_deviation(const std::vector<double>& values) {
  if (values.empty()) return {};
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  for (const double value : values) sum += value;
  const double mean = sum / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, values.size() < 2 ? 0.0 : std::sqrt(squares / (count - 1))};
}

RunsSummary summarize(const std::vector<TrainReport>& runs) {
  RunsSummary all;
  all.epoch_ms_min = std::numeric_limits<double>::infinity();
  for (const TrainReport& run : runs) {
    all.epochs_run += run.epochs_run;
    all.steps += run.steps;
    all.skipped_steps += run.skipped_steps;
    all.total_seconds += run.total_seconds;
    all.evaluation_seconds += run.evaluation_seconds;
    all.communication_seconds += run.communication_seconds;
    all.peak_memory_bytes = std::max(all.peak_memory_bytes, run.peak_memory_bytes);
    all.epoch_ms_min = std::min(all.epoch_ms_min, run.epoch_ms_min);
  }
  all.epoch_ms_median = median(collect(runs, [](const auto& run) { return run.epoch_ms_median; }));
  all.best_epoch = median(collect(runs, [](const auto& run) { return run.best_epoch; }));
  all.final_loss_scale =
      median(collect(runs, [](const auto& run) { return run.final_loss_scale; }));
  return all;
}

std::optional<SamplingReport> total_sampling(const std::vector<TrainReport>& runs) {
  std::optional<SamplingReport> total;
  for (const TrainReport& run : runs) {
    if (!run.sampling) continue;
    const SamplingReport& part = *run.sampling;
    if (!total) {
      total = part;
      continue;
    }
    total->batches += part.batches;
    total->sampled_edges += part.sampled_edges;
    total->input_nodes += part.input_nodes;
    total->sample_seconds += part.sample_seconds;
    total->gather_seconds += part.gather_seconds;
    total->transfer_seconds += part.transfer_seconds;
    total->compute_seconds += part.compute_seconds;
    total->wait_seconds += part.wait_seconds;
  }
  return total;
}

std::optional<double> speed_up(const ComparisonRow& row, const std::vector<ComparisonRow>& rows) {
  for (const ComparisonRow& other : rows) {
    if (other.model != row.model || other.precision != "fp32") continue;
    if (other.runs.empty() || row.runs.empty()) continue;
    return summarize(other.runs).epoch_ms_median / summarize(row.runs).epoch_ms_median;
  }
  return std::nullopt;
}

}  // namespace mezzo
