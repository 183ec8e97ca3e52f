#include "mezzo/train/link_scores.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/nn/model/evaluation_mode.h"
#include "mezzo/sampling/edges/edge_lookup.h"
#include "mezzo/train/links.h"
#include "mezzo/train/problem.h"
#include "mezzo/train/report/link_ranks.h"

namespace mezzo {
namespace {

constexpr std::int64_t kPairsPerChunk = 1 << 18;  // mlp has a row for each pair
constexpr std::int64_t kTen = 10;

bool is_raw(Metric metric) {
  return metric == Metric::kRawMrr || metric == Metric::kRawHitsAt10;
}

double score_of_ranks(Metric metric, const at::Tensor& ranks) {
  const bool is_mrr = metric == Metric::kMrr || metric == Metric::kRawMrr;
  return is_mrr ? mean_reciprocal_rank(ranks) : hits_at(ranks, kTen);
}

/// The links of the problem, without its negative pairs; on its device.
nn::HeadTargets links_of(const Problem& problem) {
  return problem.head_targets.edges_at(problem.labels.select(1, 0).nonzero().squeeze(1));
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

/// Ranks links among all nodes.
class AllNodes {
 public:
  /// links: all of them, on the device of the nodes.
  AllNodes(nn::Head head, at::Tensor nodes, const nn::HeadTargets& links)
      : head_(std::move(head)),
        nodes_(std::move(nodes)),
        on_host_(links.edges.to(at::kCPU)),
        src_(on_host_.src().to(at::kLong)),
        dst_(on_host_.dst().to(at::kLong)),
        types_(links.edge_types.defined() ? links.edge_types.cpu() : at::zeros_like(src_)),
        forwards_(on_host_, types_),
        backwards_(on_host_.reverse(), types_) {}

  /// links: those of `ids`, int64 [n].
  double score(Metric metric, const nn::HeadTargets& links, const at::Tensor& ids) {
    const at::Tensor on_cpu = ids.cpu();
    const at::Tensor from = src_.index_select(0, on_cpu), to = dst_.index_select(0, on_cpu);
    const LinkRanks of_dst = link_ranks(head_->queries(nodes_, links, Target::kDst), nodes_, to,
                                        forwards_.answers(from, to, on_cpu));
    const LinkRanks of_src = link_ranks(head_->queries(nodes_, links, Target::kSrc), nodes_, from,
                                        backwards_.answers(to, from, on_cpu));
    return score_of_ranks(metric, is_raw(metric) ? at::cat({of_dst.raw, of_src.raw})
                                                 : at::cat({of_dst.filtered, of_src.filtered}));
  }

 private:
  nn::Head head_;
  at::Tensor nodes_;
  Topology on_host_;
  at::Tensor src_, dst_, types_;
  KnownLinks forwards_, backwards_;
};

/// float32 [E].
at::Tensor scores_of(nn::Head& head, const nn::NodeRows& rows, const nn::HeadTargets& pairs) {
  const at::Tensor ids = at::arange(pairs.edges.num_edges(), rows.src().options().dtype(at::kLong));
  std::vector<at::Tensor> scores;
  for (const at::Tensor& chunk : ids.split(kPairsPerChunk)) {
    scores.push_back(head->forward_edges(rows, pairs.edges_at(chunk)).squeeze(1));
  }
  return at::cat(scores);
}

/// By the negative pairs that the data fix.
double score_of_fixed(Metric metric, nn::Head& head, const nn::NodeRows& rows,
                      const nn::HeadTargets& links, const NegativePairs& negatives) {
  const at::Tensor own = scores_of(head, rows, links);
  std::vector<at::Tensor> ranks;
  const auto rank = [&](const at::Tensor& src, const at::Tensor& dst) {
    const std::int64_t count = (src.defined() ? src : dst).size(1);
    const at::Tensor ids = at::arange(own.numel(), own.options().dtype(at::kLong));
    for (const at::Tensor& chunk : ids.split(std::max<std::int64_t>(1, kPairsPerChunk / count))) {
      const auto in_chunk = [&](const at::Tensor& ends) {
        return ends.defined() ? ends.index_select(0, chunk.cpu()) : ends;
      };
      const nn::HeadTargets pairs = pairs_for(links.edges_at(chunk), in_chunk(src), in_chunk(dst));
      ranks.push_back(ranks_among(own.index_select(0, chunk),
                                  scores_of(head, rows, pairs).view({chunk.numel(), count})));
    }
  };
  if (negatives.src.defined()) rank(negatives.src, {});
  if (negatives.dst.defined()) rank({}, negatives.dst);
  if (!ranks.empty()) return score_of_ranks(metric, at::cat(ranks));
  const nn::HeadTargets pairs = pairs_for(links, negatives.pairs[0], negatives.pairs[1]);
  return hits_above(own, scores_of(head, rows, pairs), kTen);
}

}  // namespace

bool ranks_all_nodes(Metric metric, const NegativePairs& negatives) {
  if (is_raw(metric)) return true;
  const bool has_nodes = negatives.src.defined() || negatives.dst.defined();
  return !has_nodes && !(metric == Metric::kHitsAt10 && negatives.pairs.defined());
}

Scores rank_links(nn::Head head, const at::Tensor& nodes, const Problem& problem) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const at::NoGradGuard no_grad;
  const nn::EvaluationMode evaluation(*head);
  const nn::HeadTargets links = links_of(problem).to(nodes.device());
  std::optional<AllNodes> all;
  std::optional<nn::NodeRows> rows;
  const auto score = [&](const at::Tensor& mask, const NegativePairs& negatives) {
    const at::Tensor ids =
        mask.narrow(0, 0, links.edges.num_edges()).nonzero().squeeze(1).to(nodes.device());
    if (ids.numel() == 0) return kNaN;
    const nn::HeadTargets some = links.edges_at(ids);
    if (!ranks_all_nodes(problem.metric, negatives)) {
      if (!rows) rows = head->rows_for_edges(nodes);
      return score_of_fixed(problem.metric, head, *rows, some, negatives);
    }
    if (!all) all.emplace(head, nodes, links);
    return all->score(problem.metric, some, ids);
  };
  return {.train = kNaN,
          .val = score(problem.masks.val, problem.negatives.val),
          .test = score(problem.masks.test, problem.negatives.test)};
}

}  // namespace mezzo
