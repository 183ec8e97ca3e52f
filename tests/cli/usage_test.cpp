#include <iostream>
#include <streambuf>

#include <ATen/Context.h>

#include "mezzo/cli/run.h"
#include "mezzo/version.h"

#include "cli/command.h"
#include "support/npy_writer.h"

namespace mezzo {
namespace {

using test::Outcome;
using test::run_mezzo;
using test::run_to;
using test::Words;

/// Expects exit code `code` and one error line that contains `part`.
void expect_failure(const Outcome& outcome, int code, const std::string& part,
                    const std::string& what) {
  EXPECT_EQ(outcome.code, code) << what << ": " << outcome.err;
  EXPECT_EQ(outcome.num_error_lines(), 1) << what << ": " << outcome.err;
  EXPECT_EQ(outcome.err.rfind("mezzo: ", 0), 0U) << what << ": " << outcome.err;
  EXPECT_TRUE(test::contains(outcome.err, part));
  EXPECT_EQ(outcome.out, "") << what;
}

struct Case {
  Words words;
  std::string part;  // of the error
};

void expect_failures(const test::TempFolder& folder, const std::vector<Case>& cases, int code) {
  for (const Case& c : cases) {
    std::string what;
    for (const std::string& word : c.words) what += word + " ";
    expect_failure(run_mezzo(folder, c.words), code, c.part, what);
  }
}

class UsageTest : public testing::Test {
 protected:
  const test::TempFolder folder;
};

TEST_F(UsageTest, help_and_version_go_to_the_standard_output) {
  for (const Words& words :
       {Words{"--help"}, Words{"train", "--help"}, Words{"evaluate", "-h"},
        Words{"predict", "--help"}, Words{"compare", "--help"}, Words{"data", "--help"},
        Words{"data", "list", "--help"}, Words{"data", "info", "--help"},
        Words{"data", "convert", "--help"}, Words{"data", "partition", "--help"},
        Words{"launch", "--help"}, Words{"doctor", "--help"}, Words{"tune", "--help"},
        Words{"help"}, Words{"help", "train"}, Words{"help", "data", "info"},
        Words{"data", "help", "info"}}) {
    const Outcome outcome = run_mezzo(folder, words);
    EXPECT_EQ(outcome.code, 0) << words.front();
    EXPECT_TRUE(test::contains(outcome.out, "Usage: mezzo"));
    EXPECT_EQ(outcome.err, "");
  }
  EXPECT_TRUE(test::contains(run_mezzo(folder, {"help", "train"}).out, "--dataset"));
  const Outcome version = run_to(0, folder, {"--version"});
  EXPECT_EQ(version.out.rfind("mezzo " + std::string(kVersion) + "\nlibtorch ", 0), 0U)
      << version.out;
}

/// Replaces the standard output and records the switches of cuBLAS at every write.
class SwitchReader : public std::streambuf {
 public:
  SwitchReader() : before_(std::cout.rdbuf(this)) {}
  ~SwitchReader() override { std::cout.rdbuf(before_); }
  SwitchReader(const SwitchReader&) = delete;
  SwitchReader& operator=(const SwitchReader&) = delete;

  std::vector<at::CuBLASReductionOption> switches;

 protected:
  int_type overflow(int_type character) override {
    switches = {at::globalContext().allowFP16ReductionCuBLAS(),
                at::globalContext().allowBF16ReductionCuBLAS()};
    return traits_type::not_eof(character);
  }

