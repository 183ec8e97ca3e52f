#include "mezzo/cli/runs.h"

#include <iostream>

#include <fmt/format.h>

#include "mezzo/cli/interrupt.h"
#include "mezzo/cli/progress.h"
#include "mezzo/train/trainer.h"

namespace mezzo::cli {

void train_runs(const Dataset& dataset, const RunArguments& run, const std::string& label,
                std::vector<TrainReport>& reports) {
  for (std::int64_t i = 0; i < run.runs; ++i) {
    TrainOptions options = run.options;
    options.seed += static_cast<std::uint64_t>(i);
    if (!run.data.split_index && dataset.num_splits() > 0) {
      options.split_index = i % dataset.num_splits();
    }
    std::string line = label;
    if (run.runs > 1) line += fmt::format("{}run {}/{}", label.empty() ? "" : " ", i + 1, run.runs);
    Progress progress(std::cerr, progress_style(), line);
    TrainCallbacks callbacks;
    callbacks.on_epoch = [&progress](const EpochRecord& record) { progress.show(record); };
    callbacks.should_stop = interrupted;
    reports.push_back(train(dataset, options, callbacks));
    if (interrupted()) return;
  }
}

}  // namespace mezzo::cli
