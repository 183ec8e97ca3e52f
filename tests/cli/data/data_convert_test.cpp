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
using test::Outcome;
using test::run_mezzo;
using test::run_to;
using Words = std::vector<std::string>;

TEST(DataConvertCommand, writes_a_folder_that_trains) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder), out = folder.path("out");
  const std::string path = folder.path("c.json");
  const Outcome converted = run_to(0, folder,
                                   {"data", "convert", "--dataset", rings, "--output", out,
                                    "--feature-dtype", "bf16", "--json", path});
  EXPECT_NE(converted.out.find("features.npy"), std::string::npos) << converted.out;
  EXPECT_NE(converted.out.find("24 nodes, 48 edges, 3 features, 2 classes"), std::string::npos)
      << converted.out;
  EXPECT_EQ(converted.err, "");  // no stage takes seconds
  const json report = json::parse(test::read_text(path));
  EXPECT_EQ(report["edges"].get<int>(), 48);
  EXPECT_EQ(report["files"].size(), 7U);
  run_to(0, folder, {"train", "--dataset", out, "--epochs", "3", "--lr", "0.05", "--threads", "1"});
}

TEST(DataConvertCommand, info_tells_of_a_converted_folder_what_it_tells_of_the_original) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder), out = folder.path("out");
  ASSERT_EQ(run_mezzo(folder, {"data", "convert", "--dataset", rings, "--output", out}).code, 0);
  const std::string path = folder.path("i.json");
  const auto info = [&](const std::string& dataset) {
    run_to(0, folder, {"data", "info", "--dataset", dataset, "--json", path});
    return json::parse(test::read_text(path));
  };
  json before = info(rings), after = info(out);
  EXPECT_FALSE(before["features"]["mapped"].get<bool>());
  EXPECT_TRUE(after["features"]["mapped"].get<bool>());
  EXPECT_EQ(after["features"]["dtype"].get<std::string>(), "float32");
  EXPECT_TRUE(after["features"]["density"].is_null());
  for (json* one : {&before, &after}) {
    one->erase("origin");
    (*one)["features"].erase("mapped");
    (*one)["features"].erase("density");
    one->erase("split_names");  // a mapped data set has the masks of one name
  }
  EXPECT_EQ(before, after);
}

TEST(DataConvertCommand, info_tells_of_data_without_labels) {
  const test::TempFolder folder;
  const std::string edges = folder.write("graph.txt", "0 1\n1 2\n");
  const std::string path = folder.path("i.json");
  run_to(0, folder, {"data", "info", "--dataset", edges, "--json", path});
  const json info = json::parse(test::read_text(path));
  EXPECT_EQ(info["nodes"].get<int>(), 3);
  EXPECT_TRUE(info["classes"].empty());
  EXPECT_TRUE(info["splits"].empty());
  EXPECT_TRUE(info["homophily"].is_null());
  EXPECT_EQ(info["unlabelled_nodes"].get<int>(), 3);
  const Outcome trained = run_to(3, folder, {"train", "--dataset", edges});
  EXPECT_NE(trained.err.find("no labels"), std::string::npos) << trained.err;
}

TEST(DataConvertCommand, symmetrize_adds_the_reverse_of_each_edge) {
  const test::TempFolder folder;
  const std::string edges = folder.write("graph.txt", "0 1\n1 2\n2 1\n");
  const std::string path = folder.path("c.json");
  run_to(0, folder,
         {"data", "convert", "--dataset", edges, "--output", folder.path("out"), "--symmetrize",
          "--json", path});
  const json report = json::parse(test::read_text(path));
  EXPECT_EQ(report["edges"].get<int>(), 4);
  EXPECT_GT(report["peak_memory_bytes"].get<std::int64_t>(), 0);
}

TEST(DataConvertCommand, mistakes_end_with_their_exit_codes_and_one_line) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder), out = folder.path("out");
  struct Mistake {
    Words words;
    int code;
    std::string fault;
  };
  const std::vector<Mistake> mistakes = {
      {{"--output", out}, 2, "--dataset is required"},
      {{"--dataset", rings}, 2, "--output is required"},
      {{"--dataset", "no_such_name", "--output", out}, 2, "no_such_name"},
      {{"--dataset", rings, "--output", rings, "--overwrite"}, 2, "no mapped dataset"},
      {{"--dataset", rings, "--output", out, "--feature-dtype", "int8"}, 2, "fp32, bf16, fp16"},
      {{"--dataset", rings, "--output", folder.path("no/such")}, 3, "/no does not exist"},
  };
  for (const Mistake& mistake : mistakes) {
    Words words = {"data", "convert"};
    words.insert(words.end(), mistake.words.begin(), mistake.words.end());
    const Outcome outcome = run_mezzo(folder, words);
    EXPECT_EQ(outcome.code, mistake.code) << outcome.err;
    EXPECT_NE(outcome.err.find(mistake.fault), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.num_error_lines(), 1) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(out));
  }
}

TEST(DataConvertCommand, an_interrupt_leaves_nothing_and_is_exit_code_130) {
  const test::TempFolder folder;
  std::string edges = "# many\n";
  for (std::int64_t i = 0; i < 1 << 21; ++i) {
    edges += std::to_string(i * 7919 % 100003) + " " + std::to_string(i % 99991) + "\n";
  }
  const std::string input = folder.write("graph.txt", edges), out = folder.path("out");
  const std::string err = folder.path("stderr.txt");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    execl(MEZZO_COMMAND, MEZZO_COMMAND, "data", "convert", "--dataset", input.c_str(), "--output",
          out.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  const auto has_begun = [&folder] {
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      if (entry.path().filename().string().starts_with("out")) return true;
    }
    return false;
  };
  for (int i = 0; !has_begun() && i < 60000; ++i) usleep(1000);
  kill(child, SIGINT);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130) << test::read_text(err);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("out")) << entry.path();
  }
}

}  // namespace
}  // namespace mezzo
