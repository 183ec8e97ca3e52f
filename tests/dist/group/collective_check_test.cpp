#include <cstdlib>
#include <memory>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "mezzo/core/error.h"
#include "mezzo/dist/data_parallel.h"
#include "mezzo/dist/group/process_group.h"
#include "mezzo/dist/sync_batch_norm.h"

#include "dist/processes.h"

/// Ranks with mismatched calls of a collective.
namespace mezzo::test {
namespace {

using dist::ProcessGroup;

using GroupWork = std::function<void(ProcessGroup&)>;

constexpr std::chrono::seconds kCheckTimeout(30);

std::vector<Ending> run_checked(std::int64_t ranks, const GroupWork& work) {
  const FreePort port;
  return run_processes(ranks, [&](std::int64_t rank) {
    dist::InitOptions options = local_options(rank, ranks, port, kCheckTimeout);
    options.check_collectives = true;
    ProcessGroup group = dist::init(options);
    work(group);
  });
}

/// Expects that `work` throws an InvalidArgument with all parts on every rank and leaves the group
/// usable.
void expect_mismatch(std::int64_t ranks, const std::vector<std::string>& parts,
                     const GroupWork& work) {
  EXPECT_TRUE(all_good(run_checked(ranks, [&](ProcessGroup& group) {
    std::string message;
    try {
      work(group);
    } catch (const InvalidArgument& error) {
      message = error.what();
    }
    for (const std::string& part : parts) require(has(message, part), part + ": " + message);
    const at::Tensor one = at::ones({3});
    group.all_reduce(one);
    require(at::equal(one, at::full({3}, static_cast<double>(ranks))), "the collective after it");
  }))) << parts.front();
}

at::Tensor rows_by_rank(const ProcessGroup& group, std::int64_t first, std::int64_t other) {
  return at::ones({group.rank() == 0 ? first : other});
}

TEST(CollectiveCheck, all_reduce_of_different_tensors_is_an_error_on_every_rank) {
  const auto all_reduce = [](std::int64_t first, std::int64_t other) {
    return [=](ProcessGroup& group) { group.all_reduce(rows_by_rank(group, first, other)); };
  };
  const std::vector<std::string> small = {"dist::all_reduce: ", "(sum) of Float [3] on rank 0",
                                          "(sum) of Float [4] on rank 1", "rank 0: rank 1"};
  expect_mismatch(2, small, all_reduce(3, 4));
  expect_mismatch(2, {"Float [300000] on rank 0", "Float [400000] on rank 1"},
                  all_reduce(300000, 400000));
  expect_mismatch(2, {"Float [0] on rank 0", "Float [3] on rank 1"}, all_reduce(0, 3));
  expect_mismatch(2, {"all_reduce (sum) of Float [3] on rank 0", "(sum) of Int [3] on rank 1"},
                  [](ProcessGroup& group) {
                    group.all_reduce(at::ones({3}, group.rank() == 0 ? at::kFloat : at::kInt));
                  });
  expect_mismatch(2, {"all_reduce (max) of Float [3] on rank 0", "all_reduce (min) of Float [3]"},
                  [](ProcessGroup& group) {
                    group.all_reduce(at::ones({3}), group.rank() == 0 ? dist::ReduceOp::kMax
                                                                      : dist::ReduceOp::kMin);
                  });
  expect_mismatch(2, {"all_reduce (sum) of Float [2, 3] on rank 0", "(sum) of Float [3, 2]"},
                  [](ProcessGroup& group) {
                    group.all_reduce(group.rank() == 0 ? at::ones({2, 3}) : at::ones({3, 2}));
                  });
}

TEST(CollectiveCheck, what_one_rank_refuses_is_told_to_the_others) {
  const auto second = [](const ProcessGroup& group) { return group.rank() == 1; };
  expect_mismatch(2, {"dist::reduce_scatter: "},
                  [](ProcessGroup& group) { group.reduce_scatter(rows_by_rank(group, 4, 3)); });
  expect_mismatch(2, {"dist::all_reduce: "}, [&](ProcessGroup& group) {
    group.all_reduce(at::ones({3}, second(group) ? at::kInt : at::kFloat), dist::ReduceOp::kMean);
  });
  expect_mismatch(2, {"expected root in [0, 2), got 2"}, [&](ProcessGroup& group) {
    group.broadcast(at::ones({3}), second(group) ? 2 : 0);
  });
  expect_mismatch(2, {"expected counts that sum to the tensor's 2 rows, got 3"},
                  [&](ProcessGroup& group) {
                    group.all_to_all(at::ones({2}), {1, second(group) ? 2 : 1});
                  });
  expect_mismatch(
      2, {"dist::all_gather: expected a tensor, got an undefined one"},
      [&](ProcessGroup& group) { group.all_gather(second(group) ? at::Tensor() : at::ones({3})); });
}

TEST(CollectiveCheck, the_ranks_that_differ_are_named) {
  expect_mismatch(
      4, {"Float [3] on rank 0, all_reduce (sum) of Float [4] on rank 1", "ranks 1, 3"},
      [](ProcessGroup& group) { group.all_reduce(at::ones({group.rank() % 2 == 0 ? 3 : 4})); });
}

TEST(CollectiveCheck, every_collective_is_checked) {
  expect_mismatch(2,
                  {"dist::broadcast: ", "broadcast from rank 0 of Float [3] on rank 0",
                   "broadcast from rank 0 of Float [4] on rank 1"},
                  [](ProcessGroup& group) { group.broadcast(rows_by_rank(group, 3, 4)); });
  expect_mismatch(2, {"broadcast from rank 0 of Float [3]", "broadcast from rank 1 of Float [3]"},
                  [](ProcessGroup& group) { group.broadcast(at::ones({3}), group.rank()); });
  expect_mismatch(2, {"dist::all_gather: ", "all_gather of Float [3]", "all_gather of Float [4]"},
                  [](ProcessGroup& group) { group.all_gather(rows_by_rank(group, 3, 4)); });
  expect_mismatch(2,
                  {"dist::reduce_scatter: ", "reduce_scatter (sum) of Float [2] on rank 0",
                   "reduce_scatter (sum) of Float [4] on rank 1"},
                  [](ProcessGroup& group) { group.reduce_scatter(rows_by_rank(group, 2, 4)); });
  expect_mismatch(2,
                  {"dist::all_to_all: ", "all_to_all of Float [*, 2] on rank 0",
                   "all_to_all of Float [*, 3] on rank 1"},
                  [](ProcessGroup& group) {
                    group.all_to_all(at::ones({2, group.rank() + 2}), {1, 1});
                  });
  expect_mismatch(2, {"broadcast from rank 0 of Float [3]", "broadcast from rank 0 of Double [3]"},
                  [](ProcessGroup& group) {
                    static_cast<void>(group.broadcast_async(
                        at::ones({3}, group.rank() == 0 ? at::kFloat : at::kDouble)));
                  });
}

TEST(CollectiveCheck, rows_that_one_rank_cannot_normalize_are_an_error_on_every_rank) {
  expect_mismatch(2, {"SyncBatchNorm1d: expected x as floating [n, 2]"}, [](ProcessGroup& group) {
    dist::SyncBatchNorm1d norm(dist::SyncBatchNorm1dOptions{.num_features = 2}, group);
    norm->forward(at::ones({3, 2 + group.rank()}));
  });
}

TEST(CollectiveCheck, different_operations_are_an_error_on_every_rank) {
  expect_mismatch(3, {"barrier on rank 0", "all_reduce (sum) of Float [3] on rank 1", "ranks 1, 2"},
                  [](ProcessGroup& group) {
                    if (group.rank() == 0) group.barrier();
                    if (group.rank() == 1) group.all_reduce(at::ones({3}));
                    if (group.rank() == 2) group.all_gather(at::ones({3}));
                  });
  expect_mismatch(2, {"all_gather of Float [3] on rank 0", "reduce_scatter (max) of Float [4]"},
                  [](ProcessGroup& group) {
                    if (group.rank() == 0) group.all_gather(at::ones({3}));
                    if (group.rank() == 1)
                      group.reduce_scatter(at::ones({4}), dist::ReduceOp::kMax);
                  });
}

TEST(CollectiveCheck, shapes_are_told_apart_however_long_they_are) {
  expect_mismatch(2, {"all_gather of Float [1, 1, 1", "... (hash "}, [](ProcessGroup& group) {
    std::vector<std::int64_t> sizes(90, 1);
    sizes.back() = group.rank() + 1;
    group.all_gather(at::empty(sizes));
  });
}

TEST(CollectiveCheck, calls_that_fit_together_give_what_they_gave) {
  EXPECT_TRUE(all_good(run_checked(2, [](ProcessGroup& group) {
    const at::Tensor own = at::full({2, 3}, static_cast<double>(group.rank() + 1));
    const at::Tensor sum = own.clone(), first = own.clone();
    dist::Work under_way = group.all_reduce_async(sum);
    group.broadcast(first);
    under_way.wait();
    require(at::equal(sum, at::full({2, 3}, 3.0)), "all_reduce");
    require(at::equal(first, at::ones({2, 3})), "broadcast");
    require(at::equal(group.all_gather(own)[1], at::full({2, 3}, 2.0)), "all_gather");
    require(at::equal(group.reduce_scatter(own), at::full({1, 3}, 3.0)), "reduce_scatter");
    // The number of rows may differ.
    const std::vector<std::int64_t> counts = {1, group.rank() + 1};
    const at::Tensor rows = at::ones({group.rank() + 2, 3});
    require(group.all_to_all(rows, counts).size(0) == (group.rank() == 0 ? 2 : 3), "all_to_all");
    require(group.ranks_that_differ(group.rank() == 0 ? "a" : "longer").size() == 1, "texts");
    require(group.all_reduce(1.5, dist::ReduceOp::kMax) == 1.5, "a number");
    const at::Tensor weight = at::ones({2}, at::kBFloat16).requires_grad_();
    weight.mutable_grad() = at::ones({2}, at::kBFloat16);
    dist::all_reduce_gradients({weight}, group, {.traffic = dist::GradientTraffic::kBFloat16});
    require(at::equal(weight.grad(), at::ones({2}, at::kBFloat16)), "gradients");
    group.barrier();
  })));
}

struct CheckedWeight : torch::nn::Module {
  CheckedWeight() { weight = register_parameter("weight", at::ones({2})); }
  at::Tensor loss() const { return (2 * weight).sum(); }

