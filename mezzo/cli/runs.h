#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mezzo/cli/options/arguments.h"
#include "mezzo/data/dataset.h"
#include "mezzo/dist/group/process_group.h"
#include "mezzo/train/report/report.h"
#include "mezzo/train/trainer.h"

namespace mezzo::cli {

/// Trains run.runs times, shows the progress, and appends the reports to `reports`. Run i has seed
/// + i and, without --split-index, split i modulo the number of splits. Stops early after an
/// interrupt. Exceptions of train() pass through, with several runs a NumericError with run and
/// seed in front; the reports so far stay, including that of an EndedRun. group: rank 0 shows the
/// progress. on_run: called after each complete run; may be empty.
void train_runs(const Dataset& dataset, const RunArguments& run, const std::string& label,
                std::vector<TrainReport>& reports, const dist::ProcessGroup& group = {},
                const std::function<void(const TrainResult&)>& on_run = {});

}  // namespace mezzo::cli
