
#include "mezzo/dist/data_parallel.h"

#include "dist/processes.h"
#include "support/tensors.h"

namespace mezzo::dist {
namespace {

using namespace mezzo::test;

void on_ranks(std::int64_t ranks, const std::function<void(ProcessGroup&)>& work) {
  EXPECT_TRUE(all_good(run_group(ranks, work)));
}

/// This rank's share of 0, 1, ..., num_ids - 1.
at::Tensor share_of(std::int64_t num_ids, const ProcessGroup& group, SplitOptions options = {}) {
  return split(at::arange(num_ids, at::kLong), group, options);
}

void require_shares(std::int64_t num_ids, const ProcessGroup& group, SplitOptions options,
                    const std::vector<std::vector<std::int64_t>>& expected) {
  const at::Tensor got = share_of(num_ids, group, options);
  const at::Tensor share = ids(expected[static_cast<std::size_t>(group.rank())]);
  require(at::equal(got, share), fmt::format("the share of {} ids", num_ids));
}

TEST(Split, shares_are_consecutive_and_of_one_size) {
  on_ranks(4, [](ProcessGroup& group) {
    require_shares(15, group, {}, {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 12}});
    require_shares(16, group, {}, {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}});
    require_shares(4, group, {}, {{0}, {1}, {2}, {3}});
  });
}

TEST(Split, a_rank_without_items_of_its_own_gets_those_of_others) {
  on_ranks(4, [](ProcessGroup& group) {
    require_shares(5, group, {}, {{0, 1}, {2, 3}, {4, 4}, {1, 2}});
  });
}

TEST(Split, drop_last_leaves_out_the_rest) {
  on_ranks(4, [](ProcessGroup& group) {
    const SplitOptions options = {.drop_last = true};
    require_shares(15, group, options, {{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9, 10, 11}});
    require_shares(16, group, options,
                   {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}});
  });
}

TEST(Split, shuffled_shares_are_parts_of_one_order) {
  on_ranks(4, [](ProcessGroup& group) {
    const auto joined = [&](std::uint64_t seed) {
      return group.all_gather(share_of(64, group, {.shuffle = true, .seed = seed})).flatten();
    };
    const at::Tensor order = joined(7), all = at::arange(64, at::kLong);
    require(at::equal(std::get<0>(order.sort()), all), "every id once");
    require(!at::equal(order, all), "another order than the given one");
    require(at::equal(order, joined(7)), "the same order for the same seed");
    require(!at::equal(order, joined(8)), "another order for another seed");
  });
}

TEST(Split, keeps_the_dtype) {
  on_ranks(2, [](ProcessGroup& group) {
    const at::Tensor mine = split(at::arange(4, at::kInt), group);
    require(mine.scalar_type() == at::kInt, "int32 ids");
    require(split(at::empty({0}, at::kShort), group).scalar_type() == at::kShort, "no ids");
    require(split(at::empty({0}, at::kShort), group).numel() == 0, "none of none");
  });
}

TEST(Split, fewer_ids_than_ranks_are_refused_with_both_numbers) {
  on_ranks(4, [](ProcessGroup& group) {
    for (const bool drop_last : {false, true}) {
      try {
        share_of(3, group, {.drop_last = drop_last});
        require(false, "an error");
      } catch (const InvalidArgument& error) {
        const std::string text = error.what();
        require(text.find("4 ranks, got 3") != std::string::npos, text);
      }
    }
  });
}

TEST(Split, one_process_gets_all) {
  const ProcessGroup alone;
  EXPECT_TRUE(at::equal(share_of(5, alone), at::arange(5, at::kLong)));
  EXPECT_EQ(share_of(0, alone).numel(), 0);
  const at::Tensor order = share_of(64, alone, {.shuffle = true});
  EXPECT_FALSE(at::equal(order, at::arange(64, at::kLong)));
  EXPECT_TRUE(at::equal(std::get<0>(order.sort()), at::arange(64, at::kLong)));
  EXPECT_THROW(split(at::zeros({2, 2}, at::kLong), alone), InvalidArgument);
  EXPECT_THROW(split(at::Tensor(), alone), InvalidArgument);
}

}  // namespace
}  // namespace mezzo::dist
