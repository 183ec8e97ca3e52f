#include <cmath>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "support/npy_writer.h"

namespace mezzo {
namespace {

using nlohmann::json;
using test::Outcome;
using test::run_mezzo;
using test::run_to;
using Words = std::vector<std::string>;

constexpr std::int64_t kRingNodes = 24;

Outcome partition(const test::TempFolder& folder, const std::string& dataset,
                  const std::string& output, const Words& more = {}) {
  Words words = {"data", "partition", "--dataset", dataset, "--output", output};
  words.insert(words.end(), more.begin(), more.end());
  return run_mezzo(folder, words);
}

Words train_words(const std::string& dataset, const Words& more = {},
                  const std::string& epochs = "3") {
  Words words = {"train", "--dataset", dataset, "--hidden", "4",   "--batch-size",
                 "3",     "--fanout",  "2,2",   "--epochs", epochs};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words launched(const std::string& processes, const Words& words) {
  Words all = {"launch", "-n", processes, "--threads-per-process", "1"};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

class DataPartitionCommandTest : public testing::Test {
 protected:
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder), parts = folder.path("parts");
};

TEST_F(DataPartitionCommandTest, writes_a_folder_for_each_process) {
  const std::string path = folder.path("p.json");
  const Outcome outcome =
      partition(folder, rings, parts, {"-k", "3", "--hops", "1", "--json", path});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("halo nodes"), std::string::npos) << outcome.out;
  const json report = json::parse(test::read_text(path));
  const json written = json::parse(test::read_text(parts + "/partition.json"));
  EXPECT_EQ(report["parts"], written["parts"]);
  EXPECT_EQ(report["hops"], 1);
  std::int64_t own = 0, num_part_nodes = 0;
  for (const json& part : report["parts"]) {
    own += part["own_nodes"].get<std::int64_t>();
    num_part_nodes +=
        part["own_nodes"].get<std::int64_t>() + part["halo_nodes"].get<std::int64_t>();
  }
  EXPECT_EQ(own, kRingNodes);
  EXPECT_GT(num_part_nodes, kRingNodes);  // a ring is cut
  EXPECT_EQ(report["replication"].get<double>(),
            static_cast<double>(num_part_nodes) / static_cast<double>(kRingNodes));
  EXPECT_EQ(run_mezzo(folder, {"data", "info", "--dataset", parts + "/part2"}).code, 0);
  EXPECT_EQ(partition(folder, rings, parts, {"-k", "2"}).code, 2);
  EXPECT_EQ(partition(folder, rings, parts, {"-k", "2", "--overwrite"}).code, 0);
  EXPECT_FALSE(std::filesystem::exists(parts + "/part2"));
}

TEST_F(DataPartitionCommandTest, an_output_that_cannot_be_made_is_told_before_the_data_are_read) {
  const std::string none = folder.path("no data"), there = folder.path("there");
  folder.write("there/file", "");
  Outcome outcome = partition(folder, none, there, {"-k", "2"});
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_NE(outcome.err.find("--output: " + there + " exists"), std::string::npos) << outcome.err;
  outcome = partition(folder, none, folder.path("none/parts"), {"-k", "2"});
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_NE(outcome.err.find("output: the folder"), std::string::npos) << outcome.err;
}

TEST_F(DataPartitionCommandTest, a_data_set_is_never_replaced_by_its_parts) {
  const std::string mz = folder.path("mz");
  ASSERT_EQ(run_mezzo(folder, {"data", "convert", "--dataset", rings, "--output", mz}).code, 0);
  for (const std::string& dataset : {mz, folder.path("no data")}) {  // before it is read
    const Outcome outcome = partition(folder, dataset, mz, {"-k", "2", "--overwrite"});
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find("is no folder of parts"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(run_mezzo(folder, {"data", "info", "--dataset", mz}).code, 0);
}

TEST_F(DataPartitionCommandTest, hops_out_of_range_are_told_before_the_data_are_read) {
  for (const std::string hops : {"0", "255"}) {
    const Outcome outcome = partition(folder, folder.path("no data"), folder.path("parts"),
                                      {"-k", "2", "--hops", hops});
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find("hops: expected 1 to 254, got " + hops), std::string::npos)
        << outcome.err;
  }
}

TEST_F(DataPartitionCommandTest, processes_train_on_their_parts_and_score_as_on_the_whole) {
  ASSERT_EQ(partition(folder, rings, parts, {"-k", "3"}).code, 0);
  for (const std::string model : {"gcn", "sage"}) {
    const std::string checkpoint = folder.path(model), path = folder.path("r.json");
    run_to(0, folder,
           launched("3", train_words(parts, {"--model", model, "--norm", "batch", "--checkpoint",
                                             checkpoint, "--json", path})));
    const json report = json::parse(test::read_text(path));
    EXPECT_EQ(report["world_size"], 3);
    run_to(0, folder,
           {"evaluate", "--checkpoint", checkpoint, "--dataset", rings, "--json",
            folder.path("e.json")});
    const json whole = json::parse(test::read_text(folder.path("e.json")));
    const auto hits = [](const json& score) { return std::lround(score.get<double>() * 24); };
    EXPECT_EQ(hits(report["val"]["accuracy"]), hits(whole["val"]["accuracy"])) << model;
    EXPECT_EQ(hits(report["test"]["accuracy"]), hits(whole["test"]["accuracy"])) << model;
    const Words longer =
        train_words(parts, {"--model", model, "--norm", "batch", "--resume", checkpoint}, "4");
    run_to(0, folder, launched("3", longer));
  }
}

TEST_F(DataPartitionCommandTest, labor_draws_on_parts_too) {
  ASSERT_EQ(partition(folder, rings, parts, {"-k", "2"}).code, 0);
  run_to(0, folder, launched("2", train_words(parts, {"--sampler", "labor"})));
}

TEST_F(DataPartitionCommandTest, parts_that_do_not_fit_the_run_are_errors_that_say_so) {
  ASSERT_EQ(partition(folder, rings, parts, {"-k", "2", "--hops", "1"}).code, 0);
  const auto refused = [&](const Words& words, const std::string& fault) {
    const Outcome outcome = run_to(2, folder, words);
    EXPECT_NE(outcome.err.find(fault), std::string::npos) << outcome.err;
  };
  refused(launched("3", train_words(parts)), "has 2 parts, one for each process, and there are 3");
  refused(train_words(parts), "has 2 parts, one for each process, and there is 1");
  refused(launched("2", train_words(parts)), "--hops 2");
  const std::string deep = folder.path("deep");
  ASSERT_EQ(partition(folder, rings, deep, {"-k", "2"}).code, 0);
  refused(launched("2", train_words(deep + "/part0")), "expected part i of the data on rank i");
  refused({"train", "--dataset", parts + "/part0"}, "sampler neighbor, labor or layer");
  refused({"data", "info", "--dataset", parts}, "name one");
  refused({"data", "convert", "--dataset", parts + "/part0", "--output", folder.path("c")},
          "convert the whole");
  refused(
      {"data", "partition", "--dataset", parts + "/part0", "-k", "2", "--output", folder.path("c")},
      "is a part of a data set already");
  EXPECT_FALSE(std::filesystem::exists(folder.path("c")));
}

TEST_F(DataPartitionCommandTest, mistakes_are_one_line) {
  const std::string out = folder.path("out");
  const auto refused = [&](const Words& words, const std::string& fault) {
    const Outcome outcome = partition(folder, rings, out, words);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(fault), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.num_error_lines(), 1) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(out));
  };
  refused({}, "-k is required");
  refused({"-k", "0"}, "-k: expected at least 1");
  refused({"-k", "25"}, "-k: expected at most the 24 nodes");
  refused({"-k", "2", "--hops", "0"}, "hops: expected 1 to");
}

}  // namespace
}  // namespace mezzo
