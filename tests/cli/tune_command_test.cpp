#include <csignal>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/command.h"
#include "support/npy_writer.h"

namespace mezzo {
namespace {

using nlohmann::json;
using test::contains;
using test::Outcome;
using test::run_mezzo;
using test::run_to;
using test::Words;

/// `mezzo tune` with as little time as possible.
Words quick_tune(const std::string& rings, const std::string& output, const Words& more = {}) {
  return test::with({"tune", "--dataset", rings, "--minutes", "0.00001", "--hidden", "8",
                     "--precision", "fp32", "--threads", "1", "--output", output},
                    more);
}

TEST(TuneCommand, writes_options_with_which_train_repeats_its_last_run) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder);
  const std::string output = folder.path("tune.toml"), path = folder.path("t.json");
  const Outcome outcome = run_to(0, folder, quick_tune(rings, output, {"--json", path}));
  EXPECT_TRUE(contains(outcome.err, "trial 6  candidate "));
  EXPECT_TRUE(contains(outcome.err, "best val "));
  EXPECT_TRUE(contains(outcome.out, output + ": candidate "));
  const std::string text = test::read_text(output);
  for (const char* line : {"dataset = \"", "model = \"gcn\"", "precision = \"fp32\"", "hidden = 8",
                           "skip = ", "lr = ", "norm = \"", "epochs = "}) {
    EXPECT_TRUE(contains(text, line));
  }
  const json tuned = test::read_json(path);
  EXPECT_GE(tuned["trials"].size(), 6U);
  EXPECT_EQ(tuned["trials"][tuned["best"].get<std::size_t>()]["epochs"], 360);
  const json trained = test::report_of(folder, {"train", "--config", output, "--threads", "1"});
  EXPECT_EQ(trained["history"], tuned["train"]["history"]);
  EXPECT_EQ(trained["test"], tuned["train"]["test"]);
}

TEST(TuneCommand, the_same_call_again_reuses_the_trials) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder), output = folder.path("tune.toml");
  ASSERT_EQ(run_mezzo(folder, quick_tune(rings, output)).code, 0);
  const std::string trials = output + ".trials.json", text = test::read_text(output);
  const std::string before = test::read_text(trials);
  ASSERT_EQ(run_mezzo(folder, quick_tune(rings, output)).code, 0);
  EXPECT_EQ(test::read_text(trials), before);
  EXPECT_EQ(test::read_text(output), text);
  const Outcome other = run_to(2, folder, quick_tune(rings, output, {"--model", "sage"}));
  EXPECT_EQ(other.num_error_lines(), 1) << other.err;
  EXPECT_TRUE(contains(other.err, "--output"));
}

TEST(TuneCommand, its_file_without_what_it_has_chosen_is_an_option_file_of_tune) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder), output = folder.path("tune.toml");
  ASSERT_EQ(run_mezzo(folder, quick_tune(rings, output)).code, 0);
  const std::string other = folder.path("other.toml");
  const Words again = {"tune",      "--config", output,     "--minutes", "0.00001",
                       "--threads", "1",        "--output", other};
  const Outcome refused = run_mezzo(folder, again);
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_EQ(refused.num_error_lines(), 1) << refused.err;
  EXPECT_TRUE(contains(refused.err, "'# chosen by mezzo tune'"));
  EXPECT_FALSE(std::filesystem::exists(other));

  const std::string text = test::read_text(output);
  const std::size_t end = text.find("# chosen by mezzo tune\n");
  ASSERT_NE(end, std::string::npos);
  for (const char* line : {"hidden = 8\n", "precision = \"fp32\"\n", "model = "}) {
    EXPECT_LT(text.find(line), end) << line << "was given";
  }
  for (const char* line : {"recipe = ", "layers = ", "lr = ", "dropout = ", "epochs = "}) {
    EXPECT_TRUE(contains(text.substr(end), line));
  }
  folder.write("tune.toml", text.substr(0, end));
  const Outcome outcome = run_mezzo(folder, again);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(test::read_text(other), text) << "the same search";
}

TEST(TuneCommand, options_of_mini_batches_and_switches_stand_in_the_file) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder), output = folder.path("tune.toml");
  run_to(0, folder,
         quick_tune(rings, output,
                    {"--batch-size", "8", "--fanout", "all,2", "--no-shuffle", "--no-self-loops",
                     "--split-index", "1"}));
  const std::string text = test::read_text(output);
  for (const char* line : {"batch-size = 8\n", "fanout = [-1, 2]\n", "no-shuffle = true\n",
                           "self-loops = false\n", "split-index = 1\n", "layers = 2\n"}) {
    EXPECT_TRUE(contains(text, line));
  }
  const json report = test::report_of(folder, {"train", "--config", output, "--epochs", "2"});
  EXPECT_EQ(report["split_index"].get<int>(), 1);
  EXPECT_EQ(report["sampling"]["batches_per_epoch"].get<int>(), 2);
}

TEST(TuneCommand, an_interrupt_keeps_the_best) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder), output = folder.path("tune.toml");
  const std::string err = folder.path("stderr.txt");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const int to = O_WRONLY | O_CREAT | O_TRUNC;
    dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
    dup2(open(err.c_str(), to, 0600), STDERR_FILENO);
    execl(MEZZO_COMMAND, MEZZO_COMMAND, "tune", "--dataset", rings.c_str(), "--minutes", "1000",
          "--precision", "fp32", "--output", output.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  // The file comes after the first trial; a minute is for slow machines under sanitizers.
  for (int tenths = 0; !std::filesystem::exists(output) && tenths < 600; ++tenths) usleep(100000);
  kill(child, SIGINT);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130) << test::read_text(err);
  EXPECT_EQ(run_mezzo(folder, {"train", "--config", output, "--epochs", "1"}).code, 0);
  EXPECT_GE(test::read_json(output + ".trials.json")["trials"].size(), 1U);
}

TEST(TuneCommand, its_default_output_does_not_replace_the_option_file) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder);
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  folder.write("tune.toml", "hidden = 8\n");
  const Outcome outcome = run_mezzo(folder, {"tune", "--dataset", rings, "--config", "tune.toml"});
  std::filesystem::current_path(here);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "--output"));
  EXPECT_EQ(test::read_text(folder.path("tune.toml")), "hidden = 8\n");
}

TEST(TuneCommand, wrong_calls_are_exit_code_2) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder), output = folder.path("tune.toml");
  for (const Words& more :
       {Words{"--minutes", "0"}, Words{"--model", "sgc"}, Words{"--layers", "1"}}) {
    const Outcome outcome = run_to(2, folder, quick_tune(rings, output, more));
    EXPECT_EQ(outcome.num_error_lines(), 1) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(output));
  }
}

}  // namespace
}  // namespace mezzo
