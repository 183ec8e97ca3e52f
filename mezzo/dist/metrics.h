#pragma once

#include <cstdint>
#include <limits>

#include "mezzo/dist/group/process_group.h"

namespace mezzo::dist {

/// An accuracy as its two counts, so that those of several ranks add up.
struct Correct {
  std::int64_t correct = 0;
  std::int64_t count = 0;

  /// NaN for no answers.
  double share() const {
    if (count == 0) return std::numeric_limits<double>::quiet_NaN();
    return static_cast<double>(correct) / static_cast<double>(count);
  }
};

/// The counts of all ranks together, the same on each; exact below 2^53. Communicates and blocks.
inline Correct sum_over_ranks(Correct own, const ProcessGroup& group) {
  const double correct = group.all_reduce(static_cast<double>(own.correct), ReduceOp::kSum);
  const double count = group.all_reduce(static_cast<double>(own.count), ReduceOp::kSum);
  return {static_cast<std::int64_t>(correct), static_cast<std::int64_t>(count)};
}

/// The mean over all ranks of values, `count` on this rank with the sum `sum`, as a loss over its
/// nodes; NaN if no rank has any. Communicates and blocks.
inline double mean_over_ranks(double sum, std::int64_t count, const ProcessGroup& group) {
  const double total = group.all_reduce(sum, ReduceOp::kSum);
  return total / group.all_reduce(static_cast<double>(count), ReduceOp::kSum);
}

}  // namespace mezzo::dist
