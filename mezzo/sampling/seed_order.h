#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo {

/// How an epoch walks over its seeds.
struct SeedOptions {
  std::int64_t batch_size = 1024;  ///< >= 1
  bool shuffle = false;            ///< a new order each epoch
  bool drop_last = false;          ///< leaves out a last batch that is not full
  std::uint64_t seed = 0;          ///< of the order, and of the draws with weights or classes
  /// float [number of seeds], >= 0, finite, not all 0: as many seeds as there are, drawn with
  /// replacement in proportion. Undefined: each once.
  at::Tensor weights = {};
  /// integers [num_nodes], the class of each node: as many seeds as there are, drawn with
  /// replacement, each class that has a seed equally often on average. Not with weights.
  at::Tensor classes = {};
  std::string_view name = "seeds";  ///< what errors call them
};

/// The seeds of one epoch, cut into batches. Immutable, for several threads at once.
class MEZZO_API EpochSeeds {
 public:
  /// order: int64 [n], contiguous, on the CPU. batch_size >= 1. is_distinct: that no seed is there
  /// twice, trusted; false also where it is not known.
  EpochSeeds(at::Tensor order, std::int64_t batch_size, bool drop_last, bool is_distinct);

  std::int64_t num_batches() const;  ///< of this epoch
  /// int64 on the CPU, distinct: of a seed that is there more than once only the first stays.
  /// index in [0, num_batches()). Allocates; O(batch_size) where is_distinct, else O(batch_size log
  /// batch_size).
  at::Tensor batch(std::int64_t index) const;
  /// How often each seed of batch(index) is there: float32 [seeds] on the CPU, whose sum is
  /// batch_size (or less in the last batch); undefined where each is there once. Cost as batch().
  at::Tensor counts(std::int64_t index) const;

 private:
  at::Tensor with_repeats(std::int64_t index) const;  ///< int64, the batch as it was ordered

  at::Tensor order_;
  std::int64_t batch_size_;
  bool drop_last_, is_distinct_;
};

/// The seeds of every epoch; each depends on (seed, epoch) alone. Immutable, for several threads at
/// once.
class MEZZO_API SeedOrder {
 public:
  /// operation: opens the text of the errors. seeds: integers [n] in [0, num_nodes), or bool
  /// [num_nodes] (of edges: num_nodes is the number of edges); they may repeat. Throws
  /// InvalidArgument that names option, expected and given.
  SeedOrder(std::string_view operation, const at::Tensor& seeds, std::int64_t num_nodes,
            const SeedOptions& options);

  /// number: of the epoch, from 0. O(seeds) where they are shuffled or drawn, else shares them.
  std::shared_ptr<const EpochSeeds> epoch(std::int64_t number) const;

  std::int64_t num_seeds() const { return seeds_.numel(); }  ///< repeats included

 private:
  at::Tensor seeds_;       ///< int64 [n]
  at::Tensor cumulative_;  ///< float64 [n], running sums of the weights; undefined: each seed once
  std::int64_t batch_size_;
  bool shuffle_, drop_last_;
  bool is_distinct_ = false;  ///< that no seed is in an epoch twice
  std::uint64_t seed_;
};

}  // namespace mezzo
