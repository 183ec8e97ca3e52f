#include "mezzo/train/report/report.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "mezzo/core/table.h"
#include "mezzo/train/report/summary.h"
#include "mezzo/version.h"

#include "support/special_numbers.h"

namespace mezzo {
namespace {

using nlohmann::json;

using test::kNaN;

TrainReport report(std::uint64_t seed, double test, double median_ms) {
  TrainReport report;
  report.dataset = "data";
  report.model = "gcn";
  report.precision = "fp32";
  report.device = "cpu";
  report.metric = "accuracy";
  report.loss_scale_policy = "none";
  report.seed = seed;
  report.epochs_run = 10;
  report.train_loss = 0.25;
  report.best_epoch = 4;
  report.best = {.train = 1, .val = kNaN, .test = test};
  report.last = report.best;
  report.epoch_ms_min = median_ms / 2;
  report.epoch_ms_median = median_ms;
  report.total_seconds = 2;
  report.peak_memory_bytes = static_cast<std::int64_t>(seed) * 1024;
  report.steps = 10;
  report.skipped_steps = 1;
  report.losses = {1, 0.5, std::numeric_limits<double>::infinity()};
  report.evaluations = {{4, report.best}};
  return report;
}

TEST(Summary, mean_and_sample_deviation) {
  const MeanDeviation three = mean_deviation({1, 3, 5});
  EXPECT_EQ(three.mean, 3);
  EXPECT_EQ(three.deviation, 2);
  EXPECT_EQ(mean_deviation({7}).mean, 7);
  EXPECT_EQ(mean_deviation({7}).deviation, 0);
  EXPECT_TRUE(std::isnan(mean_deviation({}).mean));
}

TEST(Summary, median_of_odd_and_even_counts) {
  EXPECT_EQ(median({5, 1, 3}), 3);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_TRUE(std::isnan(median({})));
}

TEST(Summary, speed_up_is_against_fp32_of_the_same_model) {
  ComparisonRow base{.model = "gcn", .precision = "fp32", .runs = {report(0, 1, 8)}, .error = ""};
  ComparisonRow fast{.model = "gcn", .precision = "bf16", .runs = {report(0, 1, 2)}, .error = ""};
  ComparisonRow other{.model = "gat", .precision = "bf16", .runs = {report(0, 1, 2)}, .error = ""};
  ComparisonRow failed{.model = "gcn", .precision = "fp16", .runs = {}, .error = "diverged"};
  const std::vector<ComparisonRow> rows = {base, fast, other, failed};
  EXPECT_EQ(speed_up(base, rows), 1);
  EXPECT_EQ(speed_up(fast, rows), 4);
  EXPECT_EQ(speed_up(other, rows), std::nullopt);
  EXPECT_EQ(speed_up(failed, rows), std::nullopt);
}

TEST(ReportJson, one_run_has_every_promised_field) {
  const json object = json::parse(report_to_json({report(7, 0.5, 3)}));
  for (const char* key : {"dataset",
                          "model",
                          "precision",
                          "device",
                          "seed",
                          "epochs_run",
                          "train_loss",
                          "train",
                          "val",
                          "test",
                          "best_epoch",
                          "epoch_ms",
                          "total_seconds",
                          "peak_memory_bytes",
                          "steps",
                          "skipped_steps",
                          "final_loss_scale",
                          "version",
                          "metric",
                          "stopped_by"}) {
    EXPECT_TRUE(object.contains(key)) << key;
  }
  EXPECT_EQ(object["seed"], 7);
  EXPECT_EQ(object["test"]["accuracy"], 0.5);
  EXPECT_TRUE(object["val"]["accuracy"].is_null());
  EXPECT_EQ(object["epoch_ms"]["min"], 1.5);
  EXPECT_EQ(object["epoch_ms"]["median"], 3);
  EXPECT_EQ(object["version"], kVersion);
  EXPECT_EQ(object["history"]["train_loss"].size(), 3U);
  EXPECT_TRUE(object["history"]["train_loss"][2].is_null());
  EXPECT_EQ(object["history"]["evaluations"][0]["epoch"], 4);
  EXPECT_EQ(object["history"]["evaluations"][0]["test"]["accuracy"], 0.5);
  EXPECT_EQ(object["last"]["train"]["accuracy"], 1);
}

TEST(ReportJson, scores_have_the_name_of_the_metric) {
  TrainReport run = report(7, 0.5, 3);
  run.metric = "roc_auc";
  const json one = json::parse(report_to_json({run}));
  EXPECT_EQ(one["test"], json({{"roc_auc", 0.5}}));
  EXPECT_EQ(one["last"]["test"], json({{"roc_auc", 0.5}}));
  const json several = json::parse(report_to_json({run, run}));
  EXPECT_EQ(several["test"], json({{"roc_auc", 0.5}}));
  EXPECT_EQ(several["deviation"]["test"], json({{"roc_auc", 0}}));
}

TEST(ReportJson, the_error_after_the_runs_has_a_field) {
  EXPECT_TRUE(json::parse(report_to_json({TrainReport()}))["error"].is_null());
  EXPECT_EQ(json::parse(report_to_json({TrainReport()}, "run 2/3: it"))["error"], "run 2/3: it");
}

TEST(ReportJson, several_runs_are_summed_up_under_the_same_keys) {
  const json object = json::parse(report_to_json({report(1, 0.25, 3), report(2, 0.75, 5)}));
  EXPECT_EQ(object["test"]["accuracy"], 0.5);
  EXPECT_EQ(object["deviation"]["test"]["accuracy"], std::sqrt(0.125));
  EXPECT_EQ(object["seed"], 1);
  EXPECT_EQ(object["steps"], 20);
  EXPECT_EQ(object["skipped_steps"], 2);
  EXPECT_EQ(object["total_seconds"], 4);
  EXPECT_EQ(object["peak_memory_bytes"], 2048);
  EXPECT_EQ(object["epoch_ms"]["min"], 1.5);
  EXPECT_EQ(object["epoch_ms"]["median"], 4);
  ASSERT_EQ(object["runs"].size(), 2U);
  EXPECT_EQ(object["runs"][1]["test"]["accuracy"], 0.75);
}

TEST(ReportJson, a_comparison_keeps_rows_that_failed) {
  ComparisonRow failed{.model = "gcn", .precision = "fp16", .runs = {}, .error = "diverged"};
  ComparisonRow base{.model = "gcn", .precision = "fp32", .runs = {report(0, 1, 8)}, .error = ""};
  const json object = json::parse(comparison_to_json({base, failed}));
  ASSERT_EQ(object["results"].size(), 2U);
  EXPECT_EQ(object["results"][0]["speed_up"], 1);
  EXPECT_TRUE(object["results"][0]["error"].is_null());
  EXPECT_EQ(object["results"][1]["precision"], "fp16");
  EXPECT_EQ(object["results"][1]["error"], "diverged");
  const std::string table = format_comparison({base, failed});
  EXPECT_NE(table.find("diverged"), std::string::npos) << table;
}

TEST(Table, columns_align_by_code_points) {
  EXPECT_EQ(format_table({{"name", "n"}, {"a", "10"}, {"b", "1 ± 2"}}),
            "name      n\n"
            "a        10\n"
            "b     1 ± 2\n");
  EXPECT_EQ(format_table({{"a", "left"}, {"long", "x"}}, 2),
            "a     left\n"
            "long  x\n");
}

TEST(Table, formats_scores_and_bytes) {
  EXPECT_EQ(format_score(0.81504), "0.8150");
  EXPECT_EQ(format_score(kNaN), "-");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(std::int64_t{3} << 30), "3.0 GiB");
}

}  // namespace
}  // namespace mezzo
