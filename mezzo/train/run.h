#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "mezzo/data/dataset.h"
#include "mezzo/dist/group/process_group.h"
#include "mezzo/train/clock.h"
#include "mezzo/train/problem.h"
#include "mezzo/train/processes.h"
#include "mezzo/train/state.h"
#include "mezzo/train/steps/epoch_steps.h"
#include "mezzo/train/trainer.h"

namespace mezzo {

/// One run of train(), from the options to the report; refers to its arguments. Internal to train;
/// not exported.
class Run {
 public:
  Run(const Dataset& dataset, const TrainOptions& options, const TrainCallbacks& callbacks,
      const dist::ProcessGroup& group, nn::Model own = nullptr);
  TrainResult run();

 private:
  void check_patience();
  void resume();
  StepResult next_batch();
  bool train_epoch();
  void count(const StepResult& result);
  Scores scores();
  void evaluate(std::int64_t epoch);
  const EvaluationRecord* best_evaluation() const {
    return mezzo::best_evaluation(state_.history, options_.eval_every, problem_.metric);
  }
  bool out_of_patience(std::int64_t epoch) const;
  bool was_out_of_patience() const;
  bool wants_stop() const { return callbacks_.should_stop && callbacks_.should_stop(); }
  void report_batch() const;
  void report_epoch(std::int64_t epoch, bool evaluated) const;
  void save_if_due();
  void save();
  void save_at_end();
  void take_times();
  TrainReport checked_report();
  TrainedModel trained() const;

  const Dataset& dataset_;
  const TrainOptions& options_;
  const TrainCallbacks& callbacks_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point saved_ = start_;
  Processes processes_;
  Problem problem_;
  TrainState state_;
  std::unique_ptr<EpochSteps> steps_;
  double seconds_before_ = 0, communication_before_ = 0;  // of the resumed run
  double loss_scale_ = 1;                                 // after the latest step
  bool interrupted_ = false;
  EvaluatedTargets evaluated_;  // by the last evaluation of this process
  std::string save_error_;      // why the last checkpoint could not be written
  StopReason stopped_by_ = StopReason::kEpochs;
};

}  // namespace mezzo
