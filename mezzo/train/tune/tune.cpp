#include "mezzo/train/tune/tune.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <new>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include "mezzo/core/error.h"
#include "mezzo/core/json.h"
#include "mezzo/train/clock.h"
#include "mezzo/train/data_checks.h"
#include "mezzo/train/doctor/doctor.h"
#include "mezzo/train/files/tensor_hash.h"
#include "mezzo/train/options/option_fields.h"
#include "mezzo/train/options/recipe.h"
#include "mezzo/train/tune/trial_file.h"
#include "mezzo/train/tune/tune_grid.h"

namespace mezzo {
namespace {

constexpr std::array<std::int64_t, 3> kRungEpochs = {40, 120, 360};
constexpr std::size_t kLeastCandidates = 4;
// The best of more would owe its score to chance, and the file of trials would become large.
constexpr std::size_t kMostCandidates = 500;
constexpr std::size_t kShareThatGoesOn = 3;
constexpr const char* kOutOfMemory = "out of memory";

/// What the trials of a file must have in common.
nlohmann::json job_facts(const Dataset& dataset, const TrainOptions& options) {
  nlohmann::json facts = content_hashes(dataset);
  facts["model"] = fields::to_text(options.model);
  facts["device"] = options.device.str();
  return facts;
}

/// libtorch has a class of errors for exhausted memory of CUDA devices only.
bool is_out_of_memory(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         text.find("can't allocate memory") != std::string::npos;
}

std::string first_line(const std::exception& error) {
  const std::string_view text = error.what();
  return std::string(text.substr(0, text.find('\n')));
}

/// One search.
class Search {
 public:
  Search(const Dataset& dataset, TuneOptions options, const TuneCallbacks& callbacks);
  TuneResult run();

 private:
  TrainOptions keep_fixed(TrainOptions options) const {
    return with_fixed(std::move(options), options_.training, options_.fixed);
  }
  void choose_precision();
  std::optional<TrainOptions> next_candidate();
  std::vector<Trial> first_rung();
  std::vector<Trial> next_rung(std::vector<Trial> before, std::size_t rung);
  bool time_is_left(std::size_t rung) const;
  bool run_trial(Trial& trial);
  void record_trial(Trial& trial);
  void measure(Trial& trial);
  bool wants_stop() const { return callbacks_.should_stop && callbacks_.should_stop(); }

  /// Whether trial `a` is better than `b`, which has a score.
  bool is_better(const Trial& a, const Trial& b) const {
    const bool fewer = is_error(dataset_.metric);
    const auto key = [fewer](const Trial& trial) {
      return std::tuple(trial.epochs, fewer ? -trial.score : trial.score, -trial.candidate);
    };
    return !std::isnan(a.score) && key(a) > key(b);
  }

