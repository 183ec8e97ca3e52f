#include "mezzo/dist/group/process_group.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/runtime/memory.h"

#include "dist/processes.h"

namespace mezzo::test {
namespace {

using dist::ProcessGroup;
using std::chrono::milliseconds;

constexpr std::int64_t kWorldSizes[] = {1, 2, 4};

/// Small integers, so that every sum is exact in every type.
at::Tensor numbers_of(std::int64_t rank, at::ScalarType type) {
  return (at::arange(30).remainder(7) * (rank + 1)).to(type).view({5, 6});
}

at::Tensor stacked(std::int64_t world_size, at::ScalarType type) {
  std::vector<at::Tensor> all;
  for (std::int64_t rank = 0; rank < world_size; ++rank) all.push_back(numbers_of(rank, type));
  return at::stack(all);
}

/// Reference in float64 (exact for these numbers).
at::Tensor reduced(const at::Tensor& all, dist::ReduceOp op) {
  const at::ScalarType type = all.scalar_type();
  const at::Tensor exact = all.is_complex() ? all : all.to(at::kDouble);
  switch (op) {
    case dist::ReduceOp::kSum:
      return exact.sum(0).to(type);
    case dist::ReduceOp::kMean:
      return (exact.sum(0) / static_cast<double>(all.size(0))).to(type);
    case dist::ReduceOp::kMax:
      return exact.amax(0).to(type);
    case dist::ReduceOp::kMin:
      return exact.amin(0).to(type);
  }
  return {};
}

const std::vector<at::ScalarType> kFloating = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
const std::vector<at::ScalarType> kWhole = {at::kByte, at::kChar, at::kShort,
                                            at::kInt,  at::kLong, at::kBool};
const std::vector<at::ScalarType> kComplex = {at::kComplexFloat, at::kComplexDouble};
const std::vector<at::ScalarType> kAllTypes = {
    at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte,         at::kChar,
    at::kShort, at::kInt,    at::kLong, at::kBool,     at::kComplexFloat, at::kComplexDouble};

constexpr dist::ReduceOp kReduceOps[] = {dist::ReduceOp::kSum, dist::ReduceOp::kMean,
                                         dist::ReduceOp::kMax, dist::ReduceOp::kMin};

/// Runs `check` on every number of ranks.
void in_every_dtype_and_operation(void (*check)(const ProcessGroup&, at::ScalarType,
                                                dist::ReduceOp)) {
  for (const std::int64_t size : kWorldSizes) {
    on_ranks(size, [check](ProcessGroup& group) {
      for (const dist::ReduceOp op : kReduceOps) {
        for (const at::ScalarType type : kFloating) check(group, type, op);
        if (op == dist::ReduceOp::kMean) continue;
        for (const at::ScalarType type : kWhole) check(group, type, op);
      }
      for (const dist::ReduceOp op : {dist::ReduceOp::kSum, dist::ReduceOp::kMean}) {
        for (const at::ScalarType type : kComplex) check(group, type, op);
      }
    });
  }
}

void check_all_reduce(const ProcessGroup& group, at::ScalarType type, dist::ReduceOp op) {
  const at::Tensor expected = reduced(stacked(group.world_size(), type), op);
  const at::Tensor tensor = numbers_of(group.rank(), type);
  group.all_reduce(tensor, op);
  const std::string what =
      std::string(c10::toString(type)) + ", operation " + std::to_string(static_cast<int>(op));
  require(tensor.scalar_type() == type && at::equal(tensor, expected), "all_reduce of " + what);
  const at::Tensor strided = at::zeros({6, 5}, at::TensorOptions(type)).t();
  strided.copy_(numbers_of(group.rank(), type));
  group.all_reduce(strided, op);
  require(at::equal(strided, expected), "all_reduce of a transposed " + what);
}

TEST(ProcessGroup, all_reduce_is_exact_in_every_dtype_and_operation) {
  in_every_dtype_and_operation(check_all_reduce);
}

TEST(ProcessGroup, sums_and_means_of_16_bits_are_rounded_once) {
  on_ranks(4, [](ProcessGroup& group) {
    // 256 + 1 is 256 in bfloat16, no matter how often it is added.
    const at::Tensor own = at::full({3}, group.rank() == 2 ? 256 : 1, at::kBFloat16);
    const at::Tensor sum = own.clone();
    group.all_reduce(sum);
    require(at::equal(sum, at::full({3}, 259.0, at::kDouble).to(at::kBFloat16)), "the sum");
    const at::Tensor mean = own.clone();
    group.all_reduce(mean, dist::ReduceOp::kMean);
    require(at::equal(mean, at::full({3}, 259.0 / 4, at::kDouble).to(at::kBFloat16)), "the mean");
    // 65504 is the largest float16: the sum overflows, the mean does not.
    const at::Tensor large = at::full({3}, 65504.0, at::kHalf);
    group.all_reduce(large, dist::ReduceOp::kMean);
    require(at::equal(large, at::full({3}, 65504.0, at::kHalf)), "the mean of large numbers");
  });
}

TEST(ProcessGroup, nan_and_infinity_pass_through_every_operation) {
  on_ranks(4, [](ProcessGroup& group) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double inf = std::numeric_limits<double>::infinity();
    for (const at::ScalarType type : kFloating) {
      for (std::int64_t giver = 0; giver < group.world_size(); ++giver) {
        const bool gives = group.rank() == giver;
        for (const dist::ReduceOp op : kReduceOps) {
          at::Tensor tensor = at::full({3}, 1.0, type);
          if (gives) tensor[1] = nan;
          if (gives) tensor[2] = op == dist::ReduceOp::kMin ? -inf : inf;
          group.all_reduce(tensor, op);
          tensor = tensor.to(at::kDouble);
          require(std::isfinite(tensor[0].item<double>()), "the number");
          require(std::isnan(tensor[1].item<double>()), "NaN");
          require(std::isinf(tensor[2].item<double>()), "infinity");
        }
      }
    }
  });
}

TEST(ProcessGroup, a_parameter_that_requires_gradients_is_reduced_in_place) {
  on_ranks(2, [](ProcessGroup& group) {
    const at::Tensor leaf = at::ones({4}, at::kBFloat16).requires_grad_();
    group.all_reduce(leaf);
    require(at::equal(leaf.detach(), at::full({4}, 2, at::kBFloat16)), "the sum");
    require(leaf.is_leaf() && leaf.requires_grad(), "still a leaf");
  });
}

TEST(ProcessGroup, several_reductions_are_under_way_at_once) {
  on_ranks(4, [](ProcessGroup& group) {
    std::vector<at::Tensor> tensors;
    std::vector<dist::Work> works;
    for (int i = 0; i < 8; ++i) {
      tensors.push_back(at::full({1000 + i}, static_cast<double>(group.rank() + i), at::kFloat));
      works.push_back(group.all_reduce_async(tensors.back(), dist::ReduceOp::kMean));
    }
    for (std::size_t i = tensors.size(); i-- > 0;) {
      works[i].wait();
      works[i].wait();
      require(works[i].is_done(), "done after wait");
      const double mean = 1.5 + static_cast<double>(i);
      require(at::equal(tensors[i], at::full_like(tensors[i], mean)), "the mean, divided once");
    }
  });
}

TEST(ProcessGroup, broadcast_gives_roots_bits_in_every_dtype) {
  for (const std::int64_t size : kWorldSizes) {
    on_ranks(size, [](ProcessGroup& group) {
      for (const at::ScalarType type : kAllTypes) {
        for (std::int64_t root = 0; root < group.world_size(); ++root) {
          const at::Tensor tensor = numbers_of(group.rank(), type);
          group.broadcast(tensor, root);
          require(at::equal(tensor, numbers_of(root, type)), "broadcast");
          const at::Tensor strided = numbers_of(group.rank(), type).t().contiguous().t();
          group.broadcast(strided, root);
          require(at::equal(strided, numbers_of(root, type)), "broadcast of a transposed one");
        }
      }
      const at::Tensor single = at::full({}, static_cast<double>(group.rank()), at::kFloat);
      group.broadcast(single);
      require(single.item<float>() == 0.0F, "a tensor without dimensions");
    });
  }
}

TEST(ProcessGroup, all_gather_stacks_the_tensors_in_every_dtype) {
  for (const std::int64_t size : kWorldSizes) {
    on_ranks(size, [](ProcessGroup& group) {
      for (const at::ScalarType type : kAllTypes) {
        const at::Tensor expected = stacked(group.world_size(), type);
        const at::Tensor own = numbers_of(group.rank(), type);
        require(at::equal(group.all_gather(own), expected), "all_gather");
        require(at::equal(group.all_gather(own.t()), expected.transpose(1, 2)), "transposed");
      }
      const at::Tensor none = group.all_gather(at::empty({0, 3}));
      require(none.sizes() == at::IntArrayRef({group.world_size(), 0, 3}), "without rows");
    });
  }
}

/// Each rank's share has other rows: the same ones, rotated by its number.
void check_reduce_scatter(const ProcessGroup& group, at::ScalarType type, dist::ReduceOp op) {
  std::vector<at::Tensor> parts;
  for (std::int64_t rank = 0; rank < group.world_size(); ++rank) {
    parts.push_back(at::roll(numbers_of(group.rank(), type), {rank}, {0}));
  }
  const at::Tensor own = at::cat(parts), before = own.clone();
  const at::Tensor expected =
      at::roll(reduced(stacked(group.world_size(), type), op), {group.rank()}, {0});
  const std::string what =
      std::string(c10::toString(type)) + ", operation " + std::to_string(static_cast<int>(op));
  require(at::equal(group.reduce_scatter(own, op), expected), "reduce_scatter of " + what);
  require(at::equal(own, before), "the tensor is left as it is");
  const at::Tensor strided = own.t().contiguous().t();
  const at::Tensor result = at::zeros({6, 5}, at::TensorOptions(type)).t();
  group.reduce_scatter_async(result, strided, op).wait();
  require(at::equal(result, expected), "reduce_scatter of a transposed " + what);
}

TEST(ProcessGroup, reduce_scatter_gives_each_rank_its_rows) {
  in_every_dtype_and_operation(check_reduce_scatter);
}

TEST(ProcessGroup, reduce_scatter_rounds_once_and_keeps_nan) {
  on_ranks(4, [](ProcessGroup& group) {
    // 256 + 1 is 256 in bfloat16, no matter how often it is added.
    const at::Tensor own = at::full({4, 2}, group.rank() == 2 ? 256 : 1, at::kBFloat16);
    const at::Tensor sum = at::full({1, 2}, 259.0, at::kDouble).to(at::kBFloat16);
    require(at::equal(group.reduce_scatter(own), sum), "the sum");
    for (const dist::ReduceOp op : kReduceOps) {
      const at::Tensor numbers = at::full({4, 2}, 1.0, at::kFloat);
      if (group.rank() == 3) numbers[1][0] = std::numeric_limits<double>::quiet_NaN();
      const at::Tensor row = group.reduce_scatter(numbers, op);
      require(std::isnan(row[0][0].item<float>()) == (group.rank() == 1), "NaN on rank 1 alone");
      require(std::isfinite(row[0][1].item<float>()), "the number beside");
    }
  });
}

TEST(ProcessGroup, all_to_all_sends_parts_of_any_size) {
  for (const std::int64_t size : kWorldSizes) {
    on_ranks(size, [](ProcessGroup& group) {
      // Rank a sends (a + b) % 3 rows of the value 10 a + b to rank b.
      const auto rows = [](std::int64_t from, std::int64_t to) { return (from + to) % 3; };
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kLong, at::kBool}) {
        std::vector<std::int64_t> counts;
        std::vector<at::Tensor> leaving, arriving;
        for (std::int64_t other = 0; other < group.world_size(); ++other) {
          const std::int64_t rank = group.rank();
          counts.push_back(rows(rank, other));
          leaving.push_back(at::full({rows(rank, other), 2}, 10 * rank + other, type));
          arriving.push_back(at::full({rows(other, rank), 2}, 10 * other + rank, type));
        }
        const at::Tensor result = group.all_to_all(at::cat(leaving), counts);
        require(at::equal(result, at::cat(arriving)), "all_to_all");
      }
      const std::vector<std::int64_t> none(static_cast<std::size_t>(group.world_size()), 0);
      require(group.all_to_all(at::empty({0, 2}), none).size(0) == 0, "nothing to send");
    });
  }
}

