#include "mezzo/train/trainer.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "mezzo/core/error.h"
#include "mezzo/message_passing/memory.h"
#include "mezzo/train/checkpoint.h"
#include "mezzo/train/clock.h"
#include "mezzo/train/files.h"
#include "mezzo/train/problem.h"
#include "mezzo/train/state.h"
#include "mezzo/train/step.h"
#include "mezzo/train/summary.h"

namespace mezzo {
namespace {

/// One run, from the options to the report.
class Run {
 public:
  Run(const Dataset& dataset, const TrainOptions& options, const TrainCallbacks& callbacks);
  TrainReport run();

 private:
  void check_data() const;
  void step();
  void evaluate(std::int64_t epoch);
  bool out_of_patience(std::int64_t epoch) const;
  bool wants_stop() const { return callbacks_.should_stop && callbacks_.should_stop(); }
  void tell(std::int64_t epoch, bool evaluated) const;
  void save();
  TrainReport report() const;

  const Dataset& dataset_;
  const TrainOptions& options_;
  const TrainCallbacks& callbacks_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point saved_ = start_;
  Problem problem_;
  TrainState state_;
  TrainingNodes nodes_;
  double seconds_before_ = 0;  // of the run that is resumed
  StopReason stopped_by_ = StopReason::kEpochs;
};

Problem checked_problem(const Dataset& dataset, const TrainOptions& options) {
  check_options(options);
  if (!options.checkpoint.empty()) check_writable("checkpoint", options.checkpoint);
  reset_peak_memory(options.device);
  return make_problem(dataset, options);
}

Run::Run(const Dataset& dataset, const TrainOptions& options, const TrainCallbacks& callbacks)
    : dataset_(dataset),
      options_(options),
      callbacks_(callbacks),
      problem_(checked_problem(dataset, options)),
      state_(options, problem_) {
  check_data();
  nodes_ = training_nodes(problem_, dataset, options);
  if (options.resume.empty()) return;
  resume_checkpoint(options.resume, options, dataset, state_);
  seconds_before_ = state_.history.total_seconds;
  MEZZO_CHECK(state_.history.epoch() < options.epochs,
              "resume: {} has done {} epochs already, and epochs is {}", options.resume,
              state_.history.epoch(), options.epochs);
}

void Run::check_data() const {
  MEZZO_CHECK(!options_.patience || problem_.masks.val.any().item<bool>(),
              "patience: dataset {} has no validation nodes in split {}", dataset_.name,
              options_.split_index);
}

void Run::step() {
  const StepResult result = train_step(state_, problem_, nodes_, options_);
  History& history = state_.history;
  ++history.steps;
  history.skipped_steps += result.skipped ? 1 : 0;
  history.skipped_in_a_row = result.skipped ? history.skipped_in_a_row + 1 : 0;
  history.losses.push_back(result.loss);
}

void Run::evaluate(std::int64_t epoch) {
  const Clock::time_point start = Clock::now();
  const at::Tensor logits = evaluate_logits(state_.model, problem_, options_.precision);
  state_.history.evaluations.push_back({epoch, score_logits(logits, problem_)});
  if (best_evaluation(state_.history, options_.eval_every)->epoch == epoch) {
    state_.best_weights = copy_weights(*state_.model);
  }
  state_.history.evaluation_seconds += seconds_since(start);
}

bool Run::out_of_patience(std::int64_t epoch) const {
  const EvaluationRecord* best = best_evaluation(state_.history, options_.eval_every);
  return options_.patience && best != nullptr && epoch - best->epoch >= *options_.patience;
}

void Run::tell(std::int64_t epoch, bool evaluated) const {
  if (!callbacks_.on_epoch) return;
  EpochRecord record{.epoch = epoch,
                     .epochs = options_.epochs,
                     .loss = state_.history.losses.back(),
                     .epoch_ms = state_.history.epoch_ms.back(),
                     .loss_scale = state_.scaler.get_scale(),
                     .scores = std::nullopt};
  if (evaluated) record.scores = state_.history.evaluations.back().scores;
  callbacks_.on_epoch(record);
}

void Run::save() {
  const bool any_best = best_evaluation(state_.history, options_.eval_every) != nullptr;
  if (options_.checkpoint.empty() || !any_best) return;
  state_.history.total_seconds = seconds_before_ + seconds_since(start_);
  write_checkpoint(options_.checkpoint, options_, dataset_, state_);
  saved_ = Clock::now();
}

TrainReport Run::run() {
  bool done = false;
  while (!done) {
    const Clock::time_point start = Clock::now();
    step();
    state_.history.epoch_ms.push_back(1e3 * seconds_since(start));
    const std::int64_t epoch = state_.history.epoch();
    check_progress(state_.history, state_.scaler,
                   {.epoch = epoch,
                    .loss = state_.history.losses.back(),
                    .precision = options_.precision,
                    .learning_rate = options_.learning_rate});

    const bool interrupted = wants_stop();
    const bool last = interrupted || epoch == options_.epochs;
    const bool evaluated = last || epoch % options_.eval_every == 0;
    if (evaluated) evaluate(epoch);
    const bool impatient = evaluated && !last && out_of_patience(epoch);
    if (interrupted) stopped_by_ = StopReason::kInterrupted;
    if (impatient) stopped_by_ = StopReason::kPatience;
    done = last || impatient;
    state_.history.peak_memory_bytes =
        std::max(state_.history.peak_memory_bytes, peak_memory_bytes(options_.device));
    if (done || seconds_since(saved_) > kCheckpointSeconds) save();
    tell(epoch, evaluated);
  }
  state_.history.total_seconds = seconds_before_ + seconds_since(start_);
  return report();
}

TrainReport Run::report() const {
  const History& history = state_.history;
  const EvaluationRecord& best = *best_evaluation(history, options_.eval_every);
  TrainReport report;
  report.dataset = dataset_.name;
  report.model = name_of(nn::ModelKinds{}, options_.model);
  report.precision = amp::to_string(options_.precision);
  report.device = options_.device.str();
  report.metric = metric_name(problem_.metric);
  report.loss_scale_policy =
      state_.scaler.is_enabled()
          ? (options_.loss_scale.kind == LossScale::Kind::kConstant ? "constant" : "dynamic")
          : "none";
  report.seed = options_.seed;
  report.split_index = options_.split_index;
  report.threads = at::get_num_threads();
  for (const at::Tensor& parameter : state_.model->parameters()) {
    report.num_parameters += parameter.numel();
  }
  report.epochs_run = history.epoch();
  report.stopped_by = stopped_by_;
  report.train_loss = history.losses.back();
  report.best_epoch = best.epoch;
  report.best = best.scores;
  report.last = history.evaluations.back().scores;
  report.epoch_ms_min = *std::min_element(history.epoch_ms.begin(), history.epoch_ms.end());
  report.epoch_ms_median = median(history.epoch_ms);
  report.evaluation_seconds = history.evaluation_seconds;
  report.total_seconds = history.total_seconds;
  report.peak_memory_bytes = history.peak_memory_bytes;
  report.steps = history.steps;
  report.skipped_steps = history.skipped_steps;
  report.final_loss_scale = state_.scaler.get_scale();
  report.losses = history.losses;
  report.evaluations = history.evaluations;
  return report;
}

}  // namespace

TrainReport train(const Dataset& dataset, const TrainOptions& options,
                  const TrainCallbacks& callbacks) {
  return Run(dataset, options, callbacks).run();
}

}  // namespace mezzo