  const Dataset& dataset_;
  TuneOptions options_;
  const TuneCallbacks& callbacks_;
  std::function<double()> clock_;
  TrainOptions recommended_;
  std::set<std::string> keys_;  // of the candidates
  std::uint64_t draws_ = 0;
  double used_ = 0;                // seconds of the trials
  std::optional<TrialFile> file_;  // of a search whose options are right
  TuneResult result_;
};

Search::Search(const Dataset& dataset, TuneOptions options, const TuneCallbacks& callbacks)
    : dataset_(dataset),
      options_(std::move(options)),
      callbacks_(callbacks),
      clock_(callbacks.seconds ? callbacks.seconds
                               : [start = Clock::now()] { return seconds_since(start); }) {
  const TrainOptions& training = options_.training;
  MEZZO_CHECK(training.checkpoint.empty() && training.resume.empty() && training.init.empty(),
              "tune: expected no checkpoint, resume or init, which would be those of every trial");
  MEZZO_CHECK(options_.minutes > 0, "minutes: expected above 0, got {}", options_.minutes);
  check_fixed(options_.fixed);
  // Other options may need 16 bits.
  if (!is_fixed(options_.fixed, "precision")) {
    options_.training.precision = amp::fastest_precision(training.device);
  }
  const TrainOptions recommended = recommended_options(dataset, training);
  MEZZO_CHECK(recommended.patience,  // set if there are scores
              "tune: dataset {} has no validation {}s that have a score in split {}, by which "
              "options are chosen",
              dataset.name, name_of(TaskTargets{}, dataset.target), training.split_index);
  recommended_ = keep_fixed(recommended);
  check_options(recommended_);
  check_data(dataset, recommended_);
  file_.emplace(options_.trials, job_facts(dataset, options_.training));
}

void Search::choose_precision() {
  constexpr std::int64_t kDoctorSteps = 8;
  TrainOptions& training = options_.training;
  const bool runs_doctor = !is_fixed(options_.fixed, "precision") && !training.sampling &&
                           training.loss_scale == LossScale{} && training.keep_float32.empty();
  if (!runs_doctor) return;
  if (const std::optional<amp::Precision> before = file_->precision()) {
    training.precision = *before;
    return;
  }
  DoctorOptions doctor{.training = recommended_, .steps = kDoctorSteps};
  const TrainOptions defaults;
  doctor.training.precision = defaults.precision;
  doctor.training.epochs = defaults.epochs;
  doctor.training.patience = defaults.patience;
  doctor.training.eval_every = defaults.eval_every;
  doctor.training.capture = defaults.capture;
  DoctorCallbacks callbacks;
  callbacks.should_stop = callbacks_.should_stop;
  try {
    const DoctorReport report = diagnose(dataset_, doctor, callbacks);
    result_.interrupted = report.interrupted;
    if (report.interrupted) return;
    training.precision = amp::Precision::kFloat32;
    if (report.recommended) {
      // What one candidate needs besides need not fit another.
      const TrainOptions advised = with_setting(doctor.training, report.setting());
      if (advised.keep_float32.empty() && advised.loss_scale.kind != LossScale::Kind::kConstant) {
        training.precision = advised.precision;
      }
    }
  } catch (const c10::OutOfMemoryError&) {
    // float32 does not fit: training.precision is the fastest one, which may need less.
  }
  file_->set_precision(training.precision);
}

/// nullopt if the grid has no further one.
std::optional<TrainOptions> Search::next_candidate() {
  constexpr int kTries = 200;  // until a grid with few free options counts as used up
  if (keys_.size() >= kMostCandidates) return std::nullopt;
  for (int i = 0; i < kTries; ++i) {
    const std::uint64_t number = draws_++;
    TrainOptions options = recommended_;
    if (number == 1) {
      options = options_.training;
      options.layers = sampled_layers(options).value_or(options.layers);
    } else if (number > 1) {
      options = drawn_options(dataset_, recommended_, number);
    }
    options = keep_fixed(std::move(options));
    if (keys_.insert(config_to_json(options)).second) return options;
  }
  return std::nullopt;
}

/// Whether there is time for another trial of the rung.
bool Search::time_is_left(std::size_t rung) const {
  constexpr double kSecondsOfMinute = 60;
  const double share = static_cast<double>(rung + 1) / static_cast<double>(kRungEpochs.size());
  return used_ < kSecondsOfMinute * options_.minutes * share;
}

/// The trials of new candidates.
std::vector<Trial> Search::first_rung() {
  std::vector<Trial> trials;
  while (trials.size() < kLeastCandidates || time_is_left(0)) {
    std::optional<TrainOptions> options = next_candidate();
    if (!options) break;
    Trial trial{.candidate = static_cast<std::int64_t>(trials.size()),
                .options = std::move(*options),
                .epochs = kRungEpochs[0]};
    if (!run_trial(trial)) break;
    trials.push_back(std::move(trial));
  }
  return trials;
}

/// The trials of the best candidates of the rung before, and of the recommended one: what is chosen
/// is no worse than that.
std::vector<Trial> Search::next_rung(std::vector<Trial> before, std::size_t rung) {
  const std::size_t share = (before.size() + kShareThatGoesOn - 1) / kShareThatGoesOn;
  std::erase_if(before, [](const Trial& trial) { return std::isnan(trial.score); });
  std::sort(before.begin(), before.end(),
            [this](const Trial& a, const Trial& b) { return is_better(a, b); });
  std::vector<Trial> trials;
  for (std::size_t i = 0; i < before.size(); ++i) {
    Trial& trial = before[i];
    const bool is_recommended = trial.candidate == 0;
    if (i > 0 && !is_recommended && (i >= share || !time_is_left(rung))) continue;
    trial.epochs = kRungEpochs[rung];
    if (run_trial(trial)) trials.push_back(trial);
  }
  return trials;
}

/// false if interrupted.
bool Search::run_trial(Trial& trial) {
  if (wants_stop()) result_.interrupted = true;
  if (result_.interrupted) return false;
  if (!file_->read_result(trial)) {
    record_trial(trial);
    if (result_.interrupted) return false;
  }
  used_ += trial.seconds;
  result_.trials.push_back(trial);
  if (!result_.best ? !std::isnan(trial.score) : is_better(trial, result_.trials[*result_.best])) {
    result_.best = result_.trials.size() - 1;
  }
  if (callbacks_.on_trial) callbacks_.on_trial(result_);
  return true;
}

/// Trains. The file has the trial before, so that one which ends the process is not tried again.
/// An error that is not due to the candidate ends the search; the next call leaves the trial out.
void Search::record_trial(Trial& trial) {
  trial.score = std::nan("");
  trial.seconds = 0;
  file_->begin(trial);
  std::exception_ptr other;
  try {
    measure(trial);
  } catch (const std::exception& error) {
    trial.failure = first_line(error);
    other = std::current_exception();
  }
  result_.interrupted ? file_->drop() : file_->end(trial);
  if (other) std::rethrow_exception(other);
}

/// Sets score and seconds, or seconds and failure.
void Search::measure(Trial& trial) {
  constexpr std::int64_t kPatienceShare = 4;
  TrainOptions job = trial.options;
  job.epochs = trial.epochs;
  job.patience = std::max(trial.epochs / kPatienceShare, job.eval_every);
  TrainCallbacks callbacks;
  callbacks.should_stop = callbacks_.should_stop;
  if (callbacks_.on_epoch) {
    callbacks.on_epoch = [&](const EpochRecord& record) { callbacks_.on_epoch(trial, record); };
  }
  const double start = clock_();
  try {
    const TrainReport report = train(dataset_, job, callbacks);
    trial.score = report.best.val;
    result_.interrupted = report.stopped_by == StopReason::kInterrupted;
  } catch (const NumericError& error) {  // other candidates may train
    trial.failure = first_line(error);
  } catch (const std::bad_alloc&) {  // smaller ones may fit
    trial.failure = kOutOfMemory;
  } catch (const c10::Error& error) {
    if (!is_out_of_memory(error)) throw;
    trial.failure = kOutOfMemory;
  }
  trial.seconds = clock_() - start;
}

TuneResult Search::run() {
  choose_precision();
  recommended_.precision = options_.training.precision;
  std::vector<Trial> trials = first_rung();
  for (std::size_t rung = 1; rung < kRungEpochs.size() && !result_.interrupted; ++rung) {
    trials = next_rung(std::move(trials), rung);
  }
  if (!result_.interrupted && !result_.best) {
    detail::raise<NumericError>(
        "tune: none of {} candidates has finite numbers and fits the memory", keys_.size());
  }
  return result_;
}

}  // namespace

TuneResult tune(const Dataset& dataset, const TuneOptions& options,
                const TuneCallbacks& callbacks) {
  return Search(dataset, options, callbacks).run();
}

std::string tune_to_json(const TuneResult& result, const std::vector<TrainReport>& reports) {
  OrderedJson report;
  report["trials"] = OrderedJson::array();
  for (const Trial& trial : result.trials) {
    OrderedJson row = {{"candidate", trial.candidate}};
    row.update(trial_to_json(trial));
    report["trials"].push_back(std::move(row));
  }
  report["best"] = result.best ? OrderedJson(*result.best) : OrderedJson(nullptr);
  report["train"] =
      reports.empty() ? OrderedJson(nullptr) : OrderedJson::parse(report_to_json(reports));
  return json_text(report);
}

}  // namespace mezzo
