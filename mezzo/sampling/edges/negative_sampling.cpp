#include "mezzo/sampling/edges/negative_sampling.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/core/random.h"
#include "mezzo/graph/selection.h"
#include "mezzo/sampling/edges/edge_lookup.h"

namespace mezzo {
namespace {

constexpr std::uint64_t kNegativeTries = 64;
constexpr std::uint64_t kNegativeDraws = 256;  // numbers set aside for each pair

/// The numbers of one pair of a batch.
class NegativeDraws {
 public:
  NegativeDraws(const BatchKey& key, std::int64_t pair)
      : seed_(key.seed),
        stream_(draw_stream(key, DrawPurpose::kNegatives, 0)),
        next_(static_cast<std::uint64_t>(pair) * kNegativeDraws) {}
  double uniform() { return random_uniform(seed_, stream_, next_++); }
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(
        random_below(static_cast<std::uint64_t>(bound), seed_, stream_, next_++));
  }

 private:
  std::uint64_t seed_, stream_, next_;
};

std::vector<double> summed_degree_weights(const Topology& topology) {
  const at::Tensor degrees = topology.in_degrees();
  const auto* degree = degrees.const_data_ptr<std::int64_t>();
  std::vector<double> sums(static_cast<std::size_t>(topology.num_dst()));
  double sum = 0;
  for (std::size_t node = 0; node < sums.size(); ++node) {
    sums[node] = sum += std::pow(static_cast<double>(degree[node]), 0.75);
  }
  return sums;
}

/// The first of rising `sums` above the share `uniform` of the last one.
std::int64_t place_of(const std::vector<double>& sums, double uniform) {
  const double aim = uniform * sums.back();
  return std::upper_bound(sums.begin(), sums.end(), aim) - sums.begin();
}

}  // namespace

struct NegativeSampler::State {
  NegativeOptions options;
  std::int64_t num_src = 0, num_dst = 0;
  std::shared_ptr<const detail::EdgeLookup> edges;  ///< where they are excluded
  std::vector<double> sums;       ///< running sums of the weights; empty: all are 1
  std::int64_t num_weighted = 0;  ///< destinations of a weight above 0
  mutable std::once_flag sources_are_summed;
  mutable std::vector<double> source_sums;  ///< running sums of allowed_weight, once summed

  double weight(std::int64_t dst) const {
    if (sums.empty()) return 1;
    const auto i = static_cast<std::size_t>(dst);
    return i == 0 ? sums[0] : sums[i] - sums[i - 1];
  }

  double total_weight() const { return sums.empty() ? static_cast<double>(num_dst) : sums.back(); }

  bool is_allowed(std::int64_t src, std::int64_t dst) const {
    if (options.exclude_loops && src == dst) return false;
    return !edges || !edges->contains(src, dst);
  }

  std::int64_t any_destination(NegativeDraws& draws) const {
    return sums.empty() ? draws.below(num_dst) : place_of(sums, draws.uniform());
  }

  /// The destinations that src must not have, ascending and distinct.
  std::vector<std::int64_t> forbidden(std::int64_t src) const {
    std::vector<std::int64_t> found;
    if (edges) {
      const auto row = edges->destinations(src);
      found.assign(row.begin(), row.end());
    }
    if (options.exclude_loops && src < num_dst) {
      found.insert(std::lower_bound(found.begin(), found.end(), src), src);
    }
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }

  /// What the weights of src's allowed destinations sum to; exactly 0 where there is none.
  double allowed_weight(std::int64_t src) const {
    double taken = 0;
    std::int64_t num_taken = 0;
    for (const std::int64_t dst : forbidden(src)) {
      taken += weight(dst);
      num_taken += weight(dst) > 0 ? 1 : 0;
    }
    constexpr double kLeastWeight = 1;  // of a destination that can be drawn at all
    return num_taken == num_weighted ? 0 : std::max(total_weight() - taken, kLeastWeight);
  }

  /// A source in proportion to its allowed pairs. Throws InvalidArgument where no pair is allowed.
  std::int64_t listed_source(double uniform) const {
    std::call_once(sources_are_summed, [this] {
      double sum = 0;
      for (std::int64_t node = 0; node < num_src; ++node) {
        source_sums.push_back(sum += allowed_weight(node));
      }
    });
    MEZZO_CHECK(source_sums.back() > 0,
                "negative sampling: expected a pair of nodes that may be drawn, got none: every "
                "one is excluded");
    return place_of(source_sums, uniform);
  }

