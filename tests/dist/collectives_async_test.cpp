#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/dist/group/process_group.h"

#include "dist/processes.h"

/// Asynchronous collectives.
namespace mezzo::test {
namespace {

using dist::ProcessGroup;
using dist::Work;

/// Different numbers on each rank.
at::Tensor share_of_rank(std::int64_t rank) {
  return at::arange(12, at::kFloat).view({4, 3}) * (rank + 1);
}

TEST(CollectivesAsync, all_kinds_are_under_way_at_once) {
  for (const std::int64_t size : {1, 2, 4}) {
    on_ranks(size, [](ProcessGroup& group) {
      const std::int64_t ranks = group.world_size();
      const at::Tensor own = share_of_rank(group.rank());
      const at::Tensor sent = own.clone(), reduced = own.clone();
      const at::Tensor gathered = at::empty({ranks, 4, 3}), rows = at::empty({4 / ranks, 3});
      std::vector<Work> works;
      works.push_back(group.broadcast_async(sent, ranks - 1));
      works.push_back(group.all_gather_async(gathered, own));
      works.push_back(group.reduce_scatter_async(rows, own, dist::ReduceOp::kMean));
      works.push_back(group.barrier_async());
      works.push_back(group.all_reduce_async(reduced));
      for (std::size_t i = works.size(); i-- > 0;) {
        works[i].wait();
        works[i].wait();
        require(works[i].is_done(), "done after wait");
      }
      std::vector<at::Tensor> all;
      for (std::int64_t rank = 0; rank < ranks; ++rank) all.push_back(share_of_rank(rank));
      const at::Tensor expected = at::stack(all), sum = expected.sum(0);
      require(at::equal(sent, all.back()), "broadcast");
      require(at::equal(gathered, expected), "all_gather");
      require(at::equal(rows, (sum / ranks).chunk(ranks)[static_cast<std::size_t>(group.rank())]),
              "reduce_scatter");
      require(at::equal(reduced, sum), "all_reduce");
      require(at::equal(own, share_of_rank(group.rank())), "what was sent is left as it is");
    });
  }
}

TEST(CollectivesAsync, tensors_that_are_not_contiguous_are_filled) {
  on_ranks(2, [](ProcessGroup& group) {
    const at::Tensor own = share_of_rank(group.rank()).t();
    const at::Tensor sent = own.clone(at::MemoryFormat::Contiguous).t().contiguous().t();
    const at::Tensor gathered = at::zeros({4, 3, 2}).permute({2, 1, 0});
    Work broadcast = group.broadcast_async(sent, 1);
    Work all_gather = group.all_gather_async(gathered, own);
    all_gather.wait();
    broadcast.wait();
    const at::Tensor expected = at::stack({share_of_rank(0).t(), share_of_rank(1).t()});
    require(!sent.is_contiguous() && at::equal(sent, expected[1]), "broadcast");
    require(!gathered.is_contiguous() && at::equal(gathered, expected), "all_gather");
  });
}

TEST(CollectivesAsync, a_barrier_under_way_waits_for_the_last_rank) {
  on_ranks(2, [](ProcessGroup& group) {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::milliseconds kLater(1500);
    if (group.rank() == 1) std::this_thread::sleep_for(kLater);
    const Clock::time_point start = Clock::now();
    Work work = group.barrier_async();
    require(group.rank() == 1 || Clock::now() - start < kLater / 2, "it returns at once");
    work.wait();
    require(group.rank() == 1 || Clock::now() - start > kLater / 2, "wait() waits");
  });
}

TEST(CollectivesAsync, results_of_another_form_are_refused_before_anything_is_sent) {
  const ProcessGroup group;
  const at::Tensor tensor = at::ones({4, 3});
  for (const at::Tensor& result :
       {at::Tensor(), at::empty({4, 3}), at::empty({1, 3, 4}), at::empty({1, 4, 3}, at::kDouble),
        at::empty({1, 1, 3}).expand({1, 4, 3}), tensor.view({1, 4, 3})}) {
    EXPECT_THROW(static_cast<void>(group.all_gather_async(result, tensor)), InvalidArgument);
  }
  for (const at::Tensor& result : {at::Tensor(), at::empty({2, 3}), at::empty({4, 3}, at::kHalf),
                                   tensor, tensor.flip(0).t(), at::empty({1, 3}).expand({4, 3})}) {
    EXPECT_THROW(static_cast<void>(group.reduce_scatter_async(result, tensor)), InvalidArgument);
  }
  EXPECT_THROW(static_cast<void>(group.broadcast_async(tensor, 1)), InvalidArgument);
}

/// Expects that wait() throws with operation and rank if `start` loses rank 1.
void expect_loss(const std::string& operation, const std::function<Work(ProcessGroup&)>& start) {
  const auto endings = run_group(2, std::chrono::minutes(5), [&](ProcessGroup& group) {
    if (group.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      ::raise(SIGKILL);
    }
    Work work = start(group);
    std::string message;
    try {
      work.wait();
    } catch (const IoError& error) {
      message = error.what();
    }
    require(has(message, operation + " of rank 0 of 2"), "the operation: " + message);
    require(has(message, "no answer from rank 1"), "the rank: " + message);
  });
  EXPECT_TRUE(endings[0].good) << operation << ": " << endings[0].message;
  EXPECT_EQ(endings[1].signal, SIGKILL);
}

TEST(CollectivesAsync, a_rank_lost_under_way_is_named_at_wait) {
  const at::Tensor own = at::ones({4}), both = at::empty({2, 4}), half = at::empty({2});
  expect_loss("broadcast", [&](ProcessGroup& group) { return group.broadcast_async(own, 1); });
  expect_loss("all_gather", [&](ProcessGroup& group) { return group.all_gather_async(both, own); });
  expect_loss("reduce_scatter",
              [&](ProcessGroup& group) { return group.reduce_scatter_async(half, own); });
  expect_loss("barrier", [](ProcessGroup& group) { return group.barrier_async(); });
}

}  // namespace
}  // namespace mezzo::test
