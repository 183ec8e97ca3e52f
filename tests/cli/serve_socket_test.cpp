#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <thread>

#include <ATen/ATen.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "mezzo/cli/serve/lines.h"
#include "mezzo/cli/serve/server.h"

#include "cli/command.h"
#include "cli/serve.h"

namespace mezzo {
namespace {

using cli::RequestHandler;
using nlohmann::json;
using test::fragments;
using test::TempFolder;
using test::trained_rings;

/// Connects to a socket, which may come up later.
class Client {
 public:
  explicit Client(const std::string& path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    file_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (int tries = 0; tries < 6000; ++tries) {
      if (::connect(file_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
        lines_.emplace(file_, 1 << 20, [] { return true; });
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ADD_FAILURE() << path << ": no connection";
  }
  ~Client() { ::close(file_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  std::string ask(const std::string& request) {
    EXPECT_TRUE(cli::write_line(file_, request));
    std::string answer;
    EXPECT_EQ(lines_->next(answer), cli::LineReader::Result::kLine);
    return answer;
  }
  bool at_end() {
    std::string line;
    return lines_->next(line) == cli::LineReader::Result::kEnd;
  }

 private:
  int file_;
  std::optional<cli::LineReader> lines_;
};

/// serve_socket() in a thread.
class Server {
 public:
  explicit Server(std::string path, cli::ServeOptions options = {})
      : path_(std::move(path)), handler_(trained_rings().handler()) {
    options.should_stop = [this] { return stop_.load(); };
    thread_ = std::thread([this, options] { cli::serve_socket(handler_, path_, options); });
  }
  ~Server() { stop(); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  RequestHandler& handler() { return handler_; }

 private:
  std::string path_;
  RequestHandler handler_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

TEST(ServeSocket, answers_several_clients_at_once) {
  const TempFolder folder;
  const std::string path = folder.path("socket");
  Server server(path);
  constexpr int kClients = 6;
  std::vector<std::thread> threads;
  std::atomic<int> connected = 0;
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([&, i] {
      Client client(path);
      ++connected;
      while (connected < kClients) std::this_thread::yield();  // all are open
      const std::string request = "{\"nodes\": [" + std::to_string(i) + "]}";
      for (int repeat = 0; repeat < 20; ++repeat) {
        EXPECT_EQ(client.ask(request), server.handler().answer(request));
      }
      EXPECT_TRUE(test::contains(client.ask("bad"), "error"));
    });
  }
  for (std::thread& thread : threads) thread.join();
  Client changes(path), asks(path);
  const std::string request = R"({"nodes": [0]})", before = asks.ask(request);
  changes.ask(R"({"add_edges": [[1, 0], [3, 0], [5, 0]]})");
  EXPECT_NE(asks.ask(request), before);

  server.stop();
  EXPECT_TRUE(changes.at_end());
  EXPECT_TRUE(asks.at_end());
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(ServeSocket, shares_the_rate_among_clients) {
  const TempFolder folder;
  const std::string path = folder.path("socket");
  Server server(path, {.max_requests_per_second = 3,
                       .now = [] { return cli::RateLimit::Clock::time_point(); }});
  Client first(path), second(path);
  const std::string request = R"({"nodes": [0]})";
  for (Client* const client : {&first, &second, &first}) {
    EXPECT_TRUE(test::contains(client->ask(request), "classes"));
  }
  EXPECT_TRUE(test::contains(second.ask(request), "3 requests"));
}

TEST(ServeSocket, takes_a_new_path_or_that_of_a_killed_server) {
  const TempFolder folder;
  RequestHandler handler = trained_rings().handler();
  const cli::ServeOptions options{.should_stop = [] { return true; }};
  const std::string file = folder.write("file", "text");
  EXPECT_THROWS(InvalidArgument, fragments("--socket", "file", "exists"),
                cli::serve_socket(handler, file, options));
  EXPECT_EQ(test::read_text(file), "text");
  EXPECT_THROWS(InvalidArgument, "107 bytes",
                cli::serve_socket(handler, std::string(108, 'a'), options));
  EXPECT_THROWS(IoError, "no/such", cli::serve_socket(handler, folder.path("no/such"), options));

  const std::string path = folder.path("socket");
  {
    Server running(path);
    Client client(path);
    EXPECT_THROWS(InvalidArgument, "exists", cli::serve_socket(handler, path, options));
    EXPECT_TRUE(test::contains(client.ask(R"({"nodes": [0]})"), "classes"));
  }
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int killed = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(killed, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ::close(killed);
  ASSERT_TRUE(std::filesystem::exists(path));
  cli::serve_socket(handler, path, options);
  EXPECT_FALSE(std::filesystem::exists(path));
}

/// A checkpoint of a model for test::write_rings().
std::string write_checkpoint(const TempFolder& folder) {
  const std::string file = folder.path("rings.pt");
  test::run_to(0, folder,
               {"train", "--dataset", test::write_rings(folder), "--model", "sage", "--epochs", "2",
                "--checkpoint", file});
  return file;
}

TEST(ServeCommand, answers_from_the_standard_input) {
  const TempFolder folder;
  const std::string checkpoint = write_checkpoint(folder);
  const std::string in = folder.write("in", "{\"nodes\": [1, 2]}\nbad\n" + std::string(99, ' '));
  const int status = std::system((test::quoted(MEZZO_COMMAND) + " predict --checkpoint " +
                                  test::quoted(checkpoint) + " --serve --max-request-bytes 50 <" +
                                  test::quoted(in) + " >" + test::quoted(folder.path("out")))
                                     .c_str());
  EXPECT_EQ(status, 0);
  std::istringstream lines(test::read_text(folder.path("out")));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(json::parse(line)["classes"].size(), 2U);
  std::getline(lines, line);
  EXPECT_TRUE(test::contains(line, "JSON object"));
  std::getline(lines, line);
  EXPECT_TRUE(test::contains(line, "50 bytes"));
  EXPECT_FALSE(std::getline(lines, line));
}

TEST(ServeCommand, ends_at_signals) {
  const TempFolder folder;
  const std::string checkpoint = write_checkpoint(folder);
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string path = folder.path("socket");
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::execl(MEZZO_COMMAND, MEZZO_COMMAND, "predict", "--checkpoint", checkpoint.c_str(),
              "--serve", "--socket", path.c_str(), nullptr);
      ::_exit(99);
    }
    Client client(path);
    EXPECT_TRUE(test::contains(client.ask(R"({"nodes": [0]})"), "classes"));
    ::kill(child, signal);
    EXPECT_TRUE(client.at_end());
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 130);
    EXPECT_FALSE(std::filesystem::exists(path));
  }
}

TEST(ServeCommand, refuses_wrong_usage) {
  const TempFolder folder;
  const struct {
    test::Words words;
    std::string part;
  } cases[] = {
      {{"--serve", "--output", "p.csv"}, "--output"},
      {{"--serve", "--nodes", "1"}, "--nodes"},
      {{"--output", "p.csv", "--socket", "s"}, "--socket"},
      {{"--output", "p.csv", "--max-request-bytes", "9"}, "--max-request-bytes"},
      {{"--serve", "--max-request-bytes", "0"}, "at least 1"},
      {{"--serve", "--max-requests-per-second", "0"}, "at least 1"},
  };
  for (const auto& [words, part] : cases) {
    const test::Outcome outcome =
        test::run_to(2, folder, test::with({"predict", "--checkpoint", "c.pt"}, words));
    EXPECT_TRUE(test::contains(outcome.err, part));
  }
}

}  // namespace
}  // namespace mezzo
