#include "mezzo/sampling/subgraphs/random_walk.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "mezzo/core/error.h"
#include "mezzo/core/random.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/selection.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/sampling/draw_stream.h"
#include "mezzo/sampling/edges/edge_lookup.h"

namespace mezzo {
namespace {

constexpr std::int64_t kWalksPerTask = 256;
constexpr int kWalkTries = 64;  // proposals of node2vec before an exact draw
constexpr double kWalkLeastBias = 1e-9, kWalkMostBias = 1e9;

/// The random numbers of one walk. The walk's number is the batch of the key; the step is 0.
class WalkDraws {
 public:
  WalkDraws(std::uint64_t seed, std::int64_t walk)
      : seed_(seed),
        stream_(detail::draw_stream({.seed = seed, .epoch = 0, .batch = walk},
                                    detail::DrawPurpose::kWalks, 0)) {}
  double uniform() { return random_uniform(seed_, stream_, next_++); }
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(
        random_below(static_cast<std::uint64_t>(bound), seed_, stream_, next_++));
  }

 private:
  std::uint64_t seed_, stream_, next_ = 0;
};

void check_walk(const Topology& topology, std::int64_t length, const RandomWalkOptions& options) {
  MEZZO_CHECK(topology.num_src() == topology.num_dst(),
              "random_walk: expected a topology of one set of nodes, got {} sources and {} "
              "destinations",
              topology.num_src(), topology.num_dst());
  MEZZO_CHECK(topology.device().is_cpu(), "random_walk: expected a topology on cpu, got {}",
              topology.device().str());
  MEZZO_CHECK(length >= 0 && length <= kMostWalkLength,
              "random_walk: expected length in [0, 2^31], got {}", length);
  MEZZO_CHECK(options.restart_probability >= 0 && options.restart_probability < 1,
              "random_walk: expected restart_probability in [0, 1), got {}",
              options.restart_probability);
  for (const auto& [name, value] : {std::pair{"p", options.p}, std::pair{"q", options.q}}) {
    MEZZO_CHECK(value >= kWalkLeastBias && value <= kWalkMostBias,
                "random_walk: expected {} in [{}, {}], got {}", name, kWalkLeastBias, kWalkMostBias,
                value);
  }
}

/// Running sums of the weights within each CSR row; empty without weights.
std::vector<double> summed_weights(const Topology& topology, const at::Tensor& edge_weights) {
  if (!edge_weights.defined()) return {};
  MEZZO_CHECK(edge_weights.layout() == at::kStrided && edge_weights.device().is_cpu() &&
                  edge_weights.dim() == 1 && edge_weights.size(0) == topology.num_edges() &&
                  at::isFloatingType(edge_weights.scalar_type()),
              "random_walk: expected edge_weights as floating point numbers [{}] on cpu, got {}",
              topology.num_edges(), detail::describe(edge_weights));
  const Adjacency& rows = topology.csr();
  at::Tensor weights = edge_weights.to(at::kDouble);
  const at::Tensor invalid = at::isfinite(weights).logical_and_(weights >= 0).eq(0).nonzero();
  MEZZO_CHECK(invalid.numel() == 0,
              "random_walk: expected edge_weights of at least 0 and finite, got {} for edge {}",
              weights[invalid[0].item<std::int64_t>()].item<double>(),
              invalid[0].item<std::int64_t>());
  if (rows.edge_ids.defined()) weights = weights.index_select(0, rows.edge_ids);
  weights = weights.contiguous();
  const auto* weight = weights.const_data_ptr<double>();
  const auto* indptr = rows.indptr.const_data_ptr<std::int64_t>();
  std::vector<double> sums(static_cast<std::size_t>(topology.num_edges()));
  for (std::int64_t row = 0; row < topology.num_src(); ++row) {
    double sum = 0;
    for (std::int64_t i = indptr[row]; i < indptr[row + 1]; ++i) {
      sums[static_cast<std::size_t>(i)] = sum += weight[i];
    }
    MEZZO_CHECK(std::isfinite(sum),
                "random_walk: expected edge_weights with a finite sum, got {} for the edges out "
                "of node {}",
                sum, row);
  }
  return sums;
}

/// The walks over a topology whose ids are `Id`.
template <class Id>
class Walker {
 public:
  Walker(const Topology& topology, const RandomWalkOptions& options)
      : rows_(topology.csr()),
        indptr_(rows_.indptr.const_data_ptr<std::int64_t>()),
        indices_(rows_.indices.const_data_ptr<Id>()),
        edge_ids_(rows_.edge_ids.defined() ? rows_.edge_ids.const_data_ptr<Id>() : nullptr),
        sums_(summed_weights(topology, options.edge_weights)),
        options_(options) {
    if (options.p == 1 && options.q == 1) return;
    lookup_.emplace(topology);
    const double most = std::max({1 / options.p, 1.0, 1 / options.q});
    return_bias_ = 1 / options.p / most;
    near_bias_ = 1 / most;
    far_bias_ = 1 / options.q / most;
  }

