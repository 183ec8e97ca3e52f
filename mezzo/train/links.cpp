#include "mezzo/train/links.h"

#include <limits>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/graph/graph.h"
#include "mezzo/train/problem.h"

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

/// The pairs of the first part, then of the next ones.
nn::HeadTargets joined(const std::vector<nn::HeadTargets>& parts) {
  std::vector<at::Tensor> src, dst, types;
  for (const nn::HeadTargets& part : parts) {
    src.push_back(part.edges.src());
    dst.push_back(part.edges.dst());
    if (part.edge_types.defined()) types.push_back(part.edge_types);
  }
  const Topology& first = parts.front().edges;
  nn::HeadTargets all;
  all.edges = Topology::from_coo(at::cat(src), at::cat(dst), first.num_src(), first.num_dst());
  if (!types.empty()) all.edge_types = at::cat(types);
  return all;
}

/// The negative pairs that the data fix for these links.
nn::HeadTargets fixed_pairs(const nn::HeadTargets& links, const NegativePairs& fixed) {
  std::vector<nn::HeadTargets> parts;
  if (fixed.pairs.defined()) parts.push_back(pairs_for(links, fixed.pairs[0], fixed.pairs[1]));
  if (fixed.src.defined()) parts.push_back(pairs_for(links, fixed.src, {}));
  if (fixed.dst.defined()) parts.push_back(pairs_for(links, {}, fixed.dst));
  return joined(parts);
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

nn::HeadTargets pairs_for(const nn::HeadTargets& links, const at::Tensor& src,
                          const at::Tensor& dst) {
  const Topology& edges = links.edges;
  const std::int64_t count = (src.defined() ? src : dst).numel();
  const at::Tensor link = at::arange(count, at::TensorOptions(edges.device()).dtype(at::kLong))
                              .mul_(edges.num_edges())
                              .floor_divide_(count);
  const auto ends = [&link](const at::Tensor& nodes, const at::Tensor& of_links) {
    if (!nodes.defined()) return of_links.index_select(0, link);
    return nodes.flatten().to(of_links.device(), of_links.scalar_type());
  };
  nn::HeadTargets pairs;
  pairs.edges = Topology::from_coo(ends(src, edges.src()), ends(dst, edges.dst()), edges.num_src(),
                                   edges.num_dst());
  if (links.edge_types.defined()) pairs.edge_types = links.edge_types.index_select(0, link);
  return pairs;
}

nn::HeadTargets with_negatives(const nn::HeadTargets& links, const at::Tensor& dst) {
  return joined({links, pairs_for(links, {}, dst)});
}

void add_negatives(Problem& problem, const Dataset& dataset) {
  const nn::HeadTargets links = problem.head_targets;
  at::Tensor drawn;  // for all links: those of a mask do not depend on the other masks
  const auto negatives = [&](const at::Tensor& mask, const NegativePairs& fixed) {
    const at::Tensor ids = mask.nonzero().squeeze(1);
    const nn::HeadTargets of_mask = links.edges_at(ids.to(links.edges.device()));
    if (ids.numel() == 0) return of_mask;
    if (has_any(fixed)) return fixed_pairs(of_mask, fixed);
    if (!drawn.defined()) {
      const NegativeSampler sampler(topology_of(dataset), kNegativeLinks);
      drawn = negatives_of(sampler, dataset.src, /*seed=*/0);
    }
    return pairs_for(of_mask, {}, drawn.index_select(0, ids));
  };
  SplitMasks& masks = problem.masks;
  const LinkNegatives& fixed = dataset.negatives;
  const nn::HeadTargets train = negatives(masks.train, fixed.train),
                        val = negatives(masks.val, {.pairs = fixed.val.pairs}),
                        test = negatives(masks.test, {.pairs = fixed.test.pairs});
  problem.head_targets = joined({links, train, val, test});
  const std::int64_t count = problem.head_targets.edges.num_edges() - links.edges.num_edges();
  problem.labels = at::cat({problem.labels, at::zeros({count, 1}, problem.labels.options())});
  std::int64_t first = 0;
  for (const auto& [mask, pairs] : {std::pair(&masks.train, &train), std::pair(&masks.val, &val),
                                    std::pair(&masks.test, &test)}) {
    const at::Tensor of_pairs = at::zeros({count}, mask->options());
    of_pairs.narrow(0, first, pairs->edges.num_edges()).fill_(true);
    *mask = at::cat({*mask, of_pairs});
    first += pairs->edges.num_edges();
  }
}

bool draws_negatives(const Problem& problem) {
  return problem.task.target == TaskTarget::kLink && !has_any(problem.negatives.train);
}

at::Tensor draw_negatives(const NegativeSampler& sampler, const at::Tensor& src) {
  const at::Tensor seed = at::randint(std::numeric_limits<std::int64_t>::max(), {1}, at::kLong);
  return negatives_of(sampler, src, static_cast<std::uint64_t>(seed.item<std::int64_t>()));
}

}  // namespace mezzo
