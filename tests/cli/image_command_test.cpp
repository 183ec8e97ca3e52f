#include <csignal>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "cli/command.h"
#include "support/idx_writer.h"

namespace mezzo {
namespace {

using nlohmann::json;
using test::Outcome;
using test::read_json;
using test::run_mezzo;
using Words = std::vector<std::string>;

/// `mezzo train --model cnn` of two epochs of three batches.
Words quick_image_train(const std::string& squares, const Words& more) {
  Words words = {"train", "--model",      "cnn", "--dataset", squares, "--epochs",
                 "2",     "--batch-size", "8",   "--threads", "1"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(ImageCommand, trains_writes_a_report_and_a_checkpoint_that_later_commands_read) {
  const test::TempFolder folder;
  const std::string squares = test::write_squares(folder, 24, 6);
  const std::string checkpoint = folder.path("c.pt"), report = folder.path("r.json"),
                    evaluated = folder.path("e.json"), csv = folder.path("p.csv");
  const Outcome outcome = run_mezzo(
      folder,
      quick_image_train(squares, {"--images", "20", "--precision", "bf16", "--channels-last",
                                  "--checkpoint", checkpoint, "--json", report}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("images/s"), std::string::npos) << outcome.err;
  const json trained = read_json(report);
  EXPECT_EQ(trained["model"].get<std::string>(), "cnn");
  EXPECT_EQ(trained["precision"].get<std::string>(), "bf16");
  EXPECT_EQ(trained["epochs_run"].get<int>(), 2);
  EXPECT_EQ(trained["steps"].get<int>(), 6);
  EXPECT_GT(trained["peak_memory_bytes"].get<std::int64_t>(), 0);

  ASSERT_EQ(run_mezzo(folder, {"evaluate", "--checkpoint", checkpoint, "--threads", "1", "--json",
                               evaluated})
                .code,
            0);
  EXPECT_EQ(read_json(evaluated)["test_accuracy"], trained["test_accuracy"]);
  ASSERT_EQ(run_mezzo(folder, {"predict", "--checkpoint", checkpoint, "--output", csv}).code, 0);
  EXPECT_EQ(test::read_text(csv).rfind("image,class,probability\n0,", 0), 0U);
  const std::string own = folder.write("squares/p.npy", "old");
  EXPECT_EQ(run_mezzo(folder, {"predict", "--checkpoint", checkpoint, "--output", own}).code, 2);
  EXPECT_EQ(test::read_text(own), "old");
  const Outcome split = run_mezzo(folder, {"evaluate", "--checkpoint", checkpoint, "--split", "x"});
  EXPECT_EQ(split.code, 2) << split.err;
}

TEST(ImageCommand, a_resumed_run_reports_what_an_unbroken_one_does) {
  const test::TempFolder folder;
  const std::string squares = test::write_squares(folder, 24, 6);
  const std::string whole = folder.path("w.json"), resumed = folder.path("r.json"),
                    half = folder.path("h.pt");
  ASSERT_EQ(run_mezzo(folder, quick_image_train(squares, {"--json", whole})).code, 0);
  ASSERT_EQ(run_mezzo(folder, {"train", "--model", "cnn", "--dataset", squares, "--epochs", "1",
                               "--batch-size", "8", "--threads", "1", "--checkpoint", half})
                .code,
            0);
  ASSERT_EQ(
      run_mezzo(folder, quick_image_train(squares, {"--resume", half, "--json", resumed})).code, 0);
  EXPECT_EQ(read_json(whole)["history"], read_json(resumed)["history"]);
}

TEST(ImageCommand, its_options_can_stand_in_a_toml_file_the_model_too) {
  const test::TempFolder folder;
  const std::string report = folder.path("r.json");
  const std::string config =
      folder.write("run.toml", "model = \"cnn\"\ndataset = \"" + test::write_squares(folder, 6, 2) +
                                   "\"\nbatch-size = 3\nepochs = 5\nthreads = 1\n"
                                   "channels-last = true\n");
  const Outcome outcome =
      run_mezzo(folder, {"train", "--config", config, "--epochs", "1", "--json", report});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(read_json(report)["steps"].get<int>(), 2);
  folder.write("run.toml", "model = \"cnn\"\nheads = 2\n");
  EXPECT_EQ(run_mezzo(folder, {"train", "--config", config}).code, 2);
}

TEST(ImageCommand, an_interrupt_ends_within_the_epoch_and_keeps_the_checkpoint) {
  const test::TempFolder folder;
  const std::string squares = test::write_squares(folder, 4000, 4),
                    checkpoint = folder.path("c.pt");
  const std::string err = folder.path("stderr.txt"), out = folder.path("stdout.txt");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const int to = O_WRONLY | O_CREAT | O_TRUNC;
    dup2(open(out.c_str(), to, 0600), STDOUT_FILENO);
    dup2(open(err.c_str(), to, 0600), STDERR_FILENO);
    execl(MEZZO_COMMAND, MEZZO_COMMAND, "train", "--model", "cnn", "--dataset", squares.c_str(),
          "--epochs", "1000", "--batch-size", "4", "--checkpoint", checkpoint.c_str(),
          static_cast<char*>(nullptr));
    _exit(127);
  }
  // The first line comes after the first batch; a minute is for slow machines under sanitizers.
  int status = 0;
  for (int tenths = 0; test::read_text(err).empty() && tenths < 600; ++tenths) usleep(100000);
  kill(child, SIGINT);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130) << test::read_text(err);
  EXPECT_NE(test::read_text(out).find("interrupted"), std::string::npos);
  const Outcome evaluated = run_mezzo(folder, {"evaluate", "--checkpoint", checkpoint});
  EXPECT_EQ(evaluated.code, 0) << evaluated.err;
}

TEST(ImageCommand, help_is_about_images) {
  const test::TempFolder folder;
  const Outcome outcome = run_mezzo(folder, {"train", "--model", "cnn", "--help"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("--channels-last"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("--heads"), std::string::npos) << outcome.out;
}

TEST(ImageCommand, wrong_words_and_files_are_one_line_and_an_exit_code) {
  const test::TempFolder folder;
  const std::string squares = test::write_squares(folder, 6, 2);
  const std::string damaged = folder.path("damaged");
  folder.write("damaged/train-images-idx3-ubyte", "not images");
  folder.write("damaged/train-labels-idx1-ubyte", "not labels");
  struct Case {
    Words words;
    int code;
    std::string part;
  };
  const std::vector<Case> cases = {
      {{"--heads", "2"}, 2, "--heads"},
      {{"--layers", "2"}, 2, "--layers"},
      {{"--self-loops"}, 2, "--self-loops"},
      {{"--split", "x"}, 2, "--split"},
      {{"--runs", "2"}, 2, "--runs"},
      {{"--images", "0"}, 2, "images"},
      {{"--images", "7"}, 2, "got 7"},
      {{"--batch-size", "0"}, 2, "batch-size"},
      {{"--batch-size", "many"}, 2, "--batch-size"},
      {{"--epochs", "0"}, 2, "epochs"},
      {{"--precision", "fp8"}, 2, "fp32, tf32, bf16, fp16"},
      {{"--loss-scale", "much"}, 2, "loss-scale"},
      {{"--threads", "0"}, 2, "--threads"},
      {{"--model", "cnn"}, 2, "--model"},
      {{"--json", folder.path("none/r.json")}, 3, "--json"},
      {{"--checkpoint", folder.path()}, 3, "--checkpoint"},
      {{"--resume", folder.path("none.pt")}, 3, "none.pt"},
  };
  const auto expect = [&](const Words& words, int code, const std::string& part) {
    const Outcome outcome = run_mezzo(folder, words);
    EXPECT_EQ(outcome.code, code) << part << ": " << outcome.err;
    EXPECT_EQ(outcome.num_error_lines(), 1) << part << ": " << outcome.err;
    EXPECT_EQ(outcome.err.rfind("mezzo: ", 0), 0U) << part << ": " << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part << ": " << outcome.err;
    EXPECT_EQ(outcome.out, "") << part;
  };
  for (const Case& c : cases) {
    Words words = {"train", "--model", "cnn", "--dataset", squares};
    words.insert(words.end(), c.words.begin(), c.words.end());
    expect(words, c.code, c.part);
  }
  expect({"train", "--model", "cnn", "--dataset", damaged}, 3, "damaged/train-images");
  expect({"train", "--model", "cnn", "--dataset", "no_such_images"}, 3, "no_such_images");
  // Runs on a graph have none of these.
  expect({"train", "--images", "10"}, 2, "--images");
  expect({"train", "--model", "gcn", "--channels-last"}, 2, "--channels-last");
  expect({"train", "--no-cpu-policy"}, 2, "--no-cpu-policy");
}

}  // namespace
}  // namespace mezzo
