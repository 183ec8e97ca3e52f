#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "mezzo/cli/progress.h"

#include "cli/command.h"
#include "support/npy_writer.h"

namespace mezzo {
namespace {

using nlohmann::json;
using test::Outcome;
using test::run_mezzo;
using test::run_to;
using test::Words;

TEST(MiniBatchCommand, trains_evaluates_and_predicts_by_mini_batches) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder);
  const Words options = {"--model",  "sage", "--batch-size", "5", "--fanout",   "3,all",
                         "--hidden", "8",    "--workers",    "2", "--prefetch", "3"};
  const Words more = {"--inference-batch-size", "7",      "--checkpoint",
                      folder.path("c"),         "--json", folder.path("r.json")};
  const Outcome trained =
      run_to(0, folder,
             test::with(test::with({"train", "--dataset", rings, "--epochs", "4"}, options), more));
  EXPECT_TRUE(test::contains(trained.out, "neighbor, 3 batches an epoch, 2 workers on the host"));
  EXPECT_TRUE(test::contains(trained.out, "stages"));
  const json report = test::read_json(folder.path("r.json"));
  EXPECT_EQ(report["steps"], 12);
  EXPECT_EQ(report["sampling"]["sampler"], "neighbor");
  EXPECT_EQ(report["sampling"]["batches"], 12);
  EXPECT_EQ(report["sampling"]["batches_per_epoch"], 3);
  EXPECT_EQ(report["sampling"]["workers"], 2);
  EXPECT_EQ(report["sampling"]["drawn_on"], "host");
  EXPECT_GT(report["sampling"]["sampled_edges"], 0);
  for (const char* stage : {"sample", "gather", "transfer", "compute", "wait"}) {
    EXPECT_GE(report["sampling"]["seconds"][stage], 0) << stage;
  }

  const json evaluated = test::report_of(folder, {"evaluate", "--checkpoint", folder.path("c")});
  EXPECT_EQ(evaluated["test"], report["test"]);
  run_to(0, folder,
         {"predict", "--checkpoint", folder.path("c"), "--output", folder.path("p.csv")});
}

TEST(MiniBatchCommand, there_is_a_layer_for_each_fanout) {
  const test::TempFolder folder;
  const Words batches = {"--dataset", test::write_rings(folder), "--epochs", "1", "--batch-size",
                         "5"};
  for (const auto& [fanouts, layers] :
       {std::pair{"2", "--layers 1 "}, std::pair{"2,2,2", "--layers 3 "}}) {
    const Outcome outcome =
        run_to(0, folder, test::with(test::with({"train"}, batches), {"--fanout", fanouts}));
    EXPECT_TRUE(test::contains(outcome.err, layers));
  }
}

TEST(MiniBatchCommand, every_sampler_has_its_options) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder);
  const std::vector<Words> samplers = {
      {"labor", "--batch-size", "5", "--fanout", "2,2", "--layer-dependency", "--drop-last"},
      {"neighbor", "--batch-size", "5", "--fanout", "2,3", "--replace", "--balance-classes"},
      {"neighbor", "--batch-size", "5", "--fanout", "all,2", "--control-variates"},
      {"layer", "--batch-size", "5", "--layer-sizes", "12,8", "--no-shuffle"},
      {"cluster", "--parts", "4", "--parts-per-batch", "2", "--no-shuffle"},
      {"saint-node", "--saint-budget", "12"},
      {"saint-edge", "--saint-budget", "8", "--batches-per-epoch", "2", "--sample-on", "host"},
      {"saint-walk", "--saint-budget", "6", "--walk-length", "3"},
  };
  for (const Words& words : samplers) {
    const Words train = {"train", "--dataset", rings, "--epochs", "2", "--sampler"};
    const Outcome outcome = run_mezzo(folder, test::with(train, words));
    EXPECT_EQ(outcome.code, 0) << words.front() << ": " << outcome.err;
    EXPECT_TRUE(test::contains(outcome.out, words.front() + ", "));
  }
}

TEST(MiniBatchCommand, a_config_file_and_several_runs_take_the_same_options) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder);
  folder.write("c.toml", "batch-size = 5\nfanout = [2, 2]\nepochs = 2\nruns = 2\n");
  const json report =
      test::report_of(folder, {"train", "--dataset", rings, "--config", folder.path("c.toml")});
  EXPECT_EQ(report["sampling"]["batches"], 12);
  EXPECT_EQ(report["runs"][1]["sampling"]["batches"], 6);
}

TEST(MiniBatchCommand, compare_passes_the_sampling_on) {
  const test::TempFolder folder;
  const json report = test::report_of(
      folder, {"compare", "--dataset", test::write_rings(folder), "--models", "gcn,sage",
               "--batch-size", "5", "--fanout", "2,2", "--epochs", "2"});
  for (const json& result : report["results"]) {
    EXPECT_EQ(result["sampling"]["batches"], 6) << result["model"];
  }
}

TEST(MiniBatchCommand, walks_that_exceed_the_graph_are_refused) {
  const test::TempFolder folder;
  const Outcome outcome =
      run_to(2, folder,
             {"train", "--dataset", test::write_rings(folder), "--sampler", "saint-walk",
              "--saint-budget", "4", "--walk-length", "1000000000"});
  EXPECT_TRUE(test::contains(outcome.err, "saint-budget: expected batches of at most 96"));
}

TEST(MiniBatchCommand, the_doctor_takes_mini_batches) {
  const test::TempFolder folder;
  const nlohmann::json report = test::report_of(
      folder, {"doctor", "--dataset", test::write_rings(folder), "--model", "sage", "--batch-size",
               "4", "--fanout", "3,3", "--steps", "5", "--threads", "1"});
  EXPECT_EQ(report["runs"][0]["losses"].size(), 5U);
  EXPECT_FALSE(report["recommendation"].is_null()) << report;
}

BatchRecord batch_record(std::int64_t epoch, std::int64_t batch) {
  return {.epoch = epoch, .epochs = 2, .batch = batch, .batches = 4, .loss = 0.25};
}

TEST(MiniBatchProgress, each_epoch_has_its_bar) {
  std::ostringstream out;
  cli::Progress progress(out, cli::Progress::Style::kBar, "");
  progress.show(batch_record(1, 2));
  EXPECT_TRUE(test::contains(out.str(), "[############............]  epoch 1/2  batch 2/4  "));
  EXPECT_TRUE(test::contains(out.str(), "  loss 0.2500"));
  EpochRecord last;
  last.epoch = last.epochs = 2;
  progress.show(last);
  progress.finish();  // shows rows that came within 0.1 s
  EXPECT_TRUE(test::contains(out.str(), "[########################]  epoch 2/2"));
}

TEST(MiniBatchProgress, short_epochs_have_no_plain_line_for_batches) {
  std::ostringstream out;
  cli::Progress progress(out, cli::Progress::Style::kLines, "");
  for (std::int64_t batch = 1; batch <= 4; ++batch) progress.show(batch_record(1, batch));
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace mezzo
