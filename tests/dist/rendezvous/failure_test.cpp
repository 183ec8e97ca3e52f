#include "mezzo/dist/rendezvous/failure.h"

#include <cstdlib>
#include <new>
#include <system_error>
#include <utility>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "mezzo/core/error.h"
#include "mezzo/dist/data_parallel.h"
#include "mezzo/dist/group/process_group.h"

#include "dist/processes.h"

/// Whether a rank ends by its own failure or because it lost another rank.
namespace mezzo::test {
namespace {

using dist::ProcessGroup;
using dist::detail::comes_from_another;
using std::chrono::milliseconds;

constexpr milliseconds kLateAfter(4000);
/// A time-out so long that only the detection of a lost rank can end a test in time.
constexpr milliseconds kNeverLate = std::chrono::minutes(5);

/// Exceptions of the processes, with whether another rank caused them.
std::vector<Ending> run_and_judge(std::int64_t count,
                                  const std::function<void(std::int64_t)>& work) {
  return run_processes(count, [&](std::int64_t rank) {
    dist::detail::forget_failure_of_another();  // inherited from a test in the parent
    try {
      work(rank);
    } catch (const std::exception& error) {
      const bool of_another = dist::detail::has_failed_with_another();
      throw std::runtime_error((of_another ? "another's: " : "its own: ") +
                               std::string(error.what()));
    }
  });
}

/// Ends this process after the others are done with the previous collective, even on a busy
/// machine.
void die() {
  std::this_thread::sleep_for(milliseconds(1500));
  ::raise(SIGKILL);
}

std::vector<Ending> run_group_and_judge(std::int64_t count, bool check_collectives,
                                        const std::function<void(ProcessGroup&)>& work) {
  const FreePort port;
  return run_and_judge(count, [&](std::int64_t rank) {
    dist::InitOptions options = local_options(rank, count, port, kNeverLate);
    options.check_collectives = check_collectives;
    ProcessGroup group = dist::init(options);
    work(group);
  });
}

void expect_its_own(const Ending& ending, const std::string& part) {
  EXPECT_EQ(ending.message.rfind("its own: ", 0), 0U) << ending.message;
  EXPECT_TRUE(has(ending.message, part)) << ending.message;
}

void expect_of_another(const Ending& ending, const std::string& part) {
  EXPECT_EQ(ending.message.rfind("another's: ", 0), 0U) << ending.message;
  EXPECT_TRUE(has(ending.message, part)) << ending.message;
}

TEST(ProcessGroupFaultsOfOthers, a_lack_of_memory_or_threads_is_this_ranks_own) {
  EXPECT_FALSE(comes_from_another(std::bad_alloc()));
  EXPECT_FALSE(comes_from_another(
      std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again))));
  EXPECT_FALSE(comes_from_another(c10::Error("can't allocate memory")));
  EXPECT_TRUE(comes_from_another(c10::DistNetworkError("failed to recv, got 0 bytes")));
  EXPECT_TRUE(comes_from_another(std::runtime_error("Connection closed by peer")));
}

TEST(ProcessGroupFaultsOfOthers, those_that_wait_for_one_that_never_comes) {
  const FreePort port;
  const auto endings = run_and_judge(
      2, [&](std::int64_t rank) { dist::init(local_options(rank, 3, port, kLateAfter)); });
  for (const Ending& ending : endings) expect_of_another(ending, "did not come within 4 s: rank 2");
}

TEST(ProcessGroupFaultsOfOthers, one_that_does_not_reach_rank_0) {
  const FreePort port;
  const auto endings =
      run_and_judge(1, [&](std::int64_t) { dist::init(local_options(1, 2, port, kLateAfter)); });
  expect_of_another(endings[0], "rank 0 at 127.0.0.1");
}

TEST(ProcessGroupFaultsOfOthers, a_port_in_use_is_the_fault_of_rank_0) {
  const FreePort port;
  port.occupy();
  const auto endings = run_and_judge(
      2, [&](std::int64_t rank) { dist::init(local_options(rank, 2, port, kLateAfter)); });
  expect_its_own(endings[0], "in use");
  expect_of_another(endings[1], "rank 0 at 127.0.0.1");
}

