#include "mezzo/cli/runs.h"

#include <cmath>
#include <iostream>
#include <optional>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "mezzo/cli/interrupt.h"
#include "mezzo/cli/progress.h"
#include "mezzo/core/error.h"
#include "mezzo/train/files/event_file.h"

namespace mezzo::cli {

namespace {

/// What TensorBoard shows of an epoch.
std::vector<EventScalar> scalars_of(const EpochRecord& record, const std::string& metric) {
  constexpr double kMilliseconds = 1e-3;
  std::vector<EventScalar> scalars = {{"loss/train", record.loss},
                                      {"time/epoch_seconds", record.epoch_ms * kMilliseconds}};
  if (record.loss_scale != 1 || record.skipped_steps > 0) {
    scalars.push_back({"scaler/loss_scale", record.loss_scale});
    scalars.push_back({"scaler/skipped_steps", static_cast<double>(record.skipped_steps)});
  }
  const Scores scores = record.scores.value_or(Scores());  // NaN: not evaluated, or no such nodes
  for (const auto& [part, score] :
       {std::pair("train", scores.train), {"val", scores.val}, {"test", scores.test}}) {
    if (!std::isnan(score)) scalars.push_back({metric + "/" + part, score});
  }
  return scalars;
}

/// Appends the report, also that of an EndedRun. If there are several runs, a NumericError names
/// the run.
void train_one(const Dataset& dataset, const TrainOptions& options, const TrainCallbacks& callbacks,
               const dist::ProcessGroup& group, std::int64_t runs, std::int64_t run,
               std::vector<TrainReport>& reports,
               const std::function<void(const TrainResult&)>& on_run) {
  try {
    const TrainResult result = train(dataset, options, callbacks, group);
    reports.push_back(result);
    if (on_run) on_run(result);
  } catch (const Error& error) {
    if (const auto* ended = dynamic_cast<const EndedRun*>(&error)) {
      reports.push_back(ended->report());
    }
    if (runs == 1 || dynamic_cast<const NumericError*>(&error) == nullptr) throw;
    detail::raise<NumericError>("run {}/{}, seed {}: {}", run + 1, runs, options.seed,
                                error.what());
  }
}

}  // namespace

void train_runs(const Dataset& dataset, const RunArguments& run, const std::string& label,
                std::vector<TrainReport>& reports, const dist::ProcessGroup& group,
                const std::function<void(const TrainResult&)>& on_run) {
  for (std::int64_t i = 0; i < run.runs; ++i) {
    TrainOptions options = run.options;
    options.seed += static_cast<std::uint64_t>(i);
    if (!run.data.split_index && dataset.num_splits() > 0) {
      options.split_index = i % dataset.num_splits();
    }
    std::string line = label;
    if (run.runs > 1) line += fmt::format("{}run {}/{}", label.empty() ? "" : " ", i + 1, run.runs);
    Progress progress(std::cerr, progress_style(), line);
    std::optional<EventFile> events;
    if (!run.tensorboard.empty()) {
      events.emplace(run.runs > 1 ? fmt::format("{}/run_{}", run.tensorboard, i + 1)
                                  : run.tensorboard);
    }
    TrainCallbacks callbacks;
    if (group.rank() == 0) {
      callbacks.on_epoch = [&](const EpochRecord& record) {
        progress.show(record);
        if (events) events->add(record.epoch, scalars_of(record, metric_name(dataset.metric)));
      };
      callbacks.on_batch = [&progress](const BatchRecord& record) { progress.show(record); };
    }
    callbacks.on_start = handle_interrupts;
    callbacks.should_stop = interrupted;
    train_one(dataset, options, callbacks, group, run.runs, i, reports, on_run);
    progress.finish();
    const std::string& warning = reports.back().warning;
    if (!warning.empty() && group.rank() == 0) TORCH_WARN("mezzo: ", warning);
    // The interrupt of one process ends all of them before the next run.
    if (group.all_reduce(interrupted() ? 1.0 : 0.0, dist::ReduceOp::kMax) > 0) return;
  }
}

}  // namespace mezzo::cli
