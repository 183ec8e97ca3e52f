#include <csignal>
#include <sstream>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "mezzo/train/trained_model.h"

#include "cli/command.h"
#include "support/npy_writer.h"

namespace mezzo {
namespace {

using nlohmann::json;
using test::Outcome;
using test::read_json;
using test::run_mezzo;
using test::run_to;
using test::Words;

/// `mezzo train` of ten epochs on `rings`.
Words quick_train(const std::string& rings, const Words& more) {
  return test::with(
      {"train", "--dataset", rings, "--epochs", "10", "--lr", "0.05", "--threads", "1"}, more);
}

class TrainCommandTest : public testing::Test {
 protected:
  const test::TempFolder folder;
};
using EvaluateAndPredictTest = TrainCommandTest;
using DataCommandTest = TrainCommandTest;
using CompareCommandTest = TrainCommandTest;

TEST_F(TrainCommandTest, prints_a_table_and_writes_the_report) {
  const std::string rings = test::write_rings(folder);
  const std::string path = folder.path("report.json");
  const Outcome outcome =
      run_to(0, folder, quick_train(rings, {"--precision", "fp16", "--json", path}));
  EXPECT_TRUE(test::contains(outcome.out, "best"));
  EXPECT_EQ(outcome.num_error_lines(), 11) << outcome.err;  // the recipe, and ten epochs
  const json report = read_json(path);
  for (const char* key :
       {"dataset", "model", "precision", "device", "seed", "epochs_run", "train_loss", "train",
        "val", "test", "best_epoch", "epoch_ms", "total_seconds", "peak_memory_bytes", "steps",
        "skipped_steps", "final_loss_scale", "version"}) {
    EXPECT_TRUE(report.contains(key)) << key;
  }
  EXPECT_EQ(report["precision"].get<std::string>(), "fp16");
  EXPECT_EQ(report["epochs_run"].get<int>(), 10);
  EXPECT_EQ(report["threads"].get<int>(), 1);
  EXPECT_GT(report["peak_memory_bytes"].get<std::int64_t>(), 0);
}

TEST_F(TrainCommandTest, words_are_read_in_any_case_and_by_their_long_names) {
  const json report = test::report_of(
      folder, quick_train(test::write_rings(folder),
                          {"--model", "SAGE", "--precision", "bfloat16", "--optimizer", "AdamW"}));
  EXPECT_EQ(report["model"].get<std::string>(), "sage");
  EXPECT_EQ(report["precision"].get<std::string>(), "bf16");
}

TEST_F(TrainCommandTest, runs_take_seeds_and_splits_in_turn) {
  const std::string rings = test::write_rings(folder);
  json runs = test::report_of(folder, quick_train(rings, {"--runs", "3", "--seed", "5"}))["runs"];
  ASSERT_EQ(runs.size(), 3U);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(runs[i]["seed"].get<int>(), 5 + i);
    EXPECT_EQ(runs[i]["split_index"].get<int>(), i % 2);
  }
  runs = test::report_of(folder, quick_train(rings, {"--runs", "2", "--split-index", "1"}))["runs"];
  EXPECT_EQ(runs[0]["split_index"].get<int>(), 1);
  EXPECT_EQ(runs[1]["split_index"].get<int>(), 1);
}

/// write_rings() with two training nodes, of split 1 alone, that no linear model can fit.
std::string write_rings_that_fail_in_split_1(const test::TempFolder& folder) {
  constexpr std::int64_t kNodes = 24, kFeatures = 3;
  std::vector<float> features;
  std::string masks;
  for (std::int64_t i = 0; i < kNodes; ++i) {
    const float value = i == 0 ? 1e30F : i == 8 ? -1e30F : i % 2 == 0 ? 1.0F : -1.0F;
    features.insert(features.end(), kFeatures, value);
    masks += i == 0 || i == 8 ? "01" : i / 2 % 4 < 2 ? "11" : "00";
  }
  const std::string path = test::write_rings(folder);
  folder.write("rings/features.npy", test::npy_float32({kNodes, kFeatures}, features));
  folder.write("rings/train_mask.npy", test::npy_bool({kNodes, 2}, masks));
  return path;
}

TEST_F(TrainCommandTest, runs_before_one_that_diverges_are_reported) {
  const std::string rings = write_rings_that_fail_in_split_1(folder);
  const std::string path = folder.path("report.json");
  const Outcome outcome = run_to(
      4, folder, {"train", "--dataset", rings, "--model",     "mlp", "--layers", "1", "--dropout",
                  "0",     "--epochs",  "10",  "--runs",      "3",   "--seed",   "5", "--json",
                  path,    "--threads", "1",   "--optimizer", "sgd"});
  EXPECT_TRUE(test::contains(outcome.err, "mezzo: run 2/3, seed 6: training diverged"));
  EXPECT_TRUE(test::contains(outcome.out, "best"));
  const json report = read_json(path);
  EXPECT_EQ(report["seed"].get<int>(), 5);
  EXPECT_EQ(report["epochs_run"].get<int>(), 10);
  EXPECT_EQ(report["error"].get<std::string>().rfind("run 2/3, seed 6: ", 0), 0U) << report;
}

TEST_F(TrainCommandTest, a_checkpoint_that_cannot_be_written_leaves_the_report) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const std::string rings = test::write_rings(folder), path = folder.path("report.json");
  const Outcome outcome =
      run_to(3, folder, quick_train(rings, {"--checkpoint", "/dev/full", "--json", path}));
  EXPECT_TRUE(test::contains(outcome.err, "mezzo: /dev/full: writing failed"));
  EXPECT_TRUE(test::contains(outcome.out, "best"));
  const json report = read_json(path);
  EXPECT_EQ(report["epochs_run"].get<int>(), 10);
  EXPECT_NE(report["error"].get<std::string>().find("/dev/full"), std::string::npos);
}