TEST(ProcessGroupFaultsOfOthers, a_rank_0_that_ends_while_the_others_meet) {
  const FreePort port;
  const auto endings = run_and_judge(2, [&](std::int64_t rank) {
    if (rank == 1) {
      dist::init(local_options(rank, 2, port, kNeverLate));
      return;
    }
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(port.number());
    options.isServer = true;
    options.waitWorkers = false;
    c10d::PrefixStore store("mezzo/0/0", c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options));
    store.wait({"arrived/1"});
  });
  EXPECT_TRUE(endings[0].good) << endings[0].message;
  expect_of_another(endings[1], "has ended");
}

TEST(ProcessGroupFaultsOfOthers, those_that_have_the_task_of_rank_0) {
  const FreePort port;
  const auto endings = run_and_judge(3, [&](std::int64_t rank) {
    dist::InitOptions options = local_options(rank, 3, port, kNeverLate);
    options.agreement = rank == 2 ? "edges 21" : "edges 20";
    dist::init(options);
  });
  expect_of_another(endings[0], "not as rank 0: rank 2");
  expect_of_another(endings[1], "not as rank 0: rank 2");
  expect_its_own(endings[2], "not as rank 0: rank 2");
}

TEST(ProcessGroupFaultsOfOthers, a_rank_given_twice_is_the_fault_of_the_second) {
  const FreePort port;
  auto endings = run_and_judge(3, [&](std::int64_t process) {
    dist::init(local_options(process == 0 ? 0 : 1, 3, port, kLateAfter));
  });
  expect_of_another(endings[0], "rank 2");
  // Either of the two may come first.
  if (has(endings[1].message, "taken")) std::swap(endings[1], endings[2]);
  expect_of_another(endings[1], "rank 2");
  expect_its_own(endings[2], "rank 1 has been taken");
}

TEST(ProcessGroupFaultsOfOthers, only_the_one_that_cannot_connect_is_reported) {
  const FreePort port;
  const auto endings = run_and_judge(2, [&](std::int64_t rank) {
    if (rank == 1) ::setenv("GLOO_SOCKET_IFNAME", "no_such_if", 1);
    dist::init(local_options(rank, 2, port, kLateAfter));
  });
  expect_of_another(endings[0], "cannot be connected");
  expect_its_own(endings[1], "cannot be connected");
}

TEST(ProcessGroupFaultsOfOthers, those_that_lose_one_that_dies) {
  const auto endings = run_group_and_judge(3, /*check_collectives=*/false, [](ProcessGroup& group) {
    if (group.rank() == 1) die();
    group.all_reduce(at::ones({3}));
  });
  EXPECT_EQ(endings[1].signal, SIGKILL);
  expect_of_another(endings[0], "all_reduce of rank 0 of 3");
  expect_of_another(endings[2], "all_reduce of rank 2 of 3");
}

TEST(ProcessGroupFaultsOfOthers, one_that_gives_up_is_reported) {
  const auto endings = run_group_and_judge(2, /*check_collectives=*/false, [](ProcessGroup& group) {
    if (group.rank() == 1) {
      group.give_up("no more of this");
      throw IoError("no more of this");
    }
    group.barrier();
  });
  expect_of_another(endings[0], "given up by rank 1");
  expect_its_own(endings[1], "no more of this");
}

TEST(ProcessGroupFaultsOfOthers, refused_arguments_are_this_ranks_own_where_the_others_are_gone) {
  const auto endings = run_group_and_judge(2, /*check_collectives=*/true, [](ProcessGroup& group) {
    if (group.rank() == 1) die();
    group.broadcast(at::ones({3}), 7);
  });
  expect_its_own(endings[0], "got 7");
}

TEST(ProcessGroupFaultsOfOthers, what_fails_beside_the_exchange_is_this_ranks_own) {
  const auto endings = run_group_and_judge(2, /*check_collectives=*/false, [](ProcessGroup& group) {
    if (group.rank() == 1) die();
    const at::Tensor weight = at::ones({2}).requires_grad_();
    weight.mutable_grad() = at::ones({2});
    dist::all_reduce_gradients({weight}, group,
                               {.meanwhile = [] { throw IoError("the next batch"); }});
  });
  expect_its_own(endings[0], "the next batch");
}

}  // namespace
}  // namespace mezzo::test