  /// An allowed destination of src by a walk over all; -1 where there is none.
  std::int64_t listed_destination(std::int64_t src, double uniform) const {
    double left = uniform * allowed_weight(src);
    const std::vector<std::int64_t> never = forbidden(src);
    auto next_never = never.begin();
    std::int64_t chosen = -1;
    for (std::int64_t dst = 0; dst < num_dst; ++dst) {
      if (next_never != never.end() && *next_never == dst) {
        ++next_never;
        continue;
      }
      if (weight(dst) <= 0) continue;
      chosen = dst;  // the last one where rounding leaves something over
      left -= weight(dst);
      if (left < 0) break;
    }
    return chosen;
  }

  std::int64_t destination(std::int64_t src, const BatchKey& key, std::int64_t number) const {
    NegativeDraws draws(key, number);
    for (std::uint64_t i = 0; i < kNegativeTries; ++i) {
      const std::int64_t dst = any_destination(draws);
      if (is_allowed(src, dst)) return dst;
    }
    return listed_destination(src, draws.uniform());
  }
};

NegativeSampler::NegativeSampler(const Topology& topology, NegativeOptions options)
    : NegativeSampler(topology, options, nullptr) {}

NegativeSampler::NegativeSampler(const Topology& topology, NegativeOptions options,
                                 std::shared_ptr<const detail::EdgeLookup> edges) {
  MEZZO_CHECK(topology.device().is_cpu(), "negative sampling: expected a topology on cpu, got {}",
              topology.device().str());
  auto state = std::make_shared<State>();
  state->options = options;
  state->num_src = topology.num_src();
  state->num_dst = topology.num_dst();
  state->num_weighted = topology.num_dst();
  if (options.exclude_edges) {
    state->edges =
        edges != nullptr ? std::move(edges) : std::make_shared<const detail::EdgeLookup>(topology);
  }
  if (options.distribution == NegativeDistribution::kDegree) {
    MEZZO_CHECK(topology.num_edges() > 0,
                "negative sampling: expected a graph with edges for draws by degree, got none");
    state->sums = summed_degree_weights(topology);
    state->num_weighted = topology.in_degrees().count_nonzero().item<std::int64_t>();
  }
  state_ = std::move(state);
}

at::Tensor NegativeSampler::destinations(const at::Tensor& sources, std::int64_t num_negatives,
                                         const BatchKey& key) const {
  MEZZO_CHECK(num_negatives >= 0 && num_negatives <= kMostNegatives,
              "negative sampling: expected num_negatives in [0, 2^31], got {}", num_negatives);
  const at::Tensor from =
      detail::selected_ids("negative sampling", "sources", sources, state_->num_src, at::kCPU);
  MEZZO_CHECK(
      num_negatives == 0 || from.numel() <= kMostNegatives / num_negatives,
      "negative sampling: expected at most 2^31 pairs in all, got num_negatives {} for each "
      "of {} sources",
      num_negatives, from.numel());
  at::Tensor drawn = at::empty({from.numel(), num_negatives}, at::kLong);
  const auto* src = from.const_data_ptr<std::int64_t>();
  auto* dst = drawn.mutable_data_ptr<std::int64_t>();
  MEZZO_CHECK(drawn.numel() == 0 || state_->num_dst > 0,
              "negative sampling: expected a graph with destinations, got none");
  for (std::int64_t i = 0; i < drawn.numel(); ++i) {
    const std::int64_t node = src[i / num_negatives];
    dst[i] = state_->destination(node, key, i);
    MEZZO_CHECK(dst[i] >= 0,
                "negative sampling: expected a destination that node {} may have, got none: every "
                "one is excluded",
                node);
  }
  return drawn;
}

NodePairs NegativeSampler::pairs(std::int64_t count, const BatchKey& key) const {
  const State& state = *state_;
  MEZZO_CHECK(count >= 0 && count <= kMostNegatives,
              "negative sampling: expected count in [0, 2^31], got {}", count);
  MEZZO_CHECK(count == 0 || (state.num_src > 0 && state.num_dst > 0),
              "negative sampling: expected a graph with nodes, got none");
  NodePairs drawn{.src = at::empty({count}, at::kLong), .dst = at::empty({count}, at::kLong)};
  auto* src = drawn.src.mutable_data_ptr<std::int64_t>();
  auto* dst = drawn.dst.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    NegativeDraws draws(key, i);
    bool is_found = false;
    for (std::uint64_t k = 0; k < kNegativeTries && !is_found; ++k) {
      src[i] = draws.below(state.num_src);
      dst[i] = state.any_destination(draws);
      is_found = state.is_allowed(src[i], dst[i]);
    }
    if (is_found) continue;
    src[i] = state.listed_source(draws.uniform());
    dst[i] = state.listed_destination(src[i], draws.uniform());
  }
  return drawn;
}

NodePairs negative_edges(const Topology& topology, std::int64_t count, NegativeOptions options,
                         std::uint64_t seed) {
  return NegativeSampler(topology, options).pairs(count, {.seed = seed, .epoch = 0, .batch = 0});
}

}  // namespace mezzo
