#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include "mezzo/core/error.h"
#include "mezzo/dist/group/process_group.h"
#include "mezzo/dist/sharded_features.h"

#include "dist/processes.h"

/// Failures between processes.
namespace mezzo::test {
namespace {

using dist::ProcessGroup;
using std::chrono::milliseconds;

constexpr milliseconds kShort(2000);
/// A time-out so long that only the detection of a lost rank can end a test in time.
constexpr milliseconds kLong = std::chrono::minutes(5);
constexpr double kSoon = 15.0;  ///< seconds

void expect_failure(const Ending& ending, const std::string& part) {
  EXPECT_FALSE(ending.good);
  EXPECT_EQ(ending.signal, 0);
  EXPECT_TRUE(has(ending.message, part)) << ending.message;
  EXPECT_LT(ending.seconds, kSoon) << ending.message;
}

TEST(ProcessGroupFaults, a_rank_that_never_starts_is_named_everywhere) {
  const FreePort port;
  const auto endings = run_processes(
      3, [&](std::int64_t rank) { dist::init(local_options(rank, 4, port, kShort)); });
  for (const Ending& ending : endings) {
    expect_failure(ending, "1 of 4 processes did not come within 2 s: rank 3");
  }
}

TEST(ProcessGroupFaults, a_rank_0_that_never_starts_is_named_with_its_address) {
  const FreePort port;
  const auto endings =
      run_processes(1, [&](std::int64_t) { dist::init(local_options(1, 2, port, kShort)); });
  expect_failure(endings[0], "rank 0 at 127.0.0.1, port " + std::to_string(port.number()));
  expect_failure(endings[0], "within 2 s");
}

TEST(ProcessGroupFaults, a_port_in_use_is_named) {
  const FreePort port;
  port.occupy();
  const auto endings = run_processes(
      2, [&](std::int64_t rank) { dist::init(local_options(rank, 2, port, kShort)); });
  expect_failure(endings[0], "port " + std::to_string(port.number()));
  expect_failure(endings[0], "in use");
  expect_failure(endings[1], "port " + std::to_string(port.number()));
}

TEST(ProcessGroupFaults, a_rank_given_twice_is_found) {
  const FreePort port;
  const auto endings = run_processes(3, [&](std::int64_t process) {
    dist::init(local_options(process == 0 ? 0 : 1, 3, port, kShort));
  });
  expect_failure(endings[0], "rank 2");
  const bool first = has(endings[1].message, "rank 1 has been taken");
  EXPECT_NE(first, has(endings[2].message, "rank 1 has been taken"));
}

TEST(ProcessGroupFaults, ranks_with_another_task_are_named_everywhere) {
  const FreePort port;
  const auto endings = run_processes(3, [&](std::int64_t rank) {
    dist::InitOptions options = local_options(rank, 3, port, kLong);
    options.agreement = rank == 0 ? "nodes 10\nedges 20" : "nodes 10\nedges 21";
    dist::init(options);
  });
  for (const Ending& ending : endings) {
    expect_failure(ending, "rank 0 has 'edges 20', rank 1 has 'edges 21'");
    expect_failure(ending, "ranks 1, 2");
  }
}

TEST(ProcessGroupFaults, ranks_that_ask_for_another_backend_are_named_everywhere) {
  const FreePort port;
  const auto endings = run_processes(2, [&](std::int64_t rank) {
    dist::InitOptions options = local_options(rank, 2, port, kLong);
    if (rank == 1) options.backend = dist::Backend::kAutomatic;
    dist::init(options);
  });
  for (const Ending& ending : endings) {
    expect_failure(ending, "'the backend is Gloo', rank 1 has 'the backend is automatic'");
  }
}

TEST(ProcessGroupFaults, ranks_that_count_other_processes_are_named_everywhere) {
  for (const std::int64_t count_of_last : {2, 4}) {
    const FreePort port;
    const auto endings = run_processes(3, [&](std::int64_t rank) {
      const std::int64_t count = rank == 1 ? count_of_last : 3;
      dist::init(local_options(rank, count, port, kLong));
    });
    for (const Ending& ending : endings) {
      expect_failure(ending, "the number of processes differs: rank 0 has '3', rank 1 has '" +
                                 std::to_string(count_of_last) + "'");
    }
  }
  const FreePort port;
  const auto endings = run_processes(
      2, [&](std::int64_t rank) { dist::init(local_options(rank, rank + 2, port, kLong)); });
  for (const Ending& ending : endings) expect_failure(ending, "rank 0 has '2', rank 1 has '3'");
}

TEST(ProcessGroupFaults, a_rank_of_another_version_is_named) {
  const FreePort port;
  const auto endings = run_processes(2, [&](std::int64_t rank) {
    if (rank == 0) {
      dist::init(local_options(rank, 2, port, kLong));
      return;
    }
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(port.number());
    options.waitWorkers = false;
    c10d::PrefixStore store("mezzo/0/0", c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options));
    const auto write = [&](const std::string& key, const std::string& text) {
      store.set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
    };
    write("version/1", "0.0.7");
    write("agreement/1", "");
    write("arrived/1", "yes");
    store.wait({"status"});
    store.add("status_read", 1);
  });
  expect_failure(endings[0], "the version of mezzo differs");
  expect_failure(endings[0], "rank 1 has '0.0.7'");
}

TEST(ProcessGroupFaults, a_killed_rank_is_named_by_all_others) {
  for (const std::int64_t victim : {0, 2}) {
    const auto endings = run_group(4, kLong, [&](ProcessGroup& group) {
      const at::Tensor tensor = at::ones({100000});
      group.all_reduce(tensor);
      if (group.rank() == victim) ::raise(SIGKILL);
      group.all_reduce(tensor);
    });
    for (std::size_t rank = 0; rank < endings.size(); ++rank) {
      if (static_cast<std::int64_t>(rank) == victim) {
        EXPECT_EQ(endings[rank].signal, SIGKILL);
      } else {
        expect_failure(endings[rank], "no answer from rank " + std::to_string(victim));
      }
    }
  }
}

/// These collectives send along a ring, so most ranks have no connection to the lost one.
TEST(ProcessGroupFaults, a_rank_killed_before_a_gather_of_shards_is_named_alone) {
  for (const auto& [checked, victim] : {std::pair{true, 2}, std::pair{false, 1}}) {
    const FreePort port;
    const auto endings =
        run_processes(4, [&, checked = checked, victim = victim](std::int64_t rank) {
          dist::InitOptions options = local_options(rank, 4, port, kLong);
          options.check_collectives = checked;
          const ProcessGroup group = dist::init(options);
          const auto features = dist::ShardedFeatures::from_table(at::ones({8, 2}), group);
          if (rank == victim) ::raise(SIGKILL);
          features.gather(at::arange(8));
        });
    for (std::size_t rank = 0; rank < endings.size(); ++rank) {
      if (static_cast<int>(rank) == victim) {
        EXPECT_EQ(endings[rank].signal, SIGKILL);
      } else {
        expect_failure(endings[rank], "no answer from rank " + std::to_string(victim) + ":");
      }
    }
  }
}

TEST(ProcessGroupFaults, a_rank_that_does_not_come_is_named_after_the_time_out) {
  const auto endings = run_group(3, kShort, [](ProcessGroup& group) {
    if (group.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::seconds(10));
    } else {
      group.barrier();
    }
  });
  EXPECT_TRUE(endings[1].good) << endings[1].message;
  expect_failure(endings[0], "no answer from rank 1");
  expect_failure(endings[2], "no answer from rank 1");
}

