

#include "mezzo/cli/options/arguments.h"

#include "cli/command.h"
#include "support/npy_writer.h"

namespace mezzo {
namespace {

/// Parses the words as `mezzo train` does, and returns `options` with those given by hand.
TrainOptions merged(TrainOptions options, const test::Words& words) {
  using enum fields::Group;
  cli::RunArguments run;
  cli::OptionParser app("", "test");
  cli::add_training_options(app, run.options, {kModelKind, kPrecision});
  cli::add_run_options(app, run);
  cli::add_report_options(app, run.json);
  EXPECT_TRUE(cli::parse_arguments(app, words));
  cli::copy_given(app, run.options, options);
  return options;
}

TEST(GivenOptions, a_flag_is_given_by_the_command_line_or_by_the_config) {
  const test::TempFolder folder;
  const std::string config = folder.path("config.toml");
  std::ofstream(config) << "epochs = 3\n";
  cli::RunArguments run;
  cli::OptionParser app("", "test");
  cli::add_run_options(app, run);
  cli::add_report_options(app, run.json);
  EXPECT_TRUE(cli::parse_arguments(app, {"--lr", "0.01", "--config", config}));
  EXPECT_TRUE(app.given("--lr"));  // also with the value of the default
  EXPECT_TRUE(app.given("--epochs"));
  EXPECT_FALSE(app.given("--hidden"));
  EXPECT_FALSE(app.given("--no-such-flag"));
}

TEST(GivenOptions, those_given_by_hand_win_over_those_of_a_file) {
  TrainOptions file;
  file.model = nn::ModelKind::kGat;
  file.layers = 3;
  file.skip = true;
  file.learning_rate = 0.5;
  file.hidden = 8;
  file.self_loops = true;
  const TrainOptions options =
      merged(file, {"--lr", "0.01", "--hidden", "16", "--no-self-loops", "--precision", "bf16"});
  EXPECT_EQ(options.learning_rate, 0.01);
  EXPECT_EQ(options.hidden, 16);
  EXPECT_EQ(options.self_loops, false);
  EXPECT_EQ(options.precision, amp::Precision::kBFloat16);
  EXPECT_EQ(options.model, nn::ModelKind::kGat);
  EXPECT_EQ(options.layers, 3);
  EXPECT_TRUE(options.skip);
  EXPECT_FALSE(options.sampling);
}

TEST(GivenOptions, so_do_those_of_mini_batches) {
  TrainOptions file;
  file.sampling = SamplingOptions{};
  file.sampling->batch_size = 64;
  file.sampling->fanouts = {5, 5};
  const TrainOptions options = merged(file, {"--batch-size", "32", "--no-shuffle"});
  EXPECT_EQ(options.sampling->batch_size, 32);
  EXPECT_EQ(options.sampling->fanouts, (std::vector<std::int64_t>{5, 5}));
  EXPECT_FALSE(options.sampling->shuffle);
  EXPECT_EQ(merged({}, {"--batch-size", "32"}).sampling->batch_size, 32);
}

}  // namespace
}  // namespace mezzo