TEST_F(TrainCommandTest, a_toml_file_may_have_every_option) {
  const std::string rings = test::write_rings(folder);
  const std::string config = folder.write("run.toml", "# a comment\ndataset = \"" + rings + R"("
model = "gat"
heads = 2
output-heads = 2
attention-dropout = 0.25
hidden = 4
norm = 'layer'
skip = true
self-loops = true
epochs = 7
lr = 1e-2
precision = "bf16"
seed = 11
threads = 1
json = ")" + folder.path("report.json") + "\"\n");
  run_to(0, folder, {"train", "--config", config, "--seed", "12"});
  const json report = read_json(folder.path("report.json"));
  EXPECT_EQ(report["model"].get<std::string>(), "gat");
  EXPECT_EQ(report["precision"].get<std::string>(), "bf16");
  EXPECT_EQ(report["epochs_run"].get<int>(), 7);
  EXPECT_EQ(report["seed"].get<int>(), 12) << "the command line overrides the file";
}

TEST_F(TrainCommandTest, a_wrong_toml_file_is_exit_code_2) {
  const Outcome misspelt =
      run_mezzo(folder, {"train", "--config", folder.write("bad.toml", "hiden = 3\n")});
  EXPECT_TRUE(test::contains(misspelt.err, "no option hiden (did you mean hidden?)"));
  for (const std::string text :
       {"epoch = 7\n", "[train]\nepochs = 7\n", "epochs = \"few\"\n", "epochs = [1, 2]\n",
        "config = \"other.toml\"\n", "keep-float32 = [\"layer0\"\n", "dataset = \"a#b\"\n", "x\n",
        "dataset = \"a\n", "skip = maybe\n"}) {
    const Outcome outcome =
        run_mezzo(folder, {"train", "--config", folder.write("bad.toml", text)});
    EXPECT_EQ(outcome.code, 2) << text << outcome.err;
    EXPECT_EQ(outcome.num_error_lines(), 1) << text << outcome.err;
  }
}

TEST_F(TrainCommandTest, a_resumed_run_reports_what_an_unbroken_one_does) {
  const std::string rings = test::write_rings(folder);
  const std::string half = folder.path("half.pt");
  const json whole = test::report_of(folder, quick_train(rings, {}));
  ASSERT_EQ(run_mezzo(folder, {"train", "--dataset", rings, "--epochs", "5", "--lr", "0.05",
                               "--threads", "1", "--checkpoint", half})
                .code,
            0);
  const json resumed = test::report_of(folder, quick_train(rings, {"--resume", half}));
  EXPECT_EQ(whole["history"], resumed["history"]);
}

