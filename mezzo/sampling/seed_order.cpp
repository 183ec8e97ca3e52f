#include "mezzo/sampling/seed_order.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/core/random.h"
#include "mezzo/core/shuffle.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/selection.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/sampling/draw_stream.h"

namespace mezzo::detail {
namespace {

/// The running sums of `weights` (float64 [n], checked).
at::Tensor running_sums(std::string_view operation, const at::Tensor& weights) {
  const at::Tensor sums = weights.cumsum(0);
  if (sums.numel() == 0) return sums;
  const double total = sums[-1].item<double>();
  MEZZO_CHECK(total > 0 && std::isfinite(total),
              "{}: expected seed_weights with a sum above 0 and finite, got {}", operation, total);
  return sums;
}

at::Tensor sums_of_weights(std::string_view operation, const at::Tensor& weights,
                           std::int64_t num_seeds) {
  MEZZO_CHECK(
      weights.layout() == at::kStrided && weights.is_cpu() && weights.dim() == 1 &&
          weights.size(0) == num_seeds && at::isFloatingType(weights.scalar_type()),
      "{}: expected seed_weights as floating-point [{}] on the CPU, one per seed, got {} on "
      "{}",
      operation, num_seeds, describe(weights), weights.device().str());
  const at::Tensor exact = weights.detach().to(at::kDouble).contiguous();
  const auto* weight = exact.const_data_ptr<double>();
  for (std::int64_t i = 0; i < num_seeds; ++i) {
    MEZZO_CHECK(weight[i] >= 0 && std::isfinite(weight[i]),
                "{}: expected seed_weights of at least 0 and finite, got {} at position {}",
                operation, weight[i], i);
  }
  return running_sums(operation, exact);
}

/// Each class has the weight 1, divided among its seeds.
at::Tensor sums_of_classes(std::string_view operation, const at::Tensor& classes,
                           const at::Tensor& seeds, std::int64_t num_nodes) {
  const at::Tensor labels = check_vector(operation, "the column of classes", classes);
  MEZZO_CHECK(labels.is_cpu() && labels.size(0) == num_nodes,
              "{}: expected the column of classes on the CPU with {} rows, got {} on {}", operation,
              num_nodes, describe(classes), classes.device().str());
  const auto [unique, class_of, counts] =
      at::_unique2(labels.index_select(0, seeds), /*sorted=*/true, /*return_inverse=*/true,
                   /*return_counts=*/true);
  return running_sums(operation, counts.to(at::kDouble).reciprocal().index_select(0, class_of));
}

at::Tensor shuffle_seeds(const at::Tensor& seeds, std::uint64_t seed, std::uint64_t stream) {
  at::Tensor order = seeds.clone();
  const auto size = static_cast<std::size_t>(order.numel());
  shuffle(std::span(order.mutable_data_ptr<std::int64_t>(), size), seed, stream);
  return order;
}

/// seeds.numel() draws with replacement, in proportion to the steps of `cumulative`.
at::Tensor draw_seeds(const at::Tensor& seeds, const at::Tensor& cumulative, std::uint64_t seed,
                      std::uint64_t stream) {
  const std::int64_t num_seeds = seeds.numel();
  at::Tensor order = at::empty_like(seeds);
  if (num_seeds == 0) return order;
  const auto* id = seeds.const_data_ptr<std::int64_t>();
  const auto* sums = cumulative.const_data_ptr<double>();
  auto* out = order.mutable_data_ptr<std::int64_t>();
  const double total = sums[num_seeds - 1], below_total = std::nextafter(total, 0.0);
  for (std::int64_t i = 0; i < num_seeds; ++i) {
    const double u = random_uniform(seed, stream, static_cast<std::uint64_t>(i));
    // the first sum above the number: its weight is not 0
    out[i] = id[std::upper_bound(sums, sums + num_seeds, std::min(u * total, below_total)) - sums];
  }
  return order;
}

/// Whether no seed repeats. O(n) for ascending seeds, as from masks.
bool are_distinct(const at::Tensor& seeds) {
  const auto* id = seeds.const_data_ptr<std::int64_t>();
  const auto* end = id + seeds.numel();
  if (std::adjacent_find(id, end, std::greater_equal<>()) == end) return true;
  std::vector<std::int64_t> sorted(id, end);
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
}

/// A distinct seed of a batch.
struct SeedRepeats {
  std::int64_t first;  ///< its first position
  std::int64_t count;
};

/// The distinct seeds of `seeds` (int64 [n]), by first position.
std::vector<SeedRepeats> distinct_seeds(const at::Tensor& seeds) {
  const auto* id = seeds.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> positions(static_cast<std::size_t>(seeds.numel()));
  std::iota(positions.begin(), positions.end(), 0);
  std::sort(positions.begin(), positions.end(), [id](std::int64_t a, std::int64_t b) {
    return std::pair(id[a], a) < std::pair(id[b], b);
  });
  std::vector<SeedRepeats> distinct;
  for (const std::int64_t position : positions) {
    if (distinct.empty() || id[distinct.back().first] != id[position]) {
      distinct.push_back({position, 0});
    }
    ++distinct.back().count;
  }
  std::sort(distinct.begin(), distinct.end(),
            [](const SeedRepeats& a, const SeedRepeats& b) { return a.first < b.first; });
  return distinct;
}

}  // namespace

EpochSeeds::EpochSeeds(at::Tensor order, std::int64_t batch_size, bool drop_last, bool is_distinct)
    : order_(std::move(order)),
      batch_size_(batch_size),
      drop_last_(drop_last),
      is_distinct_(is_distinct) {}

std::int64_t EpochSeeds::num_batches() const {
  const std::int64_t full = order_.numel() / batch_size_;
  return drop_last_ || order_.numel() % batch_size_ == 0 ? full : full + 1;
}

at::Tensor EpochSeeds::with_repeats(std::int64_t index) const {
  const std::int64_t begin = index * batch_size_;
  return order_.slice(0, begin, std::min(begin + batch_size_, order_.numel()));
}

at::Tensor EpochSeeds::batch(std::int64_t index) const {
  const at::Tensor seeds = with_repeats(index);
  if (is_distinct_) return seeds.clone();
  const auto* id = seeds.const_data_ptr<std::int64_t>();
  const std::vector<SeedRepeats> distinct = distinct_seeds(seeds);
  at::Tensor ids = at::empty({static_cast<std::int64_t>(distinct.size())}, at::kLong);
  std::transform(distinct.begin(), distinct.end(), ids.mutable_data_ptr<std::int64_t>(),
                 [id](const SeedRepeats& seed) { return id[seed.first]; });
  return ids;
}

at::Tensor EpochSeeds::counts(std::int64_t index) const {
  if (is_distinct_) return {};
  const at::Tensor seeds = with_repeats(index);
  const std::vector<SeedRepeats> distinct = distinct_seeds(seeds);
  const auto num_distinct = static_cast<std::int64_t>(distinct.size());
  if (num_distinct == seeds.numel()) return {};
  at::Tensor counts = at::empty({num_distinct}, at::kFloat);
  std::transform(distinct.begin(), distinct.end(), counts.mutable_data_ptr<float>(),
                 [](const SeedRepeats& seed) { return static_cast<float>(seed.count); });
  return counts;
}

SeedOrder::SeedOrder(std::string_view operation, const at::Tensor& seeds, std::int64_t num_nodes,
                     const SeedOptions& options)
    : batch_size_(options.batch_size),
      shuffle_(options.shuffle),
      drop_last_(options.drop_last),
      seed_(options.seed) {
  MEZZO_CHECK(batch_size_ >= 1, "{}: expected batch_size of at least 1, got {}", operation,
              batch_size_);
  MEZZO_CHECK(!options.weights.defined() || !options.classes.defined(),
              "{}: expected seed_weights or balance_by, got both", operation);
  // a copy: the caller may write to its own
  seeds_ = selected_ids(operation, options.name, seeds, num_nodes, at::kCPU).clone();
  if (options.weights.defined()) {
    cumulative_ = sums_of_weights(operation, options.weights, seeds_.numel());
  } else if (options.classes.defined()) {
    cumulative_ = sums_of_classes(operation, options.classes, seeds_, num_nodes);
  } else {
    is_distinct_ = are_distinct(seeds_);
  }
}

std::shared_ptr<const EpochSeeds> SeedOrder::epoch(std::int64_t number) const {
  const std::uint64_t stream = draw_stream({seed_, number, 0}, DrawPurpose::kShuffle, 0);
  at::Tensor order = seeds_;
  if (cumulative_.defined()) {
    order = draw_seeds(seeds_, cumulative_, seed_, stream);
  } else if (shuffle_) {
    order = shuffle_seeds(seeds_, seed_, stream);
  }
  return std::make_shared<const EpochSeeds>(std::move(order), batch_size_, drop_last_,
                                            is_distinct_);
}

}  // namespace mezzo::detail
