#include <cstddef>

#include "mezzo/core/json.h"
#include "mezzo/train/report/report.h"
#include "mezzo/train/report/scores_json.h"
#include "mezzo/train/report/summary.h"
#include "mezzo/version.h"

namespace mezzo {
namespace {

const char* reason_word(StopReason reason) {
  switch (reason) {
    case StopReason::kPatience:
      return "patience";
    case StopReason::kInterrupted:
      return "interrupted";
    case StopReason::kEpochs:
      break;
  }
  return "epochs";
}

OrderedJson history_to_json(const TrainReport& run) {
  OrderedJson losses = OrderedJson::array();
  for (const double loss : run.losses) losses.push_back(json_number(loss));
  OrderedJson evaluations = OrderedJson::array();
  for (const EvaluationRecord& record : run.evaluations) {
    OrderedJson line = {{"epoch", record.epoch}};
    line.update(scores_to_json(run.metric, record.scores));
    evaluations.push_back(line);
  }
  return {{"train_loss", losses}, {"evaluations", evaluations}};
}

/// null for a run on the full graph.
OrderedJson sampling_report_to_json(const std::optional<SamplingReport>& sampling) {
  if (!sampling) return nullptr;
  return {{"sampler", sampling->sampler},
          {"drawn_on", sampling->drawn_on},
          {"workers", sampling->workers},
          {"batches_per_epoch", sampling->batches_per_epoch},
          {"batches", sampling->batches},
          {"sampled_edges", sampling->sampled_edges},
          {"input_nodes", sampling->input_nodes},
          {"edges_per_second", json_number(sampling->edges_per_second())},
          {"seconds",
           {{"sample", sampling->sample_seconds},
            {"gather", sampling->gather_seconds},
            {"transfer", sampling->transfer_seconds},
            {"compute", sampling->compute_seconds},
            {"wait", sampling->wait_seconds}}}};
}

OrderedJson run_to_json(const TrainReport& run) {
  OrderedJson object = {
      {"dataset", run.dataset},
      {"model", run.model},
      {"precision", run.precision},
      {"device", run.device},
      {"threads", run.threads},
      {"world_size", run.world_size},
      {"seed", run.seed},
      {"split_index", run.split_index},
      {"metric", run.metric},
      {"num_parameters", run.num_parameters},
      {"epochs_run", run.epochs_run},
      {"stopped_by", reason_word(run.stopped_by)},
      {"warning", text_or_null(run.warning)},
      {"train_loss", json_number(run.train_loss)},
  };
  object.update(scores_to_json(run.metric, run.best));
  object.update({
      {"best_epoch", run.best_epoch},
      {"last", scores_to_json(run.metric, run.last)},
      {"epoch_ms",
       {{"min", json_number(run.epoch_ms_min)}, {"median", json_number(run.epoch_ms_median)}}},
      {"evaluation_seconds", run.evaluation_seconds},
      {"total_seconds", run.total_seconds},
      {"communication_seconds", run.communication_seconds},
      {"peak_memory_bytes", run.peak_memory_bytes},
      {"steps", run.steps},
      {"skipped_steps", run.skipped_steps},
      {"loss_scale", run.loss_scale_policy},
      {"final_loss_scale", json_number(run.final_loss_scale)},
      {"sampling", sampling_report_to_json(run.sampling)},
      {"history", history_to_json(run)},
      {"version", kVersion},
  });
  return object;
}

/// Several runs under the keys of one.
OrderedJson runs_to_json(const std::vector<TrainReport>& runs) {
  const RunsSummary all = summarize(runs);
  OrderedJson object = run_to_json(runs.front());
  for (const char* of_one_run : {"split_index", "last", "history", "stopped_by", "warning"}) {
    object.erase(of_one_run);
  }
  const auto over_runs = [&](auto value) { return mean_deviation(collect(runs, value)); };
  const MeanDeviation loss = over_runs([](const TrainReport& run) { return run.train_loss; });
  const MeanDeviation train = over_runs([](const TrainReport& run) { return run.best.train; });
  const MeanDeviation val = over_runs([](const TrainReport& run) { return run.best.val; });
  const MeanDeviation test = over_runs([](const TrainReport& run) { return run.best.test; });
  const std::string& metric = runs.front().metric;
  object["train_loss"] = json_number(loss.mean);
  object.update(scores_to_json(metric, {.train = train.mean, .val = val.mean, .test = test.mean}));
  OrderedJson deviation = {{"train_loss", json_number(loss.deviation)}};
  deviation.update(scores_to_json(
      metric, {.train = train.deviation, .val = val.deviation, .test = test.deviation}));
  object["epochs_run"] = all.epochs_run;
  object["best_epoch"] = json_number(all.best_epoch);
  object["epoch_ms"] = {{"min", json_number(all.epoch_ms_min)},
                        {"median", json_number(all.epoch_ms_median)}};
  object["evaluation_seconds"] = all.evaluation_seconds;
  object["total_seconds"] = all.total_seconds;
  object["communication_seconds"] = all.communication_seconds;
  object["peak_memory_bytes"] = all.peak_memory_bytes;
  object["steps"] = all.steps;
  object["skipped_steps"] = all.skipped_steps;
  object["final_loss_scale"] = json_number(all.final_loss_scale);
  object["sampling"] = sampling_report_to_json(total_sampling(runs));
  object["deviation"] = deviation;
  object["runs"] = OrderedJson::array();
  for (const TrainReport& run : runs) object["runs"].push_back(run_to_json(run));
  return object;
}

OrderedJson reports_to_json(const std::vector<TrainReport>& runs) {
  return runs.size() == 1 ? run_to_json(runs.front()) : runs_to_json(runs);
}

}  // namespace

std::string report_to_json(const std::vector<TrainReport>& runs, const std::string& error) {
  OrderedJson object = reports_to_json(runs);
  object["error"] = text_or_null(error);
  return json_text(object);
}

std::string comparison_to_json(const std::vector<ComparisonRow>& rows) {
  OrderedJson results = OrderedJson::array();
  for (const ComparisonRow& row : rows) {
    OrderedJson result = row.runs.empty() ? OrderedJson::object() : reports_to_json(row.runs);
    result["model"] = row.model;
    result["precision"] = row.precision;
    const std::optional<double> faster = speed_up(row, rows);
    result["speed_up"] = faster ? json_number(*faster) : OrderedJson(nullptr);
    result["error"] = text_or_null(row.error);
    results.push_back(result);
  }
  return json_text({{"results", results}, {"version", kVersion}});
}

}  // namespace mezzo
