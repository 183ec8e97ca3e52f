#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/core/random.h"
#include "mezzo/graph/selection.h"
#include "mezzo/sampling/draw_stream.h"
#include "mezzo/sampling/edges/edge_loader.h"
#include "mezzo/sampling/edges/edge_lookup.h"

namespace mezzo {
namespace {

constexpr std::uint64_t kNegativeTries = 64;
constexpr std::uint64_t kNegativeDraws = 256;  // random numbers reserved for each pair

/// The random numbers of one pair of a batch.
class NegativeDraws {
 public:
  NegativeDraws(const BatchKey& key, std::int64_t pair)
      : seed_(key.seed),
        stream_(detail::draw_stream(key, detail::DrawPurpose::kNegatives, 0)),
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

/// The first index of the ascending `sums` above `uniform` times the last one.
std::int64_t index_above(const std::vector<double>& sums, double uniform) {
  const double aim = uniform * sums.back();
  return std::upper_bound(sums.begin(), sums.end(), aim) - sums.begin();
}

}  // namespace

struct NegativeSampler::State {
  NegativeOptions options;
  std::int64_t num_src = 0, num_dst = 0;
  std::shared_ptr<const detail::EdgeLookup> edges;  ///< if they are excluded
  std::vector<double> sums;       ///< running sums of the weights; empty: all are 1
  std::int64_t num_weighted = 0;  ///< destinations of positive weight
  mutable std::once_flag sources_are_summed;
  mutable std::vector<double> source_sums;  ///< running sums of allowed_weight

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
    return sums.empty() ? draws.below(num_dst) : index_above(sums, draws.uniform());
  }

  /// The excluded destinations of src, ascending and distinct.
  std::vector<std::int64_t> excluded_destinations(std::int64_t src) const {
    std::vector<std::int64_t> excluded;
    if (edges) {
      const auto row = edges->destinations(src);
      excluded.assign(row.begin(), row.end());
    }
    if (options.exclude_loops && src < num_dst) {
      excluded.insert(std::lower_bound(excluded.begin(), excluded.end(), src), src);
    }
    excluded.erase(std::unique(excluded.begin(), excluded.end()), excluded.end());
    return excluded;
  }

  /// The sum of the weights of src's allowed destinations; exactly 0 without one.
  double allowed_weight(std::int64_t src) const {
    double excluded_weight = 0;
    std::int64_t num_excluded = 0;
    for (const std::int64_t dst : excluded_destinations(src)) {
      excluded_weight += weight(dst);
      num_excluded += weight(dst) > 0 ? 1 : 0;
    }
    constexpr double kLeastWeight = 1;  // the smallest positive weight
    return num_excluded == num_weighted ? 0
                                        : std::max(total_weight() - excluded_weight, kLeastWeight);
  }

  /// A source in proportion to its allowed pairs. Throws InvalidArgument if no pair is allowed.
  std::int64_t listed_source(double uniform) const {
    std::call_once(sources_are_summed, [this] {
      double sum = 0;
      for (std::int64_t node = 0; node < num_src; ++node) {
        source_sums.push_back(sum += allowed_weight(node));
      }
    });
    MEZZO_CHECK(source_sums.back() > 0,
                "negative sampling: expected an allowed pair of nodes, got none: every one is "
                "excluded");
    return index_above(source_sums, uniform);
  }

  /// An allowed destination of src by a scan over all nodes; -1 without one.
  std::int64_t listed_destination(std::int64_t src, double uniform) const {
    double left = uniform * allowed_weight(src);
    const std::vector<std::int64_t> excluded = excluded_destinations(src);
    auto next_excluded = excluded.begin();
    std::int64_t result = -1;
    for (std::int64_t dst = 0; dst < num_dst; ++dst) {
      if (next_excluded != excluded.end() && *next_excluded == dst) {
        ++next_excluded;
        continue;
      }
      if (weight(dst) <= 0) continue;
      result = dst;  // the last one, if rounding leaves a rest
      left -= weight(dst);
      if (left < 0) break;
    }
    return result;
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
    MEZZO_CHECK(
        dst[i] >= 0,
        "negative sampling: expected an allowed destination of node {}, got none: every one is "
        "excluded",
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
    bool is_allowed = false;
    for (std::uint64_t k = 0; k < kNegativeTries && !is_allowed; ++k) {
      src[i] = draws.below(state.num_src);
      dst[i] = state.any_destination(draws);
      is_allowed = state.is_allowed(src[i], dst[i]);
    }
    if (is_allowed) continue;
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
