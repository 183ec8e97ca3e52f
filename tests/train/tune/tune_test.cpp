#include "mezzo/train/tune/tune.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "mezzo/core/error.h"

#include "support/errors.h"
#include "support/npy_writer.h"
#include "support/warnings.h"
#include "train/checkpoints.h"
#include "train/synthetic.h"

namespace mezzo {
namespace {

using test::two_rings;

/// A search with eight candidates, by ticking_clock().
TuneOptions quick_search() {
  TuneOptions options;
  options.training = test::quick_options();
  options.fixed = {"hidden", "precision", "epochs"};
  options.minutes = 0.4;
  return options;
}
constexpr std::size_t kCandidates = 8;

/// A clock that gives every trial one second.
TuneCallbacks ticking_clock() {
  TuneCallbacks callbacks;
  callbacks.seconds = [now = 0.0]() mutable { return now += 1; };
  return callbacks;
}

/// Everything about the trials.
std::string text_of(const TuneResult& result) {
  std::string text = fmt::format("best {}\n", result.best.value_or(result.trials.size()));
  for (const Trial& trial : result.trials) {
    text += fmt::format("{} {} {} {} {} {}\n", trial.candidate, trial.epochs, trial.score,
                        trial.seconds, trial.options.epochs, config_to_json(trial.options));
  }
  return text;
}

class TuneTest : public testing::Test {
 protected:
  TuneOptions options = quick_search();
};

TEST_F(TuneTest, the_trials_depend_on_the_seed) {
  const TuneResult result = tune(two_rings(), options, ticking_clock());
  EXPECT_EQ(text_of(result), text_of(tune(two_rings(), options, ticking_clock())));
  options.training.seed = 4;
  const TuneResult other = tune(two_rings(), options, ticking_clock());
  TrainOptions drawn = other.trials[4].options;
  drawn.seed = result.trials[4].options.seed;
  EXPECT_NE(config_to_json(drawn), config_to_json(result.trials[4].options));
}

std::vector<Trial> trials_of(const TuneResult& result, std::int64_t epochs) {
  std::vector<Trial> trials;
  for (const Trial& trial : result.trials) {
    if (trial.epochs == epochs) trials.push_back(trial);
  }
  return trials;
}

/// The best `count` of the trials, and that of candidate 0.
std::vector<std::int64_t> best_and_recommended(std::vector<Trial> trials, std::size_t count) {
  std::stable_sort(trials.begin(), trials.end(), [](const Trial& a, const Trial& b) {
    return std::pair(-a.score, a.candidate) < std::pair(-b.score, b.candidate);
  });
  std::vector<std::int64_t> candidates;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    if (i < count || trials[i].candidate == 0) candidates.push_back(trials[i].candidate);
  }
  return candidates;
}

std::vector<std::int64_t> candidates_of(const std::vector<Trial>& trials) {
  std::vector<std::int64_t> candidates;
  for (const Trial& trial : trials) candidates.push_back(trial.candidate);
  return candidates;
}

TEST_F(TuneTest, the_best_third_and_the_recommended_candidate_go_on) {
  const TuneResult result = tune(two_rings(), options, ticking_clock());
  const std::vector<Trial> first = trials_of(result, 40), second = trials_of(result, 120),
                           last = trials_of(result, 360);
  ASSERT_EQ(first.size(), kCandidates);
  EXPECT_EQ(candidates_of(second), best_and_recommended(first, 3));
  EXPECT_EQ(candidates_of(last), best_and_recommended(second, (second.size() + 2) / 3));
  EXPECT_EQ(result.trials.size(), first.size() + second.size() + last.size());
  ASSERT_TRUE(result.best);
  const Trial& best = result.trials[*result.best];
  EXPECT_EQ(best.epochs, 360);
  EXPECT_EQ(best.candidate, best_and_recommended(last, 1)[0]);
  EXPECT_GT(best.score, 0.5);
}

TEST_F(TuneTest, the_best_and_the_recommended_candidate_reach_the_last_rung_if_the_time_is_short) {
  options.minutes = 1e-6;
  const TuneResult result = tune(two_rings(), options, ticking_clock());
  ASSERT_EQ(trials_of(result, 40).size(), 4U);
  for (const std::int64_t epochs : {120, 360}) {
    EXPECT_EQ(candidates_of(trials_of(result, epochs)),
              best_and_recommended(trials_of(result, epochs / 3), 1));
  }
}

TEST_F(TuneTest, fixed_options_are_not_varied) {
  options.training.model = nn::ModelKind::kGat;
  options.training.layers = 3;
  options.training.learning_rate = 0.05;
  options.training.attention_dropout = 0.1;
  options.fixed.insert(options.fixed.end(), {"layers", "lr", "attention-dropout"});
  options.minutes = 1e-6;
  for (const Trial& trial : tune(two_rings(), options, ticking_clock()).trials) {
    EXPECT_EQ(trial.options.layers, 3);
    EXPECT_EQ(trial.options.hidden, 8);
    EXPECT_EQ(trial.options.learning_rate, 0.05);
    EXPECT_EQ(trial.options.attention_dropout, 0.1);
    EXPECT_EQ(trial.options.epochs, 10);
  }
}

TEST(Tune, fixed_heads_keep_the_width_of_gat) {
  TuneOptions options = quick_search();
  options.training.model = nn::ModelKind::kGat;
  options.training.hidden.reset();
  options.training.heads = 2;
  options.fixed = {"heads", "precision", "layers"};
  options.minutes = 1e-6;
  for (const Trial& trial : tune(two_rings(), options, ticking_clock()).trials) {
    EXPECT_EQ(trial.options.heads, 2);
    if (trial.candidate == 1) continue;  // has the defaults
    EXPECT_GE(trial.options.hidden.value_or(0), 64 / 2);
  }
}

TEST(Tune, every_model_has_candidates_that_fit_it) {
  mezzo::detail::for_each(nn::ModelKinds{}, [&]<class Kind>() {
    for (const std::int64_t layers : {1, 2}) {
      SCOPED_TRACE(fmt::format("{}, {} layers", Kind::name, layers));
      TuneOptions options = quick_search();
      options.training.model = Kind::kind;
      options.training.hidden.reset();
      options.training.layers = layers;
      options.fixed = {"precision", "layers"};
      options.minutes = 1e-6;
      EXPECT_EQ(trials_of(tune(two_rings(), options, ticking_clock()), 40).size(), 4U);
    }
  });
}

TEST_F(TuneTest, a_grid_without_further_candidates_ends_the_rung) {
  options.training.model = nn::ModelKind::kSgc;
  options.training.hidden.reset();
  options.fixed = {"precision", "layers",       "dropout",           "skip",
                   "lr",        "weight-decay", "normalize-features"};
  options.minutes = 100;
  EXPECT_EQ(tune(two_rings(), options, ticking_clock()).trials.size(), 3U);  // one a rung
}

TEST_F(TuneTest, finished_trials_are_reused_after_an_interrupt) {
  const test::TempFolder folder;
  options.trials = folder.path("t.json");
  TuneCallbacks callbacks = ticking_clock();
  std::size_t trials = 0, epochs = 0;
  callbacks.on_trial = [&](const TuneResult& result) { trials = result.trials.size(); };
  callbacks.on_epoch = [&](const Trial& /*trial*/, const EpochRecord& /*record*/) { ++epochs; };
  callbacks.should_stop = [&] { return trials == 5 && epochs % 10 == 7; };
  const TuneResult interrupted = tune(two_rings(), options, callbacks);
  EXPECT_TRUE(interrupted.interrupted);
  EXPECT_EQ(interrupted.trials.size(), 5U);
  EXPECT_TRUE(interrupted.best);

  callbacks.should_stop = {};
  std::size_t first = 100;
  callbacks.on_epoch = [&](const Trial& /*trial*/, const EpochRecord& /*record*/) {
    first = std::min(first, trials);
  };
  const TuneResult resumed = tune(two_rings(), options, callbacks);
  EXPECT_EQ(first, 5U) << "the first trial that ran";
  EXPECT_FALSE(resumed.interrupted);
  EXPECT_EQ(text_of(resumed), text_of(tune(two_rings(), quick_search(), ticking_clock())));

  first = 100;
  EXPECT_EQ(text_of(tune(two_rings(), options, callbacks)), text_of(resumed));
  EXPECT_EQ(first, 100U) << "nothing runs";
}

TEST_F(TuneTest, a_trial_that_failed_is_not_tried_again) {
  const test::TempFolder folder;
  options.trials = folder.path("t.json");
  const auto file = [&] { return nlohmann::json::parse(test::read_file(options.trials)); };
  std::int64_t running = -1;
  TuneCallbacks callbacks = ticking_clock();
  callbacks.on_epoch = [&](const Trial& trial, const EpochRecord& record) {
    if (record.epoch == 1) {
      EXPECT_EQ(file()["trials"].back()["failure"], "running");
      EXPECT_TRUE(file()["trials"].back()["score"].is_null());
    }
    running = trial.candidate;
    if (trial.candidate == 2) throw std::bad_alloc();
    if (trial.candidate == 4) throw std::runtime_error("no data\nat step 1");
  };
  EXPECT_THROW(tune(two_rings(), options, callbacks), std::runtime_error);
  EXPECT_EQ(running, 4);
  ASSERT_EQ(file()["trials"].size(), 5U);
  EXPECT_EQ(file()["trials"][2]["failure"], "out of memory");
  EXPECT_TRUE(file()["trials"][3]["failure"].is_null());
  EXPECT_EQ(file()["trials"][4]["failure"], "no data");

  callbacks.on_epoch = [](const Trial& trial, const EpochRecord& /*record*/) {
    EXPECT_NE(trial.candidate, 2);
    EXPECT_NE(trial.candidate, 4);
  };
  const TuneResult result = tune(two_rings(), options, callbacks);
  EXPECT_EQ(result.trials[2].failure, "out of memory");
  EXPECT_TRUE(std::isnan(result.trials[4].score));
  const auto report = nlohmann::json::parse(tune_to_json(result, {}));
  EXPECT_EQ(report["trials"][2]["failure"], "out of memory");
  EXPECT_TRUE(report["trials"][3]["failure"].is_null());
}

TEST_F(TuneTest, a_trial_that_ended_the_process_counts_as_failed_which_is_said_once) {
  const test::TempFolder folder;
  options.trials = folder.path("t.json");
  options.minutes = 1e-6;
  tune(two_rings(), options, ticking_clock());
  nlohmann::json killed = nlohmann::json::parse(test::read_file(options.trials));
  killed["trials"][1]["failure"] = "running";
  killed["trials"][1]["score"] = nullptr;
  folder.write("t.json", killed.dump());
  for (const std::ptrdiff_t warnings : {1, 0}) {
    test::Warnings said;
    TuneCallbacks callbacks = ticking_clock();
    callbacks.on_epoch = [](const Trial& trial, const EpochRecord& /*record*/) {
      EXPECT_NE(trial.candidate, 1);
    };
    const TuneResult result = tune(two_rings(), options, callbacks);
    EXPECT_EQ(std::count_if(said.texts.begin(), said.texts.end(),
                            [](const std::string& text) {
                              return text.find("counts as failed") != std::string::npos;
                            }),
              warnings);
    EXPECT_EQ(result.trials[1].failure, "the process ended during the trial");
  }
}

TEST_F(TuneTest, trials_of_another_job_are_an_error) {
  const test::TempFolder folder;
  options.minutes = 1e-6;
  options.trials = folder.path("t.json");
  tune(two_rings(), options, ticking_clock());
  Dataset other = two_rings();
  other.labels = 1 - other.labels;
  EXPECT_THROWS(InvalidArgument, test::fragments("--output", options.trials, "labels"),
                tune(other, options));
  other = two_rings();
  other.features = 2 * other.features;
  EXPECT_THROWS(InvalidArgument, test::fragments("--output", options.trials, "features"),
                tune(other, options));
  other = two_rings();
  other.src = other.src.flip(0);
  EXPECT_THROWS(InvalidArgument, test::fragments("--output", options.trials, "edges"),
                tune(other, options));
  TuneOptions sage = options;
  sage.training.model = nn::ModelKind::kSage;
  EXPECT_THROWS(InvalidArgument, test::fragments("--output", "model \"sage\", got \"gcn\""),
                tune(two_rings(), sage));
  for (const char* text : {"", "{}", "[1]", R"({"job": {}, "trials": 3})"}) {
    folder.write("t.json", text);
    EXPECT_THROWS(IoError, test::fragments(options.trials, "--output"), tune(two_rings(), options))
        << text;
  }
}

TEST_F(TuneTest, parts_in_float32_need_a_precision_of_16_bits) {
  if (amp::fastest_precision(at::kCPU) == amp::Precision::kFloat32) GTEST_SKIP() << "no bfloat16";
  options.training.keep_float32 = {"layer0"};
  options.fixed = {"hidden", "keep-float32"};
  options.minutes = 1e-6;
  for (const Trial& trial : tune(two_rings(), options, ticking_clock()).trials) {
    EXPECT_EQ(trial.options.precision, amp::Precision::kBFloat16);
    EXPECT_EQ(trial.options.keep_float32, options.training.keep_float32);
  }
}

TEST_F(TuneTest, a_fixed_option_that_does_not_exist_is_an_error) {
  options.fixed.emplace_back("learning_rate");
  EXPECT_THROWS(InvalidArgument, test::fragments("fixed: ", "'learning_rate'"),
                tune(two_rings(), options));
}

TEST_F(TuneTest, needs_validation_nodes_and_time) {
  Dataset data = two_rings();
  data.val_masks = at::zeros_like(data.val_masks);
  EXPECT_THROWS(InvalidArgument, test::fragments("tune: ", "two rings", "no validation nodes"),
                tune(data, quick_search()));
  options.minutes = 0;
  EXPECT_THROWS(InvalidArgument, "minutes", tune(two_rings(), options));
}

TEST_F(TuneTest, is_a_numeric_error_if_every_candidate_diverges) {
  options.training.learning_rate = 1e37;
  options.fixed.emplace_back("lr");
  options.minutes = 1e-6;
  EXPECT_THROWS(NumericError, "tune: none of 4 candidates",
                tune(two_rings(), options, ticking_clock()));
}

TEST_F(TuneTest, the_chosen_precision_is_that_of_all_trials_and_of_the_next_call) {
  const test::TempFolder folder;
  options.fixed = {"hidden"};
  options.minutes = 1e-6;
  options.trials = folder.path("t.json");
  const TuneResult result = tune(two_rings(), options, ticking_clock());
  const auto chosen =
      nlohmann::json::parse(test::read_file(options.trials))["precision"].get<std::string>();
  for (const Trial& trial : result.trials) {
    EXPECT_EQ(amp::to_string(trial.options.precision), chosen);
  }
  EXPECT_EQ(text_of(tune(two_rings(), options, ticking_clock())), text_of(result));
}

TEST_F(TuneTest, the_report_has_all_trials) {
  options.minutes = 1e-6;
  const TuneResult result = tune(two_rings(), options, ticking_clock());
  const auto report = nlohmann::json::parse(tune_to_json(result, {}));
  ASSERT_EQ(report["trials"].size(), result.trials.size());
  EXPECT_EQ(report["best"].get<std::size_t>(), result.best);
  EXPECT_EQ(report["trials"][1]["score"].get<double>(), result.trials[1].score);
  EXPECT_EQ(report["trials"][1]["options"]["hidden"].get<int>(), 8);
  EXPECT_TRUE(report["train"].is_null());
}

}  // namespace
}  // namespace mezzo
