#include "mezzo/dist/rendezvous/spawn.h"

#include <cerrno>
#include <cstdio>
#include <fstream>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mezzo/core/error.h"
#include "mezzo/runtime/memory.h"

#include "dist/processes.h"
#include "support/errors.h"

namespace mezzo::dist {
namespace {

using namespace mezzo::test;

/// SIGALRM ends a worker that hangs, and spawn reports it.
constexpr unsigned kWorkerSeconds = 20;

Graph ring(std::int64_t nodes) {
  const at::Tensor ids = at::arange(nodes);
  return Graph::from_coo(ids, (ids + 1).remainder(nodes), nodes);
}

/// The exception of spawn as "<kind>: <message>".
template <class Work>
std::string error_of(std::int64_t processes, const Work& work) {
  try {
    spawn_over_gloo(processes, ring(3), [&](ProcessGroup& group, const Graph&) {
      ::alarm(kWorkerSeconds);
      work(group);
    });
  } catch (const InvalidArgument& error) {
    return std::string("InvalidArgument: ") + error.what();
  } catch (const IoError& error) {
    return std::string("IoError: ") + error.what();
  } catch (const NumericError& error) {
    return std::string("NumericError: ") + error.what();
  } catch (const LogicError& error) {
    return std::string("LogicError: ") + error.what();
  } catch (const Error& error) {
    return std::string("Error: ") + error.what();
  }
  return "none";
}

void expect_no_child() {
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

int threads_of_this_process() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    int threads = 0;
    if (word == "Threads:" && file >> threads) return threads;
  }
  return -1;
}

/// Large enough that libtorch runs forward and backward in parallel.
double product_and_gradient() {
  const at::Tensor a = at::ones({400, 400});
  const at::Tensor weight = at::ones({400, 400}).set_requires_grad(true);
  at::matmul(a, weight).relu().sum().backward();
  const at::Tensor low = at::matmul(a.to(at::kBFloat16), a.to(at::kBFloat16));
  return weight.grad().sum().item<double>() + low.select(0, 0).select(0, 0).item<double>();
}

TEST(Spawn, workers_join_one_group_and_see_the_graph) {
  Graph graph = ring(5);
  graph.ndata()["feat"] = at::arange(10).reshape({5, 2});
  for (const std::int64_t processes : {1, 3}) {
    spawn_over_gloo(processes, graph, [&](ProcessGroup& group, const Graph& seen) {
      ::alarm(kWorkerSeconds);
      require(group.world_size() == processes, "the size of the group");
      require(group.local_rank() == group.rank(), "ranks of one machine");
      require(seen.num_edges() == 5, "the graph");
      const at::Tensor ranks = group.all_gather(seen.ndata().at("feat") + group.rank());
      for (std::int64_t rank = 0; rank < processes; ++rank) {
        require(at::equal(ranks.select(0, rank), at::arange(10).reshape({5, 2}) + rank),
                "the columns of rank " + std::to_string(rank));
      }
    });
  }
  expect_no_child();
}

TEST(Spawn, what_a_worker_writes_stays_with_it) {
  const at::Tensor numbers = at::zeros({4});
  int count = 0;
  spawn_over_gloo(2, ring(3), [&](ProcessGroup&, const Graph&) {
    numbers.fill_(1);
    ++count;
  });
  EXPECT_EQ(count, 0);
  EXPECT_TRUE(at::equal(numbers, at::zeros({4})));
}

TEST(Spawn, operations_run_in_parallel_after_they_did_so_here) {
  if (default_device().is_cuda()) GTEST_SKIP() << "a backward pass here initializes CUDA";
  const int threads_before = at::get_num_threads();
  at::set_num_threads(2);
  const double expected = product_and_gradient();
  spawn_over_gloo(1, ring(3), [&](ProcessGroup&, const Graph&) {
    ::alarm(kWorkerSeconds);
    const int threads = threads_of_this_process();
    require(product_and_gradient() == expected, "the parent's numbers");
    require(threads_of_this_process() > threads, "another thread for a parallel region");
  });
  EXPECT_EQ(product_and_gradient(), expected);
  at::set_num_threads(threads_before);
}

TEST(Spawn, a_process_that_asks_for_its_default_device_can_still_spawn) {
  const c10::Device device = default_device();
  spawn_over_gloo(2, ring(3), [device](ProcessGroup& group, const Graph&) {
    require(group.backend() == Backend::kGloo && group.device().is_cpu(), "Gloo");
    require(default_device() == device, "the same device in a worker");
  });
}

TEST(Spawn, a_backend_that_the_machine_lacks_is_refused) {
  if (default_device().is_cuda()) GTEST_SKIP() << "there is a GPU";
  const auto nothing = [](ProcessGroup&, const Graph&) {};
  EXPECT_THROWS(InvalidArgument, "rank 0: dist::init: NCCL: needs mezzo's CUDA library",
                spawn(1, ring(3), nothing, Backend::kNccl));
}

TEST(Spawn, the_automatic_backend_is_gloo_without_a_gpu) {
  if (default_device().is_cuda()) GTEST_SKIP() << "there is a GPU";
  spawn(2, ring(3), [](ProcessGroup& group, const Graph&) {
    require(group.backend() == Backend::kGloo, "Gloo");
    require(group.all_reduce(1.0, ReduceOp::kSum) == 2.0, "a sum over two ranks");
  });
}

TEST(Spawn, workers_divide_the_threads) {
  const int threads_before = at::get_num_threads();
  at::set_num_threads(4);
  for (const auto& [processes, threads] : {std::pair{1, 4}, std::pair{2, 2}, std::pair{5, 1}}) {
    spawn_over_gloo(processes, ring(3), [expected = threads](ProcessGroup&, const Graph&) {
      require(at::get_num_threads() == expected, std::to_string(expected) + " threads");
    });
  }
  at::set_num_threads(threads_before);
}

TEST(Spawn, exception_of_a_worker_keeps_its_kind_and_gets_the_rank) {
  const auto thrown_by_rank_1 = [](auto exception) {
    return error_of(2, [&](ProcessGroup& group) {
      if (group.rank() == 1) throw exception;
      ::pause();
    });
  };
  EXPECT_EQ(thrown_by_rank_1(InvalidArgument("a")), "InvalidArgument: rank 1: a");
  EXPECT_EQ(thrown_by_rank_1(IoError("b")), "IoError: rank 1: b");
  EXPECT_EQ(thrown_by_rank_1(NumericError("c")), "NumericError: rank 1: c");
  EXPECT_EQ(thrown_by_rank_1(LogicError("d")), "LogicError: rank 1: d");
  EXPECT_EQ(thrown_by_rank_1(std::runtime_error("e")), "Error: rank 1: e");
  EXPECT_EQ(thrown_by_rank_1(7), "Error: rank 1: an exception that is no std::exception");
  EXPECT_EQ(thrown_by_rank_1(IoError(std::string(100000, 'x'))).substr(0, 19),
            "IoError: rank 1: xx");
  expect_no_child();
}

TEST(Spawn, error_of_libtorch_comes_without_its_backtrace) {
  const std::string error =
      error_of(1, [](ProcessGroup&) { at::matmul(at::ones(2), at::ones(3)); });
  EXPECT_EQ(error.find("Error: rank 0: "), 0U) << error;
  EXPECT_EQ(error.find("frame #"), std::string::npos) << error;
}

TEST(Spawn, names_the_rank_that_failed_and_not_those_that_missed_it) {
  for (int repeat = 0; repeat < 3; ++repeat) {
    EXPECT_EQ(error_of(3,
                       [](ProcessGroup& group) {
                         if (group.rank() == 2) throw InvalidArgument("here");
                         group.all_reduce(at::ones({10}));
                       }),
              "InvalidArgument: rank 2: here");
    EXPECT_EQ(error_of(3,
                       [](ProcessGroup& group) {
                         if (group.rank() == 1) std::raise(SIGKILL);
                         group.all_reduce(at::ones({10}));
                       }),
              "LogicError: rank 1: ended by signal SIGKILL (Killed)");
  }
  expect_no_child();
}

/// Waits until another process has ended and its parent has reaped it.
void wait_until_gone(std::int64_t process) {
  while (::kill(static_cast<pid_t>(process), 0) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST(Spawn, the_cause_is_thrown_though_the_rank_that_lost_it_spoke_first) {
  // Twice, because an exception here must not count as a failure of later workers.
  for (int repeat = 0; repeat < 2; ++repeat) {
    EXPECT_EQ(error_of(2,
                       [](ProcessGroup& group) {
                         const at::Tensor processes = group.all_gather(
                             at::full({}, static_cast<std::int64_t>(::getpid()), at::kLong));
                         if (group.rank() == 0) group.barrier();
                         group.give_up("disk full");
                         wait_until_gone(processes[0].item<std::int64_t>());
                         throw IoError("disk full");
                       }),
              "IoError: rank 1: disk full");
  }
  expect_no_child();
}

TEST(Spawn, a_loss_for_which_no_rank_fails_is_thrown_as_it_was_met) {
  const std::string error = error_of(2, [](ProcessGroup& group) {
    if (group.rank() == 0) group.barrier();
    if (group.rank() == 1) group.give_up("no more of this");
  });
  EXPECT_EQ(
      error.find("IoError: rank 0: dist::barrier of rank 0 of 2: given up by rank 1: no more"), 0U)
      << error;
  expect_no_child();
}

TEST(Spawn, exit_before_the_end_is_an_error) {
  const auto exit_of_rank_0 = [](int code) {
    return error_of(2, [&](ProcessGroup& group) {
      if (group.rank() == 0) ::_exit(code);
      ::pause();
    });
  };
  EXPECT_EQ(exit_of_rank_0(3),
            "LogicError: rank 0: ended with exit code 3 before its work was done");
  EXPECT_EQ(exit_of_rank_0(0),
            "LogicError: rank 0: ended with exit code 0 before its work was done");
}

TEST(Spawn, ends_a_worker_that_ignores_the_request) {
  EXPECT_EQ(error_of(2,
                     [](ProcessGroup& group) {
                       std::signal(SIGTERM, SIG_IGN);
                       group.barrier();
                       if (group.rank() == 0) throw IoError("disk");
                       while (true) ::pause();
                     }),
            "IoError: rank 0: disk");
  expect_no_child();
}

TEST(Spawn, workers_end_when_this_process_is_killed) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t middle = ::fork();
  ASSERT_GE(middle, 0);
  if (middle == 0) {
    ::close(ends[0]);
    spawn_over_gloo(2, ring(3), [&](ProcessGroup&, const Graph&) {
      ::alarm(kWorkerSeconds);
      static_cast<void>(::write(ends[1], "x", 1) == 1);
      while (true) ::pause();
    });
    ::_exit(0);
  }
  ::close(ends[1]);
  char letter = 0;
  for (int worker = 0; worker < 2; ++worker) ASSERT_EQ(::read(ends[0], &letter, 1), 1);
  ::kill(middle, SIGKILL);
  ::waitpid(middle, nullptr, 0);
  pollfd end{ends[0], 0, 0};  // signals when no process can write to the pipe
  EXPECT_EQ(::poll(&end, 1, 5000), 1);
  ::close(ends[0]);
}

TEST(Spawn, writes_buffered_output_once) {
  testing::internal::CaptureStdout();
  std::printf("before ");
  spawn_over_gloo(2, ring(3), [](ProcessGroup&, const Graph&) { std::printf("worker "); });
  std::printf("after");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "before worker worker after");
}

/// Total memory of four workers after each has run `use` on the graph. `use` returns whether the
/// graph is correct.
double bytes_of_workers(const Graph& graph, const std::function<bool(const Graph&)>& use) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  spawn_over_gloo(4, graph, [&](ProcessGroup& group, const Graph& seen) {
    ::alarm(kWorkerSeconds);
    require(use(seen), "the graph");
    const double sum = group.all_reduce(static_cast<double>(proportional_bytes()), ReduceOp::kSum);
    if (group.rank() == 0) require(::write(ends[1], &sum, sizeof(sum)) == sizeof(sum), "a pipe");
  });
  double sum = 0;
  EXPECT_EQ(::read(ends[0], &sum, sizeof(sum)), static_cast<ssize_t>(sizeof(sum)));
  ::close(ends[0]);
  ::close(ends[1]);
  return sum;
}

