#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/data/dataset.h"
#include "mezzo/nn/model/head.h"
#include "mezzo/sampling/edges/edge_loader.h"

/// Links between nodes. Internal to train; not exported.
namespace mezzo {

struct Problem;

/// The data with the edges that carry messages: those of message_mask, else all without those for
/// validation and testing and any other edge between the same two nodes. Data without masks: all
/// edges. Copies them.
Dataset with_message_edges(const Dataset& dataset, std::int64_t split_index);

/// Which pairs of nodes are negative: no edge of the graph that is sampled from, no loop. In
/// training that graph has the edges that carry messages.
inline constexpr NegativeOptions kNegativeLinks{.exclude_loops = true};

/// A destination for each of `src` (integers [n]), int64 [n] on the CPU. Takes one number of
/// libtorch's CPU generator.
at::Tensor draw_negatives(const NegativeSampler& sampler, const at::Tensor& src);

/// Pairs of nodes for L links, equally many for each if L divides their number M, in the order of
/// the links: pair j has the type of link j L / M, and its ends unless `src` or `dst` (integers
/// with M elements, one may be undefined) has others. On the device of the links.
nn::HeadTargets pairs_for(const nn::HeadTargets& links, const at::Tensor& src,
                          const at::Tensor& dst);

/// `links`, then a pair for each: its source and the node `dst` (integers [E]).
nn::HeadTargets with_negatives(const nn::HeadTargets& links, const at::Tensor& dst);

/// Whether the data fix any.
inline bool has_any(const NegativePairs& negatives) {
  return negatives.pairs.defined() || negatives.src.defined() || negatives.dst.defined();
}

/// Sets the targets of problem, for which its head_targets, labels and masks are those of the links
/// in `dataset`, to the links and the negative pairs of each mask that has links: those that the
/// data fix, for validation and testing without the nodes for each link; else a pair for each link:
/// no edge of the data, no loop, the same for all runs.
void add_negatives(Problem& problem, const Dataset& dataset);

/// Whether each training step draws a pair for each link; else the pairs of the problem are learnt.
bool draws_negatives(const Problem& problem);

}  // namespace mezzo