TEST(ProcessGroupFaults, ranks_that_wait_in_different_operations_name_each_other) {
  const auto endings = run_group(2, kShort, [](ProcessGroup& group) {
    if (group.rank() == 0) {
      group.barrier();
    } else {
      group.all_reduce(at::ones({3}));
    }
  });
  for (const char* part : {"rank 1", "all_reduce"}) expect_failure(endings[0], part);
  for (const char* part : {"rank 0", "barrier"}) expect_failure(endings[1], part);
}

TEST(ProcessGroupFaults, connections_to_dead_ranks_raise_no_signal_that_ends_a_rank) {
  const FreePort port;
  EXPECT_TRUE(all_good(run_processes(2, [&](std::int64_t rank) {
    const auto before = rank == 0 ? SIG_DFL : [](int) {};
    ::signal(SIGPIPE, before);
    const ProcessGroup group = dist::init(local_options(rank, 2, port, kLong));
    const auto after = ::signal(SIGPIPE, SIG_DFL);
    require(after == (rank == 0 ? SIG_IGN : before), "ignored where nobody handles it");
    group.barrier();
  })));
}

TEST(ProcessGroupFaults, a_rank_that_leaves_early_fails_the_others) {
  const auto endings = run_group(2, kLong, [](ProcessGroup& group) {
    if (group.rank() == 1) return;
    group.all_reduce(at::ones({3}));
  });
  EXPECT_TRUE(endings[1].good);
  expect_failure(endings[0], "all_reduce of rank 0 of 2");
}

TEST(ProcessGroupFaults, a_failed_group_refuses_everything_at_once) {
  const auto endings = run_group(2, kLong, [](ProcessGroup& group) {
    if (group.rank() == 1) ::raise(SIGKILL);
    bool failed = false;
    try {
      group.barrier();
    } catch (const IoError&) {
      failed = true;
    }
    require(failed, "the barrier fails");
    group.broadcast(at::ones({3}));
  });
  expect_failure(endings[0], "the group has failed before");
}

