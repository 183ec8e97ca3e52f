#include <cmath>

#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/command.h"
#include "support/npy_writer.h"

namespace mezzo::launch_test {
namespace {

using nlohmann::json;
using test::Outcome;
using test::run_mezzo;
using test::run_to;

std::vector<std::string> launched(std::vector<std::string> options,
                                  const std::vector<std::string>& train) {
  options.insert(options.begin(), "launch");
  options.push_back("train");
  options.insert(options.end(), train.begin(), train.end());
  return options;
}

std::vector<std::string> sampled(const std::string& dataset) {
  return {"--dataset",    dataset, "--model",  "sage", "--hidden", "4",
          "--batch-size", "3",     "--fanout", "2,2",  "--epochs", "3"};
}

std::vector<std::string> with(std::vector<std::string> words,
                              const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Lines of `text` that begin with `prefix`.
std::int64_t lines_with(const std::string& text, const std::string& prefix) {
  std::int64_t count = 0;
  for (std::size_t at = text.find(prefix); at != text.npos; at = text.find(prefix, at + 1)) {
    count += at == 0 || text[at - 1] == '\n' ? 1 : 0;
  }
  return count;
}

TEST(Launch, two_processes_train_and_the_first_one_reports) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder);
  const Outcome outcome = run_to(0, folder,
                                 launched({"-n", "2", "--threads-per-process", "1"},
                                          with(sampled(rings), {"--checkpoint", folder.path("c"),
                                                                "--json", folder.path("r.json")})));
  EXPECT_GT(lines_with(outcome.out, "[0] "), 10) << outcome.out;
  EXPECT_EQ(lines_with(outcome.out, "[1] "), 0) << outcome.out;
  EXPECT_EQ(lines_with(outcome.err, "[1] "), 0) << outcome.err;
  EXPECT_NE(outcome.out.find("2, communication "), std::string::npos) << outcome.out;
  const json report = json::parse(test::read_text(folder.path("r.json")));
  EXPECT_EQ(report["world_size"], 2);
  EXPECT_EQ(report["threads"], 1);
  EXPECT_GT(report["communication_seconds"], 0);
  // 12 training nodes: 2 batches of 3 in each process.
  EXPECT_EQ(report["steps"], 6);
  EXPECT_EQ(report["sampling"]["batches"], 6);

  run_to(0, folder, {"evaluate", "--checkpoint", folder.path("c")});
}

TEST(Launch, a_report_that_cannot_be_printed_is_exit_code_3) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder);
  const Outcome outcome = run_mezzo(
      folder, launched({"-n", "2", "--threads-per-process", "1"}, sampled(rings)), "/dev/full");
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_NE(outcome.err.find("mezzo: launch: the standard output: writing failed"),
            std::string::npos)
      << outcome.err;
}

TEST(Launch, several_runs_follow_one_another_on_all_processes) {
  const test::TempFolder folder;
  run_to(0, folder,
         launched({"-n", "2"}, with(sampled(test::write_rings(folder)),
                                    {"--runs", "2", "--json", folder.path("r.json")})));
  const json report = json::parse(test::read_text(folder.path("r.json")));
  EXPECT_EQ(report["runs"].size(), 2U);
  EXPECT_GT(report["communication_seconds"], report["runs"][1]["communication_seconds"]);
}

TEST(Launch, one_process_is_a_plain_run) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder);
  const std::vector<std::string> train = {"--dataset", rings,    "--epochs",
                                          "2",         "--json", folder.path("r.json")};
  run_to(0, folder, launched({"-n", "1"}, train));
  EXPECT_EQ(json::parse(test::read_text(folder.path("r.json")))["world_size"], 1);
}

TEST(Launch, words_that_cannot_be_launched_are_one_line) {
  const test::TempFolder folder;
  const auto refused = [&](const std::vector<std::string>& words, const std::string& fragment) {
    const Outcome outcome = run_mezzo(folder, words);
    EXPECT_EQ(outcome.code, 2) << fragment;
    EXPECT_EQ(outcome.num_error_lines(), 1) << outcome.err;
    EXPECT_NE(outcome.err.find(fragment), std::string::npos) << outcome.err;
  };
  refused({"launch", "train"}, "-n: expected the number of processes");
  refused({"launch", "-n", "two", "train"}, "-n: expected an integer, got 'two'");
  refused({"launch", "-n", "0", "train"}, "-n: expected 1 to");
  refused({"launch", "-n", "2"}, "expected a command after its options");
  refused({"launch", "-n", "2", "compare"}, "'compare' cannot be run in several processes");
  refused({"launch", "-n", "2", "--ports", "1", "train"}, "no option --ports");
  refused({"launch", "-n", "2", "--port", "70000", "train"}, "--port: expected 1 to 65535");
  refused({"launch", "-n", "2", "--threads-per-process", "0", "train"},
          "--threads-per-process: expected 1 to");
}

