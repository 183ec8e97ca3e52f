#include "cli/command.h"

#include <csignal>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "support/npy_writer.h"

namespace mezzo {
namespace {

using nlohmann::json;
using test::Outcome;
using test::run_mezzo;
using Words = std::vector<std::string>;

/// `mezzo-bench` of two rounds on `rings`.
Words quick_bench(const std::string& rings, const Words& more) {
  Words words = {"--dataset", rings, "--rounds", "2", "--width", "8", "--threads", "1"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const json* find_work(const json& report, const std::string& beginning) {
  for (const json& result : report["results"]) {
    if (result["work"].get<std::string>().rfind(beginning, 0) == 0) return &result;
  }
  return nullptr;
}

TEST(BenchCommand, measures_every_work_beside_its_baselines) {
  const test::TempFolder folder;
  const std::string path = folder.path("b.json");
  const Outcome outcome =
      run_mezzo(folder, quick_bench(test::write_rings(folder), {"--json", path}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("fastest baseline"), std::string::npos) << outcome.out;
  const json report = json::parse(test::read_text(path));
  for (const char* key : {"graph", "nodes", "edges", "threads", "rounds", "stream_bytes_per_second",
                          "backends", "results", "version"}) {
    EXPECT_TRUE(report.contains(key)) << key;
  }
  EXPECT_EQ(report["nodes"].get<int>(), 24);
  EXPECT_EQ(report["threads"].get<int>(), 1);
  for (const char* work :
       {"copy_u sum, forward", "copy_u sum, forward+backward", "u_mul_e sum", "u_dot_v",
        "edge softmax", "GAT layer, 4 x 2", "gcn epoch", "sage epoch", "gat epoch"}) {
    const json* result = find_work(report, work);
    ASSERT_NE(result, nullptr) << work;
    EXPECT_TRUE((*result)["skipped"].is_null()) << *result;
    int mezzo = 0, baselines = 0;
    for (const json& candidate : (*result)["candidates"]) {
      ++(candidate["ours"].get<bool>() ? mezzo : baselines);
      if (!candidate["skipped"].is_null()) continue;
      EXPECT_EQ(candidate["rounds_ms"].size(), 2U) << candidate;
      EXPECT_GT(candidate["min_ms"].get<double>(), 0) << candidate;
      EXPECT_LE(candidate["min_ms"].get<double>(), candidate["median_ms"].get<double>());
      EXPECT_GT(candidate["peak_bytes"].get<std::int64_t>(), 0) << candidate;
    }
    EXPECT_EQ(mezzo, 3) << *result;
    EXPECT_EQ(baselines > 0, std::string(work).find("epoch") == std::string::npos) << *result;
  }
}

TEST(BenchCommand, a_precision_is_taken_alone) {
  const test::TempFolder folder;
  const std::string path = folder.path("b.json");
  ASSERT_EQ(run_mezzo(folder, quick_bench(test::write_rings(folder),
                                          {"--precision", "bf16", "--json", path}))
                .code,
            0);
  const json report = json::parse(test::read_text(path));
  for (const json& result : report["results"]) {
    for (const json& candidate : result["candidates"]) {
      if (!candidate["ours"].get<bool>()) continue;
      EXPECT_EQ(candidate["precision"].get<std::string>(), "bf16");
    }
  }
}

TEST(BenchCommand, the_stages_of_an_epoch_add_up) {
  const test::TempFolder folder;
  const std::string path = folder.path("b.json");
  ASSERT_EQ(run_mezzo(folder, quick_bench(test::write_rings(folder),
                                          {"--precision", "fp32,bf16", "--json", path}))
                .code,
            0);
  const json report = json::parse(test::read_text(path));
  const json& gat = *find_work(report, "gat epoch");
  for (const json& candidate : gat["candidates"]) {
    double sum = 0;
    for (const char* stage : {"first product", "products", "aggregation", "attention",
                              "other forward", "loss", "backward", "optimizer"}) {
      ASSERT_TRUE(candidate["stages"].contains(stage)) << stage;
      sum += candidate["stages"][stage]["rounds_ms"][0].get<double>();
    }
    EXPECT_LE(sum, candidate["rounds_ms"][0].get<double>());
    for (const char* stage : {"first product", "attention", "backward"}) {
      EXPECT_GT(candidate["stages"][stage]["rounds_ms"][0].get<double>(), 0) << stage;
    }
  }
}

TEST(BenchCommand, sampling_is_set_beside_bare_reads_and_an_epoch_beside_its_stages) {
  const test::TempFolder folder;
  const std::string path = folder.path("b.json");
  const Outcome outcome = run_mezzo(
      folder,
      quick_bench(test::write_rings(folder), {"--sampling", "--batch-size", "4", "--fanout", "2,3",
                                              "--precision", "fp32,bf16", "--json", path}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* heading : {"M edges/s", "of bare reads", "of the slower stage", "sample, ms",
                              "gather, ms", "transfer, ms", "wait, ms"}) {
    EXPECT_NE(outcome.out.find(heading), std::string::npos) << outcome.out;
  }
  const json report = json::parse(test::read_text(path));
  const auto names = [&](const char* work) {
    std::vector<std::string> candidates;
    const json* result = find_work(report, work);
    if (result == nullptr) return candidates;
    for (const json& candidate : (*result)["candidates"]) {
      EXPECT_GT(candidate["min_ms"].get<double>(), 0) << candidate;
      candidates.push_back(candidate["name"].get<std::string>());
    }
    return candidates;
  };
  EXPECT_EQ(names("neighbour sampling [2,3], batch 4"),
            (std::vector<std::string>{"mezzo, 1 thread", "mezzo, with degrees, 1 thread",
                                      "bare reads, 1 thread"}));
  EXPECT_EQ(names("mini-batch sage [2,3], batch 4"),
            (std::vector<std::string>{"prepare alone", "train alone, fp32", "pipelined, fp32",
                                      "train alone, bf16", "pipelined, bf16"}));
}

TEST(BenchCommand, a_graph_without_labels_is_timed_without_epochs) {
  const test::TempFolder folder;
  std::string edges;
  for (int node = 0; node < 40; ++node) {
    edges += std::to_string(node) + " " + std::to_string((node + 1) % 40) + "\n";
  }
  folder.write("ring.txt", edges);
  const std::string ring = folder.path("ring.txt");
  for (const Words& more : {Words{"--sampling", "--batch-size", "4", "--fanout", "2"}, Words{}}) {
    const Outcome outcome = run_mezzo(folder, quick_bench(ring, more));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("epochs are skipped: ring has no labels"), std::string::npos)
        << outcome.out;
  }
}

TEST(BenchCommand, wrong_words_are_exit_code_2_and_one_line) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder);
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--width", "0"}, "--width"},     {{"--width", "8,8"}, "twice"},
      {{"--width", "wide"}, "--width"},  {{"--rounds", "0"}, "--rounds"},
      {{"--threads", "0"}, "--threads"}, {{"--precision", "fp8"}, "fp32,bf16,fp16"},
      {{"--precision", "tf32"}, "tf32"}, {{"--precision", "fp32,fp32"}, "twice"},
      {{"--device", "cpu"}, "--device"}, {{"--dataset", "no_such_name"}, "no_such_name"},
  };
  for (const auto& [words, part] : cases) {
    const Outcome outcome = run_mezzo(folder, words);
    EXPECT_EQ(outcome.code, 2) << part << ": " << outcome.err;
    EXPECT_EQ(outcome.num_error_lines(), 1) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(run_mezzo(folder, quick_bench(rings, {"--split-index", "2"})).code, 2);
  EXPECT_EQ(run_mezzo(folder, quick_bench(rings, {"--json", rings + "/labels.npy"})).code, 2);
  EXPECT_EQ(run_mezzo(folder, quick_bench(rings, {"--batch-size", "4"})).code, 2);
  const Outcome outcome =
      run_mezzo(folder, quick_bench(rings, {"--json", folder.path("none/b.json")}));
  EXPECT_EQ(outcome.code, 3) << outcome.err;
}

TEST(BenchCommand, an_interrupt_ends_it_with_what_was_measured) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder), path = folder.path("b.json");
  const std::string err = folder.path("stderr.txt"), out = folder.path("stdout.txt");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const int to = O_WRONLY | O_CREAT | O_TRUNC;
    dup2(open(out.c_str(), to, 0600), STDOUT_FILENO);
    dup2(open(err.c_str(), to, 0600), STDERR_FILENO);
    execl(MEZZO_COMMAND, MEZZO_COMMAND, "--dataset", rings.c_str(), "--rounds", "10000", "--json",
          path.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  // The first line comes with the first comparison; a minute is for slow machines.
  for (int tenths = 0; test::read_text(err).empty() && tenths < 600; ++tenths) usleep(100000);
  kill(child, SIGINT);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130) << test::read_text(err);
  EXPECT_TRUE(json::parse(test::read_text(path)).contains("results"));
}

}  // namespace
}  // namespace mezzo