TEST_F(TrainCommandTest, a_resumed_run_takes_its_options_from_the_checkpoint) {
  const std::string rings = test::write_rings(folder), file = folder.path("c.pt");
  const Words first = {"train", "--dataset", rings, "--model",      "gat", "--heads",
                       "2",     "--epochs",  "6",   "--seed",       "5",   "--split-index",
                       "1",     "--threads", "1",   "--checkpoint", file};
  ASSERT_EQ(run_mezzo(folder, first).code, 0);
  const json report =
      test::report_of(folder, {"train", "--resume", file, "--epochs", "9", "--lr", "0.001"});
  EXPECT_EQ(report["model"].get<std::string>(), "gat");
  EXPECT_EQ(report["epochs_run"].get<int>(), 9);
  EXPECT_EQ(report["seed"].get<int>(), 5);
  EXPECT_EQ(report["split_index"].get<int>(), 1);
  EXPECT_EQ(test::report_of(folder, {"train", "--resume", file})["epochs_run"].get<int>(), 6);
}

TEST_F(TrainCommandTest, heads_given_by_hand_share_the_width_of_the_recipe) {
  const std::string rings = test::write_rings(folder);
  const Words job = {"train", "--dataset", rings, "--model", "gat", "--epochs", "1"};
  const auto chosen = [&](const Words& more) {
    return run_mezzo(folder, test::with(job, more)).err;
  };
  EXPECT_TRUE(test::contains(chosen({}), " --hidden 8 --heads 8 "));
  EXPECT_TRUE(test::contains(chosen({"--heads", "2"}), " --hidden 32 --heads 2 "));
  const Words both = {"--heads", "2", "--hidden", "5"};
  EXPECT_TRUE(test::contains(chosen(both), " --hidden 5 --heads 2 "));
}

TEST_F(TrainCommandTest, options_that_contradict_the_resumed_checkpoint_are_listed) {
  const std::string rings = test::write_rings(folder), file = folder.path("c.pt");
  ASSERT_EQ(run_mezzo(folder, {"train", "--dataset", rings, "--recipe", "planetoid", "--model",
                               "gat", "--heads", "2", "--epochs", "2", "--checkpoint", file})
                .code,
            0);
  const Outcome outcome =
      run_to(2, folder, {"train", "--resume", file, "--model", "gcn", "--hidden", "32"});
  EXPECT_TRUE(test::contains(outcome.err, "model \"gat\", this run has \"gcn\""));
  EXPECT_TRUE(test::contains(outcome.err, "hidden its default, this run has 32"));
}

TEST_F(TrainCommandTest, init_fine_tunes_a_checkpoint) {
  const std::string rings = test::write_rings(folder), file = folder.path("c.pt");
  ASSERT_EQ(run_mezzo(folder, quick_train(rings, {"--checkpoint", file})).code, 0);
  EXPECT_EQ(run_mezzo(folder, quick_train(rings, {"--init", file, "--weight-decay", "0"})).code, 0);
  const Outcome outcome =
      run_to(2, folder, quick_train(rings, {"--init", file, "--model", "sage"}));
  EXPECT_TRUE(test::contains(outcome.err, "init: " + file + " was written with model gcn"));
}

TEST_F(TrainCommandTest, init_takes_the_whole_model_of_the_checkpoint) {
  const std::string rings = test::write_rings(folder);
  const std::string file = folder.path("c.pt"), tuned = folder.path("tuned.pt");
  ASSERT_EQ(
      run_mezzo(folder, {"train", "--dataset", rings, "--model", "gat", "--output-heads", "2",
                         "--no-self-loops", "--layers", "3", "--epochs", "2", "--checkpoint", file})
          .code,
      0);
  const Words init = {"train", "--dataset", rings, "--init", file, "--epochs", "2"};
  run_to(0, folder, test::with(init, {"--attention-dropout", "0.1", "--checkpoint", tuned}));
  const TrainOptions options = load_checkpoint(tuned).options;
  EXPECT_EQ(options.model, nn::ModelKind::kGat);
  EXPECT_EQ(options.layers, 3);
  EXPECT_EQ(options.output_heads, 2);
  EXPECT_EQ(options.self_loops, false);
  EXPECT_EQ(options.attention_dropout, 0.1);
  EXPECT_EQ(options.epochs, 2);
  const Outcome other = run_to(2, folder, test::with(init, {"--model", "gcn"}));
  EXPECT_TRUE(test::contains(other.err, "init: " + file + " was written with model gat"));
}