TEST(Launch, what_all_processes_refuse_ends_with_their_code) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder);
  const auto refused = [&](const std::vector<std::string>& train, const std::string& fragment) {
    const Outcome outcome = run_to(2, folder, launched({"-n", "2"}, train));
    EXPECT_NE(outcome.err.find(fragment), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("mezzo: launch: rank "), std::string::npos) << outcome.err;
  };
  refused({"--dataset", rings, "--epochs", "2"}, "batch-size and fanout");
  refused(with(sampled(rings), {"--group-timeout", "0"}), "--group-timeout: expected 1 to");
}

TEST(Launch, a_port_that_is_in_use_is_named) {
  const test::TempFolder folder;
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  const std::string port = std::to_string(ntohs(address.sin_port));
  const Outcome outcome =
      run_mezzo(folder, launched({"-n", "2", "--port", port}, sampled(test::write_rings(folder))));
  ::close(listener);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("--port: " + port), std::string::npos) << outcome.err;
}

/// Reports of GraphSAGE on a data set.
struct OneAndTwo {
  json one, two;

  double difference() const {
    return std::abs(two["test"]["accuracy"].get<double>() - one["test"]["accuracy"].get<double>());
  }
};

/// Trains with one process, and with two processes of half the batch. The two sample other
/// neighbours and drop other features.
OneAndTwo learn_by_one_and_two(const std::string& dataset, std::int64_t batch_size,
                               const std::vector<std::string>& options) {
  const test::TempFolder folder;
  const std::string report = folder.path("r.json");
  const auto learn = [&](std::int64_t batch, const std::vector<std::string>& before) {
    const std::vector<std::string> words =
        with(before,
             {"--dataset", dataset, "--recipe", "planetoid", "--model", "sage", "--dropout", "0.5",
              "--normalize-features", "--batch-size", std::to_string(batch), "--json", report});
    run_to(0, folder, with(words, options));
    return test::read_json(report);
  };
  const OneAndTwo reports{
      .one = learn(batch_size, {"train"}),
      .two = learn(batch_size / 2, {"launch", "-n", "2", "--threads-per-process", "1", "train"})};
  EXPECT_EQ(reports.one["world_size"], 1);
  EXPECT_EQ(reports.two["world_size"], 2);
  EXPECT_EQ(reports.two["steps"], reports.one["steps"]);
  return reports;
}

/// The two scores are samples of one distribution: they differ by less than four standard errors of
/// the difference of two shares of 1,000 nodes.
TEST(Launch, two_processes_learn_what_one_learns_from_cora) {
  const OneAndTwo reports =
      learn_by_one_and_two(MEZZO_CORA, 70,
                           {"--hidden", "32", "--lr", "0.01", "--weight-decay", "5e-4", "--fanout",
                            "10,10", "--epochs", "20", "--eval-every", "5"});
  const double alone = reports.one["test"]["accuracy"];
  constexpr double kNodes = 1000;  // of the test
  EXPECT_GT(alone, 0.7);           // 0.3 for the largest class, below 0.6 without the edges
  EXPECT_LE(reports.difference(), 4 * std::sqrt(2 * alone * (1 - alone) / kNodes));
}

TEST(SharedDataLaunch, two_processes_come_within_half_a_point_of_one_on_coauthor_physics) {
  const char* const shared = std::getenv("MEZZO_SHARED_DATA");
  if (shared == nullptr) {
    GTEST_SKIP() << "MEZZO_SHARED_DATA does not name the folder of the shared data sets";
  }
  const OneAndTwo reports =
      learn_by_one_and_two(std::string(shared) + "/coauthor-physics", 512,
                           {"--split", "602020", "--hidden", "64", "--lr", "0.003", "--fanout",
                            "15,10", "--epochs", "5", "--eval-every", "5"});
  EXPECT_GT(reports.one["test"]["accuracy"].get<double>(), 0.9);  // 0.51 for the largest class
  EXPECT_LE(reports.difference(), 0.005);
}

}  // namespace
}  // namespace mezzo::launch_test
