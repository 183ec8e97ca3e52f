#include "mezzo/train/doctor/doctor.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "support/npy_writer.h"
#include "train/mini_batches.h"
#include "train/synthetic.h"

namespace mezzo {
namespace {

using nlohmann::json;
using test::two_rings;

/// A job that converges in a few steps.
DoctorOptions job() {
  DoctorOptions options;
  options.training.hidden = 8;
  options.training.seed = 3;
  options.training.learning_rate = 0.05;
  options.training.dropout = 0.1;
  options.training.weight_decay = 0;
  return options;
}

/// Features of about 1e5, too large for float16. The normalization after the first layer brings its
/// outputs back into range.
Dataset overflowing_rings() {
  Dataset data = two_rings();
  data.features = data.features * 10 * 1e4;
  return data;
}

DoctorOptions overflowing_job() {
  DoctorOptions options = job();
  options.training.normalization = nn::Normalization::kLayer;
  return options;
}

/// All nodes train, so the gradients of the logits underflow in float16 if the loss is scaled by
/// 1e-6.
Dataset all_training_rings() {
  Dataset data = two_rings();
  data.train_masks = at::ones_like(data.train_masks);
  data.val_masks = at::zeros_like(data.val_masks);
  data.test_masks = at::zeros_like(data.test_masks);
  return data;
}

DoctorOptions underflowing_job() {
  DoctorOptions options = job();
  options.training.dropout = 0;
  options.training.loss_factor = 1e-6;
  return options;
}

const amp::DiagnosisIssue* find(const DoctorReport& diagnosis, amp::DiagnosisIssue::Kind kind) {
  const auto issue_of_kind =
      std::find_if(diagnosis.issues.begin(), diagnosis.issues.end(),
                   [kind](const amp::DiagnosisIssue& f) { return f.kind == kind; });
  return issue_of_kind == diagnosis.issues.end() ? nullptr : &*issue_of_kind;
}

/// The options of a longer run with the candidate's setting.
TrainOptions with_fix(const TrainOptions& options, const DoctorReport& diagnosis,
                      const amp::PrecisionCandidate& chosen) {
  TrainOptions fixed = with_setting(options, diagnosis.runs[chosen.run].setting);
  fixed.epochs = 60;
  return fixed;
}

TEST(Doctor, reports_no_issue_for_a_sound_job) {
  Dataset data = two_rings();
  data.features = data.features * 0.1;  // so that the initial dynamic scale does not overflow
  const DoctorReport diagnosis = diagnose(data, job());
  const std::string text = format_diagnosis(diagnosis);
  EXPECT_TRUE(diagnosis.issues.empty()) << text;
  EXPECT_NE(text.find("Nothing is wrong"), std::string::npos) << text;
  ASSERT_EQ(diagnosis.candidates.size(), 3U);
  for (const amp::PrecisionCandidate& each : diagnosis.candidates) {
    EXPECT_TRUE(each.suited) << each.evidence;
    EXPECT_TRUE(diagnosis.runs[each.run].setting.keep_float32.empty());
  }
  EXPECT_EQ(
      command_options(diagnosis.runs[diagnosis.candidate(amp::Precision::kBFloat16).run].setting),
      "--precision bf16");
  for (const amp::DiagnosisRun& run : diagnosis.runs) {
    EXPECT_EQ(run.losses.size(), 20U) << command_options(run.setting);
    EXPECT_EQ(run.skipped_steps, 0) << command_options(run.setting);
    EXPECT_GT(run.step_ms, 0) << command_options(run.setting);
    EXPECT_GT(run.peak_memory_bytes, 0) << command_options(run.setting);
    EXPECT_FALSE(run.places.empty()) << command_options(run.setting);
  }
}

TEST(Doctor, its_runs_take_the_steps_of_the_trainer) {
  const DoctorReport diagnosis = diagnose(two_rings(), job());
  for (const amp::DiagnosisRun& run : diagnosis.runs) {
    TrainOptions options = with_setting(job().training, run.setting);
    options.epochs = 20;
    const TrainReport report = train(two_rings(), options);
    EXPECT_EQ(run.losses, report.losses) << command_options(run.setting);
    EXPECT_EQ(run.skipped_steps, report.skipped_steps) << command_options(run.setting);
    EXPECT_EQ(run.final_loss_scale, report.final_loss_scale) << command_options(run.setting);
  }
}

/// Batches have one training node, so the loss of the first epoch is the mean of the losses.
TEST(Doctor, mini_batches_are_those_of_the_trainer) {
  for (const SamplerKind sampler : {SamplerKind::kNeighbor, SamplerKind::kSaintNode}) {
    DoctorOptions options;
    options.training = test::sampled_options(sampler);
    options.training.epochs = TrainOptions{}.epochs;
    const bool blocks = sampler == SamplerKind::kNeighbor;
    if (blocks) options.training.sampling->batch_size = 1;
    const DoctorReport diagnosis = diagnose(two_rings(), options);
    ASSERT_TRUE(diagnosis.recommended.has_value()) << format_diagnosis(diagnosis);
    for (const amp::DiagnosisRun& run : diagnosis.runs) {
      ASSERT_EQ(run.losses.size(), 20U) << command_options(run.setting);
      if (!blocks) continue;
      TrainOptions training = with_setting(options.training, run.setting);
      training.epochs = 1;  // of 20 training nodes
      const double sum = std::accumulate(run.losses.begin(), run.losses.end(), 0.0);
      EXPECT_EQ(train(two_rings(), training).losses, std::vector<double>{sum / 20})
          << command_options(run.setting);
    }
  }
}

TEST(Doctor, finds_the_layer_that_overflows_and_a_fix) {
  const Dataset data = overflowing_rings();
  const DoctorReport diagnosis = diagnose(data, overflowing_job());
  const std::string text = format_diagnosis(diagnosis);
  const amp::DiagnosisIssue* overflow = find(diagnosis, amp::DiagnosisIssue::Kind::kOverflow);
  ASSERT_NE(overflow, nullptr) << text;
  EXPECT_EQ(overflow->place, "layer0") << text;
  EXPECT_NE(overflow->op.find("copy"), std::string::npos) << "the cast of the features: " << text;
  EXPECT_NE(fix_of(diagnosis, *overflow).find("--precision fp16"), std::string::npos) << text;
  EXPECT_NE(fix_of(diagnosis, *overflow).find("--keep-float32 layer0"), std::string::npos) << text;

  const amp::PrecisionCandidate& float16 = diagnosis.candidate(amp::Precision::kFloat16);
  ASSERT_TRUE(float16.suited) << text;
  TrainOptions options = with_fix(overflowing_job().training, diagnosis, float16);
  EXPECT_EQ(options.keep_float32, std::vector<std::string>{"layer0"});
  const TrainReport report = train(data, options);
  EXPECT_EQ(report.skipped_steps, 0);
  EXPECT_EQ(report.last.test, 1);
  options.keep_float32.clear();
  EXPECT_THROWS(NumericError, "diverged", train(data, options));
}

TEST(Doctor, an_overflow_of_every_layer_leaves_no_float16) {
  DoctorOptions options = overflowing_job();
  options.training.model = nn::ModelKind::kSgc;  // one layer
  options.training.hidden.reset();
  options.training.normalization = nn::Normalization::kNone;
  const DoctorReport diagnosis = diagnose(overflowing_rings(), options);
  const amp::PrecisionCandidate& float16 = diagnosis.candidate(amp::Precision::kFloat16);
  EXPECT_FALSE(float16.suited);
  EXPECT_NE(float16.evidence.find("layer0"), std::string::npos) << float16.evidence;
  const amp::DiagnosisIssue* overflow = find(diagnosis, amp::DiagnosisIssue::Kind::kOverflow);
  ASSERT_NE(overflow, nullptr);
  EXPECT_EQ(fix_of(diagnosis, *overflow).find("fp16"), std::string::npos)
      << fix_of(diagnosis, *overflow);
  EXPECT_NE(diagnosis.candidates[diagnosis.recommended.value()].precision,
            amp::Precision::kFloat16);
}

TEST(Doctor, finds_where_gradients_underflow_and_a_fix) {
  const Dataset data = all_training_rings();
  const DoctorReport diagnosis = diagnose(data, underflowing_job());
  const std::string text = format_diagnosis(diagnosis);
  const amp::DiagnosisIssue* underflow = find(diagnosis, amp::DiagnosisIssue::Kind::kUnderflow);
  ASSERT_NE(underflow, nullptr) << text;
  EXPECT_EQ(underflow->place, "after layer1") << text;
  EXPECT_NE(underflow->op.find("copy"), std::string::npos) << "the cast to float16: " << text;
  EXPECT_NE(fix_of(diagnosis, *underflow).find("--precision fp16 --loss-scale "), std::string::npos)
      << text;
  EXPECT_EQ(find(diagnosis, amp::DiagnosisIssue::Kind::kOverflow), nullptr) << text;

  const amp::PrecisionCandidate& float16 = diagnosis.candidate(amp::Precision::kFloat16);
  ASSERT_TRUE(float16.suited) << text;
  TrainOptions options = with_fix(underflowing_job().training, diagnosis, float16);
  ASSERT_NE(options.loss_scale.kind, LossScale::Kind::kNone);
  const TrainReport report = train(data, options);
  EXPECT_EQ(report.skipped_steps, 0);
  EXPECT_EQ(report.last.train, 1);
  EXPECT_LT(report.losses.back(), report.losses.front() / 2);

  options.loss_scale = parse_loss_scale("none");
  const TrainReport untreated = train(data, options);
  EXPECT_EQ(untreated.losses.back(), untreated.losses.front()) << "no weight has moved";
}

TEST(Doctor, a_job_that_diverges_in_float32_gets_no_recommendation) {
  DoctorOptions options = job();
  options.training.learning_rate = 1e38;
  options.training.optimizer = OptimizerKind::kSgd;
  const DoctorReport diagnosis = diagnose(two_rings(), options);
  ASSERT_EQ(diagnosis.issues.size(), 1U);
  EXPECT_EQ(diagnosis.issues[0].kind, amp::DiagnosisIssue::Kind::kDivergence);
  EXPECT_EQ(diagnosis.runs.size(), 1U);
  EXPECT_NE(format_diagnosis(diagnosis).find("learning rate"), std::string::npos);
  const json report = json::parse(diagnosis_to_json(diagnosis));
  EXPECT_FALSE(report["issues"].empty());
  EXPECT_FALSE(diagnosis.recommended.has_value());
  EXPECT_TRUE(report["recommendation"].is_null()) << report;
  EXPECT_EQ(format_diagnosis(diagnosis).find("Recommended:"), std::string::npos);
}

TEST(Doctor, should_stop_ends_it_and_keeps_the_complete_runs) {
  std::int64_t steps = 0;
  DoctorCallbacks callbacks;
  callbacks.should_stop = [&] { return ++steps == 40; };  // in the second run
  const DoctorReport diagnosis = diagnose(two_rings(), job(), callbacks);
  EXPECT_TRUE(diagnosis.interrupted);
  EXPECT_EQ(diagnosis.runs.size(), 1U);
  EXPECT_NE(format_diagnosis(diagnosis).find("interrupted"), std::string::npos);
  EXPECT_TRUE(json::parse(diagnosis_to_json(diagnosis))["recommendation"].is_null());
}

TEST(Doctor, a_run_of_skipped_steps_alone_has_no_time) {
  DoctorReport diagnosis;
  diagnosis.interrupted = true;  // there are runs and nothing else
  amp::DiagnosisRun& run = diagnosis.runs.emplace_back();
  run.losses = {1.0};
  run.step_ms = std::nan("");
  const std::string text = format_diagnosis(diagnosis);
  EXPECT_EQ(text.find("nan"), std::string::npos) << text;
  EXPECT_NE(text.find(" none "), std::string::npos) << text;
  const json report = json::parse(diagnosis_to_json(diagnosis));
  EXPECT_TRUE(report["runs"][0]["step_ms"].is_null()) << report;
}

TEST(Doctor, calls_on_step_for_every_watched_step) {
  std::vector<std::string> runs;
  std::vector<std::int64_t> steps;
  DoctorCallbacks callbacks;
  callbacks.on_step = [&](const std::string& run, const EpochRecord& record) {
    if (record.epoch == 1) runs.push_back(run);
    if (runs.size() == 1) steps.push_back(record.epoch);
    EXPECT_EQ(record.epochs, 3);
  };
  DoctorOptions options = job();
  options.steps = 3;
  const DoctorReport diagnosis = diagnose(two_rings(), options, callbacks);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3}));
  ASSERT_EQ(runs.size(), diagnosis.runs.size());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    EXPECT_EQ(runs[i], command_options(diagnosis.runs[i].setting));
  }
}

