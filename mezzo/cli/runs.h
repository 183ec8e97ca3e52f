#pragma once

#include <string>
#include <vector>

#include "mezzo/cli/arguments.h"
#include "mezzo/data/dataset.h"
#include "mezzo/dist/group/process_group.h"
#include "mezzo/train/report/report.h"

namespace mezzo::cli {

/// Trains run.runs times, showing the progress, and adds a report each to `reports`. Run i has the
/// seed + i and, unless one was asked for, the split i modulo their number. Stops early after an
/// interrupt. Exceptions of train() pass through, among several runs a NumericError with run
/// and seed in front; the reports so far stay, with that of an EndedRun. group: the processes that
/// train together, of which the first one shows the progress.
void train_runs(const Dataset& dataset, const RunArguments& run, const std::string& label,
                std::vector<TrainReport>& reports, const dist::ProcessGroup& group = {});

}  // namespace mezzo::cli