TEST(ProcessGroup, numbers_and_texts_are_compared_over_the_ranks) {
  on_ranks(4, [](ProcessGroup& group) {
    const auto rank = static_cast<double>(group.rank());
    require(group.all_reduce(rank + 0.1, dist::ReduceOp::kMax) == 3.1, "the largest");
    require(group.all_reduce(rank, dist::ReduceOp::kSum) == 6.0, "the sum");
    require(group.all_reduce(rank, dist::ReduceOp::kMean) == 1.5, "the mean");
    require(group.ranks_that_differ("same").empty(), "equal texts");
    require(group.ranks_that_differ("").empty(), "empty texts");
    const std::string other = group.rank() % 2 == 1 ? "a longer text" : "text";
    require(group.ranks_that_differ(other) == std::vector<std::int64_t>({1, 3}), "1 and 3");
    require(group.local_rank() == group.rank(), "all are on this machine");
    require(group.local_world_size() == group.world_size(), "the processes of this machine");
    group.barrier();
  });
}

TEST(ProcessGroup, a_group_of_one_needs_nobody) {
  const ProcessGroup group;
  EXPECT_EQ(group.world_size(), 1);
  EXPECT_EQ(group.local_world_size(), 1);
  EXPECT_EQ(group.all_reduce(2.5, dist::ReduceOp::kMean), 2.5);
  EXPECT_TRUE(group.ranks_that_differ("text").empty());
  EXPECT_EQ(group.engine(), nullptr);
  group.barrier();
}