  /// Fills a row of each output. nodes[0] is the start.
  void walk(std::int64_t number, std::int64_t length, std::int64_t* nodes,
            std::int64_t* edges) const {
    WalkDraws draws(options_.seed, number);
    std::int64_t before = -1;
    for (std::int64_t step = 0; step < length; ++step) {
      const std::int64_t node = nodes[step];
      nodes[step + 1] = edges[step] = -1;
      if (node < 0) continue;
      const std::int64_t last = last_entry(node);
      if (last < indptr_[node]) continue;
      if (options_.restart_probability > 0 && draws.uniform() < options_.restart_probability) {
        nodes[step + 1] = nodes[0];
        before = -1;
        continue;
      }
      const std::int64_t entry =
          lookup_ && before >= 0 ? next_entry(before, node, draws) : proposal(node, draws);
      nodes[step + 1] = indices_[entry];
      edges[step] = edge_ids_ != nullptr ? static_cast<std::int64_t>(edge_ids_[entry]) : entry;
      before = node;
    }
  }

 private:
  /// The last entry of the row; the entry before its first if no edge has a positive weight.
  std::int64_t last_entry(std::int64_t node) const {
    const std::int64_t last = indptr_[node + 1] - 1;
    const bool is_open = last >= indptr_[node] && (sums_.empty() || sum_at(last) > 0);
    return is_open ? last : indptr_[node] - 1;
  }

  double sum_at(std::int64_t entry) const { return sums_[static_cast<std::size_t>(entry)]; }

  double weight_at(std::int64_t node, std::int64_t entry) const {
    if (sums_.empty()) return 1;
    return entry == indptr_[node] ? sum_at(entry) : sum_at(entry) - sum_at(entry - 1);
  }

  /// An entry of the row in proportion to the weights.
  std::int64_t proposal(std::int64_t node, WalkDraws& draws) const {
    const std::int64_t begin = indptr_[node], end = indptr_[node + 1];
    if (sums_.empty()) return begin + draws.below(end - begin);
    // The product may round up to a subnormal sum.
    const double sum = sum_at(end - 1);
    const double aim = std::min(draws.uniform() * sum, std::nextafter(sum, 0.0));
    return std::upper_bound(sums_.begin() + begin, sums_.begin() + end, aim) - sums_.begin();
  }

  /// node2vec's factor over the largest one.
  double bias(std::int64_t before, std::int64_t next) const {
    if (next == before) return return_bias_;
    return lookup_->contains(before, next) ? near_bias_ : far_bias_;
  }

  /// An entry of node's row for a walk that came from `before`.
  std::int64_t next_entry(std::int64_t before, std::int64_t node, WalkDraws& draws) const {
    for (int i = 0; i < kWalkTries; ++i) {
      const std::int64_t entry = proposal(node, draws);
      if (draws.uniform() < bias(before, indices_[entry])) return entry;
    }
    return exact_entry(before, node, draws.uniform());
  }

  /// Draws by the sum over the whole row, since p and q may make acceptance very rare.
  std::int64_t exact_entry(std::int64_t before, std::int64_t node, double uniform) const {
    double total = 0;
    for (std::int64_t i = indptr_[node]; i < indptr_[node + 1]; ++i) {
      total += weight_at(node, i) * bias(before, indices_[i]);
    }
    double left = uniform * total;
    std::int64_t entry = -1;
    for (std::int64_t i = indptr_[node]; i < indptr_[node + 1]; ++i) {
      const double weight = weight_at(node, i);
      if (weight <= 0) continue;
      entry = i;  // the last one, if rounding leaves a rest
      left -= weight * bias(before, indices_[i]);
      if (left < 0) break;
    }
    return entry;
  }

  Adjacency rows_;
  const std::int64_t* indptr_;
  const Id* indices_;
  const Id* edge_ids_;
  std::vector<double> sums_;
  const RandomWalkOptions& options_;
  std::optional<detail::EdgeLookup> lookup_;  ///< if p or q is not 1
  double return_bias_ = 1, near_bias_ = 1, far_bias_ = 1;
};

}  // namespace

RandomWalks random_walk(const Topology& topology, const at::Tensor& starts, std::int64_t length,
                        const RandomWalkOptions& options) {
  check_walk(topology, length, options);
  const at::Tensor from =
      detail::selected_ids("random_walk", "starts", starts, topology.num_src(), at::kCPU);
  const std::int64_t num_walks = from.numel();
  MEZZO_CHECK(
      num_walks <= kMostWalkSteps / (length + 1),
      "random_walk: expected at most 2^40 steps in all, got length {} for each of {} starts",
      length, num_walks);
  RandomWalks walks{.nodes = at::empty({num_walks, length + 1}, at::kLong),
                    .edges = at::empty({num_walks, length}, at::kLong)};
  walks.nodes.select(1, 0).copy_(from);
  auto* nodes = walks.nodes.mutable_data_ptr<std::int64_t>();
  auto* edges = walks.edges.mutable_data_ptr<std::int64_t>();
  detail::visit(detail::IdTypes{}, topology.id_dtype(), [&]<class Id>() {
    const Walker<typename Id::Type> walker(topology, options);
    at::parallel_for(0, num_walks, kWalksPerTask, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        walker.walk(i, length, nodes + i * (length + 1), edges + i * length);
      }
    });
  });
  return walks;
}

}  // namespace mezzo