 private:
  std::streambuf* before_;
};

TEST(Usage, commands_run_where_products_are_summed_in_float32) {
  using Reduction = at::CuBLASReductionOption;
  const Reduction before = at::globalContext().allowFP16ReductionCuBLAS();
  EXPECT_EQ(before, Reduction::AllowReducedPrecisionWithSplitK);
  for (const Words& words : {Words{"--version"}, Words{"train", "--help"}}) {
    SwitchReader reader;
    EXPECT_EQ(cli::run(words), 0);
    const std::vector<Reduction> expected(2, Reduction::DisallowReducedPrecisionAllowSplitK);
    EXPECT_EQ(reader.switches, expected) << words.front();
    EXPECT_EQ(at::globalContext().allowFP16ReductionCuBLAS(), before);
    EXPECT_EQ(at::globalContext().allowBF16ReductionCuBLAS(), before);
  }
}

TEST_F(UsageTest, wrong_options_are_exit_code_2_and_one_line) {
  const std::string rings = test::write_rings(folder);
  const std::vector<Case> cases = {
      {{}, "expects a command"},
      {{"trian"}, "'trian' is not a command of mezzo (did you mean train?)"},
      {{"data", "inof"}, "(did you mean info?)"},
      {{"train", "--datset", "D", "--hiden=3", "--frob"},
       "mezzo train has no option --datset (did you mean --dataset?), --hiden (did you mean "
       "--hidden?), --frob\n"},
      {{"train", "--learning-rate", "1"}, "--learning-rate (did you mean --lr?)"},
      {{"train", "--batch_size", "1"}, "--batch_size (did you mean --batch-size?)"},
      {{"launch", "--threads", "2", "train"}, "mezzo launch has no option --threads"},
      {{"train", rings},
       "mezzo train: expected options, got '" + rings + "'; for a data set write --dataset " +
           rings},
      {{"data", "list", "x"}, "mezzo data list: expected options, got 'x'"},
      {{"--verbose"}, "--verbose"},
      {{"data"}, "expects a command"},
      {{"data", "destroy"}, "destroy"},
      {{"train", "--dataset"}, "--dataset"},
      {{"train", "--dataset", ""}, "--dataset"},
      {{"train", "--batch-size", "ten"}, "--batch-size"},
      {{"train", "--fanout", "5,5"}, "batch-size"},
      {{"train", "--batch-size", "10", "--fanout", "5,x"}, "fanout"},
      {{"train", "--batch-size", "10", "--layers", "2", "--fanout", "5"}, "2 layers"},
      {{"train", "--workers", "2"}, "batch-size"},
      {{"train", "--batch-size", "2", "--fanout", "2,2", "--sample-on", "device"}, "sample-on"},
      {{"train", "--batch-size", "2", "--fanout", "2,2", "--sample-on", "gpu"}, "--sample-on"},
      {{"train", "--replace"}, "batch-size"},
      {{"train", "--sampler", "random"}, "neighbor, labor, layer, cluster, saint-node"},
      {{"train", "--sampler", "layer", "--batch-size", "9"}, "layer-sizes"},
      {{"train", "--sampler", "layer", "--batch-size", "9", "--layer-sizes", "5,x"},
       "--layer-sizes: expected an integer"},
      {{"train", "--sampler", "layer", "--batch-size", "9", "--layer-sizes", "5", "--layers", "2"},
       "2 layers"},
      {{"train", "--sampler", "layer", "--batch-size", "9", "--layer-sizes", "5,5", "--model",
        "gat"},
       "gcn or sage"},
      {{"train", "--sampler", "saint-node", "--saint-budget", "9", "--no-shuffle"}, "no-shuffle"},
      {{"train", "--sampler", "cluster"}, "parts"},
      {{"train", "--sampler", "cluster", "--parts", "4", "--batch-size", "2"}, "batch-size"},
      {{"train", "--sampler", "saint-node", "--saint-budget", "9", "--walk-length", "2"},
       "walk-length"},
      {{"train", "--model", "sgc", "--batch-size", "10", "--fanout", "5,5"}, "sgc"},
      {{"compare", "--models", "sage,sgc", "--batch-size", "10", "--fanout", "5,5"}, "sgc"},
      {{"doctor", "--model", "sgc", "--batch-size", "10", "--fanout", "5,5"}, "sgc"},
      {{"train", "--epochs", "many"}, "--epochs"},
      {{"train", "--epochs", "1.5"}, "--epochs"},
      {{"train", "--epochs", "99999999999999999999"}, "--epochs"},
      {{"train", "--epochs", "0"}, "epochs"},
      {{"train", "--layers", "1000000000"}, "layers: expected 1 to 65536"},
      {{"train", "--hidden", "9223372036854775807"}, "hidden: expected 1 to 16777216"},
      {{"train", "--epochs", "1", "--epochs", "2"}, "--epochs: expected one value, got several"},
      {{"train", "--epochs"}, "--epochs: expected a value, got none"},
      {{"train", "--seed", "-1"}, "--seed"},
      {{"train", "--lr", "nan"}, "lr"},
      {{"train", "--lr", "-1"}, "lr: expected above 0, got -1"},
      {{"train", "--patience", "5", "--eval-every", "10"},
       "patience: expected at least eval-every, which is 10, got 5"},
      {{"train", "--dropout", "1"}, "dropout"},
      {{"train", "--dataset", rings, "--model", "nonsense"},
       "--model: 'nonsense' is not one of gcn, sage, gat, gin, gine, sgc, mlp"},
      {{"compare", "--models", "gcn,cat"}, "--models: 'cat' is not one of gcn, sage"},
      {{"train", "--task", "node-classes"},
       "--task: 'node-classes' is not one of node-class, node-labels, node-regression"},
      {{"train", "--optimizer", "lion"}, "adam, adamw, sgd"},
      {{"train", "--norm", "group"}, "none, layer, batch"},
      {{"train", "--precision", "fp8"}, "fp32, tf32, bf16, fp16"},
      {{"train", "--loss-scale", "much"}, "loss-scale"},
      {{"train", "--heads", "2"}, "heads"},
      {{"train", "--output-heads", "2"}, "output-heads"},
      {{"train", "--attention-dropout", "0.1"}, "attention-dropout"},
      {{"train", "--model", "mlp", "--self-loops"}, "self-loops"},
      {{"train", "--self-loops", "--no-self-loops"}, "contradict"},
      {{"train", "--layers", "1", "--hidden", "8"}, "hidden"},
      {{"train", "--model", "sgc", "--hidden", "8"}, "hidden"},
      {{"train", "--model", "sgc", "--norm", "layer"}, "norm"},
      {{"train", "--device", "abacus"}, "device"},
      {{"train", "--device", "cuda:4000"}, "device"},
      {{"train", "--capture"}, "capture: expected a CUDA device"},
      {{"compare", "--capture", "--dropout", "0"}, "capture"},
      {{"doctor", "--capture"}, "--capture"},
      {{"train", "--threads", "0"}, "--threads"},
      {{"train", "--runs", "0"}, "--runs"},
      {{"train", "--runs", "2", "--checkpoint", folder.path("c")}, "--checkpoint"},
      {{"train", "--runs", "2", "--resume", folder.path("c")}, "--resume"},
      {{"train", "--dataset", rings, "--split-index", "2"}, "split"},
      {{"train", "--dataset", rings, "--split-index", "-1"}, "split-index"},
      {{"train", "--dataset", rings, "--split", "no such"}, "no such"},
      {{"train", "--dataset", "no_such_name"}, "no_such_name"},
      {{"compare", "--precision", "fp16"}, "--precision"},
      {{"compare", "--precisions", "fp32,fp8"}, "fp8"},
      {{"compare", "--precisions", "fp32,fp32"}, "twice"},
      {{"compare", "--model", "gcn", "--models", "gat,sage"}, "--models"},
      {{"compare", "--models", "gcn,sage", "--heads", "4"}, "heads"},
      {{"compare", "--precisions", "fp32,tf32", "--keep-float32", "layer0"}, "keep-float32"},
      {{"evaluate"}, "--checkpoint"},
      {{"predict", "--checkpoint", "c"}, "--output"},
      {{"predict", "--checkpoint", "c", "--output", "x.txt"}, ".csv"},
      {{"data", "info"}, "--dataset"},
  };
  expect_failures(folder, cases, 2);
}

TEST_F(UsageTest, files_that_cannot_be_used_are_exit_code_3_and_one_line) {
  const std::string rings = test::write_rings(folder);
  const std::string damaged = test::write_rings(folder, "damaged");
  folder.write("damaged/labels.npy", "not an array");
  const std::string garbage = folder.write("garbage.pt", "not a checkpoint");
  const std::vector<Case> cases = {
      {{"train", "--dataset", damaged}, "labels.npy"},
      {{"train", "--dataset", rings, "--json", folder.path("none/r.json")}, "--json"},
      {{"train", "--dataset", rings, "--checkpoint", folder.path()}, "--checkpoint"},
      {{"train", "--dataset", rings, "--resume", garbage}, "garbage.pt"},
      {{"train", "--dataset", rings, "--resume", folder.path("none.pt")}, "none.pt"},
      {{"train", "--config", folder.path("none.toml")}, "none.toml"},
      {{"evaluate", "--checkpoint", garbage}, "garbage.pt"},
      {{"predict", "--checkpoint", garbage, "--output", folder.path("p.csv")}, "garbage.pt"},
      {{"data", "list", "--directory", folder.path("none")}, "none"},
  };
  expect_failures(folder, cases, 3);
}

TEST_F(UsageTest, a_full_standard_output_is_exit_code_3) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  for (const Words& words : {Words{"--version"}, Words{"train", "--help"}, Words{"data", "list"}}) {
    expect_failure(run_mezzo(folder, words, "/dev/full"), 3, "standard output", words[0]);
  }
}

TEST_F(UsageTest, memory_that_ran_out_is_exit_code_70_and_says_how_much) {
  // More than a processor can address, wherever the test runs.
  const Outcome outcome =
      run_mezzo(folder, {"train", "--dataset", test::write_rings(folder), "--model", "mlp",
                         "--layers", "3", "--hidden", "16777216"});
  EXPECT_EQ(outcome.code, 70);
  EXPECT_EQ(outcome.num_error_lines(), 2) << outcome.err;  // with the recipe's
  EXPECT_TRUE(test::contains(outcome.err, "\nmezzo: out of memory: "));
  EXPECT_TRUE(
      test::contains(outcome.err, " bytes were requested; --precision bf16, a smaller --hidden"));
}

TEST_F(UsageTest, a_section_of_a_config_file_is_named) {
  const std::string file = folder.write("c.toml", "epochs = 2\n[train]\nseed = 1\n");
  expect_failure(run_mezzo(folder, {"train", "--config", file}), 2,
                 "line 2: sections are not read, got '[train]'", "section");
}

TEST_F(UsageTest, a_config_file_may_begin_with_a_byte_order_mark_and_has_no_dashes) {
  const std::string rings = test::write_rings(folder);
  const std::string marked = folder.write("m.toml",
                                          "\xef\xbb\xbf"
                                          "epochs = 2\n");
  run_to(0, folder, {"train", "--dataset", rings, "--config", marked});
  const std::string dashes = folder.write("d.toml", "epochs = 2\n--epochs = 3\n");
  expect_failure(run_mezzo(folder, {"train", "--dataset", rings, "--config", dashes}), 2,
                 "line 2: expected a key without dashes", "dashes");
}

TEST_F(UsageTest, a_flag_takes_no_value_but_true_and_false) {
  const std::string rings = test::write_rings(folder);
  const Words train = {"train", "--dataset", rings, "--epochs", "1", "--threads", "1"};
  const auto run = [&](const Words& more) { return run_mezzo(folder, test::with(train, more)); };
  for (const char* value : {"2", "maybe", "1"}) {
    const std::string fault = std::string("--skip: expected no value, or true or false, got '");
    expect_failure(run({"--skip=" + std::string(value)}), 2, fault + value, value);
    const std::string file = folder.write("c.toml", "skip = " + std::string(value) + "\n");
    expect_failure(run({"--config", file}), 2, fault + value, value);
  }
  for (const char* line : {"skip =", "skip = # yes"}) {
    expect_failure(run({"--config", folder.write("c.toml", line)}), 2,
                   "line 1: expected key = value, got 'skip =", line);
  }
  for (const char* line : {"skip = true", "skip = false # no", "skip = true\n\nseed = 3"}) {
    EXPECT_EQ(run({"--config", folder.write("c.toml", line)}).code, 0) << line;
  }
  EXPECT_EQ(run({"--skip=false"}).code, 0);
}

TEST_F(UsageTest, an_empty_item_of_a_list_and_a_seed_beyond_the_last_are_refused) {
  const std::string rings = test::write_rings(folder);
  for (const char* fanouts : {"2,,2", "2,2,", ",2"}) {
    expect_failure(
        run_mezzo(folder, {"train", "--dataset", rings, "--batch-size", "4", "--fanout", fanouts}),
        2, "--fanout", fanouts);
  }
  expect_failure(run_mezzo(folder, {"train", "--dataset", rings, "--seed", "18446744073709551615",
                                    "--runs", "2"}),
                 2, "--runs", "seed");
}

TEST_F(UsageTest, a_file_that_is_read_is_not_overwritten) {
  const std::string rings = test::write_rings(folder), file = folder.write("file.csv", "epochs=1");
  const std::string link = folder.path("link.csv");
  std::filesystem::create_symlink(file, link);
  const std::vector<Words> cases = {
      {"train", "--dataset", rings, "--checkpoint", folder.path("c"), "--json", folder.path("c")},
      {"train", "--dataset", rings, "--resume", file, "--json", link},
      {"train", "--dataset", rings, "--config", file, "--json", file},
      {"train", "--dataset", rings, "--config", file, "--checkpoint", link},
      {"evaluate", "--checkpoint", file, "--json", link},
      {"predict", "--checkpoint", file, "--output", link},
      {"train", "--dataset", file, "--json", link},
      {"train", "--dataset", file, "--checkpoint", file},
      {"predict", "--dataset", file, "--checkpoint", folder.path("c"), "--output", link},
      {"data", "info", "--dataset", file, "--json", file},
  };
  for (const Words& words : cases) {
    expect_failure(run_mezzo(folder, words), 2, "is the file of", words[0] + " " + words.back());
    EXPECT_EQ(test::read_text(file), "epochs=1");
  }
}

TEST_F(UsageTest, no_output_replaces_a_file_of_the_data_set) {
  const std::string rings = test::write_rings(folder), labels = rings + "/labels.npy";
  const std::string link = folder.path("link.npy"), bytes = test::read_text(labels);
  std::filesystem::create_symlink(labels, link);
  const std::string checkpoint = folder.path("c.pt"), from_folder = rings + "/again.pt";
  const Words train = {"train", "--dataset", rings, "--epochs", "1", "--threads", "1"};
  ASSERT_EQ(run_mezzo(folder, test::with(train, {"--checkpoint", checkpoint})).code, 0);
  const std::vector<Words> cases = {
      {"train", "--dataset", rings, "--epochs", "1", "--json", labels},
      {"train", "--dataset", rings, "--epochs", "1", "--json", link},
      {"train", "--dataset", rings, "--epochs", "1", "--checkpoint", labels},
      {"compare", "--dataset", rings, "--epochs", "1", "--json", labels},
      {"doctor", "--dataset", rings, "--steps", "1", "--json", labels},
      {"evaluate", "--checkpoint", checkpoint, "--json", labels},
      {"evaluate", "--checkpoint", checkpoint, "--dataset", rings, "--json", link},
      {"data", "list", "--directory", folder.path(), "--json", labels},
      {"data", "info", "--dataset", rings, "--json", labels},
      {"data", "convert", "--dataset", rings, "--output", folder.path("mz"), "--json", labels},
      {"data", "partition", "--dataset", rings, "-k", "2", "--output", folder.path("p"), "--json",
       labels},
  };
  for (const Words& words : cases) {
    expect_failure(run_mezzo(folder, words), 2, "in the folder of the data set",
                   words[0] + " " + words[1] + " " + words.back());
    EXPECT_EQ(test::read_text(labels), bytes) << words[0];
  }
  // Output of an earlier run may be replaced.
  const Words again =
      test::with(train, {"--checkpoint", rings + "/own.pt", "--json", rings + "/own.json"});
  EXPECT_EQ(run_mezzo(folder, again).code, 0);
  EXPECT_EQ(run_mezzo(folder, again).code, 0);
  std::filesystem::copy_file(checkpoint, from_folder);
  run_to(0, folder,
         {"train", "--dataset", rings, "--epochs", "2", "--threads", "1", "--resume", from_folder,
          "--checkpoint", from_folder});
}

TEST_F(UsageTest, a_run_that_diverges_is_exit_code_4) {
  const Outcome outcome = run_to(
      4, folder,
      {"train", "--dataset", test::write_rings(folder), "--lr", "1e38", "--optimizer", "sgd"});
  EXPECT_TRUE(test::contains(outcome.err, "mezzo: training diverged"));
  EXPECT_EQ(outcome.out, "");
}

}  // namespace
}  // namespace mezzo