TEST(Spawn, features_are_there_once) {
  constexpr std::int64_t kBytes = std::int64_t{64} << 20;
  const auto are_ones = [](const Graph& seen) {
    const at::Tensor feat = seen.ndata().at("feat");
    return feat.sum().item<double>() == static_cast<double>(feat.numel());
  };
  Graph graph = ring(1024);
  graph.ndata()["feat"] = at::ones({1024, 1});
  const double without = bytes_of_workers(graph, are_ones);
  graph.ndata()["feat"] = at::ones({1024, kBytes / 4 / 1024});
  const double copies = (bytes_of_workers(graph, are_ones) - without) / static_cast<double>(kBytes);
  // This process shares the pages too: the workers together account for 4 of 5.
  EXPECT_GT(copies, 0.5);
  EXPECT_LT(copies, 1.5);
}

TEST(Spawn, structure_is_there_once_also_by_rows) {
  constexpr std::int64_t kNodes = 1024, kEdges = std::int64_t{8} << 20;
  const auto sources_add_up = [](const Graph& seen) {
    const Adjacency& rows = seen.topology().csc();
    return at::equal(rows.indices.sum(), seen.topology().src().sum());
  };
  const auto graph_of = [](std::int64_t edges) {  // not ordered by destination
    const at::Tensor ids = at::arange(edges);
    return Graph::from_coo((ids * 7).remainder(kNodes), (ids * 5 + 1).remainder(kNodes), kNodes);
  };
  const double without = bytes_of_workers(graph_of(kNodes), sources_add_up);
  const double all = bytes_of_workers(graph_of(kEdges), sources_add_up) - without;
  const double bytes = 16 * static_cast<double>(kEdges);  // src, dst, indices and edge ids of int32
  EXPECT_GT(all / bytes, 0.3);
  EXPECT_LT(all / bytes, 1.5);  // with separate rows per worker it would be above 2
}

TEST(Spawn, wrong_arguments_are_errors) {
  const auto nothing = [](ProcessGroup&, const Graph&) {};
  EXPECT_THROW(spawn_over_gloo(0, ring(3), nothing), InvalidArgument);
  EXPECT_THROW(spawn_over_gloo(-1, ring(3), nothing), InvalidArgument);
  EXPECT_THROW(spawn_over_gloo(1025, ring(3), nothing), InvalidArgument);
  EXPECT_THROW(spawn_over_gloo(1, ring(3), nullptr), InvalidArgument);
}

}  // namespace
}  // namespace mezzo::dist
