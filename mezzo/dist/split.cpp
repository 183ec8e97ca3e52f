#include <numeric>
#include <span>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/core/shuffle.h"
#include "mezzo/dist/data_parallel.h"
#include "mezzo/graph/argument_checks.h"

namespace mezzo::dist {
namespace {

/// Random stream of the shuffle; mini-batch streams have zeros in these high bits.
constexpr std::uint64_t kSplitStream = 0xF117'0000'0000'0000;

/// Positions of this rank's items, before any shuffle.
std::vector<std::int64_t> positions_of_share(std::int64_t num_ids, std::int64_t ranks,
                                             std::int64_t rank, bool drop_last) {
  const std::int64_t size = drop_last ? num_ids / ranks : (num_ids + ranks - 1) / ranks;
  const std::int64_t begin = rank * size;
  const std::int64_t own = num_ids - begin;
  std::vector<std::int64_t> positions(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) {
    positions[static_cast<std::size_t>(i)] = own > 0 ? begin + i % own : (begin + i) % num_ids;
  }
  return positions;
}

std::vector<std::int64_t> shuffled_order(std::int64_t num_ids, std::uint64_t seed) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(num_ids));
  std::iota(order.begin(), order.end(), 0);
  shuffle(std::span(order), seed, kSplitStream);
  return order;
}

}  // namespace

at::Tensor split(const at::Tensor& ids, const ProcessGroup& group, SplitOptions options) {
  MEZZO_CHECK(ids.defined() && ids.layout() == at::kStrided && ids.dim() == 1,
              "dist::split: expected ids as [n], got {}", mezzo::detail::describe(ids));
  const std::int64_t num_ids = ids.size(0), ranks = group.world_size();
  if (num_ids == 0) return ids.clone();
  MEZZO_CHECK(num_ids >= ranks,
              "dist::split: expected at least one id for each of {} ranks, got {}", ranks, num_ids);
  std::vector<std::int64_t> positions =
      positions_of_share(num_ids, ranks, group.rank(), options.drop_last);
  if (options.shuffle) {
    const std::vector<std::int64_t> order = shuffled_order(num_ids, options.seed);
    for (std::int64_t& position : positions) position = order[static_cast<std::size_t>(position)];
  }
  return ids.index_select(0, at::tensor(positions, at::kLong).to(ids.device()));
}

}  // namespace mezzo::dist