/// Sends the signal to a long run.
void expect_checkpoint_after(int signal) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder), checkpoint = folder.path("c.pt");
  const std::string err = folder.path("stderr.txt"), out = folder.path("stdout.txt");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const int to = O_WRONLY | O_CREAT | O_TRUNC;
    dup2(open(out.c_str(), to, 0600), STDOUT_FILENO);
    dup2(open(err.c_str(), to, 0600), STDERR_FILENO);
    execl(MEZZO_COMMAND, MEZZO_COMMAND, "train", "--dataset", rings.c_str(), "--recipe",
          "planetoid", "--epochs", "100000000", "--checkpoint", checkpoint.c_str(),
          static_cast<char*>(nullptr));
    _exit(127);
  }
  // The line of an epoch comes after it; a minute is for slow machines under sanitizers.
  int status = 0;
  const auto trains = [&] { return test::read_text(err).find("epoch ") != std::string::npos; };
  for (int tenths = 0; !trains() && tenths < 600; ++tenths) usleep(100000);
  kill(child, signal);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130) << test::read_text(err);
  EXPECT_NE(test::read_text(out).find("interrupted"), std::string::npos);
  EXPECT_TRUE(test::contains(test::read_text(out), "\ncheckpoint " + checkpoint + ", epoch "));
  run_to(0, folder, {"evaluate", "--checkpoint", checkpoint});
}

TEST(TrainCommand, an_interrupt_ends_the_epoch_and_keeps_the_checkpoint) {
  expect_checkpoint_after(SIGINT);
}

TEST(TrainCommand, a_hangup_keeps_the_checkpoint) {
  if (std::signal(SIGHUP, SIG_DFL) == SIG_IGN) {
    std::signal(SIGHUP, SIG_IGN);
    GTEST_SKIP() << "SIGHUP is ignored here";
  }
  expect_checkpoint_after(SIGHUP);
}

TEST_F(EvaluateAndPredictTest, an_interrupt_ends_them_at_once) {
  const std::string pipe = folder.path("options");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGINT, SIG_DFL);
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    execl(MEZZO_COMMAND, MEZZO_COMMAND, "evaluate", "--config", pipe.c_str(),
          static_cast<char*>(nullptr));
    _exit(127);
  }
  // It opens the pipe and waits for input.
  int options = -1;
  for (int tenths = 0; options < 0 && tenths < 600; ++tenths) {
    options = open(pipe.c_str(), O_WRONLY | O_NONBLOCK);
    if (options < 0) usleep(100000);
  }
  kill(child, options < 0 ? SIGKILL : SIGINT);
  if (options >= 0) close(options);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
}

TEST_F(EvaluateAndPredictTest, read_the_checkpoint_of_train) {
  const std::string rings = test::write_rings(folder), checkpoint = folder.path("c.pt");
  const json trained = test::report_of(folder, quick_train(rings, {"--checkpoint", checkpoint}));
  const json evaluated = test::report_of(folder, {"evaluate", "--checkpoint", checkpoint});
  for (const char* key : {"train", "val", "test", "best_epoch"}) {
    EXPECT_EQ(evaluated[key], trained[key]) << key;
  }

  const std::string csv = folder.path("p.csv"), npy = folder.path("p.npy");
  ASSERT_EQ(run_mezzo(folder, {"predict", "--checkpoint", checkpoint, "--output", csv}).code, 0);
  ASSERT_EQ(run_mezzo(folder, {"predict", "--checkpoint", checkpoint, "--output", npy}).code, 0);
  EXPECT_EQ(test::read_text(csv).rfind("node,class,probability\n0,", 0), 0U);
  const std::string bytes = test::read_text(npy);
  const std::vector<std::int64_t> none(24);
  EXPECT_EQ(bytes.size(), test::npy_int64({24}, none).size());

  const std::string labels = rings + "/labels.npy", before = test::read_text(labels);
  const Outcome refused =
      run_to(2, folder, {"predict", "--checkpoint", checkpoint, "--output", labels});
  EXPECT_TRUE(test::contains(refused.err, "--output"));
  EXPECT_EQ(test::read_text(labels), before);
}

