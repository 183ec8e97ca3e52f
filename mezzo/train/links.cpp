#include "mezzo/train/links.h"

#include <limits>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/graph.h"
#include "mezzo/sampling/edges/edge_lookup.h"
#include "mezzo/train/problem.h"
#include "mezzo/train/report/link_ranks.h"

namespace mezzo {
namespace {

/// A number for each pair of nodes, int64 [E].
at::Tensor pairs_of(const Dataset& dataset) {
  return at::minimum(dataset.src, dataset.dst) * dataset.num_nodes +
         at::maximum(dataset.src, dataset.dst);
}

/// bool [E], the edges that carry messages.
at::Tensor message_edges(const Dataset& dataset, std::int64_t split_index) {
  if (dataset.message_mask.defined()) return dataset.message_mask;
  const SplitMasks masks = dataset.split(split_index);
  const at::Tensor pairs = pairs_of(dataset);
  const at::Tensor held_out = pairs.masked_select(masks.val.logical_or(masks.test));
  return at::isin(pairs, held_out).logical_not();
}

at::Tensor negatives_of(const NegativeSampler& sampler, const at::Tensor& src, std::uint64_t seed) {
  return sampler.destinations(src.to(at::kCPU, at::kLong), 1, {.seed = seed}).flatten();
}

/// The links of the problem, without their negative pairs; on its device.
nn::HeadTargets links_of(const Problem& problem) {
  const std::int64_t count = problem.head_targets.edges.num_edges() / 2;
  return problem.head_targets.edges_at(
      at::arange(count, at::TensorOptions(problem.labels.device()).dtype(at::kLong)));
}

/// Finds the links of a type from or to a node.
class KnownLinks {
 public:
  KnownLinks(const Topology& links, const at::Tensor& types)
      : lookup_(links), types_(types.contiguous()) {}

  /// The nodes that have a link of the type of each link in `ids` from its source, but its own
  /// destination.
  KnownAnswers answers(const at::Tensor& src, const at::Tensor& dst, const at::Tensor& ids) const {
    const auto *from = src.const_data_ptr<std::int64_t>(), *to = dst.const_data_ptr<std::int64_t>();
    const auto *type = types_.const_data_ptr<std::int64_t>(),
               *id = ids.const_data_ptr<std::int64_t>();
    std::vector<std::int64_t> offsets = {0}, nodes;
    for (std::int64_t i = 0; i < ids.numel(); ++i) {
      std::int64_t before = -1;
      for (const std::int64_t node : lookup_.destinations(from[i])) {
        if (node == before || node == to[i]) continue;
        before = node;
        for (const std::int64_t edge : lookup_.edges(from[i], node)) {
          if (type[edge] != type[id[i]]) continue;
          nodes.push_back(node);
          break;
        }
      }
      offsets.push_back(static_cast<std::int64_t>(nodes.size()));
    }
    return {.offsets = at::tensor(offsets, at::kLong), .nodes = at::tensor(nodes, at::kLong)};
  }

 private:
  detail::EdgeLookup lookup_;
  at::Tensor types_;
};

double score_of_ranks(Metric metric, const LinkRanks& ranks) {
  constexpr double kTen = 10;
  const bool raw = metric == Metric::kRawMrr || metric == Metric::kRawHitsAt10;
  const at::Tensor& numbers = raw ? ranks.raw : ranks.filtered;
  const bool is_mrr = metric == Metric::kMrr || metric == Metric::kRawMrr;
  return is_mrr ? mean_reciprocal_rank(numbers) : hits_at(numbers, kTen);
}

}  // namespace

Dataset with_message_edges(const Dataset& dataset, std::int64_t split_index) {
  if (dataset.target != TaskTarget::kLink || split_index >= dataset.num_splits()) return dataset;
  const at::Tensor kept = message_edges(dataset, split_index).nonzero().squeeze(1);
  Dataset result = dataset;
  result.message_mask.reset();
  for (at::Tensor* column :
       {&result.src, &result.dst, &result.edge_weights, &result.edge_features}) {
    if (column->defined()) *column = column->index_select(0, kept);
  }
  return result;
}

nn::HeadTargets with_negatives(const nn::HeadTargets& links, const at::Tensor& dst) {
  const Topology& edges = links.edges;
  const at::Tensor& types = links.edge_types;
  nn::HeadTargets both;
  both.edges = Topology::from_coo(
      at::cat({edges.src(), edges.src()}),
      at::cat({edges.dst(), dst.to(edges.dst().device(), edges.dst().scalar_type())}),
      edges.num_src(), edges.num_dst());
  if (types.defined()) both.edge_types = at::cat({types, types});
  return both;
}

void add_negatives(Problem& problem, const Dataset& dataset) {
  const NegativeSampler sampler(topology_of(dataset), kNegativeLinks);
  problem.head_targets =
      with_negatives(problem.head_targets, negatives_of(sampler, dataset.src, /*seed=*/0));
  problem.labels = at::cat({problem.labels, at::zeros_like(problem.labels)});
  for (at::Tensor* mask : {&problem.masks.train, &problem.masks.val, &problem.masks.test}) {
    *mask = at::cat({*mask, *mask});
  }
}

at::Tensor draw_negatives(const NegativeSampler& sampler, const at::Tensor& src) {
  const at::Tensor seed = at::randint(std::numeric_limits<std::int64_t>::max(), {1}, at::kLong);
  return negatives_of(sampler, src, static_cast<std::uint64_t>(seed.item<std::int64_t>()));
}

Scores rank_links(nn::Head head, const at::Tensor& nodes, const Problem& problem) {
  const at::NoGradGuard no_grad;
  const nn::HeadTargets links = links_of(problem).to(nodes.device());
  const Topology on_host = links.edges.to(at::kCPU);
  const at::Tensor src = on_host.src().to(at::kLong), dst = on_host.dst().to(at::kLong);
  const at::Tensor types =
      links.edge_types.defined() ? links.edge_types.cpu() : at::zeros_like(src);
  const KnownLinks forwards(on_host, types), backwards(on_host.reverse(), types);
  const std::int64_t num_links = src.numel();
  const auto score = [&](const at::Tensor& mask) {
    const at::Tensor ids = mask.narrow(0, 0, num_links).nonzero().squeeze(1);
    if (ids.numel() == 0) return std::numeric_limits<double>::quiet_NaN();
    const at::Tensor on_cpu = ids.cpu();
    const at::Tensor from = src.index_select(0, on_cpu), to = dst.index_select(0, on_cpu);
    const nn::HeadTargets some = links.edges_at(ids.to(nodes.device()));
    const LinkRanks of_dst = link_ranks(head->queries(nodes, some, Target::kDst), nodes, to,
                                        forwards.answers(from, to, on_cpu));
    const LinkRanks of_src = link_ranks(head->queries(nodes, some, Target::kSrc), nodes, from,
                                        backwards.answers(to, from, on_cpu));
    return score_of_ranks(problem.metric,
                          {.raw = at::cat({of_dst.raw, of_src.raw}),
                           .filtered = at::cat({of_dst.filtered, of_src.filtered})});
  };
  return {.train = std::numeric_limits<double>::quiet_NaN(),
          .val = score(problem.masks.val),
          .test = score(problem.masks.test)};
}

}  // namespace mezzo
