#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

/// The order of the seeds. Internal to sampling.
namespace mezzo::detail {

/// How an epoch passes over its seeds.
struct SeedOptions {
  std::int64_t batch_size = 1024;  ///< >= 1
  bool shuffle = false;            ///< a new order each epoch
  bool drop_last = false;          ///< drops a last batch that is not full
  std::uint64_t seed = 0;          ///< of the order, and of the draws with weights or classes
  /// float [number of seeds], >= 0, finite, not all 0: an epoch draws as many seeds with
  /// replacement, in proportion. Undefined: each seed once.
  at::Tensor weights = {};
  /// integers [num_nodes], the class of each node: an epoch draws as many seeds with replacement,
  /// each class that has a seed equally often on average. Not with weights.
  at::Tensor classes = {};
  std::string_view name = "seeds";  ///< in errors
};

/// The seeds of one epoch, cut into batches. Immutable, thread-safe.
class MEZZO_API EpochSeeds {
 public:
  /// order: int64 [n], contiguous, on the CPU. batch_size >= 1. is_distinct: no seed repeats; not
  /// checked, may be false if unknown.
  EpochSeeds(at::Tensor order, std::int64_t batch_size, bool drop_last, bool is_distinct);

  std::int64_t num_batches() const;  ///< of this epoch
  /// int64 on the CPU, distinct: the first of equal seeds stays. index in [0, num_batches()).
  /// Allocates; O(batch_size) if is_distinct, else O(batch_size log batch_size).
  at::Tensor batch(std::int64_t index) const;
  /// How often each seed of batch(index) occurs: float32 [seeds] on the CPU, with the sum
  /// batch_size (or less in the last batch); undefined if each occurs once. Cost as batch().
  at::Tensor counts(std::int64_t index) const;

 private:
  at::Tensor with_repeats(std::int64_t index) const;  ///< int64, the batch before deduplication

  at::Tensor order_;
  std::int64_t batch_size_;
  bool drop_last_, is_distinct_;
};

/// The seeds of every epoch; each depends only on (seed, epoch). Immutable, thread-safe.
class MEZZO_API SeedOrder {
 public:
  /// operation: the prefix of errors. seeds: integers [n] in [0, num_nodes), or bool [num_nodes]
  /// (for edges num_nodes is the number of edges); they may repeat. Throws InvalidArgument.
  SeedOrder(std::string_view operation, const at::Tensor& seeds, std::int64_t num_nodes,
            const SeedOptions& options);

  /// number: of the epoch, from 0. O(seeds) if they are shuffled or drawn, else O(1).
  std::shared_ptr<const EpochSeeds> epoch(std::int64_t number) const;

  std::int64_t num_seeds() const { return seeds_.numel(); }  ///< repeats included

 private:
  at::Tensor seeds_;       ///< int64 [n]
  at::Tensor cumulative_;  ///< float64 [n], running sums of the weights; undefined: each seed once
  std::int64_t batch_size_;
  bool shuffle_, drop_last_;
  bool is_distinct_ = false;  ///< no seed repeats in an epoch
  std::uint64_t seed_;
};

}  // namespace mezzo::detail