TEST_F(EvaluateAndPredictTest, predict_takes_some_nodes_in_the_order_given) {
  const std::string rings = test::write_rings(folder), checkpoint = folder.path("c.pt");
  const std::string csv = folder.path("p.csv"), npy = folder.path("p.npy");
  ASSERT_EQ(run_mezzo(folder, quick_train(rings, {"--checkpoint", checkpoint})).code, 0);
  const auto predict = [&](const std::string& output, const Words& more) {
    return run_mezzo(folder,
                     test::with({"predict", "--checkpoint", checkpoint, "--output", output}, more));
  };
  const auto lines = [&] {
    Words all_lines;
    std::istringstream text(test::read_text(csv));
    for (std::string line; std::getline(text, line);) all_lines.push_back(line);
    return all_lines;
  };
  ASSERT_EQ(predict(csv, {}).code, 0);
  const Words all = lines();
  const Words expected = {all[0], all[1 + 7], all[1 + 23], all[1 + 0], all[1 + 7]};
  const Outcome some = predict(csv, {"--nodes", "7,23,0,7"});
  ASSERT_EQ(some.code, 0) << some.err;
  EXPECT_TRUE(test::contains(some.out, "4 predictions"));
  EXPECT_EQ(lines(), expected);
  const std::string file = folder.write("nodes.txt", "7\n23\r\n0\n7\n");
  ASSERT_EQ(predict(csv, {"--nodes", file}).code, 0);
  EXPECT_EQ(lines(), expected);
  ASSERT_EQ(predict(npy, {"--nodes", "5"}).code, 0);
  EXPECT_EQ(test::read_text(npy).size(), test::npy_int64({1}, {0}).size());

  const Outcome outside = predict(csv, {"--nodes", "3,24,99,-1"});
  EXPECT_EQ(outside.code, 2);
  EXPECT_TRUE(test::contains(outside.err, "nodes: expected ids in [0, 24), got -1 to 99"));
  const Outcome words = predict(csv, {"--nodes", folder.write("words.txt", "7 \x1b[31mseven")});
  EXPECT_EQ(words.code, 2);
  EXPECT_TRUE(test::contains(words.err, "words.txt: expected an integer, got ' [31mseven'"));
  EXPECT_EQ(predict(csv, {"--nodes", folder.write("empty.txt", "")}).code, 2);
  const Outcome none = predict(csv, {"--nodes", folder.path("none.txt")});
  EXPECT_EQ(none.code, 3);
  EXPECT_TRUE(test::contains(none.err, "none.txt' cannot be read: No such file"));
}

TEST_F(EvaluateAndPredictTest, training_nodes_among_the_test_nodes_are_a_warning) {
  const std::string rings = test::write_rings(folder), checkpoint = folder.path("c.pt");
  std::string train, val, tested;  // of the second split: the other way round
  for (int i = 0; i < 24; ++i) {
    const int part = i / 2 % 4;
    train += part < 2 ? "10" : "01";
    val += part == 2 ? "10" : part == 1 ? "01" : "00";
    tested += part == 3 ? "10" : part == 0 ? "01" : "00";
  }
  folder.write("rings/train_mask.npy", test::npy_bool({24, 2}, train));
  folder.write("rings/val_mask.npy", test::npy_bool({24, 2}, val));
  folder.write("rings/test_mask.npy", test::npy_bool({24, 2}, tested));
  ASSERT_EQ(run_mezzo(folder, quick_train(rings, {"--checkpoint", checkpoint})).code, 0);
  const auto warnings = [&](const Words& more) {
    const Outcome outcome =
        run_to(0, folder, test::with({"evaluate", "--checkpoint", checkpoint}, more));
    return outcome.err;
  };
  EXPECT_EQ(warnings({}), "");
  EXPECT_EQ(warnings({"--split-index", "1"}),
            "mezzo: warning: 6 of the 6 test nodes of split 1 were training nodes of the run\n");
}

TEST_F(EvaluateAndPredictTest, predict_does_without_labels_and_splits) {
  const std::string rings = test::write_rings(folder), bare = test::write_rings(folder, "bare");
  const std::string checkpoint = folder.path("c.pt"), csv = folder.path("p.csv");
  for (const char* name : {"labels", "train_mask", "val_mask", "test_mask"}) {
    folder.remove(std::string("bare/") + name + ".npy");
  }
  ASSERT_EQ(
      run_mezzo(folder, quick_train(rings, {"--split-index", "1", "--checkpoint", checkpoint}))
          .code,
      0);
  const auto predictions = [&](const Words& more) {
    run_to(0, folder, test::with({"predict", "--checkpoint", checkpoint, "--output", csv}, more));
    return test::read_text(csv);
  };
  EXPECT_EQ(predictions({"--dataset", bare}), predictions({}));

  const Outcome evaluated =
      run_to(3, folder, {"evaluate", "--checkpoint", checkpoint, "--dataset", bare});
  EXPECT_TRUE(test::contains(evaluated.err, "no labels"));
  const Outcome split = run_to(
      2, folder, {"predict", "--checkpoint", checkpoint, "--output", csv, "--split-index", "1"});
  EXPECT_TRUE(test::contains(split.err, "--split-index"));
}

