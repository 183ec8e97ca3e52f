#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mezzo/dist/group/process_group.h"
#include "mezzo/dist/rendezvous/spawn.h"

namespace mezzo::test {

/// Reserves a port of this machine while alive.
class FreePort {
 public:
  FreePort() : descriptor_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* general = reinterpret_cast<sockaddr*>(&address);
    if (::setsockopt(descriptor_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
        ::bind(descriptor_, general, size) != 0 ||
        ::getsockname(descriptor_, general, &size) != 0) {
      throw std::runtime_error("no free port");
    }
    number_ = ntohs(address.sin_port);
  }
  ~FreePort() { ::close(descriptor_); }
  FreePort(const FreePort&) = delete;
  FreePort& operator=(const FreePort&) = delete;

  std::int64_t number() const { return number_; }
  /// Starts to listen: the port is then in use, and connections are accepted but never answered.
  void occupy() const { ::listen(descriptor_, 16); }

 private:
  int descriptor_;
  std::int64_t number_ = 0;
};

/// Exit status of a process.
struct Ending {
  bool good = false;
  int signal = 0;            ///< 0: no signal
  std::string message = {};  ///< message of the exception
  double seconds = 0.0;      ///< run time
  bool out_of_time = false;  ///< killed after the time limit
};

/// Runs work(rank) in forks of this process, which must not have run parallel regions before, and
/// waits for all. Kills the remaining ones after `limit`.
inline std::vector<Ending> run_processes(std::int64_t count,
                                         const std::function<void(std::int64_t)>& work,
                                         std::chrono::seconds limit = std::chrono::seconds(60)) {
  struct Child {
    pid_t id;
    int pipe;
  };
  const auto start = std::chrono::steady_clock::now();
  std::vector<Child> children;
  for (std::int64_t rank = 0; rank < count; ++rank) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    const pid_t id = ::fork();
    if (id == 0) {
      at::set_num_threads(1);
      std::string message;
      try {
        work(rank);
      } catch (const std::exception& error) {
        message = error.what();
        if (message.empty()) message = "an exception";
      }
      const auto written = ::write(ends[1], message.data(), message.size());
      ::_exit(message.empty() && written == 0 ? 0 : 1);
    }
    ::close(ends[1]);
    children.push_back({id, ends[0]});
  }
  std::vector<Ending> endings(children.size());
  std::vector<bool> ended(children.size(), false);
  for (std::size_t left = children.size(); left > 0;) {
    const auto now = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (ended[i]) continue;
      int status = 0;
      if (now - start > limit) {
        ::kill(children[i].id, SIGKILL);
        ::waitpid(children[i].id, &status, 0);
        endings[i].out_of_time = true;
      } else if (::waitpid(children[i].id, &status, WNOHANG) == 0) {
        continue;
      }
      endings[i].good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
      endings[i].signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      endings[i].seconds = std::chrono::duration<double>(now - start).count();
      ended[i] = true;
      --left;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (std::size_t i = 0; i < children.size(); ++i) {
    char text[4096];
    for (ssize_t size; (size = ::read(children[i].pipe, text, sizeof(text))) > 0;) {
      endings[i].message.append(text, static_cast<std::size_t>(size));
    }
    ::close(children[i].pipe);
  }
  return endings;
}

inline dist::InitOptions local_options(std::int64_t rank, std::int64_t count, const FreePort& port,
                                       std::chrono::milliseconds timeout) {
  dist::InitOptions options;
  options.rank = rank;
  options.world_size = count;
  options.address = "127.0.0.1";
  options.port = port.number();
  options.backend = dist::Backend::kGloo;
  options.timeout = timeout;
  return options;
}

/// Runs work with a group of all processes.
inline std::vector<Ending> run_group(std::int64_t count, std::chrono::milliseconds timeout,
                                     const std::function<void(dist::ProcessGroup&)>& work) {
  const FreePort port;
  return run_processes(count, [&](std::int64_t rank) {
    dist::ProcessGroup group = dist::init(local_options(rank, count, port, timeout));
    work(group);
  });
}

inline std::vector<Ending> run_group(std::int64_t count,
                                     const std::function<void(dist::ProcessGroup&)>& work) {
  return run_group(count, std::chrono::seconds(30), work);
}

/// dist::spawn over Gloo, also on a machine with GPUs.
inline void spawn_over_gloo(std::int64_t processes, const Graph& graph,
                            const std::function<void(dist::ProcessGroup&, const Graph&)>& work) {
  dist::spawn(processes, graph, work, dist::Backend::kGloo);
}

/// For EXPECT_TRUE: whether no process threw or died; else contains their messages.
inline testing::AssertionResult all_good(const std::vector<Ending>& endings) {
  testing::AssertionResult result = testing::AssertionSuccess();
  for (std::size_t rank = 0; rank < endings.size(); ++rank) {
    const Ending& ending = endings[rank];
    if (ending.good) continue;
    if (result) result = testing::AssertionFailure();
    result << "rank " << rank << ": " << ending.message << " (signal " << ending.signal
           << (ending.out_of_time ? ", out of time)\n" : ")\n");
  }
  return result;
}

/// For processes of run_processes, because gtest's checks have no effect there.
inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline void require(bool condition, const std::string& text) {
  if (!condition) throw std::runtime_error("not so: " + text);
}

inline void require(const testing::AssertionResult& result) {
  require(static_cast<bool>(result), result.message());
}

/// Expects `work` to succeed on all `ranks` ranks.
inline void on_ranks(std::int64_t ranks, const std::function<void(dist::ProcessGroup&)>& work) {
  EXPECT_TRUE(all_good(run_group(ranks, work)));
}

}  // namespace mezzo::test
