#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "mezzo/data/dataset.h"
#include "mezzo/nn/model/head.h"
#include "mezzo/sampling/edges/edge_loader.h"
#include "mezzo/train/report/report.h"

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

/// `links`, then a pair for each: its source and the node `dst` (int64 [E], on the CPU), with the
/// type of the link. On the device of the links.
nn::HeadTargets with_negatives(const nn::HeadTargets& links, const at::Tensor& dst);

/// Sets the targets of problem, for which its head_targets, labels and masks are those of the links
/// in `dataset`, to the links and a negative pair for each: no edge of the data, no loop, the same
/// for all runs.
void add_negatives(Problem& problem, const Dataset& dataset);

/// The score of a metric that is_of_ranks(), of the validation and test links: each is ranked
/// among all nodes as its source and as its destination. NaN for training links, which would take
/// too long, and without links. nodes: the rows that the head reads, float32 [N, F], on its device.
/// Computes the scores of all nodes in float32, as products in chunks: O((V + T) N F).
/// Synchronises.
Scores rank_links(nn::Head head, const at::Tensor& nodes, const Problem& problem);

}  // namespace mezzo