TEST_F(CompareCommandTest, makes_one_table_of_models_and_precisions) {
  const std::string rings = test::write_rings(folder), path = folder.path("c.json");
  const Outcome outcome =
      run_to(0, folder,
             {"compare", "--dataset", rings, "--models", "sage,gat", "--heads", "2", "--precisions",
              "fp32,bf16,fp16", "--epochs", "5", "--runs", "2", "--json", path});
  const json results = read_json(path)["results"];
  ASSERT_EQ(results.size(), 6U);
  EXPECT_EQ(results[0]["speed_up"].get<double>(), 1);
  EXPECT_EQ(results[4]["model"].get<std::string>(), "gat");
  EXPECT_EQ(results[4]["precision"].get<std::string>(), "bf16");
  EXPECT_GT(results[4]["speed_up"].get<double>(), 0);
  EXPECT_TRUE(test::contains(outcome.out, "±"));
}

TEST_F(CompareCommandTest, a_precision_that_diverges_is_a_row_and_exit_code_4) {
  const std::string rings = test::write_rings(folder), path = folder.path("c.json");
  const Outcome outcome =
      run_to(4, folder,
             {"compare", "--dataset", rings, "--optimizer", "sgd", "--lr", "1e38", "--json", path});
  EXPECT_EQ(read_json(path)["results"].size(), 2U);
  EXPECT_TRUE(test::contains(outcome.out, "diverged"));
}

TEST_F(DataCommandTest, describes_a_folder) {
  const std::string rings = test::write_rings(folder), path = folder.path("i.json");
  const Outcome outcome = run_to(0, folder, {"data", "info", "--dataset", rings, "--json", path});
  const json info = read_json(path);
  EXPECT_EQ(info["nodes"].get<int>(), 24);
  EXPECT_EQ(info["edges"].get<int>(), 48);
  EXPECT_EQ(info["features"]["count"].get<int>(), 3);
  EXPECT_EQ(info["homophily"].get<double>(), 1);
  EXPECT_EQ(info["isolated_nodes"].get<int>(), 0);
  EXPECT_EQ(info["unlabelled_nodes"].get<int>(), 0);
  EXPECT_TRUE(info["undirected"].get<bool>());
  EXPECT_EQ(info["self_loops"].get<int>(), 0);
  EXPECT_EQ(info["parallel_edges"].get<int>(), 0);
  EXPECT_TRUE(test::contains(outcome.out, "48, undirected (every edge has its reverse)"));
  EXPECT_EQ(info["in_degree"]["max"].get<int>(), 2);
  ASSERT_EQ(info["splits"].size(), 2U);
  EXPECT_EQ(info["splits"][0]["train"].get<int>(), 12);
  EXPECT_EQ(info["classes"][1]["nodes"].get<int>(), 12);
}

TEST_F(DataCommandTest, info_has_the_named_splits_and_the_dtype_in_the_file) {
  const std::string rings = test::write_rings(folder), path = folder.path("i.json");
  const auto info = [&](const std::string& dataset) {
    const Outcome outcome =
        run_to(0, folder, {"data", "info", "--dataset", dataset, "--json", path});
    return outcome.out;
  };
  const auto line = [](const std::string& text, const std::string& name) {
    const std::size_t at = text.find("\n" + name);
    return at == std::string::npos ? "" : text.substr(at + 1, text.find('\n', at + 1) - at - 1);
  };
  EXPECT_TRUE(test::contains(line(info(rings), "named splits"), " none"));
  for (const std::string role : {"train", "val", "test"}) {
    std::filesystem::copy_file(rings + "/" + role + "_mask.npy",
                               rings + "/" + role + "_mask_other.npy");
  }
  EXPECT_TRUE(test::contains(line(info(rings), "named splits"), " other"));
  EXPECT_EQ(read_json(path)["split_names"], json({"", "other"}));

  folder.write("rings/features.npy", test::npy("<f8", {24, 1}, std::string(24 * 8, '\0')));
  EXPECT_TRUE(test::contains(line(info(rings), "features"), "float64"));
  EXPECT_EQ(read_json(path)["features"]["dtype"].get<std::string>(), "float64");
}

