#include "mezzo/train/report/report.h"

#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "mezzo/core/table.h"
#include "mezzo/train/report/summary.h"

namespace mezzo {
namespace {

using Row = std::vector<std::string>;

const char* reason_text(StopReason reason) {
  switch (reason) {
    case StopReason::kPatience:
      return " (stopped: patience)";
    case StopReason::kInterrupted:
      return " (interrupted)";
    case StopReason::kEpochs:
      break;
  }
  return "";
}

/// "-" for none.
std::string milliseconds(double value) {
  return std::isnan(value) ? "-" : fmt::format("{:.2f}", value);
}

std::vector<Row> sampling_facts(const SamplingReport& sampling) {
  return {
      {"sampling", fmt::format("{}, {} batches an epoch, {} workers on the {}, {:.1f} M edges/s "
                               "a worker",
                               sampling.sampler, sampling.batches_per_epoch, sampling.workers,
                               sampling.drawn_on, sampling.edges_per_second() / 1e6)},
      {"stages",
       fmt::format("sample {:.2f} s, gather {:.2f} s, transfer {:.2f} s (all workers); compute "
                   "{:.2f} s, wait {:.2f} s",
                   sampling.sample_seconds, sampling.gather_seconds, sampling.transfer_seconds,
                   sampling.compute_seconds, sampling.wait_seconds)}};
}

std::string with_deviation(const std::vector<double>& scores) {
  const MeanDeviation summary = mean_deviation(scores);
  if (scores.size() < 2 || std::isnan(summary.mean)) return format_score(summary.mean);
  return fmt::format("{} ± {:.4f}", format_score(summary.mean), summary.deviation);
}

std::vector<Table> tables_of_one(const TrainReport& run) {
  std::vector<Row> facts = {
      {"dataset", fmt::format("{}, split {}", run.dataset, run.split_index)},
      {"model", fmt::format("{}, {} parameters", run.model, run.num_parameters)},
      {"precision", run.precision},
      {"device", fmt::format("{}, {} CPU threads", run.device, run.threads)},
      {"seed", fmt::format("{}", run.seed)},
      {"epochs", fmt::format("{}{}", run.epochs_run, reason_text(run.stopped_by))},
      {"train loss", fmt::format("{:.4f}", run.train_loss)},
      {"epoch time", fmt::format("min {} ms, median {} ms", milliseconds(run.epoch_ms_min),
                                 milliseconds(run.epoch_ms_median))},
      {"total time", fmt::format("{:.2f} s, of which evaluation {:.2f} s", run.total_seconds,
                                 run.evaluation_seconds)},
      {"peak memory", format_bytes(run.peak_memory_bytes)},
      {"steps", fmt::format("{}, {} skipped", run.steps, run.skipped_steps)},
      {"loss scale", fmt::format("{}, at the end {}", run.loss_scale_policy, run.final_loss_scale)},
  };
  if (run.world_size > 1) {
    facts.push_back({"processes", fmt::format("{}, communication {:.2f} s", run.world_size,
                                              run.communication_seconds)});
  }
  if (run.sampling) {
    for (const Row& fact : sampling_facts(*run.sampling)) facts.push_back(fact);
  }
  const std::int64_t last_epoch = run.evaluations.empty() ? 0 : run.evaluations.back().epoch;
  const auto line = [](const std::string& name, std::int64_t epoch, const Scores& scores) {
    return Row{name, fmt::format("{}", epoch), format_score(scores.train), format_score(scores.val),
               format_score(scores.test)};
  };
  const std::vector<Row> scores = {{run.metric, "epoch", "train", "val", "test"},
                                   line("best", run.best_epoch, run.best),
                                   line("last", last_epoch, run.last)};
  return {{.rows = facts, .left_columns = 2, .has_header = false}, {.rows = scores}};
}

std::vector<Table> tables_of_several(const std::vector<TrainReport>& runs) {
  const RunsSummary all = summarize(runs);
  std::vector<Row> rows = {{"seed", "split", "epochs", "best epoch", "train", "val", "test",
                            "epoch min ms", "median ms", "skipped"}};
  for (const TrainReport& run : runs) {
    rows.push_back({fmt::format("{}", run.seed), fmt::format("{}", run.split_index),
                    fmt::format("{}", run.epochs_run), fmt::format("{}", run.best_epoch),
                    format_score(run.best.train), format_score(run.best.val),
                    format_score(run.best.test), milliseconds(run.epoch_ms_min),
                    milliseconds(run.epoch_ms_median), fmt::format("{}", run.skipped_steps)});
  }
  const auto score = [&](double Scores::*part) {
    return with_deviation(collect(runs, [part](const TrainReport& r) { return r.best.*part; }));
  };
  rows.push_back({"all", "", fmt::format("{}", all.epochs_run), "", score(&Scores::train),
                  score(&Scores::val), score(&Scores::test), milliseconds(all.epoch_ms_min),
                  milliseconds(all.epoch_ms_median), fmt::format("{}", all.skipped_steps)});
  std::vector<Row> facts = {{"total time", fmt::format("{:.2f} s", all.total_seconds)},
                            {"peak memory", format_bytes(all.peak_memory_bytes)}};
  if (const std::optional<SamplingReport> sampling = total_sampling(runs)) {
    for (const Row& fact : sampling_facts(*sampling)) facts.push_back(fact);
  }
  return {{.rows = rows}, {.rows = facts, .left_columns = 2, .has_header = false}};
}

}  // namespace

std::vector<Table> report_tables(const std::vector<TrainReport>& runs) {
  return runs.size() == 1 ? tables_of_one(runs.front()) : tables_of_several(runs);
}

std::string format_report(const std::vector<TrainReport>& runs) {
  const std::vector<Table> tables = report_tables(runs);
  const TrainReport& first = runs.front();
  if (runs.size() == 1) return format_table(tables[0]) + '\n' + format_table(tables[1]);
  return fmt::format("{} on {}, {}, {} ({} at each run's best epoch; mean ± deviation)\n",
                     first.model, first.dataset, first.precision, first.device, first.metric) +
         format_table(tables[0]) + format_table(tables[1]);
}

std::string format_comparison(const std::vector<ComparisonRow>& rows) {
  return format_table(comparison_table(rows));
}

Table comparison_table(const std::vector<ComparisonRow>& rows) {
  std::string metric = "accuracy";
  for (const ComparisonRow& row : rows) {
    if (!row.runs.empty()) metric = row.runs.front().metric;
  }
  std::vector<Row> cells = {{"model", "precision", "test " + metric, "epoch min ms", "median ms",
                             "speed-up", "peak memory", "skipped"}};
  for (const ComparisonRow& row : rows) {
    if (row.runs.empty()) {
      cells.push_back({row.model, row.precision, "-", "-", "-", "-", "-", "-"});
    } else {
      const RunsSummary all = summarize(row.runs);
      const std::optional<double> faster = speed_up(row, rows);
      cells.push_back(
          {row.model, row.precision,
           with_deviation(collect(row.runs, [](const TrainReport& r) { return r.best.test; })),
           milliseconds(all.epoch_ms_min), milliseconds(all.epoch_ms_median),
           faster ? fmt::format("{:.2f}", *faster) : "-", format_bytes(all.peak_memory_bytes),
           fmt::format("{}", all.skipped_steps)});
    }
    if (!row.error.empty()) cells.back().push_back(row.error);
  }
  return {.rows = cells, .left_columns = 2};
}

}  // namespace mezzo