TEST(ProcessGroup, bad_arguments_are_refused_before_anything_is_sent) {
  const ProcessGroup group;
  const at::Tensor whole = at::ones({4}, at::kLong);
  EXPECT_THROW(group.all_reduce(whole, dist::ReduceOp::kMean), InvalidArgument);
  EXPECT_THROW(group.all_reduce(at::ones({4}, at::kBool), dist::ReduceOp::kMean), InvalidArgument);
  EXPECT_THROW(group.all_reduce(at::ones({4}, at::kComplexFloat), dist::ReduceOp::kMax),
               InvalidArgument);
  EXPECT_THROW(group.all_reduce(at::Tensor()), InvalidArgument);
  EXPECT_THROW(group.all_reduce(at::ones({1}).expand({4})), InvalidArgument);
  EXPECT_THROW(group.all_reduce(at::ones({2, 2}).to_sparse()), InvalidArgument);
  EXPECT_THROW(group.broadcast(whole, 1), InvalidArgument);
  EXPECT_THROW(group.broadcast(whole, -1), InvalidArgument);
  EXPECT_THROW(group.reduce_scatter(at::ones({}), dist::ReduceOp::kSum), InvalidArgument);
  EXPECT_THROW(group.all_to_all(whole, {3}), InvalidArgument);
  EXPECT_THROW(group.all_to_all(whole, {2, 2}), InvalidArgument);
  EXPECT_THROW(group.all_to_all(at::ones({}), {0}), InvalidArgument);
  EXPECT_THROW(dist::init({.rank = 0, .world_size = 1, .timeout = milliseconds(0)}),
               InvalidArgument);
}

TEST(ProcessGroup, nccl_without_a_gpu_is_refused) {
  // Not hasCUDA(): after that the other tests of this program cannot spawn.
  if (default_device().is_cuda()) GTEST_SKIP() << "there is a GPU";
  try {
    dist::init({.rank = 0, .world_size = 1, .backend = dist::Backend::kNccl});
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_TRUE(has(error.what(), "dist::init: NCCL: needs mezzo's CUDA library")) << error.what();
  }
}

}  // namespace
}  // namespace mezzo::test
