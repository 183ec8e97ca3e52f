#pragma once

#include <cstdint>
#include <limits>

#include "mezzo/dist/group/process_group.h"

namespace mezzo::dist {

/// An accuracy as two counts, which can be summed over ranks.
struct Correct {
  std::int64_t correct = 0;
  std::int64_t count = 0;

  /// NaN if count is 0.
  double share() const {
    if (count == 0) return std::numeric_limits<double>::quiet_NaN();
    return static_cast<double>(correct) / static_cast<double>(count);
  }
};

/// Sums the counts over all ranks; exact below 2^53. Communicates and blocks.
inline Correct sum_over_ranks(Correct own, const ProcessGroup& group) {
  const double correct = group.all_reduce(static_cast<double>(own.correct), ReduceOp::kSum);
  const double count = group.all_reduce(static_cast<double>(own.count), ReduceOp::kSum);
  return {static_cast<std::int64_t>(correct), static_cast<std::int64_t>(count)};
}

/// Mean over all ranks of `count` values with the sum `sum` on this rank, e.g. a loss over nodes;
/// NaN if all counts are 0. Communicates and blocks.
inline double mean_over_ranks(double sum, std::int64_t count, const ProcessGroup& group) {
  const double total = group.all_reduce(sum, ReduceOp::kSum);
  return total / group.all_reduce(static_cast<double>(count), ReduceOp::kSum);
}

}  // namespace mezzo::dist
