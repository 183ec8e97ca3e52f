#include "mezzo/dist/sharded_features.h"

#include <algorithm>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "mezzo/core/error.h"

#include "dist/processes.h"

namespace mezzo::dist {
namespace {

/// For workers, because gtest's expectations have no effect there.
void require_shards(bool condition, const std::string& text) {
  if (!condition) throw LogicError("expected " + text);
}

template <class Work>
void in_processes(std::int64_t processes, const Work& work) {
  mezzo::test::spawn_over_gloo(processes, Graph(), [&](ProcessGroup& group, const Graph&) {
    ::alarm(20);
    work(group);
  });
}

/// Returns the message of the InvalidArgument that `call` throws.
template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "none";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Different unordered ids on every rank, with duplicates; empty on rank 1.
at::Tensor some_ids(std::int64_t num_rows, std::int64_t rank) {
  if (rank == 1) return at::empty({0}, at::kLong);
  const at::Tensor ids = (at::arange(3 * num_rows) * 7 + rank).remainder(num_rows);
  return ids.narrow(0, rank, 2 * num_rows);
}

TEST(ShardedFeatures, gather_has_the_bits_of_index_select) {
  constexpr std::int64_t kRows = 11;
  const at::Tensor numbers = at::arange(kRows * 3).reshape({kRows, 3}) - 7;
  for (const std::int64_t processes : {1, 2, 3}) {
    in_processes(processes, [&](ProcessGroup& group) {
      for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf,
                                        at::kLong, at::kInt, at::kByte, at::kBool}) {
        const at::Tensor table = numbers.to(type);
        const auto features = ShardedFeatures::from_table(table, group);
        require_shards(features.num_rows() == kRows, "all rows");
        require_shards(features.part().size(0) <= kRows / processes + 1, "an even share");
        const at::Tensor ids = some_ids(kRows, group.rank());
        for (const at::ScalarType width : {at::kLong, at::kInt}) {
          const at::Tensor rows = features.gather(ids.to(width));
          require_shards(rows.scalar_type() == type, "the table's dtype");
          require_shards(at::equal(rows, table.index_select(0, ids)),
                         std::string("index_select's rows of ") + c10::toString(type));
        }
      }
    });
  }
}

TEST(ShardedFeatures, non_finite_numbers_and_trailing_dimensions_pass) {
  at::Tensor table = at::arange(24.0F).reshape({4, 3, 2});
  table.select(0, 2).fill_(std::numeric_limits<float>::quiet_NaN());
  const at::Tensor bits = table.view(at::kInt);
  in_processes(2, [&](ProcessGroup& group) {
    const auto features = ShardedFeatures::from_table(table, group);
    const at::Tensor ids = at::arange(3, -1, -1);
    require_shards(at::equal(features.gather(ids).view(at::kInt), bits.index_select(0, ids)),
                   "the same bits");
  });
}

TEST(ShardedFeatures, parts_of_any_size_follow_each_other) {
  const at::Tensor table = at::arange(20).reshape({10, 2});
  in_processes(3, [&](ProcessGroup& group) {  // 0, 7 and 3 rows
    const std::int64_t first = group.rank() == 2 ? 7 : 0;
    const std::int64_t count = group.rank() == 0 ? 0 : group.rank() == 1 ? 7 : 3;
    const auto features = ShardedFeatures::from_part(table.narrow(0, first, count), group);
    require_shards(features.num_rows() == 10 && features.first_row() == first, "the sum of parts");
    const at::Tensor ids = some_ids(10, group.rank());
    require_shards(at::equal(features.gather(ids), table.index_select(0, ids)), "the rows");
  });
}

TEST(ShardedFeatures, fewer_rows_than_ranks) {
  const at::Tensor table = at::arange(2.0F).reshape({2, 1});
  in_processes(3, [&](ProcessGroup& group) {
    const auto features = ShardedFeatures::from_table(table, group);
    const at::Tensor ids = at::arange(2);
    require_shards(at::equal(features.gather(ids), table), "the rows");
    const auto none = ShardedFeatures::from_table(table.narrow(0, 0, 0), group);
    require_shards(none.gather(ids.narrow(0, 0, 0)).size(0) == 0, "no rows");
  });
}

TEST(ShardedFeatures, wrong_ids_of_one_rank_are_errors_on_all) {
  const at::Tensor table = at::arange(6.0F).reshape({6, 1});
  in_processes(3, [&](ProcessGroup& group) {
    const auto features = ShardedFeatures::from_table(table, group);
    for (const at::Tensor& wrong :
         {at::tensor({6}), at::tensor({-1}), at::ones({1}), at::ones({1, 1}, at::kLong)}) {
      const bool is_mine = group.rank() == 1;
      const std::string text =
          refusal([&] { features.gather(is_mine ? wrong : at::tensor({0}, at::kLong)); });
      require_shards(contains(text, is_mine ? "expected" : "wrong ones on ranks 1"),
                     "an error, got " + text);
    }
    require_shards(at::equal(features.gather(at::arange(6)), table), "rows after an error");
  });
}

TEST(ShardedFeatures, the_rank_whose_rows_cannot_be_sharded_is_named_by_the_others) {
  const at::Tensor good = at::ones({4, 2}), elsewhere = good.to(at::kMeta);
  in_processes(3, [&](ProcessGroup& group) {
    for (const std::int64_t wrong : {0, 2}) {
      for (const at::Tensor& other : {at::Tensor(), at::ones({}), elsewhere}) {
        const bool is_mine = group.rank() == wrong;
        const at::Tensor& rows = is_mine ? other : good;
        const std::string part =
            is_mine ? "expected " : "a wrong one on ranks " + std::to_string(wrong);
        const std::string of_table = refusal([&] { ShardedFeatures::from_table(rows, group); });
        require_shards(contains(of_table, "table: " + part), part + ", got " + of_table);
        const std::string of_part = refusal([&] { ShardedFeatures::from_part(rows, group); });
        require_shards(contains(of_part, "rows: " + part), part + ", got " + of_part);
      }
    }
  });
}

TEST(ShardedFeatures, ranks_that_disagree_are_errors_on_all) {
  in_processes(2, [&](ProcessGroup& group) {
    const bool is_other = group.rank() == 1;
    const at::Tensor table = at::ones({4, 2});
    for (const at::Tensor& other :
         {at::ones({5, 2}), at::ones({4, 3}), at::ones({4, 2}, at::kHalf), at::Tensor()}) {
      const std::string text =
          refusal([&] { ShardedFeatures::from_table(is_other ? other : table, group); });
      require_shards(contains(text, "ShardedFeatures: table"), "an error, got " + text);
    }
    const std::string text = refusal([&] {
      ShardedFeatures::from_part(is_other ? at::ones({4, 3}) : table, group);
    });
    require_shards(contains(text, "ShardedFeatures: rows"), "an error, got " + text);
  });
}

}  // namespace
}  // namespace mezzo::dist