TEST_F(DataCommandTest, info_lists_the_tasks_of_a_folder) {
  const std::string rings = test::write_rings(folder), path = folder.path("i.json");
  const std::vector<std::string> arguments = {"data", "info", "--dataset", rings, "--json", path};
  EXPECT_TRUE(test::contains(run_to(0, folder, arguments).out, " node-class, link\n"));
  EXPECT_EQ(read_json(path)["tasks"], json::array({"node-class", "link"}));
  folder.write("rings/edge_labels.npy", test::npy_int64({48}, std::vector<std::int64_t>(48, 1)));
  const Outcome outcome = run_to(0, folder, arguments);
  EXPECT_EQ(read_json(path)["tasks"], json::array({"node-class", "edge-class", "link"}));
  EXPECT_TRUE(test::contains(outcome.out, "node-class, edge-class, link (choose with --task)"));
  const Outcome refused = run_mezzo(folder, {"train", "--dataset", rings});
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(test::contains(refused.err, "choose one of node-class, edge-class"));
}

TEST_F(DataCommandTest, edges_without_labels_are_links) {
  const std::string rings = test::write_rings(folder), plain = folder.path("plain");
  std::filesystem::create_directory(plain);
  for (const char* const file : {"/edge_index.npy", "/features.npy"}) {
    std::filesystem::copy_file(rings + file, plain + file);
  }
  const std::vector<std::string> info = {"data", "info", "--dataset", plain};
  EXPECT_TRUE(test::contains(run_to(0, folder, info).out, " link (choose with --task)\n"));
  const std::vector<std::string> train = {"train", "--dataset", plain};
  EXPECT_TRUE(test::contains(run_to(3, folder, train).err, "--task link"));
  // The edges of a set of graphs are no links.
  folder.write("plain/graph_offsets.npy", test::npy_int64({2}, {0, 24}));
  EXPECT_TRUE(test::contains(run_to(0, folder, info).out, " none\n"));
  const std::string error = run_to(3, folder, train).err;
  EXPECT_TRUE(test::contains(error, "has no labels"));
  EXPECT_FALSE(test::contains(error, "--task link"));
}

TEST_F(DataCommandTest, nodes_without_a_label_belong_to_no_class) {
  folder.write("set/edges.csv", "5,2\n2,5\n5,2\n9,9\n2,9\n9,5\n");
  folder.write("set/nodes.csv", "id,label,split\n2,1,train\n5,1,val\n9,,\n");
  const std::string path = folder.path("i.json");
  const Outcome outcome =
      run_to(0, folder, {"data", "info", "--dataset", folder.path("set"), "--json", path});
  const json info = read_json(path);
  EXPECT_EQ(info["unlabelled_nodes"].get<int>(), 1);
  ASSERT_EQ(info["classes"].size(), 2U);
  EXPECT_EQ(info["classes"][0]["nodes"].get<int>(), 0);
  EXPECT_EQ(info["classes"][1]["nodes"].get<int>(), 2);
  EXPECT_EQ(info["homophily"].get<double>(), 1);
  EXPECT_FALSE(info["undirected"].get<bool>());
  EXPECT_EQ(info["self_loops"].get<int>(), 1);
  EXPECT_EQ(info["parallel_edges"].get<int>(), 1);
  EXPECT_TRUE(test::contains(outcome.out, "6, directed"));
}

TEST_F(DataCommandTest, lists_names_and_folders) {
  test::write_rings(folder);
  const std::string path = folder.path("l.json");
  const Outcome outcome =
      run_to(0, folder, {"data", "list", "--directory", folder.path(), "--json", path});
  EXPECT_TRUE(test::contains(outcome.out, "wordnet"));
  bool is_listed = false;
  const json report = read_json(path);
  for (const json& one : report["datasets"]) {
    is_listed = is_listed || one["path"].get<std::string>().find("rings") != std::string::npos;
  }
  EXPECT_TRUE(is_listed) << outcome.out;
}

}  // namespace
}  // namespace mezzo
