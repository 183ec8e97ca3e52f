#include "mezzo/train/run.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/core/error.h"
#include "mezzo/runtime/memory.h"
#include "mezzo/train/agreement.h"
#include "mezzo/train/data_checks.h"
#include "mezzo/train/files/checkpoint.h"
#include "mezzo/train/files/checkpoint_io.h"
#include "mezzo/train/files/files.h"
#include "mezzo/train/thread_guard.h"

namespace mezzo {
namespace {

Problem checked_problem(const Dataset& dataset, const TrainOptions& options, Processes& processes) {
  processes.together([&] { check_options(options); });
  check_group(dataset, options, processes);
  Problem problem;
  processes.together([&] {
    if (!options.checkpoint.empty() && processes.is_first()) {
      check_writable("checkpoint", options.checkpoint);
    }
    reset_peak_memory(options.device);
    problem = make_problem(dataset, options);
  });
  return problem;
}

}  // namespace

Run::Run(const Dataset& dataset, const TrainOptions& options, const TrainCallbacks& callbacks,
         const dist::ProcessGroup& group, nn::Model own)
    : dataset_(dataset),
      options_(options),
      callbacks_(callbacks),
      processes_(group, options.device),
      problem_(checked_problem(dataset, options, processes_)),
      state_(options, problem_, processes_.batch_normalization(), std::move(own)) {
  check_patience();
  check_ranks(dataset, state_.model);
  steps_ = make_epoch_steps(problem_, dataset, options, processes_);
  processes_.check_same("the batches of an epoch", fmt::format("{}", steps_->num_batches()));
  if (!options.resume.empty()) resume();
  processes_.together([&] {  // the others get the weights of the first
    if (options.init.empty() || !processes_.is_first()) return;
    init_from_checkpoint(options.init, model_options(options, problem_), *state_.model);
  });
  loss_scale_ = state_.scaler.get_scale();
  if (processes_.alone()) return;
  fix_own_threads();
  processes_.share_weights(*state_.model);
  // The time so far is mostly the wait for the process that reads its data last.
  processes_.reset_seconds();
  state_.exchange = [this](LossTotals& totals, const std::function<void()>& meanwhile) {
    interrupted_ = processes_.exchange(*state_.model, totals, wants_stop(),
                                       options_.gradient_traffic, meanwhile);
  };
}

void Run::resume() {
  const std::string& path = options_.resume;
  std::string bytes;
  processes_.together([&] {
    if (processes_.is_first()) bytes = read_checkpoint_bytes(path);
  });
  bytes = processes_.from_first(bytes);
  resume_checkpoint(path, bytes, options_, dataset_, state_);
  History& history = state_.history;
  // The nodes of a batch depend on the number of processes.
  if (history.begun.world_size != processes_.world_size()) history.begun = {};
  seconds_before_ = history.total_seconds;
  communication_before_ = history.communication_seconds;
  MEZZO_CHECK(history.epoch() <= options_.epochs,
              "resume: {} has {} epochs already, expected epochs of at least that, got {}", path,
              history.epoch(), options_.epochs);
  if (history.begun.batches > 0 && history.begun.batches >= steps_->num_batches()) {
    detail::raise<IoError>("{}: expected fewer than {} batches of the unfinished epoch, got {}",
                           path, steps_->num_batches(), history.begun.batches);
  }
}

void Run::check_patience() {
  if (!options_.patience) return;
  const double validates = has_score(problem_.masks.val, problem_) ? 1 : 0;
  MEZZO_CHECK(processes_.largest(validates) > 0,
              "patience: dataset {} has no validation {}s that have a score in split {}",
              dataset_.name, name_of(TaskTargets{}, problem_.task.target), options_.split_index);
}

/// Trains to the end of the epoch; false if interrupted before.
bool Run::train_epoch() {
  History& history = state_.history;
  BegunEpoch& begun = history.begun;
  const std::int64_t num_batches = steps_->num_batches();
  begun.world_size = processes_.world_size();
  processes_.or_give_up([&] { steps_->begin(history.epoch(), begun.batches); });
  while (begun.batches < num_batches && !interrupted_) {
    const Clock::time_point start = Clock::now();
    const StepResult result = next_batch();
    begun.milliseconds += 1e3 * seconds_since(start);
    count(result);
    report_batch();
    if (processes_.alone()) interrupted_ = wants_stop();
    if (begun.batches < num_batches && !interrupted_) save_if_due();
  }
  steps_->end();
  history.peak_memory_bytes =
      std::max(history.peak_memory_bytes, peak_memory_bytes(options_.device));
  if (begun.batches < num_batches) return false;
  if (begun.weight <= 0) {
    begun = {};
    save();  // the previous epochs
    detail::raise<InvalidArgument>("sampling: the batches of epoch {} have no training {}",
                                   history.epoch() + 1,
                                   name_of(TaskTargets{}, problem_.task.target));
  }
  history.losses.push_back(begun.mean_loss());
  history.epoch_ms.push_back(begun.milliseconds);
  history.loss_scales.push_back(loss_scale_);
  begun = {};
  return true;
}

StepResult Run::next_batch() {
  processes_.seed_step(options_.seed, state_.history.steps);
  return processes_.or_give_up([this] { return steps_->next(state_); });
}

void Run::count(const StepResult& step) {
  History& history = state_.history;
  BegunEpoch& begun = history.begun;
  ++begun.batches;
  if (step.totals.weight == 0) return;
  begun.loss_sum += step.totals.loss_sum;
  begun.weight += step.totals.weight;
  loss_scale_ = step.loss_scale;
  count_step(history, state_.scaler,
             {.epoch = history.epoch() + 1,
              .loss = step.loss,
              .loss_scale = step.loss_scale,
              .precision = options_.precision,
              .learning_rate = options_.learning_rate},
             step.skipped);
}

/// The scores over all targets: from process 0, or combined from the parts of all processes.
Scores Run::scores() {
  Scores own;
  processes_.together([&] {
    if (!dataset_.part && !processes_.is_first()) return;
    // Processes that wait in a collective of a GPU use their CPU threads.
    const bool others_idle = !dataset_.part && options_.device.is_cpu();
    const ThreadGuard threads(others_idle ? processes_.local_world_size() : 1);
    const Outputs outputs = evaluate_model(state_.model, problem_, options_);
    evaluated_ = evaluated_targets(outputs.logits, problem_.task.target, dataset_.part);
    check_outputs(evaluated_, state_, options_);
    own = score_outputs(outputs, state_.model->head(), problem_, options_);
  });
  if (!dataset_.part || processes_.alone()) return processes_.from_first(own);
  const auto count = [](const at::Tensor& mask) {
    return static_cast<double>(mask.sum().item<std::int64_t>());
  };
  const SplitMasks& masks = problem_.masks;
  return processes_.mean(
      own, {.train = count(masks.train), .val = count(masks.val), .test = count(masks.test)});
}

void Run::evaluate(std::int64_t epoch) {
  const Clock::time_point start = Clock::now();
  std::vector<EvaluationRecord>& evaluations = state_.history.evaluations;
  // A finished run that is resumed evaluates its last epoch again, for checked_report().
  if (!evaluations.empty() && evaluations.back().epoch == epoch) evaluations.pop_back();
  evaluations.push_back({epoch, scores()});
  if (best_evaluation()->epoch == epoch) {
    state_.best_weights = copy_weights(*state_.model);
  }
  state_.history.evaluation_seconds += seconds_since(start);
}

bool Run::out_of_patience(std::int64_t epoch) const {
  const EvaluationRecord* best = best_evaluation();
  return options_.patience && best != nullptr && epoch - best->epoch >= *options_.patience;
}

/// Whether the resumed run was out of patience.
bool Run::was_out_of_patience() const {
  const std::vector<EvaluationRecord>& evaluations = state_.history.evaluations;
  return !evaluations.empty() && out_of_patience(evaluations.back().epoch);
}

void Run::report_batch() const {
  if (!callbacks_.on_batch || !options_.sampling) return;
  const BegunEpoch& begun = state_.history.begun;
  const BatchRecord record{.epoch = state_.history.epoch() + 1,
                           .epochs = options_.epochs,
                           .batch = begun.batches,
                           .batches = steps_->num_batches(),
                           .loss = begun.mean_loss()};
  processes_.or_give_up([&] { callbacks_.on_batch(record); });
}

void Run::report_epoch(std::int64_t epoch, bool evaluated) const {
  if (!callbacks_.on_epoch) return;
  EpochRecord record{.epoch = epoch,
                     .epochs = options_.epochs,
                     .loss = state_.history.losses.back(),
                     .epoch_ms = state_.history.epoch_ms.back(),
                     .loss_scale = loss_scale_,
                     .skipped_steps = state_.history.skipped_steps,
                     .scores = std::nullopt};
  if (evaluated) record.scores = state_.history.evaluations.back().scores;
  processes_.or_give_up([&] { callbacks_.on_epoch(record); });
}

void Run::take_times() {
  state_.history.total_seconds = seconds_before_ + seconds_since(start_);
  state_.history.communication_seconds = communication_before_ + processes_.seconds();
}

void Run::save() {
  if (options_.checkpoint.empty() || !processes_.is_first()) return;
  take_times();
  processes_.or_give_up(
      [this] { write_checkpoint(options_.checkpoint, options_, dataset_, state_); });
  saved_ = Clock::now();
}

/// Keeps the error for checked_report().
void Run::save_at_end() {
  try {
    save();
  } catch (const IoError& error) {
    save_error_ = error.what();
  }
}

void Run::save_if_due() {
  if (seconds_since(saved_) > kCheckpointSeconds) save();
}

TrainResult Run::run() {
  if (callbacks_.on_start) callbacks_.on_start();
  const bool finished = state_.history.epoch() == options_.epochs;
  bool impatient = !finished && was_out_of_patience();
  bool done = finished || impatient;
  if (finished) evaluate(options_.epochs);
  if (done) save_at_end();
  while (!done) {
    if (!train_epoch()) {
      save_at_end();
      break;
    }
    const std::int64_t epoch = state_.history.epoch();
    const bool last = interrupted_ || epoch == options_.epochs;
    const bool regular = epoch % options_.eval_every == 0;
    const bool evaluated = last || regular;
    if (evaluated) evaluate(epoch);
    // Checked also after an interrupt: the run would have ended here anyway.
    impatient = regular && epoch < options_.epochs && out_of_patience(epoch);
    done = last || impatient;
    if (done) {
      save_at_end();
    } else {
      save_if_due();
    }
    report_epoch(epoch, evaluated);
  }
  if (impatient) {
    stopped_by_ = StopReason::kPatience;
  } else if (interrupted_) {
    stopped_by_ = StopReason::kInterrupted;
  }
  take_times();
  TrainReport report = checked_report();
  return {std::move(report), trained()};
}

TrainedModel Run::trained() const {
  TrainedModel trained{.model = state_.model, .options = options_, .data = facts_of(dataset_)};
  const EvaluationRecord* best = best_evaluation();
  trained.data.number_scale = state_.number_scale;
  trained.epoch = best != nullptr ? best->epoch : state_.history.epoch();
  if (best != nullptr) restore_weights(*trained.model, state_.best_weights);
  trained.model->zero_grad();  // frees the gradients
  trained.model->eval();
  return trained;
}

TrainReport Run::checked_report() {
  TrainReport result = report_of(state_, options_, problem_.metric);
  result.dataset = dataset_.name;
  result.world_size = processes_.world_size();
  result.stopped_by = stopped_by_;
  result.sampling = steps_->sampling();
  if (!save_error_.empty()) throw CheckpointError(save_error_, std::move(result));
  if (stopped_by_ == StopReason::kInterrupted) return result;  // it may be resumed
  try {
    processes_.together([this] { check_end(state_.history, options_.precision, evaluated_); });
  } catch (const NumericError& error) {
    throw TrainingDiverged(error.what(), std::move(result));
  }
  // The largest class of a part need not be that of the whole.
  if (!dataset_.part) result.warning = learning_warning(result, problem_);
  return result;
}

}  // namespace mezzo