TEST(Doctor, options_that_it_chooses_or_that_are_out_of_range_are_refused) {
  struct Case {
    const char* part;
    std::function<void(DoctorOptions&)> spoil;
  };
  const std::vector<Case> cases = {
      {"steps", [](DoctorOptions& o) { o.steps = 0; }},
      {"precision", [](DoctorOptions& o) { o.training.precision = amp::Precision::kFloat16; }},
      {"loss-scale", [](DoctorOptions& o) { o.training.loss_scale = parse_loss_scale("8"); }},
      {"checkpoint", [](DoctorOptions& o) { o.training.checkpoint = "c.pt"; }},
      {"epochs", [](DoctorOptions& o) { o.training.epochs = 7; }},
      {"loss-factor", [](DoctorOptions& o) { o.training.loss_factor = 0; }},
      {"layers", [](DoctorOptions& o) { o.training.layers = 0; }},
  };
  for (const Case& c : cases) {
    DoctorOptions options = job();
    c.spoil(options);
    EXPECT_THROWS(InvalidArgument, c.part, diagnose(two_rings(), options));
  }
}

TEST(KeepFloat32, every_layer_kept_is_float32_bit_for_bit) {
  TrainOptions options = test::quick_options();
  options.normalization = nn::Normalization::kLayer;
  options.skip = true;
  const TrainReport float32 = train(two_rings(), options);
  options.precision = amp::Precision::kBFloat16;
  const TrainReport bfloat16 = train(two_rings(), options);
  EXPECT_NE(bfloat16.losses, float32.losses);
  options.keep_float32 = {"layer0", "norm0", "skip0", "layer1", "skip1"};
  EXPECT_EQ(train(two_rings(), options).losses, float32.losses);
  options.keep_float32 = {"layer0"};
  const TrainReport first = train(two_rings(), options);
  EXPECT_NE(first.losses, float32.losses);
  EXPECT_NE(first.losses, bfloat16.losses);
}

TEST(KeepFloat32, unknown_paths_are_refused_with_a_list) {
  TrainOptions options = test::quick_options();
  options.precision = amp::Precision::kFloat16;
  options.keep_float32 = {"layer2"};
  EXPECT_THROWS(InvalidArgument, test::fragments("layer2", "layer0, layer1"),
                train(two_rings(), options));
  options.keep_float32 = {"layer0", "layer0"};
  EXPECT_THROWS(InvalidArgument, "twice", train(two_rings(), options));
  options.keep_float32 = {"layer0"};
  options.precision = amp::Precision::kFloat32;
  EXPECT_THROWS(InvalidArgument, test::fragments("keep-float32", "fp32"),
                train(two_rings(), options));
}

TEST(KeepFloat32, the_config_has_it_and_the_loss_factor) {
  TrainOptions options;
  options.precision = amp::Precision::kFloat16;
  options.keep_float32 = {"layer0", "norm0"};
  options.loss_factor = 1e-6;
  const TrainOptions back = config_from_json(config_to_json(options));
  EXPECT_EQ(back.keep_float32, options.keep_float32);
  EXPECT_EQ(back.loss_factor, options.loss_factor);
}

}  // namespace
}  // namespace mezzo