TEST(ProcessGroupFaults, the_reason_of_a_rank_that_gives_up_reaches_the_others) {
  for (const std::int64_t quitter : {0, 1}) {
    const auto endings = run_group(3, kLong, [&](ProcessGroup& group) {
      if (group.rank() != quitter) group.barrier();
      if (group.rank() != quitter) return;
      group.give_up("no more\nof this");
      group.give_up("nor that");
      bool refused = false;
      try {
        group.barrier();
      } catch (const IoError& error) {
        refused = has(error.what(), "gave up: no more");
      }
      require(refused, "a collective after that");
    });
    for (std::size_t rank = 0; rank < endings.size(); ++rank) {
      if (static_cast<std::int64_t>(rank) == quitter) {
        EXPECT_TRUE(endings[rank].good) << endings[rank].message;
      } else {
        expect_failure(endings[rank], "rank " + std::to_string(quitter));
        expect_failure(endings[rank], "no more");
        EXPECT_FALSE(has(endings[rank].message, "of this")) << endings[rank].message;
      }
    }
  }
  ProcessGroup().give_up("alone");
}

/// Suspends another process for some seconds.
void stop_for(pid_t process, std::chrono::seconds time) {
  std::this_thread::sleep_for(
      milliseconds(200));  // others may still need it for the previous collective
  ::kill(process, SIGSTOP);
  std::thread([process, time] {
    std::this_thread::sleep_for(time);
    ::kill(process, SIGCONT);
  }).detach();
}

/// Process ids by rank.
std::vector<pid_t> processes_of(const ProcessGroup& group) {
  const at::Tensor all =
      group.all_gather(at::full({}, static_cast<std::int64_t>(::getpid()), at::kLong));
  std::vector<pid_t> processes;
  for (std::int64_t rank = 0; rank < group.world_size(); ++rank) {
    processes.push_back(static_cast<pid_t>(all[rank].item<std::int64_t>()));
  }
  return processes;
}

TEST(ProcessGroupFaults, a_rank_0_that_answers_late_still_passes_on_what_a_rank_says) {
  const auto endings = run_group(3, kLong, [](ProcessGroup& group) {
    const std::vector<pid_t> processes = processes_of(group);
    if (group.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::seconds(7));
      group.give_up("no more of this");
      return;
    }
    if (group.rank() == 1) stop_for(processes[0], std::chrono::seconds(5));
    group.barrier();
  });
  EXPECT_TRUE(endings[2].good) << endings[2].message;
  for (const std::size_t rank : {0U, 1U}) {
    expect_failure(endings[rank], "given up by rank 2: no more of this");
  }
}

TEST(ProcessGroupFaults, a_rank_that_fails_waits_for_a_rank_0_that_answers_late) {
  const auto endings = run_group(3, kLong, [](ProcessGroup& group) {
    const std::vector<pid_t> processes = processes_of(group);
    const at::Tensor tensor = at::ones({100000});
    if (group.rank() == 1) stop_for(processes[0], std::chrono::seconds(10));
    if (group.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      ::raise(SIGKILL);
    }
    group.all_reduce(tensor);
  });
  EXPECT_EQ(endings[2].signal, SIGKILL);
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_FALSE(endings[rank].good);
    EXPECT_TRUE(has(endings[rank].message, "no answer from rank 2")) << endings[rank].message;
    EXPECT_LT(endings[rank].seconds, 30.0);
  }
}

TEST(ProcessGroupFaults, a_rank_0_that_never_answers_is_given_up_after_the_time_out) {
  const auto endings = run_group(2, kShort, [](ProcessGroup& group) {
    const std::vector<pid_t> processes = processes_of(group);
    if (group.rank() == 0) ::pause();  // otherwise its part of the barrier might be done
    ::kill(processes[0], SIGSTOP);
    try {
      group.barrier();
    } catch (const IoError&) {
      ::kill(processes[0], SIGKILL);
      throw;
    }
  });
  EXPECT_EQ(endings[0].signal, SIGKILL);
  EXPECT_FALSE(endings[1].good);
  EXPECT_TRUE(has(endings[1].message, "no answer from rank 0")) << endings[1].message;
  EXPECT_LT(endings[1].seconds, 2.0 + 12.0 + 4.0);
}

TEST(ProcessGroupFaults, a_handle_let_go_does_not_wait_for_a_rank_that_never_comes) {
  const auto endings = run_group(2, kLong, [](ProcessGroup& group) {
    if (group.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::seconds(5));
    } else {
      const dist::Work work = group.all_reduce_async(at::ones({3}));
    }
  });
  EXPECT_TRUE(endings[0].good) << endings[0].message;
  EXPECT_LT(endings[0].seconds, 4.5);
}

}  // namespace
}  // namespace mezzo::test