  at::Tensor weight;
};

TEST(CollectiveCheck, a_step_of_data_parallel_that_one_rank_does_not_take_is_an_error) {
  expect_mismatch(2,
                  {"dist::", "DataParallel::prepare of 1 parameters in buckets of ",
                   "all_reduce (sum) of Float [3] on rank 1"},
                  [](ProcessGroup& group) {
                    const auto module = std::make_shared<CheckedWeight>();
                    dist::DataParallel parallel(module, group);
                    const at::Tensor loss = module->loss();
                    if (group.rank() == 0) parallel.prepare({loss});
                    if (group.rank() == 1) group.all_reduce(at::ones({3}));
                  });
  expect_mismatch(
      2, {"unused ones refused on rank 0", "unused ones found on rank 1"}, [](ProcessGroup& group) {
        const auto module = std::make_shared<CheckedWeight>();
        dist::DataParallel parallel(module, group, {.find_unused_parameters = group.rank() == 1});
        parallel.prepare({module->loss()});
      });
  expect_mismatch(2, {"DataParallel::prepare", "expected an output that backward can start from"},
                  [](ProcessGroup& group) {
                    const auto module = std::make_shared<CheckedWeight>();
                    dist::DataParallel parallel(module, group);
                    const at::Tensor loss = module->loss();
                    parallel.prepare({group.rank() == 0 ? loss : loss.detach()});
                  });
}

TEST(CollectiveCheck, buckets_of_data_parallel_are_checked) {
  const auto differ = [](const std::vector<std::string>& parts, bool both_step) {
    expect_mismatch(2, parts, [both_step](ProcessGroup& group) {
      const bool first = group.rank() == 0;
      const auto module = std::make_shared<CheckedWeight>();
      dist::DataParallel parallel(
          module, group,
          {.traffic = first ? dist::GradientTraffic::kFloat32 : dist::GradientTraffic::kBFloat16});
      const at::Tensor loss = module->loss();
      parallel.prepare({loss});
      if (first || both_step) {
        loss.backward();
      } else {
        group.barrier();
      }
    });
  };
  differ({"all_reduce of gradients in bucket 0 of Float [2] on rank 0", "barrier on rank 1"},
         /*both_step=*/false);
  differ({"dist::all_reduce of gradients: ", "bucket 0 of Float [2] on rank 0",
          "bucket 0 of BFloat16 [2] on rank 1"},
         /*both_step=*/true);
}

TEST(CollectiveCheck, it_is_on_where_the_variable_of_torch_says_detail) {
  const FreePort port;
  const auto endings = run_processes(2, [&](std::int64_t rank) {
    ::setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL", 1);
    ProcessGroup group = dist::init(local_options(rank, 2, port, kCheckTimeout));
    group.all_reduce(rows_by_rank(group, 3, 4));
  });
  for (const Ending& ending : endings) {
    EXPECT_TRUE(has(ending.message, "expected the same call on all ranks")) << ending.message;
  }
}

TEST(CollectiveCheck, ranks_that_check_and_ranks_that_do_not_are_told_at_the_start) {
  const FreePort port;
  const auto endings = run_processes(2, [&](std::int64_t rank) {
    dist::InitOptions options = local_options(rank, 2, port, kCheckTimeout);
    options.check_collectives = rank == 1;
    dist::init(options);
  });
  for (const Ending& ending : endings) {
    EXPECT_TRUE(has(ending.message,
                    "rank 0 has 'collectives are not checked', rank 1 has "
                    "'collectives are checked'"))
        << ending.message;
  }
}

}  // namespace
}  // namespace mezzo::test
